"""What analysis finds: verdicts, and exactly one diagnosis per tick. Frozen, plain values."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

Verdict = Literal["stable", "catching_up", "unstable", "unknown"]
Direction = Literal["up", "down", "same"]
Reason = Literal[
    "start",
    "fine",
    "unknown",
    "frozen",
    "slot_quarantined",
    "thread_failed",
    "thread_costly",
    "out_of_memory",
    "vm_lost",
    "vm_drained",
    "code_replaced",
    "vm_joined",
    "link_cut",
    "link_slow",
    "overloaded",
    "rate_changed",
    "over_provisioned",
    "latency_violated",
    "drift",
    "first_rows",
    "model_off",
    "refitted",
    "events_unread",
    "vm_loaded",
    "vm_speed",
    "traffic_saved",
    "operator",
    "rollback",
]


ALARM_KINDS = ("short", "models", "slot", "vm", "lag", "mass_loss", "version", "machines", "plan", "enactment",
               "journal", "disk", "code", "memory", "dead letters", "hot key", "state", "unread", "peers", "thread",
               "link")  # fmt: skip


class Stability(msgspec.Struct, frozen=True):
    """Does the topology keep up? By the trend alone, or by all that `Health` goes by.

    `slope`: of the median latency, in s/s; `queue_growth`: of the time that the oldest row not yet done has waited,
    in s/s, and of the backlog / rate, the lesser of both; each with its 95 % interval. out_in: rows done per row
    offered. confidence: of the verdict, 0 … 1.
    """

    verdict: Verdict
    slope: float
    slope_low: float
    slope_high: float
    queue_growth: float
    queue_growth_low: float
    queue_growth_high: float
    out_in: float
    confidence: float
    text: str


class Health(msgspec.Struct, frozen=True):
    """Is it well? backlog: rows due or arrived and not done, and for how long the oldest waits. caught_up_s: until
    nothing waits any more, where it falls. words: for people; text: these with what they come from."""

    verdict: Verdict
    backlog_rows: int
    backlog_s: float
    caught_up_s: float | None
    words: str
    text: str = ""

    def judged(self, trend: Stability) -> Stability:
        """The figures of the trend with the one verdict, by which all is decided and shown."""
        return replace(trend, verdict=self.verdict, text=self.text or self.words)


UNDONE_S = 30.0  # a plan that is lower for less does not save what its moves cost
ALIKE = 0.9  # of the rate before: it is as high again
LATELY_S = 600.0


class Past(msgspec.Struct, frozen=True):
    """How long ago, in s: the plan came into force; a plan was decided that raised, lowered the rate
    (the first plan of a run is neither). undone: plans of
    the last ten minutes that lowered the rate, and within `UNDONE_S` it was raised to where it had been."""

    since_plan_s: float
    since_up_s: float = float("inf")
    since_down_s: float = float("inf")
    undone: int = 0

    @classmethod
    def of(cls, since_plan_s: float, plans: Sequence[tuple[float, float]]) -> Past:
        """Of plans as (s ago, rate), the oldest first; the very first of the run is among them."""
        up = down = lowered_from = float("inf")
        undone = 0
        for (_, before), (ago_s, rate) in pairwise(plans):
            if rate > before:
                up = ago_s
                if rate >= ALIKE * lowered_from and down - ago_s <= UNDONE_S:
                    undone += ago_s <= LATELY_S
                    lowered_from = float("inf")
            elif rate < before:
                down, lowered_from = ago_s, before
        return cls(since_plan_s, up, down, undone)


class Horizon(msgspec.Struct, frozen=True):
    """How long a plan takes to be in force once it is decided, in s: on the VMs there are, which can carry about
    `room_tps`, and with another. held_s: from then until it is committed, and slots of threads that leave are free."""

    enact_s: float = 1.0
    machine_s: float = 2.0
    room_tps: float = float("inf")
    held_s: float = 12.0


class Headroom(msgspec.Struct, frozen=True):
    """A plan is for at least the rate × factor. band: of the usual room between what is needed and the plan, below
    which it is lowered. What measured headroom follows from (`analyze/headroom.py`): models, rates: the factor that
    each of both asks for; of so many plans and seconds; None: it is fixed."""

    factor: float
    band: float = 1.0
    models: float | None = None
    rates: float | None = None
    plans: int = 0
    seconds: int = 0

    def down_share(self, usual: float) -> float:
        """The part of the plan in force below which it is lowered; usual: with all of the usual room."""
        return 1 - self.band * (1 - usual)

    @property
    def evidence(self) -> dict[str, Any]:
        if self.models is None:
            return {"headroom": self.factor}
        return {
            "headroom": self.factor,
            "headroom_models": self.models,
            "headroom_rates": self.rates,
            "headroom_plans": self.plans,
            "headroom_s": self.seconds,
        }


class Demand(msgspec.Struct, frozen=True):
    """What is offered now (`rate_tps`), what to plan for (`target_tps`), and whether to do it now.

    rejected: why not up, why not down. evidence: plain values."""

    rate_tps: float
    target_tps: float
    direction: Direction
    text: str
    rejected: tuple[str, ...]
    evidence: dict[str, Any]


class Residual(msgspec.Struct, frozen=True):
    """Measured against predicted: the input rate of a task in rows/s, CPU or memory of a slot (fractions)."""

    what: Literal["rate", "cpu", "memory"]
    where: str
    measured: float
    predicted: float
    ratio: float


class Violation(msgspec.Struct, frozen=True):
    """A latency constraint that does not hold: mean ms along `path`, and its parts by name."""

    path: tuple[str, ...]
    limit_ms: float
    measured_ms: float
    parts_ms: dict[str, float]
    busiest: float  # highest busy share of a task on the path
    waits_for: str = ""  # what is being tried for it now; none: nothing


class PathStanding(msgspec.Struct, frozen=True):
    """A latency constraint as its managers report it: mean latency (ms) of its sequences, of the quickest and the
    slowest (None: no rows are seen); channels, of which some leave earlier or later than by default; threads that are
    run by the one before them. helpless: nothing that can be done without a plan is left; `text` says where the time
    goes."""

    path: tuple[str, ...]
    limit_ms: float
    window_s: float
    standing: Literal["unknown", "held", "adapting", "helpless"]
    mean_ms: float | None
    least_ms: float | None
    most_ms: float | None
    managers: int
    channels: int
    shortened: int
    lengthened: int
    chained: int
    text: str


class TaskLoad(NamedTuple):
    """share: 1 is the limit, the peak of the task's threads in `slot` or the slot's CPU, whichever is nearer."""

    share: float
    slot: str


class SaturatesFirst(NamedTuple):
    """The task of the plan in force that saturates first as the rate grows, where, and at which input rate. load: the
    present rate as a part of that."""

    task: str
    slot: str
    at_tps: float
    load: float | None


class Diagnosis(msgspec.Struct, frozen=True):
    """What to do now and why. kind "replan": plan for `rate_tps`; "none": nothing.

    evidence: plain values behind `text`. alternatives: what was considered and rejected, each with why. without: VMs
    that are up and that no thread is to stay on."""

    kind: Literal["replan", "none"]
    reason: Reason
    text: str
    rate_tps: float | None
    evidence: dict[str, Any]
    alternatives: tuple[str, ...]
    without: tuple[str, ...] = ()
