"""The prediction ledger: what plans were predicted to do, beside what they did. Frozen, plain values; no I/O.

One entry tells of one plan that was in force, calmly, for a while. It is written again as the plan goes on, each time
that this has doubled; the last one of a (run, epoch, plan) is what counts. Sums and means are over whole windows that
do not overlap. CPU and memory are fractions of a slot, CPU of a task a sum of such fractions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

SCHEMA = "headgate/ledger/v1"

Tested = Literal["no", "carried", "short"]
Amount = Annotated[float, Meta(ge=0.0, le=1e12)]  # whatever else a file says is refused when it is read
Factor = Annotated[float, Meta(ge=1e-3, le=1e3)]
PlanKey = tuple[str, int, str]


class RateKept(msgspec.Struct, frozen=True):
    """tested: "carried" when about as much was offered as was predicted (more may fit), "short" when it did not keep
    up: `carried_tps` is then what it carries. "no": less was offered, and nothing is known of what it carries."""

    offered_tps: Amount
    carried_tps: Amount
    predicted_tps: Amount
    likely_tps: Amount | None
    tested: Tested


class SlotKept(msgspec.Struct, frozen=True):
    vm: str
    slot: int
    cpu: Amount
    predicted_cpu: Amount
    memory: Amount
    predicted_memory: Amount


class TaskKept(msgspec.Struct, frozen=True):
    """One task's rows, at the rate that it really took in. version: of the model that its model comes from;
    time_factor, cpu_factor: what that was corrected by (`corrections.py`) when predicted.

    cpu: what of its slots' CPU is its threads'. busy: part of their time that its threads are in its logic. waits: its
    model says that threads are full before the slot is, so that time tells what it carries, not CPU. vms: VM → (cpu,
    predicted_cpu) there, of slots of which it uses much, for else too much is what a slot needs by itself."""

    task: str
    model: str
    version: str
    rate_tps: Amount
    cpu: Amount
    predicted_cpu: Amount
    busy: Amount
    predicted_busy: Amount
    waits: bool
    vms: dict[str, tuple[Amount, Amount]]
    time_factor: Factor = 1.0
    cpu_factor: Factor = 1.0


class LedgerEntry(msgspec.Struct, frozen=True, tag=SCHEMA, tag_field="schema"):
    """speeds: VM → its speed as plans have it. headgate: the version that planned and measured."""

    time: str
    topology: str
    topology_digest: str
    run: str
    epoch: int
    plan: str
    headgate: str
    seconds: Amount
    rate: RateKept
    latency_ms: dict[str, Amount]
    slots: tuple[SlotKept, ...]
    tasks: tuple[TaskKept, ...]
    speeds: dict[str, Amount]

    @property
    def key(self) -> PlanKey:
        return self.run, self.epoch, self.plan


def latest(entries: Iterable[LedgerEntry]) -> tuple[LedgerEntry, ...]:
    """The last entry of each plan, in the order in which plans came."""
    found: dict[PlanKey, LedgerEntry] = {}
    for entry in entries:
        found[entry.key] = entry
    return tuple(found.values())
