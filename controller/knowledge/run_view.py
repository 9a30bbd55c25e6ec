"""One moment of a run, frozen, as everybody gets it who looks at it. Pure.

The core makes one twice a second and emits it (`loop_events.Show`). Terminal, page, Prometheus, `status`, `explain`,
events, the run's summary and the trace's rates are functions of it, and of nothing else: they stand in
`controller/views`, which may read neither knowledge nor core. What two of them show stands here, once, unrounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import msgspec

from headgate.controller.knowledge.dead_letters import KeptDeadLetter
from headgate.controller.knowledge.diagnoses import (
    Demand,
    Health,
    PathStanding,
    Reason,
    Residual,
    SaturatesFirst,
    Stability,
    TaskLoad,
    Violation,
)
from headgate.controller.knowledge.journal_records import Rollout, RolloutStarted, SpeedSource
from headgate.controller.knowledge.measured_window import MeasuredWindow, SlotWindow
from headgate.controller.knowledge.offered_load import Lag
from headgate.controller.knowledge.vm_ways import VmWay
from headgate.controller.models.plans import NOWHERE, PlacedThreads, Plan, PlanLatency
from headgate.controller.models.task_models import Model, unknown_tasks
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.api.user_metrics import percentile
from headgate.topology_runtime.latency.latency_buckets import BUCKETS, lowest_ns, percentile_ns
from headgate.topology_runtime.wire.report_messages import KeysSeen, ProfileSpec

# ── Tasks' own metrics ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class UserMetricNow:
    """A metric of a task, all its threads together. value: of a counter and of a histogram the sum in this life of the
    controller, of a gauge the sum over threads now."""

    task: str
    name: str
    kind: str
    value: float
    count: int = 0
    buckets: tuple[tuple[int, int], ...] = ()

    def percentile(self, share: float) -> float | None:
        return percentile(dict(self.buckets), share)


# ── How far event time has come in a task ───────────────────────────────────────────────────────────────


class EventTimeNow(msgspec.Struct, frozen=True):
    """Of a task with event time. state: is there a watermark, or why not? watermark_us: of its slowest thread. lag_s:
    how far that is behind now. held_by: the source partition that holds it back; "": none, or a task before it. late:
    rows from before the watermark; timeless: (source, its rows without a time); both as threads have seen them which
    run now. open_keys: keys with windows or timers that are open, counted once the run is to end; None: not counted.
    waiting: (source partition, the one that it waits for, as it is `max_drift` ahead of it)."""

    task: str
    state: Literal["none yet", "known", "ended", "no timestamps"]
    watermark_us: int | None
    lag_s: float | None
    held_by: str
    late: int
    timeless: tuple[tuple[str, int], ...] = ()
    open_keys: int | None = None
    waiting: tuple[tuple[str, str], ...] = ()


NOT_COUNTED = -1


def open_keys_of(times: Iterable[EventTimeNow]) -> int:
    """Keys with windows or timers that are open, of all tasks; NOT_COUNTED: where it is not known of all."""
    found = [now.open_keys for now in times]
    return sum(keys or 0 for keys in found) if None not in found else NOT_COUNTED


# ── Keys that many rows of a task have: what the threads that send to it report, put together. Pure ───────

SHOWN_LEAST = 0.2  # of a task's rows


class HotKey(msgspec.Struct, frozen=True):
    """A key of a task, by the begin of its repr ("": hidden), its range and its share of the task's rows."""

    task: str
    key: str
    key_range: int
    share: float

    @property
    def words(self) -> str:
        return f"key {self.key} (range {self.key_range})" if self.key else f"a key of range {self.key_range}"

    @property
    def sentence(self) -> str:
        return f"{self.share:.0%} of the rows of {self.task} are of {self.words}"


def hot_keys(seen: Iterable[KeysSeen], topology: Topology) -> tuple[HotKey, ...]:
    """Of each task the keys that have SHOWN_LEAST of its rows, the largest first. What a thread counted stands for all
    that it sent; a key is the same to all of them by its text and range."""
    rows: dict[str, int] = {}
    of_key: dict[tuple[str, str, int], float] = {}
    for one in seen:
        if not (0 <= one.edge < len(topology.edges) and 0 < one.looked_at <= one.rows):
            continue
        task = topology.edges[one.edge].target
        rows[task] = rows.get(task, 0) + one.rows
        for top in one.top:
            place = task, top.key, top.key_range
            of_key[place] = of_key.get(place, 0.0) + one.rows * min(top.rows, one.looked_at) / one.looked_at
    found = (HotKey(*place, count / rows[place[0]]) for place, count in of_key.items())
    return tuple(
        sorted((key for key in found if key.share >= SHOWN_LEAST), key=lambda key: (-key.share, key.task))
    )


