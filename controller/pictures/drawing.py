"""What all pictures share: size, fonts, colours, and how a picture becomes a file.

Nothing here or in the pictures uses pyplot, so there is no figure that outlives its drawing, no window
and no display. The same data gives the same SVG, byte for byte: fixed salt, no date, and no setting of
the user's own matplotlibrc.
"""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.topology_runtime.errors import InvalidInput, UsageError
from headgate.topology_runtime.wording import significant

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("svg", "png", "pdf")
WIDTH_IN = 8.0  # read at 800 pixels across, where one inch is 100 pixels and 7 points are 10
MAX_HEIGHT_IN = 80.0
TITLE_PT, TEXT_PT, SMALL_PT = 10.5, 8.0, 7.0
TITLE_LETTERS = 88  # letters of a title that fit into one line

INK, GREY, PALE, LINE = "#222222", "#767676", "#f3f4f6", "#c9ccd1"
BLUE, AMBER, DARK_RED, GREEN, VIOLET, SKY = "#0b5cad", "#e08e0b", "#9c1c1c", "#1b7f5c", "#8a4f9e", "#5ab0e6"
# Told apart with every common colour blindness (after Okabe and Ito); dark red is kept for what limits.
COLOURS = (BLUE, AMBER, GREEN, VIOLET, SKY, "#a8842c", "#5b6673")
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "----", "++")

_STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": TEXT_PT,
    "text.color": INK,
    "text.parse_math": False,  # names and prices may hold any sign
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.labelsize": TEXT_PT,
    "axes.titlesize": TEXT_PT,
    "axes.titleweight": "bold",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e3e5e8",
    "grid.linewidth": 0.6,
    "xtick.labelsize": SMALL_PT,
    "ytick.labelsize": SMALL_PT,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.fontsize": SMALL_PT,
    "legend.frameon": False,
    "hatch.linewidth": 0.5,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "svg.hashsalt": "headgate",
    "svg.fonttype": "path",
}
_NO_DATE: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}


def format_of(path: str | os.PathLike[str]) -> str:
    """svg, png or pdf. Raises UsageError for any other suffix and where matplotlib is missing."""
    suffix = Path(path).suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise UsageError(
            f"no picture can be written as {Path(path).name!r}",
            cause=f"the suffix says the format; there are {', '.join(FORMATS)}",
            hint=f"name it {Path(path).stem or 'picture'}.svg",
        )
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise UsageError(
            "pictures need matplotlib, which is not installed",
            cause=str(error),
            hint="pip install 'headgate[plot]'",
        ) from error
    return suffix


@contextmanager
def drawn(path: str | os.PathLike[str], height_in: float) -> Iterator[Figure]:
    """An empty figure `WIDTH_IN` wide in headgate's style; at the end it is written to `path`, whole or
    not at all. Raises UsageError as `format_of` does, InvalidInput when the file cannot be written."""
    suffix = format_of(path)
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        settings: Any = matplotlib.rcParams  # its stub knows the names of settings as literals only
        settings.update(_STYLE)
        figure = Figure(figsize=(WIDTH_IN, min(height_in, MAX_HEIGHT_IN)), facecolor="white")
        yield figure
        _write(figure, Path(path), suffix)


def _write(figure: Figure, path: Path, suffix: str) -> None:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        figure.savefig(unfinished, format=suffix, metadata=_NO_DATE[suffix])
        os.replace(unfinished, path)
    except OSError as error:
        raise InvalidInput(f"picture {str(path)!r} cannot be written", cause=error.strerror) from error
    finally:
        unfinished.unlink(missing_ok=True)


# ── parts of pictures ───────────────────────────────────────────────────────────────────────────


def headline(figure: Figure, sentence: str, beneath: str = "") -> float:
    """The picture's message in bold at the top, `beneath` smaller under it; returns the inches they take."""
    height_in = float(figure.get_figheight())
    lines = textwrap.wrap(sentence, TITLE_LETTERS) or [""]
    small = textwrap.wrap(beneath, 118)
    y_in = 0.12
    for text, points, colour, weight in (
        *((line, TITLE_PT, INK, "bold") for line in lines),
        *((line, TEXT_PT, GREY, "normal") for line in small),
    ):
        at = (0.15 / WIDTH_IN, 1 - y_in / height_in)
        figure.text(*at, text, fontsize=points, color=colour, fontweight=weight, ha="left", va="top")
        y_in += points * 1.45 / 72
    return y_in + 0.06


def headline_in(sentence: str, beneath: str = "") -> float:
    lines, small = len(textwrap.wrap(sentence, TITLE_LETTERS)) or 1, len(textwrap.wrap(beneath, 118))
    return 0.18 + (lines * TITLE_PT + small * TEXT_PT) * 1.45 / 72


def axes_at(figure: Figure, left_in: float, top_in: float, width_in: float, height_in: float) -> Axes:
    """Axes whose frame stands `left_in` and `top_in` inches from the figure's upper left corner."""
    total_in = float(figure.get_figheight())
    bottom = 1 - (top_in + height_in) / total_in
    return figure.add_axes((left_in / WIDTH_IN, bottom, width_in / WIDTH_IN, height_in / total_in))


def paper(figure: Figure) -> Axes:
    """Axes over the whole figure in inches, x to the right and y downwards from the upper left corner."""
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH_IN), ylim=(float(figure.get_figheight()), 0))
    axes.set_axis_off()
    return axes


def tint(colour: str, strength: float = 0.38) -> str:
    """The colour paled so much that dark text on it stays legible."""
    channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 - (255 - channel) * strength):02x}" for channel in channels)


@cache
def text_in(text: str, points: float) -> float:
    """The inches that the text takes in a line."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    font = FontProperties(family="DejaVu Sans", size=points)
    width_pt, _, _ = TextToPath().get_text_width_height_descent(text, font, ismath=False)
    return float(width_pt) / 72


def shortened(name: str, letters: int) -> str:
    """Cut in the middle: names of one kind often differ at the end."""
    if len(name) <= letters:
        return name
    return f"{name[: letters // 2]}…{name[letters // 2 + 1 - letters :]}"


def number(value: float) -> str:
    """Four digits, thousands apart: 103.2, 12,400."""
    if not math.isfinite(value):
        return "any"
    return significant(value)


def percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %"
