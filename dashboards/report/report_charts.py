"""What a report draws, as plain data: charts with their words, and tables. A figure is what plotly.js draws.

Colours are roles ("@blue"), which the page turns into those of its light or dark theme. Names in figures
are escaped, because plotly reads a little HTML in them.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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


def label(text: object) -> str:
    """A name as plotly shows it, whatever is in it."""
    return html.escape(str(text))


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


def points(x: Sequence[Any], y: Sequence[Any], name: str, colour: str, symbol: str, **marker: Any) -> Figure:
    look = {"color": colour, "symbol": symbol, **marker}
    return {"type": "scatter", "mode": "markers", "x": x, "y": y, "name": label(name), "marker": look}


def bars(x: Sequence[Any], y: Sequence[Any], text: Sequence[str], **more: Any) -> Figure:
    return {
        "type": "bar",
        "x": x,
        "y": y,
        "text": text,
        "marker": {"color": "@blue"},
        "showlegend": False,
    } | more


def rule(axis: str, at: float, colour: str, dash: str = "solid", **more: Any) -> Figure:
    """A line across the whole figure, where `axis` ("x" or "y") is `at`."""
    other = "y" if axis == "x" else "x"
    ends = {f"{axis}0": at, f"{axis}1": at, f"{other}0": 0, f"{other}1": 1, f"{other}ref": "paper"}
    return {"type": "line", **ends, "line": {"color": colour, "width": 1.5, "dash": dash}, **more}


def heatmap(
    columns: Sequence[str],
    rows: Sequence[str],
    value: Callable[[str, str], float | None],
    unit: str,
    form: str,
    **more: Any,
) -> Figure:
    """value: of (row, column). The numbers are in the cells unless there are many columns."""
    return {
        "type": "heatmap", "x": [label(c) for c in columns], "y": [label(r) for r in rows], "xgap": 2, "ygap": 2,
        "z": [[None if (z := value(row, column)) is None else round(z, 3) for column in columns] for row in rows],
        "textfont": {"size": 13}, "texttemplate": form if len(columns) <= 16 else "", "hoverongaps": False,
        "colorbar": {"title": {"text": unit}}, **more,
    }  # fmt: skip


def drawn_map(name: str, title: str, x: str, heat: Figure, alt: str, rows: Sequence[Row]) -> Chart:
    axes: dict[str, Any] = {"yaxis": {"autorange": "reversed"}, "xaxis": {"type": "category"}}
    return Chart(name, title, alt, figure([heat], x, "", height=170 + 34 * len(heat["y"]), **axes), rows)


def style(index: int) -> tuple[str, str]:
    """(colour, symbol) of the n-th series: different in both as long as possible."""
    return SERIES[index % len(SERIES)], SYMBOLS[index % len(SYMBOLS)]


def nothing(name: str, title: str, why: str) -> Chart:
    """In place of a chart that has no data."""
    return Chart(name, title, f"N/A: {why}", None)


def thinned(rows: Sequence[Row]) -> list[Row]:
    """At most TABLE_ROWS, evenly chosen."""
    if len(rows) <= TABLE_ROWS:
        return list(rows)
    return [rows[at * len(rows) // TABLE_ROWS] for at in range(TABLE_ROWS)]


UNITS = {"_tps": " rows/s", "_per_s": "/s", "_s": ", s", "_ms": ", ms", "_usd": " USD"}
WORDS = {"text": "in the controller's words", "reason": "why", "dip": "fewer rows in the 5 s after"}


def heading(name: str) -> str:
    """`rate_tps` is `rate rows/s`."""
    ending = next((ending for ending in UNITS if name.endswith(ending)), "")
    words = WORDS.get(name, name.removesuffix(ending) + UNITS.get(ending, ""))
    return words.replace("_", " ").replace("tuple", "row")


def spelled(row: msgspec.Struct) -> dict[str, Any]:
    """A result's row with words for names; a slot, and a path, in one column."""
    its = msgspec.structs.asdict(row)
    if its.get("vm") is not None and its.get("slot") is not None:
        its["slot"] = f"{its.pop('vm')}/{its['slot']}"
    if "source" in its:
        ends = its.pop("source"), its.pop("sink")
        its = {"run": its.pop("run"), "path": None if None in ends else " → ".join(ends)} | its
    if "figure" in its:
        its["figure"] = heading(its["figure"])
    return {heading(name): value for name, value in its.items() if name != "histogram"}
