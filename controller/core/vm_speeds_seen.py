"""VMs whose rows cost more CPU than the same rows on other VMs: a slower machine, or a neighbour on it. Pure.

Seen in the last windows of the plan in force, where threads of one task are on several VMs: in each of them, and the
newest says how much. Plans take such a VM for as slow as it shows, until its rows show that it is not, or, where it has
no rows, for a while: twice as long each time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from headgate.controller.analyze.model_bias import WORTH, LearnedFactor, vm_costs
from headgate.controller.core.prediction_accounting import Accounts
from headgate.controller.core.profiling import may_plan
from headgate.controller.knowledge.diagnoses import Demand, Diagnosis
from headgate.controller.knowledge.journal_records import VmSpeedSeen
from headgate.controller.knowledge.knowledge import Turn
from headgate.topology_runtime.wording import counted

NS = 1_000_000_000
FORGOTTEN_S = 300.0  # without rows, the first time
DOUBLED_MOST = 6
MORE = 1.1  # times as slow as before, or a part: of a VM that is slow
DIGITS = 2

Costs = Mapping[str, tuple[LearnedFactor, LearnedFactor]]


def found(turn: Turn, accounts: Accounts, need: Demand) -> Diagnosis | None:
    """A plan to be made, since a VM is another one than plans take it for; None: none is."""
    k = turn.knowledge
    _forget(turn)
    entries = accounts.lately(turn)
    if not entries or not may_plan(k) or k.plan is None:
        return None
    before = {vm: one.speed for vm, one in k.durable.speeds.items()}
    windows = [seen_speeds(vm_costs([entry]), before) for entry in entries]
    changed = {vm: speed for vm, speed in windows[-1].items() if all(vm in window for window in windows)}
    texts = []
    for vm, speed in changed.items():
        turn.record(VmSpeedSeen(vm, speed, turn.now.wall_ns))
        texts.append(_words(vm, speed))
        turn.event("speed", texts[-1], level="warning" if speed < 1 else "info", vm=vm)
    if not texts:
        return None
    return Diagnosis("replan", "vm_speed", "; ".join(texts), need.target_tps, dict(changed), ())


def seen_speeds(costs: Costs, before: Mapping[str, float]) -> dict[str, float]:
    """VM → its speed, times its own, of those where it is surely another one than `before` (left out: 1). A VM that
    was slow tells first: beside it the others look slow when it is not any more."""
    slow = {vm for vm, speed in before.items() if speed < 1}
    again = {vm: speed for vm in slow & costs.keys() if (speed := _speed(costs[vm], before[vm])) is not None}
    if again:
        return again
    return {
        vm: speed
        for vm, cost in costs.items()
        if vm not in slow and (speed := _speed(cost, 1.0)) is not None and speed < 1
    }


def _speed(cost: tuple[LearnedFactor, LearnedFactor], before: float) -> float | None:
    """None: as before."""
    beside, against = cost
    if not beside.off_from(1 / before, MORE if before < 1 else WORTH):
        return None
    if not beside.off or beside.factor <= 1 or against.factor <= math.sqrt(WORTH):
        return 1.0
    return round(1 / beside.factor, DIGITS)


def _forget(turn: Turn) -> None:
    """VMs without rows that were slow a while ago."""
    k = turn.knowledge
    used = {bundle.slot.vm for bundle in k.plan.placement.bundles} if k.plan is not None else set()
    for vm, seen in k.durable.speeds.items():
        wait_s = FORGOTTEN_S * 2 ** min(DOUBLED_MOST, max(0, seen.times - 1))
        if seen.speed < 1 and vm not in used and turn.now.wall_ns - seen.at_ns >= wait_s * NS:
            turn.record(VmSpeedSeen(vm, 1.0, turn.now.wall_ns))
            text = f"VM {vm} is planned with as any other again, after {counted(round(wait_s), 'second')}"
            turn.event("speed", text, vm=vm)


def _words(vm: str, speed: float) -> str:
    if speed == 1.0:
        return f"rows on VM {vm} cost no more CPU than elsewhere any more"
    times = f"rows on VM {vm} cost {1 / speed:.2g} times the CPU of those elsewhere"
    return f"{times}: it is planned with at {speed:g} of its speed"
