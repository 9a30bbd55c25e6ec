"""Pairs of allocator and mapper side by side: slots they take, and what they carry of the rate asked."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headgate.controller.pictures import drawing
from headgate.controller.pictures.drawing import (
    AMBER,
    BLUE,
    COLOURS,
    DARK_RED,
    GREY,
    HATCHES,
    INK,
    SMALL_PT,
    number,
    tint,
)
from headgate.topology_runtime.wording import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = Mapping[str, Any]
MOST_NUMBERED = 30  # bars that have room for a number
SLOTS_IN, RATES_IN, PAIRS_LEFT_IN, PAIRS_RIGHT_IN = 2.2, 2.2, 0.7, 0.15
GROUP = 0.84  # of the room of a rate that its bars take


def comparison_picture(rows: Sequence[Row], path: str | os.PathLike[str]) -> None:
    """Write the picture of the rows of `headgate plan --compare`, of which it reads {"pair", "rate_tps",
    "slots": {"total"}, "weighted_tps", "shuffle_tps"}; None where no plan fits. Raises as `plan_picture`
    does."""
    rows = [row for row in rows if row["rate_tps"] is not None]
    pairs = list(dict.fromkeys(str(row["pair"]) for row in rows))
    rates = sorted({float(row["rate_tps"]) for row in rows})
    found = {(str(row["pair"]), float(row["rate_tps"])): row for row in rows}
    beneath = "Bars below: predicted rate under weighted routing; diamonds: under shuffle routing."
    legend_in = 0.24 * -(-len(pairs) // _legend_columns(pairs)) + 0.1
    sentence = pairs_headline(rows)
    head_in = drawing.headline_in(sentence, beneath)
    with drawing.drawn(path, head_in + legend_in + SLOTS_IN + RATES_IN + 1.1) as figure:
        top_in = drawing.headline(figure, sentence, beneath) + legend_in
        width_in = drawing.WIDTH_IN - PAIRS_LEFT_IN - PAIRS_RIGHT_IN
        slots = drawing.axes_at(figure, PAIRS_LEFT_IN, top_in, width_in, SLOTS_IN)
        carried = drawing.axes_at(figure, PAIRS_LEFT_IN, top_in + SLOTS_IN + 0.35, width_in, RATES_IN)
        for turn, pair in enumerate(pairs):
            at = [found.get((pair, rate)) for rate in rates]
            _bars(slots, at, (turn, len(pairs)), [_pair_slots(row) for row in at], pair)
            _bars(carried, at, (turn, len(pairs)), [_part(row, "weighted_tps") for row in at], pair)
            _diamonds(carried, (turn, len(pairs)), [_part(row, "shuffle_tps") for row in at])
        _finish(slots, carried, rates)
        slots.legend(
            loc="lower left", bbox_to_anchor=(-0.01, 1.02), ncols=_legend_columns(pairs), borderaxespad=0.0,
            handlelength=2.2,
        )  # fmt: skip


def pairs_headline(rows: Sequence[Row]) -> str:
    """At the highest rate with a plan: the pair with the fewest slots among those that carry most of it,
    against the one with the most slots."""
    planned = [row for row in rows if _pair_slots(row) is not None]
    if not planned:
        return "No pair has a plan that fits"
    rate_tps = max(float(row["rate_tps"]) for row in planned)
    at_rate = [row for row in planned if float(row["rate_tps"]) == rate_tps]
    first = min(at_rate, key=lambda row: (-_pair_carried(row), _pair_slots(row)))
    last = max(at_rate, key=lambda row: (_pair_slots(row), -_pair_carried(row)))
    words = f"At {number(rate_tps)} rows/s {_taken(first)}"
    return words if first is last else f"{words}, {_taken(last)}"


def _taken(row: Row) -> str:
    return (
        f"{row['pair']} takes {counted(row['slots']['total'], 'slot')} and carries {_pair_carried(row):.0f} %"
    )


def _pair_carried(row: Row) -> int:
    """Of the rate asked for, in whole percents, at most all of it."""
    return min(100, round(_part(row, "weighted_tps") or 0.0))


def _pair_slots(row: Row | None) -> float | None:
    return float(row["slots"]["total"]) if row is not None and row["slots"] is not None else None


def _part(row: Row | None, key: str) -> float | None:
    """The predicted rate in % of the rate asked for."""
    if row is None or (value := _value(row, key)) is None or float(row["rate_tps"]) <= 0:
        return None
    return 100 * value / float(row["rate_tps"])


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
    carried.set_xlabel("rate asked for, rows/s")
    carried.set_ylabel("predicted, % of asked")
    carried.axhline(100, color=DARK_RED, linewidth=1.1, linestyle="--")


def _legend_columns(pairs: Sequence[str]) -> int:
    return max(1, min(6, int(7.2 / (0.55 + max((len(pair) for pair in pairs), default=1) * 0.068))))


# ── What a topology takes at rising rates: slots and cost as steps, and the predicted rate against the
# asked

PANEL_IN, BETWEEN_IN, LEFT_IN, RIGHT_IN = 1.6, 0.32, 0.75, 0.2


def whatif_picture(rows: Sequence[Row], path: str | os.PathLike[str]) -> None:
    """Write the picture of the rows of `headgate plan --rates`, of which it reads {"rate_tps", "slots":
    {"total"}, "usd_per_hour", "predicted_tps", "baseline": {"pair", "slots"}}; None where no plan fits or
    nothing is known. Without prices there is no panel of cost. Raises as `plan_picture` does."""
    ordered = sorted(rows, key=lambda row: float(row["rate_tps"]))
    priced = any(_value(row, "usd_per_hour") for row in ordered)
    panels = [_slots, _cost, _carried] if priced else [_slots, _carried]
    sentence, beneath = rates_headline(ordered), "Steps: what is needed up to that rate."
    unfit = [row for row in ordered if row["slots"] is None]
    if unfit:
        beneath += f" From {number(float(unfit[0]['rate_tps']))} rows/s no plan fits (grey)."
    height_in = drawing.headline_in(sentence, beneath) + len(panels) * (PANEL_IN + BETWEEN_IN) + 0.4
    with drawing.drawn(path, height_in) as figure:
        top_in = drawing.headline(figure, sentence, beneath) + 0.1
        for place, draw in enumerate(panels):
            axes = drawing.axes_at(
                figure, LEFT_IN, top_in + place * (PANEL_IN + BETWEEN_IN),
                drawing.WIDTH_IN - LEFT_IN - RIGHT_IN, PANEL_IN,
            )  # fmt: skip
            draw(axes, ordered)
            _share_x(axes, ordered, unfit, last=place == len(panels) - 1)


def rates_headline(rows: Sequence[Row]) -> str:
    """`From 50 to 400 rows/s it takes 4 to 29 slots`, with the cost where VMs have prices."""
    planned = [row for row in rows if row["slots"] is not None]
    if not planned:
        return "No plan fits at any of these rates"
    first, last = planned[0], planned[-1]
    rates = _from_to(number(float(first["rate_tps"])), number(float(last["rate_tps"])))
    slots = _from_to(f"{first['slots']['total']:,}", f"{last['slots']['total']:,}")
    words = f"{'At' if first is last else 'From'} {rates} rows/s it takes {slots} slots"
    costs = (_value(first, "usd_per_hour"), _value(last, "usd_per_hour"))
    if not (costs[0] and costs[1]):
        return words
    return f"{words}, {_from_to(f'${costs[0]:,.3g}', f'${costs[1]:,.3g}')} per hour"


def _from_to(first: str, last: str) -> str:
    return first if first == last else f"{first} to {last}"


def _slots(axes: Axes, rows: Sequence[Row]) -> None:
    others = [row["baseline"] for row in rows if row.get("baseline")]
    own = [row["slots"]["total"] if row["slots"] else None for row in rows]
    _steps(axes, rows, own, (BLUE, "-", "o"), "as asked" if others else "")
    if others:
        theirs = [(row.get("baseline") or {}).get("slots") for row in rows]
        _steps(axes, rows, theirs, (AMBER, "--", "s"), others[0]["pair"])
        axes.legend(loc="upper left")
    axes.set_ylabel("slots")
    axes.locator_params(axis="y", integer=True)


def _cost(axes: Axes, rows: Sequence[Row]) -> None:
    _steps(axes, rows, [row["usd_per_hour"] for row in rows], (BLUE, "-", "o"), "")
    axes.set_ylabel("$ per hour")


def _carried(axes: Axes, rows: Sequence[Row]) -> None:
    """Predicted against asked: what lies under the dashed line is carried short."""
    rates = [float(row["rate_tps"]) for row in rows]
    known = [
        (rate, value)
        for rate, value in zip(rates, (_value(row, "predicted_tps") for row in rows), strict=True)
        if value is not None
    ]
    x, y = [rate for rate, _ in known], [value for _, value in known]
    axes.plot(rates, rates, color=INK, linestyle="--", linewidth=1.1, label="asked", zorder=3)
    axes.plot(x, y, color=BLUE, marker="o", label="predicted")
    short = [value < 0.995 * rate for rate, value in known]
    if any(short):
        axes.fill_between(x, x, y, where=short, color=tint(DARK_RED), interpolate=True)
        axes.plot(
            [rate for rate, less in zip(x, short, strict=True) if less],
            [value for value, less in zip(y, short, strict=True) if less],
            linestyle="", marker="X", color=DARK_RED, markersize=6, label="falls short",
        )  # fmt: skip
    axes.set_ylabel("rows/s")
    axes.legend(loc="upper left")


def _steps(
    axes: Axes, rows: Sequence[Row], values: Sequence[float | None], look: tuple[str, str, str], label: str
) -> None:
    """A value at a rate holds from the rate before up to it: that much is needed for any rate between."""
    colour, dashes, marker = look
    known = [float("nan") if value is None else float(value) for value in values]
    axes.plot(
        [float(row["rate_tps"]) for row in rows], known, drawstyle="steps-pre", color=colour,
        linestyle=dashes, marker=marker, markersize=4 if len(rows) <= 40 else 0, label=label or None,
    )  # fmt: skip


def _share_x(axes: Axes, rows: Sequence[Row], unfit: Sequence[Row], last: bool) -> None:
    rates = [float(row["rate_tps"]) for row in rows]
    room = 0.02 * (rates[-1] - rates[0]) or 0.5 * rates[0] or 1.0
    axes.set_xlim(rates[0] - room, rates[-1] + room)
    axes.margins(y=0.1)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(lambda rate_tps, _: number(rate_tps))
    if unfit:
        axes.axvspan(float(unfit[0]["rate_tps"]), rates[-1] + room, color=tint(GREY, 0.25), linewidth=0)
    if last:
        axes.set_xlabel("input rate, rows/s")
    else:
        axes.tick_params(labelbottom=False)


def _value(row: Row, key: str) -> float | None:
    value = row.get(key)
    return None if value is None else float(value)
