"""What to plan for, and when, where a season says what comes. Pure.

up    before the first second that would be above the plan, as long before as a plan takes; for the most that comes
      within that time and `ahead_s` besides.
down  where the next trough is worth it (`troughs.py`): at once, or where more is gained by it in a while, then. While a
      deeper one is waited for, for as long as a plan takes to be committed or longer, a step on the way to it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from controller.analyze.season import Coming
from controller.analyze.troughs import Trough, best_trough
from controller.knowledge.diagnoses import Horizon

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
    for enact_s in (horizon.enact_s, horizon.enact_s + horizon.machine_s):
        lead_s = math.ceil(enact_s + SPARE_S)
        goal_tps = float(coming.needs[: lead_s + math.ceil(ahead_s)].max())
        if goal_tps <= horizon.room_tps:
            break
    above = (coming.rates[:lead_s] > planned_tps).nonzero()[0]
    return Due(int(above[0]) + 1 if len(above) else None, goal_tps)


def lowered(coming: Coming, planned_tps: float, horizon: Horizon, least_tps: float) -> Lowering:
    """Should the plan be lowered now? least_tps: it must carry so much."""
    trough, held_s = _found(coming, planned_tps, horizon)
    every = coming.text
    if trough is None or trough.gain_s < WORTH_S:
        return Lowering(0.0, "", f"no trough is long and deep enough to be worth it, {every}")
    if not trough.begins_s:
        text = f"no more than {trough.needed_tps:.1f} t/s is needed for {trough.ends_s} s, {every}"
        return Lowering(max(trough.needed_tps, least_tps), text, "")
    step_tps = float(coming.needs[: trough.begins_s + 1].max())
    step_tps = max(step_tps, least_tps)
    if trough.begins_s >= held_s and (1 - step_tps / planned_tps) * trough.begins_s >= WORTH_S:
        text = f"no more than {step_tps:.1f} t/s is needed on the way to {trough.needed_tps:.1f}, {every}"
        return Lowering(step_tps, text, "")
    no = f"{trough.needed_tps:.1f} t/s is enough in {trough.begins_s} s, {every}: it is waited for"
    return Lowering(0.0, "", no)


def _found(coming: Coming, planned_tps: float, horizon: Horizon) -> tuple[Trough | None, float]:
    held_s = horizon.enact_s + horizon.held_s
    lead_s = math.ceil(horizon.enact_s + horizon.machine_s + SPARE_S)
    return best_trough(coming.needs, planned_tps, held_s + lead_s), held_s
