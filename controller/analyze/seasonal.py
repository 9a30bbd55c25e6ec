"""What to plan for, and when, where a season says what comes. Pure.

up    before the first second that would be above the plan, as long before as a plan takes, and a VM where those there
      do not suffice for what comes until it could be there; for the most that comes within that time and `ahead_s`
      besides.
down  where the next trough is worth it (`troughs.py`): at once, or where more is gained by it in a while, then. While a
      deeper one is waited for, for as long as a plan takes to be committed or longer, a step on the way to it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from headgate.controller.analyze.season import Coming
from headgate.controller.analyze.troughs import next_trough, step_to
from headgate.controller.knowledge.diagnoses import Horizon

SPARE_S = 1.0  # a plan is decided so long before it has to be
WORTH_S = (
    2.5  # of the plan in force, that lowering it must save: as much as 15 % for the half minute of `UNDONE_S`
)


class Due(NamedTuple):
    """A rise that a plan has to be made for now. in_s: until it is above the plan; None: none is."""

    in_s: int | None
    goal_tps: float


class Lowering(NamedTuple):
    """To what rate, and why; or why not (and then to nothing)."""

    target_tps: float
    why: str
    no: str


def due(coming: Coming, planned_tps: float, horizon: Horizon, ahead_s: float) -> Due:
    """What has to be planned for now because it comes."""
    lead_s, machine_lead_s = (
        math.ceil(enact_s + SPARE_S) for enact_s in (horizon.enact_s, horizon.enact_s + horizon.machine_s)
    )
    if float(coming.needs[: max(machine_lead_s, lead_s + math.ceil(ahead_s))].max()) > horizon.room_tps:
        lead_s = machine_lead_s
    goal_tps = float(coming.needs[: lead_s + math.ceil(ahead_s)].max())
    above = (coming.rates[:lead_s] > planned_tps).nonzero()[0]
    return Due(int(above[0]) + 1 if len(above) else None, goal_tps)


def lowered(coming: Coming, planned_tps: float, horizon: Horizon, least_tps: float) -> Lowering:
    """Should the plan be lowered now? least_tps: it must carry so much."""
    committed_s = horizon.enact_s + horizon.held_s
    raised_s = math.ceil(horizon.enact_s + horizon.machine_s + SPARE_S)
    trough = next_trough(coming.needs, planned_tps, committed_s + raised_s, WORTH_S)
    every = coming.text
    if trough is None:
        return Lowering(0.0, "", f"no trough is long and deep enough to be worth it, {every}")
    if not trough.begins_s:
        text = f"no more than {trough.needed_tps:,.1f} t/s is needed for {trough.ends_s} s, {every}"
        return Lowering(max(trough.needed_tps, least_tps), text, "")
    step = step_to(coming.needs, planned_tps, committed_s, trough)
    if step is not None and not step.begins_s and step.gain_s >= WORTH_S:
        way = f"on the way to {trough.needed_tps:,.1f}"
        text = f"no more than {step.needed_tps:,.1f} t/s is needed for {step.ends_s} s, {way}, {every}"
        return Lowering(max(step.needed_tps, least_tps), text, "")
    soonest = trough if step is None or step.gain_s < WORTH_S else step
    no = f"{soonest.needed_tps:,.1f} t/s is enough in {soonest.begins_s} s, {every}: it is waited for"
    return Lowering(0.0, "", no)
