"""What a report shows, as plain data: sections of charts and tables. A figure is what plotly.js draws.

Colours are roles ("@blue"), which the page turns into those of its light or dark theme. Names in figures
are escaped, because plotly reads a little HTML in them.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headgate.dashboards.report.report_wording import NOTHING

Figure = dict[str, Any]
Row = Mapping[str, Any]

SERIES = ("@blue", "@orange", "@purple", "@teal", "@red", "@sky", "@grey")
SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up", "star", "x", "pentagon", "hourglass")
TABLE_ROWS = 200
RUNS_DRAWN = 6  # of an analysis of many runs: the others are in the tables


@dataclass(frozen=True)
class Chart:
    """A figure, what it shows in words, and its numbers. figure None: there is nothing to draw, `alt` says why.
    Two that are not wide stand side by side."""

    name: str
    title: str
    alt: str
    figure: Figure | None
    rows: Sequence[Row] = ()
    wide: bool = True


@dataclass(frozen=True)
class Table:
    """`empty`: what is said when it has no rows."""

    title: str
    rows: Sequence[Row]
    empty: str = NOTHING


@dataclass(frozen=True)
class Section:
    """`words`: paragraphs before its charts and tables."""

    name: str
    title: str
    words: Sequence[str] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = field(default=())


def label(text: object) -> str:
    """A name as plotly shows it, whatever is in it."""
    return html.escape(str(text))


def style(index: int) -> tuple[str, str]:
    """(colour, symbol) of the n-th series: different in both as long as possible."""
    return SERIES[index % len(SERIES)], SYMBOLS[index % len(SYMBOLS)]


def figure(traces: Iterable[Figure], x: str, y: str, **layout: Any) -> Figure:
    """A figure with titled axes; `layout` is merged into its own, axis by axis."""
    whole: Figure = {"xaxis": {"title": {"text": x}}, "yaxis": {"title": {"text": y}}}
    for key, value in layout.items():
        whole[key] = whole[key] | value if isinstance(value, dict) and key in whole else value
    return {"data": list(traces), "layout": whole}


def line(x: Sequence[Any], y: Sequence[Any], name: str, colour: str, **more: Any) -> Figure:
    """A line; `dash` and `width` are its style."""
    look = {"color": colour, "dash": more.pop("dash", "solid"), "width": more.pop("width", 2)}
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "name": label(name), "line": look, **more}


def points(x: Sequence[Any], y: Sequence[Any], name: str, index: int, **more: Any) -> Figure:
    """Points in the n-th colour and shape."""
    colour, symbol = style(index)
    look = {"color": colour, "symbol": symbol, "size": 7, "opacity": 0.75}
    return {"type": "scatter", "mode": "markers", "x": x, "y": y, "name": label(name), "marker": look, **more}


def nothing(name: str, title: str, why: str) -> Chart:
    """In place of a chart that has no data."""
    return Chart(name, title, f"N/A: {why}", None)


def thinned(rows: Sequence[Row], most: int = TABLE_ROWS) -> list[Row]:
    """At most so many, evenly chosen."""
    if len(rows) <= most:
        return list(rows)
    return [rows[at * len(rows) // most] for at in range(most)]


def name_in(run: str, runs: Sequence[str]) -> str:
    """` of topology/run` when there are several."""
    return f" of {run}" if len(runs) > 1 else ""


UNITS = {"_tps": " rows/s", "_per_s": "/s", "_s": " s", "_usd": " USD"}


def spelled(row: msgspec.Struct, skip: Sequence[str] = ()) -> dict[str, Any]:
    """A result's row with words for names: `rate_tps` is `rate rows/s`."""
    shown = {}
    for key, value in msgspec.structs.asdict(row).items():
        ending = next((ending for ending in UNITS if key.endswith(ending)), "")
        if key not in skip:
            shown[(key.removesuffix(ending) + UNITS.get(ending, "")).replace("_", " ")] = value
    return shown
