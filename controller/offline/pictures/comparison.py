"""Pairs of allocator and mapper side by side: slots they take, and what they carry of the rate asked."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headgate.controller.offline.pictures import drawing
from headgate.controller.offline.pictures.drawing import (
    COLOURS,
    DARK_RED,
    HATCHES,
    INK,
    SMALL_PT,
    number,
    tint,
)
from headgate.topology_runtime.faults.words import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = Mapping[str, Any]
MOST_NUMBERED = 30  # bars that have room for a number
SLOTS_IN, RATES_IN, LEFT_IN, RIGHT_IN = 2.2, 2.2, 0.7, 0.15
GROUP = 0.84  # of the room of a rate that its bars take


def comparison_picture(rows: Sequence[Row], path: str | os.PathLike[str]) -> None:
    """Write the picture of the rows of `headgate compare`, of which it reads {"pair", "rate_tps",
    "slots": {"total"}, "weighted_tps", "shuffle_tps"}; None where no plan fits. Raises as `plan_picture`
    does."""
    rows = [row for row in rows if row["rate_tps"] is not None]
    pairs = list(dict.fromkeys(str(row["pair"]) for row in rows))
    rates = sorted({float(row["rate_tps"]) for row in rows})
    found = {(str(row["pair"]), float(row["rate_tps"])): row for row in rows}
    beneath = "Bars below: predicted rate under weighted routing; diamonds: under shuffle routing."
    legend_in = 0.24 * -(-len(pairs) // _legend_columns(pairs)) + 0.1
    sentence = headline(rows)
    head_in = drawing.headline_in(sentence, beneath)
    with drawing.drawn(path, head_in + legend_in + SLOTS_IN + RATES_IN + 1.1) as figure:
        top_in = drawing.headline(figure, sentence, beneath) + legend_in
        width_in = drawing.WIDTH_IN - LEFT_IN - RIGHT_IN
        slots = drawing.axes_at(figure, LEFT_IN, top_in, width_in, SLOTS_IN)
        carried = drawing.axes_at(figure, LEFT_IN, top_in + SLOTS_IN + 0.35, width_in, RATES_IN)
        for turn, pair in enumerate(pairs):
            at = [found.get((pair, rate)) for rate in rates]
            _bars(slots, at, (turn, len(pairs)), [_slots(row) for row in at], pair)
            _bars(carried, at, (turn, len(pairs)), [_part(row, "weighted_tps") for row in at], pair)
            _diamonds(carried, (turn, len(pairs)), [_part(row, "shuffle_tps") for row in at])
        _finish(slots, carried, rates)
        slots.legend(
            loc="lower left", bbox_to_anchor=(-0.01, 1.02), ncols=_legend_columns(pairs), borderaxespad=0.0,
            handlelength=2.2,
        )  # fmt: skip


def headline(rows: Sequence[Row]) -> str:
    """At the highest rate with a plan: the pair with the fewest slots among those that carry most of it,
    against the one with the most slots."""
    planned = [row for row in rows if _slots(row) is not None]
    if not planned:
        return "No pair has a plan that fits"
    rate_tps = max(float(row["rate_tps"]) for row in planned)
    at_rate = [row for row in planned if float(row["rate_tps"]) == rate_tps]
    first = min(at_rate, key=lambda row: (-_carried(row), _slots(row)))
    last = max(at_rate, key=lambda row: (_slots(row), -_carried(row)))
    words = f"At {number(rate_tps)} tuples/s {_taken(first)}"
    return words if first is last else f"{words}, {_taken(last)}"


def _taken(row: Row) -> str:
    return f"{row['pair']} takes {counted(row['slots']['total'], 'slot')} and carries {_carried(row):.0f} %"


def _carried(row: Row) -> int:
    """Of the rate asked for, in whole percents, at most all of it."""
    return min(100, round(_part(row, "weighted_tps") or 0.0))


def _slots(row: Row | None) -> float | None:
    return float(row["slots"]["total"]) if row is not None and row["slots"] is not None else None


def _value(row: Row | None, key: str) -> float | None:
    value = row.get(key) if row is not None else None
    return None if value is None else float(value)


def _part(row: Row | None, key: str) -> float | None:
    """The predicted rate in % of the rate asked for."""
    value = _value(row, key)
    asked = float(row["rate_tps"]) if row is not None else 0.0
    return None if value is None or asked <= 0 else 100 * value / asked


def _bars(
    axes: Axes, at: Sequence[Row | None], turn: tuple[int, int], values: Sequence[float | None], pair: str
) -> None:
    """One pair's bars; `turn`: its place among how many."""
    place, of = turn
    width = GROUP / of
    colour = COLOURS[place % len(COLOURS)]
    left = [number_ - GROUP / 2 + width * (place + 0.5) for number_ in range(len(values))]
    known = [(x, value) for x, value in zip(left, values, strict=True) if value is not None]
    axes.bar(
        [x for x, _ in known], [value for _, value in known], width * 0.92, color=tint(colour, 0.5),
        edgecolor=colour, linewidth=0.7, hatch=HATCHES[place % len(HATCHES)], label=pair,
    )  # fmt: skip
    for x, row, value in zip(left, at, values, strict=True):
        if row is None:  # this pair was not asked about at that rate
            continue
        if value is None:
            axes.text(x, 0, " no plan", rotation=90, ha="center", va="bottom", fontsize=SMALL_PT)
        elif len(values) * of <= MOST_NUMBERED:
            axes.text(
                x, 0, number(round(value)), ha="center", va="bottom", fontsize=SMALL_PT, zorder=5,
                bbox={"boxstyle": "square,pad=0.15", "facecolor": "white", "edgecolor": "none"},
            )  # fmt: skip


def _diamonds(axes: Axes, turn: tuple[int, int], values: Sequence[float | None]) -> None:
    place, of = turn
    width = GROUP / of
    known = [
        (n - GROUP / 2 + width * (place + 0.5), value) for n, value in enumerate(values) if value is not None
    ]
    axes.plot(
        [x for x, _ in known], [value for _, value in known], linestyle="", marker="D", markersize=4.5,
        color="white", mec=INK, mew=1.0, zorder=4,
    )  # fmt: skip


def _finish(slots: Axes, carried: Axes, rates: Sequence[float]) -> None:
    for axes in (slots, carried):
        axes.set_xlim(-0.5, len(rates) - 0.5)
        axes.grid(axis="x", visible=False)
        axes.margins(y=0.12)
        axes.set_ylim(bottom=0)
    slots.set_ylabel("slots")
    slots.set_xticks([])
    slots.locator_params(axis="y", integer=True)
    every = -(-len(rates) // 14)
    shown = range(0, len(rates), every)
    carried.set_xticks(list(shown), [number(rates[place]) for place in shown])
    carried.set_xlabel("rate asked for, tuples/s")
    carried.set_ylabel("predicted, % of asked")
    carried.axhline(100, color=DARK_RED, linewidth=1.1, linestyle="--")


def _legend_columns(pairs: Sequence[str]) -> int:
    return max(1, min(6, int(7.2 / (0.55 + max((len(pair) for pair in pairs), default=1) * 0.068))))
