"""What a topology takes at rising rates: slots and cost as steps, and the predicted rate against the asked."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headgate.controller.offline.pictures import drawing
from headgate.controller.offline.pictures.drawing import AMBER, BLUE, DARK_RED, GREY, INK, number, tint

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = Mapping[str, Any]
PANEL_IN, BETWEEN_IN, LEFT_IN, RIGHT_IN = 1.6, 0.32, 0.75, 0.2


def whatif_picture(rows: Sequence[Row], path: str | os.PathLike[str]) -> None:
    """Write the picture of the rows of `headgate whatif`, of which it reads {"rate_tps", "slots":
    {"total"}, "usd_per_hour", "predicted_tps", "baseline": {"pair", "slots"}}; None where no plan fits or
    nothing is known. Without prices there is no panel of cost. Raises as `plan_picture` does."""
    ordered = sorted(rows, key=lambda row: float(row["rate_tps"]))
    priced = any(_value(row, "usd_per_hour") for row in ordered)
    panels = [_slots, _cost, _carried] if priced else [_slots, _carried]
    sentence, beneath = headline(ordered), "Steps: what is needed up to that rate."
    unfit = [row for row in ordered if row["slots"] is None]
    if unfit:
        beneath += f" From {number(float(unfit[0]['rate_tps']))} tuples/s no plan fits (grey)."
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


def headline(rows: Sequence[Row]) -> str:
    """`From 50 to 400 tuples/s it takes 4 to 29 slots`, with the cost where VMs have prices."""
    planned = [row for row in rows if row["slots"] is not None]
    if not planned:
        return "No plan fits at any of these rates"
    first, last = planned[0], planned[-1]
    rates = _from_to(number(float(first["rate_tps"])), number(float(last["rate_tps"])))
    slots = _from_to(f"{first['slots']['total']:,}", f"{last['slots']['total']:,}")
    words = f"{'At' if first is last else 'From'} {rates} tuples/s it takes {slots} slots"
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
    axes.set_ylabel("tuples/s")
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
        axes.set_xlabel("input rate, tuples/s")
    else:
        axes.tick_params(labelbottom=False)


def _value(row: Row, key: str) -> float | None:
    value = row.get(key)
    return None if value is None else float(value)