NS, MS = 1e9, 1e6
DRAINS_S = 2.0  # after the offer, before rows that get done count as late: reports take their time
LATELY_S = 2.0  # what is emitted and acked now, beside what is offered now

Percentiles = tuple[float, float, float]  # p50, p95, p99 in ms


@dataclass(frozen=True, slots=True)
class LoopResult:
    """The results of monitor and analyze, once a second."""

    window: MeasuredWindow
    stability: Stability
    health: Health
    demand: Demand
    residuals: tuple[Residual, ...]
    violations: tuple[Violation, ...]
    paths: tuple[PathStanding, ...]
    predicted: dict[Slot, tuple[float, float]]  # CPU and memory at the rate of the window
    predicted_now: dict[
        Slot, tuple[float, float]
    ]  # the same at the rate of the last second: what a trace keeps
    loads: dict[str, TaskLoad]  # task → how near to its limit
    growing: frozenset[str]  # tasks before which rows pile up
    in_task: Mapping[str, Percentiles]  # of rows in their tasks, in the last seconds


@dataclass(frozen=True, slots=True)
class PlanProposal:
    """A plan that waits for an operator's word (mode approve)."""

    plan: Plan
    reason: Reason
    text: str
    base_epoch: int
    asked: tuple[Vm, ...]
    degraded: str

    @property
    def facts(self) -> dict[str, Any]:
        """What everybody shows of it."""
        told = {name: getattr(self, name) for name in ("reason", "text", "base_epoch")}
        return {"id": self.plan.id, **told, "rate_tps": self.plan.rate_tps, "slots": self.plan.slots.used}


class SlotStatus(msgspec.Struct, frozen=True):
    """state: of its worker, `empty`, `withheld` for other runs, `profiling`, or that of its VM when that is not up."""

    slot: Slot
    state: str
    crashes: int


class VmStatus(msgspec.Struct, frozen=True):
    """state: `held_dead`, or as membership has it. provided: asked of the provider. troubled: its disk is. clock: its
    UTC is so many ns behind the controller's, give or take so many, which is corrected; (0, 0): unknown. cordon:
    `cordon_of`. workers_as: whom its workers run as. speed_by: what shows that it is as fast as plans take it to be
    (empty where that is 1), since `speed_ns` (UTC; 0: as it is said to be)."""

    vm: Vm
    state: str
    up: bool
    binding: str
    pid: int
    provided: bool
    troubled: bool
    slots: tuple[SlotStatus, ...]
    spoken: tuple[int, str]
    clock: tuple[int, int] = (0, 0)
    cordon: str = ""
    machine: str = ""
    workers_as: str = ""
    speed_by: SpeedSource | Literal["", "stated"] = ""
    speed_ns: int = 0


class TaskMeasuring(msgspec.Struct, frozen=True):
    """A model that a submission lacks, on one kind of machine. slot: where it is measured now, `done` of about `of`
    points."""

    task: str
    model: str
    machine: str
    state: Literal["waiting", "measuring", "measured"]
    slot: str = ""
    done: int = 0
    of: int = 0


class Measuring(msgspec.Struct, frozen=True):
    """A submission whose tasks are measured before it is planned, and about how long that still takes."""

    number: int
    topology: str
    by: str
    left_s: float | None
    tasks: tuple[TaskMeasuring, ...]


class RolloutUnderWay(msgspec.Struct, frozen=True):
    """How far the plan under way is, since when, and what it waits for."""

    epoch: int
    phase: str
    for_s: float
    waits_for: str
    leaving: int
    fresh: int


class TupleCounts(msgspec.Struct, frozen=True):
    """Since the run began. lost, left: `rows_left.py`. left_on_vms: events that were accepted and lie where
    nothing reads them, `spooled_events.py`. duplicates and what follows: `view_builder.py`. before: rows of those acked
    that were done before the checkpoint that it began from."""

    offered: int
    emitted: int
    acked: int
    in_flight: int
    lost: int
    left: int
    left_on_vms: int
    dead_lettered: int
    replayed: int
    duplicates: int
    duplicates_exact: bool
    duplicates_why: list[str]
    finished_dropped: int
    sinks: dict[str, dict[str, Any]]
    before: int = 0


class DeadLettersNow(msgspec.Struct, frozen=True):
    """Dead letters: the newest, rows by task, how many were sent again and are done after all, how many are
    calls of `on_timer` or `finish`."""

    newest: tuple[KeptDeadLetter, ...]
    by_task: dict[str, int]
    replayed: int
    mended: int
    keys: int


