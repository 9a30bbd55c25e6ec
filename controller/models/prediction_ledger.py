"""The prediction ledger: what plans were predicted to do, beside what they did. Frozen, plain values; no I/O.

One entry is about one plan that was in force, calmly, for a while. It is written again as the plan goes on, each time
that this has doubled; the last one of a (run, epoch, plan) is what counts. Sums and means are over whole windows that
do not overlap. CPU and memory are fractions of a slot, CPU of a task a sum of such fractions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from headgate.controller.models.model_data import MAX_FRACTION
from headgate.controller.models.plans import UNLIMITED_TPS
from headgate.controller.models.task_models import Model, Point
from headgate.topology_runtime.api.topology import digest_of
from headgate.topology_runtime.measuring.wake_cost import times_the_cpu

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

    @property
    def told_tps(self) -> float | None:
        """`predicted_tps` as people and programs see it: None where it was not known."""
        return self.predicted_tps if self.predicted_tps < UNLIMITED_TPS else None


class SlotKept(msgspec.Struct, frozen=True):
    vm: str
    slot: int
    cpu: Amount
    predicted_cpu: Amount
    memory: Amount
    predicted_memory: Amount


class TaskKept(msgspec.Struct, frozen=True):
    """One task's rows, at the rate that it really took in. version: of the model that its model comes from;
    time_factor, cpu_factor: what that was corrected by (`below`) when predicted.

    cpu: what of its slots' CPU is its threads'. busy: part of their time that its threads are in its logic. waits: its
    model says that threads are full before the slot is, so that time says what it carries, not CPU. vms: VM → (cpu,
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
    """speeds: VM → its speed as plans have it. headgate: the version that planned and measured. latency_ms: p50, p95,
    p99; predicted_latency_ms: the same at about that rate, empty where none was predicted."""

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
    predicted_latency_ms: dict[str, Amount] = {}

    @property
    def key(self) -> PlanKey:
        return self.run, self.epoch, self.plan


def latest(entries: Iterable[LedgerEntry]) -> tuple[LedgerEntry, ...]:
    """The last entry of each plan, in the order in which plans came."""
    found: dict[PlanKey, LedgerEntry] = {}
    for entry in entries:
        found[entry.key] = entry
    return tuple(found.values())


# ── Models that were corrected by what the prediction ledger says: which model they come from, and by how
# much. Pure
#
# A corrected model is another version: its points are those of the model it comes from, with
#
# rate ÷ time        a row takes so many times as long as that model says
# CPU × cpu ÷ time   and so many times the CPU: CPU / rate, what a row needs, is × cpu
#
# and its file says so under `corrected`. A further correction counts from the first model again, so that all
# that was ever measured of any version speaks of one.

KEY = "corrected"
FACTORS = (1e-3, 1e3)  # anything else in a file is not ours


class Correction(NamedTuple):
    """of: the version that `time` and `cpu` count from."""

    of: str
    time: float = 1.0
    cpu: float = 1.0


def version_of(model: Model) -> str:
    """Names what a model says of rates and CPU, in slots of whatever memory."""
    points = [(point.threads, point.rate_tps, point.cpu) for point in model.points]
    return digest_of(msgspec.json.encode((model.task, points, model.wake.cpu)))


def correction_of(model: Model) -> Correction:
    """What it is corrected by; a model that is not comes from itself."""
    told = model.more.get(KEY)
    if isinstance(told, dict) and isinstance(told.get("of"), str):
        time, cpu = _factor(told.get("time")), _factor(told.get("cpu"))
        if time is not None and cpu is not None:
            return Correction(told["of"], time, cpu)
    return Correction(version_of(model))


def corrected(model: Model, time: float, cpu: float, provenance: dict[str, Any]) -> Model:
    """The model that it comes from, corrected by these; `provenance`: what else its file says of it."""
    before = correction_of(model)
    slower, more_cpu = time / before.time, cpu / before.cpu
    more = {**model.more, KEY: {"of": before.of, "time": time, "cpu": cpu, **provenance}}
    more |= times_the_cpu(model.more, more_cpu)
    points = tuple(_moved(point, slower, more_cpu) for point in model.points)
    return replace(model, points=points, more=more)


def _moved(point: Point, slower: float, dearer: float) -> Point:
    spread = point.spread
    if spread is not None and spread.rate_tps is not None:
        spread = replace(spread, rate_tps=spread.rate_tps / slower)
    cpu = min(MAX_FRACTION, point.cpu * dearer / slower)
    return replace(point, rate_tps=point.rate_tps / slower, cpu=cpu, spread=spread)


def _factor(value: Any) -> float | None:
    """A key that whoever reads models does not check."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if FACTORS[0] <= value <= FACTORS[1] else None
