"""DS2: the right size in one step, from the rates at which operators would work if they never waited. Pure.

Kalavri et al., "Three steps is all you need", OSDI 2018. Read in: its code, strymon-system/ds2 at e3decca:
controller/src/policy/scaling.rs (`evaluate_scaling_policy_at_epoch`), controller/src/bin/manager.rs
(`consider_change`, warm-up) and controller/config/ds2.toml (an interval of 10 s, two of warm-up, scaling factor 0).
The final adjustment by `target_rate_ratio` is off by default, there and here. What waits is not looked at.

    sizes = optimal_instances(
        (Operator("source", (), 1, 0.0, 100.0), Operator("op", ("source",), 1, 50.0, 400.0))
    )
    whole_instances(sizes["op"])  # 2
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from headgate.lab.rate_policies.rule_turns import DeciderQuestion, Rival, Turn1s

INTERVAL_S, WARM_UP = 10, 2


class Operator(NamedTuple):
    """An operator of a dataflow. inputs: operators before it; none: a source. true_in_tps, true_out_tps: rows/s that
    all its instances take and give while they work; of a source, true_out_tps is what comes."""

    name: str
    inputs: tuple[str, ...]
    instances: int
    true_in_tps: float
    true_out_tps: float


def optimal_instances(flow: Sequence[Operator], factor: float = 0.0) -> dict[str, float]:
    """Operator → instances that take all that comes, × (1 + factor), not rounded. `flow`: in topological order. What
    never had a row (true rate 0) keeps its instances."""
    out_tps: dict[str, float] = {}
    found: dict[str, float] = {}
    for op in flow:
        share = 1.0
        if op.inputs and op.true_in_tps > 0:
            wanted = sum(out_tps[name] for name in op.inputs) / (op.true_in_tps / op.instances)
            share = wanted / op.instances
        out_tps[op.name] = op.true_out_tps * share
        found[op.name] = op.instances * share * (1 + factor if op.inputs else 1.0)
    return found


def whole_instances(instances: float) -> int:
    """At least one."""
    return max(1, math.ceil(instances - 1e-9))


def worth_a_change(before: int, after: int) -> bool:
    """More, or less by more than one."""
    return after > before or after < before - 1


class TrueRates(Rival):
    """`ds2`: the topology as one operator behind its source, with the headroom as its scaling factor."""

    def __init__(self, given: DeciderQuestion) -> None:
        super().__init__(given)
        self._offered = self._done = self._busy_s = 0.0
        self._seconds = self._ignored = 0

    def look(self, now: Turn1s) -> float | None:
        if now.in_force_s is None:
            self._ignored = WARM_UP
            self._clear()
            return None
        self._seconds += 1
        self._offered, self._done = self._offered + now.offered_tps, self._done + now.done_tps
        self._busy_s += now.busy
        if self._seconds < INTERVAL_S:
            return None
        offered_tps, done, busy_s = self._offered / self._seconds, self._done, self._busy_s
        self._clear()
        if self._ignored or busy_s <= 0:
            self._ignored = max(0, self._ignored - 1)
            return None
        true_tps = done / busy_s
        flow = (
            Operator("source", (), 1, 0.0, offered_tps),
            Operator("topology", ("source",), now.slots, true_tps, true_tps),
        )
        wanted = optimal_instances(flow, self.given.headroom - 1)["topology"]
        return now.rate_of(wanted) if worth_a_change(now.slots, whole_instances(wanted)) else None

    def _clear(self) -> None:
        self._offered = self._done = self._busy_s = 0.0
        self._seconds = 0