class EndNow(msgspec.Struct, frozen=True):
    """Of a run that ends: the step that is under way ("": none), and of which task. unfinished: of one that has ended
    with its input, tasks that the end did not come to."""

    step: str = ""
    task: str = ""
    unfinished: tuple[str, ...] = ()


class AlarmNow(msgspec.Struct, frozen=True):
    what: str
    text: str
    since_ns: int


@dataclass(frozen=True, kw_only=True)
class RunView:
    """A run at `mono_ns` (the controller's clock), `wall_ns` (UTC).

    stage: where the run is, in a word. result: of the last turn of the loop, None before the first.
    known: names of VMs that are there, or named. lost_ranges: task → key ranges without (all of) their state.
    latency: (sink, source) → rows by bucket, end to end; in_task: task → the same, of its rows in it, in this life.
    offered_tps: now, of a source on average. events, actions, decision: as they were reported."""

    mono_ns: int
    wall_ns: int
    run: str
    trace: str | None
    boot: int
    version: str
    pid: int
    stage: str
    mode: str
    held: str
    advice: str
    ended: str
    topology: Topology | None
    package: str  # the digest of the one with its code; none: the code is in folders
    code: tuple[int, int]  # its number, and how many slots have another one than they shall have
    models: tuple[Model, ...]
    rollout: RolloutStarted | None
    phase: str
    under_way: RolloutUnderWay | None
    proposal: PlanProposal | None
    rollouts: tuple[Rollout, ...]
    rollouts_dropped: dict[str, int]
    waiting: RolloutStarted | None
    planning_s: Mapping[int, float]
    started_ns: int
    intake_ended_ns: int
    done_ns: int  # UTC, when a row got done last, of a run that ends; 0 before
    result: LoopResult | None
    vms: tuple[VmStatus, ...]
    known: frozenset[str]
    profile: ProfileSpec | None
    profile_s: float
    measuring: Measuring | None
    source_kind: str | None
    offered_tps: float | None
    ways: tuple[VmWay, ...]  # between VMs
    lags: tuple[Lag, ...]
    cap_tps: float | None
    tuples: TupleCounts
    # offered, emitted and acked or dead-lettered since the run began; and not done when it was heard last
    by_source: dict[str, tuple[int, int, int, int]]
    letters: DeadLettersNow
    lost_ranges: dict[str, int]
    applied_again: int
    latency: dict[tuple[str, str], tuple[int, ...]]
    predicted_latency: PlanLatency | None  # of the plan in force, at about the present rate
    in_task: dict[str, tuple[int, ...]]
    user_metrics: tuple[UserMetricNow, ...]  # tasks' own
    alarms: tuple[AlarmNow, ...]
    hot_keys: tuple[HotKey, ...]
    event_time: tuple[EventTimeNow, ...]
    end: EndNow
    troubled: bool
    troubles: dict[str, int]
    events: tuple[dict[str, Any], ...]
    event_number: int
    actions: tuple[dict[str, Any], ...]
    decision: dict[str, Any] | None

    # ── the plan in force ───────────────────────────────────────────────────────────────────────

    @property
    def plan(self) -> Plan | None:
        return self.rollout.plan if self.rollout else None

    @property
    def epoch(self) -> int:
        return self.rollout.epoch if self.rollout else 0

    @property
    def placed(self) -> PlacedThreads:
        return self.rollout.placed if self.rollout else NOWHERE

    @cached_property
    def plan_facts(self) -> dict[str, Any] | None:
        """What everybody shows of the plan in force."""
        if self.rollout is None:
            return None
        plan, rollout = self.rollout.plan, self.rollout
        return {
            **{name: getattr(rollout, name) for name in ("epoch", "reason", "text")},
            **{name: getattr(plan, name) for name in ("id", "rate_tps", "allocator", "mapper", "routing")},
            "phase": self.phase,
            "predicted_tps": plan.prediction.told_tps,
            "limited_by": plan.prediction.limited_by,
            "limited_by_slot": plan.prediction.limited_by_slot,
            "threads": sum(bundle.threads for bundle in plan.placement.bundles),
            "degraded": rollout.degraded or None,
        }

    @property
    def bottleneck(self) -> SaturatesFirst | None:
        """What everybody names so; None where nothing is known to limit the plan."""
        plan = self.plan
        if plan is None or plan.prediction.told_tps is None:
            return None
        found = plan.prediction
        if found.limited_by is None or found.limited_by_slot is None:
            return None
        load = self.result.loads.get(found.limited_by) if self.result else None
        share = load.share if load is not None else None
        return SaturatesFirst(found.limited_by, found.limited_by_slot, plan.prediction.told_tps, share)

    @property
    def slots_used(self) -> int:
        return self.plan.slots.used if self.plan else 0

    @cached_property
    def slots_total(self) -> int:
        """Of the VMs that are there, without those that other runs have."""
        return sum(slot.state != "withheld" for vm in self.vms if vm.up for slot in vm.slots)

    @cached_property
    def unknown(self) -> tuple[str, ...]:
        """Tasks that nothing is known of yet."""
        return unknown_tasks(self.topology, self._by_name) if self.topology else ()

    @cached_property
    def tentative(self) -> tuple[str, ...]:
        """Tasks whose models come of few or disturbed rows."""
        tasks = self.topology.breadth_first if self.topology else ()
        known = self._by_name
        return tuple(t.name for t in tasks if (model := known.get(t.model_name)) and model.tentative)

    @cached_property
    def _by_name(self) -> dict[str, Model]:
        return {model.task: model for model in self.models}

    # ── rates and time ──────────────────────────────────────────────────────────────────────────

    @property
    def planned_tps(self) -> float | None:
        return self.plan.rate_tps if self.plan else None

    @property
    def predicted_tps(self) -> float | None:
        return self.plan.prediction.told_tps if self.plan else None

    @property
    def headroom_tps(self) -> float | None:
        if self.predicted_tps is None or self.offered_tps is None:
            return None
        return self.predicted_tps - self.offered_tps

    @cached_property
    def emitted_tps(self) -> float | None:
        """Of the last `LATELY_S`; None before there is so much. So is `acked_tps`."""
        return self._lately("emitted")

    @cached_property
    def acked_tps(self) -> float | None:
        return self._lately("acked")

    def _lately(self, what: Literal["emitted", "acked"]) -> float | None:
        return None if self.result is None else self.result.window.progress.lately(what, LATELY_S)

    @property
    def lag(self) -> Lag | None:
        """Of the arriving source that is furthest behind; None without one."""
        return max(self.lags, key=lambda lag: (lag.seconds, lag.rows), default=None)

    @property
    def seconds(self) -> float:
        """Since the first tuple was due."""
        return self._since_start(self.wall_ns)

    @property
    def intake_s(self) -> float:
        """Of these, until no more was taken in."""
        return self._since_start(self.intake_ended_ns or self.wall_ns)

    @property
    def done_s(self) -> float:
        """For how long rows got done: while there was an offer, and until the last one where it took long after."""
        done_s = self._since_start(self.done_ns)
        return done_s if self.done_ns and done_s > self.intake_s + DRAINS_S else self.intake_s

    def _since_start(self, wall_ns: int) -> float:
        return max(0.0, (wall_ns - self.started_ns) / NS) if self.started_ns else 0.0

    # ── what was measured ───────────────────────────────────────────────────────────────────────

    @property
    def verdict(self) -> str:
        return self.result.health.verdict if self.result else "unknown"

    @property
    def window(self) -> MeasuredWindow | None:
        return self.result.window if self.result else None

    def measured(self, slot: Slot) -> SlotWindow | None:
        return self.result.window.slots.get(slot) if self.result else None

    def measured_vm(self, vm: VmStatus) -> tuple[float | None, float | None]:
        """CPU and memory of all its slots together, as fractions of them."""
        uses = [use for slot in vm.slots if (use := self.measured(slot.slot)) is not None]
        if not uses:
            return None, None
        return sum(use.cpu for use in uses) / vm.vm.slots, sum(use.memory for use in uses) / vm.vm.slots

    def predicted(self, slot: Slot) -> tuple[float | None, float | None]:
        """CPU and memory at the present rate."""
        return self.result.predicted.get(slot, (None, None)) if self.result else (None, None)

    @cached_property
    def latency_ms(self) -> dict[str, float | None]:
        """End to end over all sinks, from the intended emit time, since the run began; max: none was longer. None
        without rows."""
        sums = [sum(counts) for counts in zip(*self.latency.values(), strict=True)] or [0] * BUCKETS
        if not any(sums):
            return {"p50": None, "p95": None, "p99": None, "max": None}
        highest = max(bucket for bucket, count in enumerate(sums) if count)
        shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
        found = {name: round(percentile_ns(sums, share) / MS, 3) for name, share in shares.items()}
        return {**found, "max": round(lowest_ns(highest + 1) / MS, 3)}
