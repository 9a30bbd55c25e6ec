"""Plain SVG pictures: scatters about the line y = x, violins, bars. The same data give the same bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

INK, PALE, PAPER = "#1b1f24", "#c9ced4", "#ffffff"
COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#7a5a00",
    "#56b4e9",
    "#555555",
)  # told apart by any eye
MARKS = ("circle", "square", "triangle", "diamond", "plus", "cross", "bar")
PANEL, GAP, LEFT, TOP, BOTTOM = 210.0, 56.0, 52.0, 46.0, 40.0
COLUMNS = 3


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    series: str
    hollow: bool = False


@dataclass(frozen=True)
class Violin:
    """`bins`: [from, to, weight], seconds."""

    label: str
    bins: Sequence[Sequence[float]]
    median_s: float


@dataclass(frozen=True)
class Panel:
    title: str
    points: tuple[Point, ...]


def scatter(panels: Sequence[Panel], x: str, y: str, series: Sequence[str], note: str) -> str:
    """Panels side by side, each to its own highest value, with the line y = x. `note`: what hollow means."""
    rows = -(-len(panels) // COLUMNS)
    width = LEFT + min(COLUMNS, len(panels)) * (PANEL + GAP)
    height = TOP + rows * (PANEL + BOTTOM + 26)
    out = _legend(series, note)
    for number, panel in enumerate(panels):
        left = LEFT + number % COLUMNS * (PANEL + GAP)
        top = TOP + 20 + number // COLUMNS * (PANEL + BOTTOM + 26)
        out += _panel(panel, left, top, x, y, series)
    return _whole(width, height, out)


def _panel(panel: Panel, left: float, top: float, x: str, y: str, series: Sequence[str]) -> list[str]:
    values = [value for point in panel.points for value in (point.x, point.y)]
    ticks = nice_ticks(max(values, default=1.0))
    while len(ticks) > 3 and min(values, default=0.0) >= ticks[1]:
        ticks = ticks[1:]  # what is far from 0 is drawn larger
    low, scale = ticks[0], PANEL / (ticks[-1] - ticks[0])
    out = [_text(left + PANEL / 2, top - 8, panel.title, bold=True)]
    out.append(
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{PANEL}" height="{PANEL}" fill="none" stroke="{PALE}"/>'
    )
    out.append(_line(left, top + PANEL, left + PANEL, top, PALE, dashed=True))
    for tick in ticks:
        at = (tick - low) * scale
        out.append(_text(left + at, top + PANEL + 13, f"{tick:g}", size=9))
        out.append(_text(left - 4, top + PANEL - at + 3, f"{tick:g}", size=9, anchor="end"))
    out.append(_text(left + PANEL / 2, top + PANEL + 27, x, size=10))
    out.append(_text(left - 34, top + PANEL / 2, y, size=10, turned=True))
    for point in panel.points:
        place = series.index(point.series)
        at = left + (point.x - low) * scale, top + PANEL - (point.y - low) * scale
        out.append(_mark(*at, place, point.hollow))
    return out


def violins(groups: Mapping[str, Sequence[Violin]], title: str) -> str:
    """Three groups a row, with one logarithmic axis for all."""
    every = [bin_ for row in groups.values() for one in row for bin_ in one.bins]
    if not every:
        return _whole(300, 40, [_text(150, 24, "nothing was measured")])
    low, high = (
        math.floor(math.log10(min(b[0] for b in every))),
        math.ceil(math.log10(max(b[1] for b in every))),
    )
    each, tall, width = 62.0, 200.0, 0.0
    out, top = [_text(LEFT, 18, title, bold=True, anchor="start")], 40.0
    for names in _rows(groups):

        def place(seconds: float, top: float = top) -> float:
            return top + tall * (high - math.log10(seconds)) / (high - low)

        right = LEFT + sum(len(groups[name]) * each + 24 for name in names)
        for power in range(low, high + 1):
            out.append(_line(LEFT, place(10.0**power), right, place(10.0**power), PALE))
            out.append(_text(LEFT - 6, place(10.0**power) + 3, f"{10.0**power:g} s", size=9, anchor="end"))
        left = LEFT + 12
        for name in names:
            out.append(_text(left + len(groups[name]) * each / 2, top + tall + 44, name, bold=True))
            for one in groups[name]:
                out += _violin(left + each / 2, one, place)
                words = one.label, f"{1000 * one.median_s:.3g} ms"
                out += [
                    _text(left + each / 2, top + tall + 14 + 12 * n, word, size=9)
                    for n, word in enumerate(words)
                ]
                left += each
            left += 24
        width, top = max(width, right + 10), top + tall + 68
    return _whole(width, top, out)


def _rows(groups: Mapping[str, object]) -> list[list[str]]:
    names = list(groups)
    return [names[first : first + COLUMNS] for first in range(0, len(names), COLUMNS)]


def _violin(at: float, one: Violin, place: Callable[[float], float]) -> list[str]:
    widest = max(bin_[2] for bin_ in one.bins)
    half = [(place(b[0]), place(b[1]), 26 * b[2] / widest) for b in one.bins]
    right = [f"{at + w:.1f},{y:.1f}" for y0, y1, w in half for y in (y0, y1)]
    left = [f"{at - w:.1f},{y:.1f}" for y0, y1, w in reversed(half) for y in (y1, y0)]
    colour = f'fill="{COLOURS[0]}" fill-opacity="0.35" stroke="{COLOURS[0]}"'
    shape = f'<polygon points="{" ".join([*right, *left])}" {colour}/>'
    y = place(one.median_s)
    return [shape, _line(at - 14, y, at + 14, y, INK)]


def bars(
    groups: Mapping[str, Sequence[tuple[str, Sequence[float | None]]]], series: Sequence[str], y: str
) -> str:
    """Three groups a row; group → [(label, a value of each series; None: no bar)]."""
    ticks = nice_ticks(max((v for row in groups.values() for _, them in row for v in them if v), default=1.0))
    wide, tall, top, width = 15.0, 150.0, TOP, 0.0
    each = len(series) * wide + 10
    out = _legend(series, "")
    for names in _rows(groups):
        right = LEFT + sum(len(groups[name]) * each + 22 for name in names)
        for tick in ticks:
            at = top + tall * (1 - tick / ticks[-1])
            out += [
                _line(LEFT, at, right, at, PALE),
                _text(LEFT - 6, at + 3, f"{tick:g}", size=9, anchor="end"),
            ]
        out.append(_text(16, top + tall / 2, y, size=10, turned=True))
        left = LEFT + 10
        for name in names:
            out.append(_text(left + len(groups[name]) * each / 2, top + tall + 32, name, bold=True))
            for label, them in groups[name]:
                out.append(_text(left + each / 2 - 5, top + tall + 14, label, size=9))
                for place, value in enumerate(them):
                    out += _bar(
                        left + place * wide, top + tall, wide, value, tall / ticks[-1], COLOURS[place]
                    )
                left += each
            left += 22
        width, top = max(width, right), top + tall + 56
    return _whole(width, top, out)


def _bar(
    left: float, bottom: float, wide: float, value: float | None, scale: float, colour: str
) -> list[str]:
    if value is None:
        return []
    high = scale * value
    box = f'x="{left:.1f}" y="{bottom - high:.1f}" width="{wide - 2}" height="{high:.1f}"'
    return [
        f'<rect {box} fill="{colour}"/>',
        _text(left + wide / 2 - 1, bottom - high - 3, f"{value:g}", size=9),
    ]


def nice_ticks(highest: float) -> list[float]:
    """0 and up to the first round number that is not below it."""
    about = max(highest, 1e-9) / 4
    power = 10.0 ** math.floor(math.log10(about))
    step = next(digit * power for digit in (1, 2, 2.5, 5, 10) if digit * power >= about * (1 - 1e-9))
    return [round(n * step, 10) for n in range(math.ceil(highest / step - 1e-9) + 1)] or [0.0, 1.0]


def _legend(series: Sequence[str], note: str) -> list[str]:
    out, left = [], LEFT
    for place, name in enumerate(series):
        out += [_mark(left, 14, place, False), _text(left + 9, 18, name, anchor="start")]
        left += 22 + 6.6 * len(name)
    return [*out, _text(left + 6, 18, note, anchor="start", size=10)] if note else out


def _mark(x: float, y: float, place: int, hollow: bool) -> str:
    colour = COLOURS[place % len(COLOURS)]
    style = f'fill="{PAPER if hollow else colour}" stroke="{colour}" stroke-width="1.4"'
    r = 4.0
    match MARKS[place % len(MARKS)]:
        case "circle":
            return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r}" {style}/>'
        case "square":
            return f'<rect x="{x - r:.1f}" y="{y - r:.1f}" width="{2 * r}" height="{2 * r}" {style}/>'
        case "triangle":
            return _polygon([(x, y - r), (x + r, y + r), (x - r, y + r)], style)
        case "diamond":
            return _polygon([(x, y - 1.3 * r), (x + 1.3 * r, y), (x, y + 1.3 * r), (x - 1.3 * r, y)], style)
        case "plus":
            s, t = 1.4 * r, 0.5 * r
            shape = [
                (-t, -s),
                (t, -s),
                (t, -t),
                (s, -t),
                (s, t),
                (t, t),
                (t, s),
                (-t, s),
                (-t, t),
                (-s, t),
                (-s, -t),
                (-t, -t),
            ]
            return _polygon([(x + a, y + b) for a, b in shape], style)
        case "cross":
            return _polygon([(x - r, y - r), (x, y - r / 2), (x + r, y - r), (x, y + r)], style)
        case _:
            return f'<rect x="{x - r:.1f}" y="{y - r / 2:.1f}" width="{2 * r}" height="{r}" {style}/>'


def _polygon(corners: Iterable[tuple[float, float]], style: str) -> str:
    return f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in corners)}" {style}/>'


def _line(x: float, y: float, to_x: float, to_y: float, colour: str, dashed: bool = False) -> str:
    dash = ' stroke-dasharray="4 3"' if dashed else ""
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{colour}"{dash}/>'


def _text(
    x: float,
    y: float,
    words: str,
    size: int = 11,
    anchor: str = "middle",
    bold: bool = False,
    turned: bool = False,
) -> str:
    more = ' font-weight="600"' if bold else ""
    more += f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"{more}>{escape(words)}</text>'


def _whole(width: float, height: float, parts: Iterable[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" font-family="sans-serif" fill="{INK}">'
    )
    paper = f'<rect width="100%" height="100%" fill="{PAPER}"/>'
    return "\n".join([head, paper, *parts, "</svg>"]) + "\n"
