"""The controller's knowledge: the one mutable thing in it.

`durable` is what the journal holds and changes only through records. The rest is what was heard in this
life, and is found out again after a crash.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Any, Literal, NamedTuple, Protocol

from headgate.controller.knowledge.controller_config import ControllerSettings
from headgate.controller.knowledge.dead_letters import DeadLetterQueue
from headgate.controller.knowledge.diagnoses import Diagnosis, Headroom
from headgate.controller.knowledge.journal_records import Durable, HandedOver, Record, Submitted
from headgate.controller.knowledge.loop_events import (
    Command,
    Instruction,
    LatencyPredicted,
    Now,
    Persist,
    Say,
    Trace,
)
from headgate.controller.knowledge.membership import Membership
from headgate.controller.knowledge.offered_load import PartitionArrivals, SourceLoad
from headgate.controller.knowledge.run_tallies import FinishedTally, SourceTally, Tallies
from headgate.controller.knowledge.run_view import EventTimeNow, HotKey, PlanProposal, RunView
from headgate.controller.knowledge.vm_ways import VmWay
from headgate.controller.models.plans import MeasuredTraffic, Plan
from headgate.controller.models.task_models import Model
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.latency.latency_buckets import (
    BUCKETS,
    PER_DOUBLING,
    as_now,
    without_last_zeros,
)
from headgate.topology_runtime.wire.dead_letter_messages import VmStrikes
from headgate.topology_runtime.wire.messages import (
    DesiredState,
    Report,
    SourceStatus,
    SpoolLeft,
    Token,
    WorkerStatus,
)
from headgate.topology_runtime.wire.report_messages import HeldState, KeysSeen, ProfileSpec
from headgate.topology_runtime.wording import one_line, utc_iso

# ── What is being planned beside the loop, and what came of it last. Plain values ───────────────────────


@dataclass(slots=True)
class OrderedPlan:
    """A plan that the shell was ordered to make for `request`, when `next_epoch` was the next one. diagnosis: that
    waits for it (None: a command does). urgent: it does not wait for what is not."""

    number: int
    request: Any
    since_ns: int
    next_epoch: int
    diagnosis: Diagnosis | None
    urgent: bool


@dataclass(frozen=True, slots=True)
class FoundPlan:
    """What came of a request: a plan and why it is for less, or an error."""

    request: Any
    plan: Plan | None
    degraded: str
    error: HeadgateError | None


@dataclass(slots=True)
class BackgroundJobs:
    """asked: what is waited for; found: what was made last. rest_until_ns: nothing but what is urgent is asked before.
    parked: commands that wait for a plan. took_s: (epoch, how long its plan was made beside the loop)."""

    asked: OrderedPlan | None = None
    found: FoundPlan | None = None
    number: int = 0
    rest_until_ns: int = 0
    parked: list[Command] = field(default_factory=list)
    took_s: tuple[int, float] = (0, 0.0)


SILENT_NS = 3_000_000_000  # of a source whose threads say nothing for so long
ACTIONS_KEPT, EVENTS_KEPT, THREADS_KEPT, PLANS_KEPT = 200, 2000, 32, 64
OFFSETS_KEPT = 64  # of a source partition, above what is done

ENDED = 0  # stands for the boots of a VM's agents that ended as they should
EARLIER_LIFE = -1  # stands for the threads heard by a controller that was killed

Partition = tuple[str, int]  # source task, partition


@dataclass(slots=True)
class Apart:
    """Of a leaving source thread whose successor reads already: what was open in its ledger, up to `emitted`."""

    emitted: int
    acked: int
    done: int  # acked + acked_above

    @property
    def open(self) -> bool:
        return self.acked < self.emitted


@dataclass(slots=True)
class SourceKnown:
    """The highest positions ever reported of one source partition: they only move forward.

    held: as `SourceStatus` says. main, main_done: of the thread that reads: acked, and acked + acked_above. apart:
    threads that left with something open; what main counts as done and they do not is not done.
    replays: thread → (rows sent again by its workers that are gone, by the present one). reread: rows that were read
    once more, since who had read them is gone. again: was any? below: latest threads → all before is done, heard:
    how far their present workers have read. heard_ns: when they were heard, monotonic. recalled: by a later
    life of the controller. offsets: position → offset to go on from there, of a source that has them. arrivals:
    where rows are taken as they come."""

    emitted: int = 0
    main: int = 0
    main_done: int = 0
    exhausted: bool = False
    held: bool = False
    replays: dict[int, tuple[int, int]] = field(default_factory=dict)
    apart: dict[int, Apart] = field(default_factory=dict)
    reread: int = 0
    again: bool = False
    below: dict[int, int] = field(default_factory=dict)
    heard: dict[int, int] = field(default_factory=dict)
    heard_ns: int = 0
    recalled: bool = False
    offsets: dict[int, int] = field(default_factory=dict)
    arrivals: PartitionArrivals = field(default_factory=PartitionArrivals)

    @property
    def acked(self) -> int:
        """All positions below are done: the least over the threads that have something open."""
        return min((self.main, *(one.acked for one in self.apart.values() if one.open)))

    @property
    def done(self) -> int:
        return max(0, self.main_done - sum(one.emitted - one.done for one in self.apart.values()))

    def part(self, thread: int) -> Apart:
        """From now on this thread's positions are its own, and another reads from `emitted` on."""
        self.apart[thread] = Apart(self.emitted, self.main, self.main_done)
        self.main = self.main_done = self.emitted
        return self.apart[thread]

    def has_open(self, thread: int) -> bool:
        """Has it positions of its own that are not done?"""
        return thread in self.apart and self.apart[thread].open

    def fall_back(self, thread: int) -> None:
        """That thread is no more: who reads next begins where it left something open."""
        one = self.apart.pop(thread)
        if one.open:
            self.main = min(self.main, one.acked)
            self.main_done = min(self.main_done, one.done)

    def give_up(self, thread: int) -> None:
        """That thread is no more, and its positions are nobody's: what it had accepted comes under others."""
        del self.apart[thread]

    def go_on_from(self, position: int) -> tuple[int, int]:
        """(offset, rows from there to pass over) to begin at this position; (0, 0): where it is set to begin."""
        below = max((known for known in self.offsets if known <= position), default=None)
        return (0, 0) if below is None else (self.offsets[below], position - below)

    def _hear_offsets(self, now: SourceStatus) -> None:
        self.offsets |= {at: offset for at, offset in now.offsets if 0 <= at <= self.emitted and offset > 0}
        below = sorted(position for position in self.offsets if position <= self.acked)
        for position in below[:-1]:
            del self.offsets[position]
        for position in sorted(self.offsets)[1:-OFFSETS_KEPT]:
            del self.offsets[position]

    def hear(self, now: SourceStatus) -> None:
        self.again = self.again or now.emitted < self.emitted
        one = self.apart.get(now.thread)
        mine = (self.emitted, self.main) if one is None else (one.emitted, one.acked)
        read = self.heard.pop(now.thread, mine[0] if self.recalled else 0)
        begins = now.emitted > 0 and (read == 0 or now.emitted < read)
        if begins:  # where whoever read before had all acked
            self.reread += max(0, mine[0] - mine[1])
        self.heard[now.thread] = now.emitted
        self.emitted = max(self.emitted, now.emitted)
        done = now.acked + now.acked_above
        self.below[now.thread] = max(now.acked, self.below.pop(now.thread, 0))
        if len(self.below) > THREADS_KEPT:
            oldest = next(iter(self.below))
            del self.below[oldest], self.heard[oldest]
        if one is not None:
            one.acked, one.done = max(one.acked, now.acked), max(one.done, done)
        else:
            self.main, self.main_done = max(self.main, now.acked), max(self.main_done, done)
        self._hear_offsets(now)
        self.exhausted, self.held = now.exhausted, now.held
        before, last = self.replays.get(now.thread, (0, 0))
        if now.replayed < last:
            before += last
        self.replays[now.thread] = before, now.replayed

    @property
    def replayed(self) -> int:
        """Rows sent again, or read again."""
        return self.reread + sum(before + now for before, now in self.replays.values())


@dataclass(slots=True)
class RunCounts:
    """What the run has done so far: sources, dead letters, end-to-end latency."""

    sources: dict[Partition, SourceKnown] = field(default_factory=dict)
    latency: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    finished: FinishedTally | None = None  # of settled positions
    planning_s: dict[int, float] = field(default_factory=dict)  # epoch → until the plan was journaled
    unlogged: dict[tuple[str, int], int] = field(default_factory=dict)  # VM, boot (or ENDED) → rows in no log
    letters: DeadLetterQueue = field(default_factory=DeadLetterQueue)
    dead_letters_known: dict[str, tuple[int, int]] = field(default_factory=dict)  # the same, as the VM knows
    dead_letters_heard: dict[str, tuple[int, int]] = field(
        default_factory=dict
    )  # VM → boot, dead letters below
    applied_again: dict[int, int] = field(default_factory=dict)  # thread of a keyed task → rows, at most
    anew: set[str] = field(default_factory=set)  # sources with events that were (to be) accepted again

    def source(self, task: str, partition: int) -> SourceKnown:
        return self.sources.setdefault((task, partition), SourceKnown())

    def add_latency(self, sink: str, source: str, buckets: Sequence[int]) -> None:
        sums = self.latency.setdefault((sink, source), [0] * BUCKETS)
        sums[: len(buckets)] = map(add, sums, buckets)

    def age_ns(self, task: str, mono_ns: int) -> int:
        """How old the word of this source's threads is. 0 where one says nothing for long: then its rows wait."""
        mine = [known for (name, _), known in self.sources.items() if name == task and not known.exhausted]
        age_ns = mono_ns - min((known.heard_ns for known in mine), default=mono_ns)
        return age_ns if age_ns <= SILENT_NS else 0

    @property
    def emitted(self) -> int:
        return sum(known.emitted for known in self.sources.values())

    @property
    def done(self) -> int:
        """Distinct positions that left the ledgers, dead letters among them."""
        return sum(known.done for known in self.sources.values())

    @property
    def acked(self) -> int:
        """Distinct positions that were processed whole."""
        return sum(
            max(0, known.done - self.letters.of_done(*place, known.acked, known.done - known.acked))
            for place, known in self.sources.items()
        )

    @property
    def replayed(self) -> int:
        return sum(known.replayed for known in self.sources.values())

    @property
    def sent_again(self) -> bool:
        """Did any row come to the tasks more than once?"""
        return any(known.again or known.replayed for known in self.sources.values())

    def lives(self, vm: str) -> list[int]:
        """Boots of its agents that are there, or were killed: all but those that ended as they should."""
        return [boot for of, boot in self.unlogged if of == vm and boot != ENDED]

    def left(self, vm: str, boot: int) -> None:
        """An agent ended as it should, with all its logs read: a later one on its VM is no sign that it was killed."""
        if self.lives(vm) == [boot]:
            rows = self.unlogged.pop((vm, boot))
            self.unlogged[vm, ENDED] = rows + self.unlogged.get((vm, ENDED), 0)

    @property
    def finished_dropped(self) -> int:
        """Rows that (may have) reached a sink and are in no log: duplicates among them are not seen."""
        return sum(self.unlogged.values())

    def tallies(self, wall_ns: int) -> Tallies:
        sources = tuple(
            SourceTally(
                task,
                k,
                s.emitted,
                s.main,
                s.main_done,
                s.replayed,
                tuple((thread, one.emitted, one.acked, one.done) for thread, one in sorted(s.apart.items())),
                s.again,
                tuple(sorted(s.offsets.items())),
            )
            for (task, k), s in sorted(self.sources.items())
        )
        latency = tuple((sink, src, without_last_zeros(b)) for (sink, src), b in sorted(self.latency.items()))
        planning_s = tuple(sorted(self.planning_s.items()))
        unlogged = tuple((*agent, rows) for agent, rows in sorted(self.unlogged.items()))
        return Tallies(wall_ns, sources, latency, (), planning_s, self.finished, unlogged, PER_DOUBLING)

    def recall_apart(self, apart: Sequence[HandedOver]) -> None:
        """Hand-overs of an earlier life whose tallies were lost."""
        for gap in apart:
            known = self.source(gap.task, gap.partition)
            known.apart.setdefault(gap.thread, Apart(gap.emitted, gap.acked, gap.acked))

    def recall(self, tallies: Tallies) -> None:
        """Begin from what an earlier life had counted."""
        for s in tallies.sources:
            self.sources[s.task, s.partition] = SourceKnown(
                s.emitted,
                s.acked,
                s.done,
                replays={EARLIER_LIFE: (s.replayed, 0)},
                again=s.again,
                recalled=True,
                offsets=dict(s.offsets),
            )
            known = self.sources[s.task, s.partition]
            known.apart = {thread: Apart(*positions) for thread, *positions in s.apart}
        for sink, source, buckets in tallies.latency:
            self.add_latency(sink, source, as_now(buckets, tallies.per_doubling))
        self.planning_s.update(tallies.planning_s)
        self.finished = tallies.finished
        self.unlogged = {(vm, boot): rows for vm, boot, rows in tallies.unlogged}


@dataclass(slots=True)
class TrafficSeen:
    """measured: smoothed, since `at_ns` last. For mappers that go by it: loaded_since_ns: since when a VM has been over
    the bound; looked_ns, load_looked_ns: when a plan was last made to see whether it is better (all monotonic)."""

    measured: MeasuredTraffic | None = None
    at_ns: int = 0
    loaded_since_ns: int = 0
    load_looked_ns: int = 0
    looked_ns: int = 0


@dataclass(slots=True)
class Profiles:
    """Of tasks in spare slots. desired: the one that agents are sent, since `began_ns`. spent: from … to
    of those before it, in the last hour. again_ns: task → when it may be profiled again (monotonic ns)."""

    desired: ProfileSpec | None = None
    began_ns: int = 0
    spent: list[tuple[int, int]] = field(default_factory=list)
    again_ns: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FirstProfile:
    """Of a task before a run, on one kind of machine, since `began_ns`."""

    spec: ProfileSpec
    model: str
    machine: str
    began_ns: int


@dataclass(slots=True)
class FirstProfiles:
    """Before a run. running: by number. unfit: VM → why none of these profiles is started there any more. seconds: of
    those that are over."""

    running: dict[int, FirstProfile] = field(default_factory=dict)
    unfit: dict[str, str] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)


class RowsSeen(NamedTuple):
    """What a task's threads did in a second: frames that their rows came in; CPU, time in calls and of that off the
    CPU, delay until there was a CPU; what else the slot's CPU was used for. disturbed: the slot had not what is its.
    calls, ran_us2, waited_us2: see `row_spread`."""

    rows: float
    frames: float
    cpu_s: float
    busy_s: float
    wait_s: float
    delay_s: float
    others: float
    disturbed: bool
    calls: float = 0.0
    ran_us2: float = 0.0
    waited_us2: float = 0.0


@dataclass(slots=True)
class Learning:
    """Of tasks that nothing is known of yet, or little. seen: task → seconds of it; turns: of such a look; last: in
    which models were learned. gap_s: how long rows wait for others in buffers meanwhile (None: as ever). letters: dead
    letters of each task at the last look."""

    seen: dict[str, list[RowsSeen]] = field(default_factory=dict)
    letters: dict[str, int] = field(default_factory=dict)
    gap_s: float | None = None
    turns: int = 0
    last: int = 0


Stage = Literal["running", "ending", "draining", "settling", "leaving", "over"]


@dataclass(slots=True)
class RunEnd:
    """Where the end of the run stands (`execute/run_end.py`), since when. intake_ended_ns: UTC, when the offer ended.
    blocks: VMs whose last samples are in. done: rows and steps, and since when it is so many. stuck: steps in which
    nothing moved, since one was done. replays: rows sent again that count as a move, at most. timeout_s: of who stopped
    it. lost, event_time: as of when it leaves. unfinished: tasks that the end of the input did not come to."""

    stage: Stage = "running"
    since_ns: int = 0
    settled_wall_ns: int = 0
    intake_ended_ns: int = 0
    blocks: set[str] = field(default_factory=set)
    done: tuple[int, int] = (-1, 0)
    stuck: int = 0
    replays: int = 0
    reason: str = ""
    timeout_s: float = 0.0
    lost: int | None = None
    event_time: tuple[EventTimeNow, ...] = ()
    unfinished: tuple[str, ...] = ()


@dataclass
class Knowledge:
    """Everything the controller knows."""

    settings: ControllerSettings
    durable: Durable = field(default_factory=Durable)
    members: Membership = field(default_factory=Membership)
    ending: RunEnd = field(default_factory=RunEnd)
    pid: int = 0

    # what agents are sent
    desired: DesiredState | None = None
    composed_of: tuple[Durable, tuple[int, int], bool] | None = None  # what `desired` was made from
    counter: int = 0
    missing: tuple[object, str, object] = (None, "", None)  # enactment, its phase, what it waits for
    impatient: bool = False  # a leaving source had its time to run empty
    sent: dict[str, tuple[Token, int]] = field(default_factory=dict)  # VM → (token, when)
    leases: dict[str, int] = field(default_factory=dict)  # VM → when it was granted a lease last
    holders_token: Token = Token()  # the first desired state of this life with the present holders
    rested: set[int] = field(default_factory=set)  # exclusive threads that reported their end
    profiles: Profiles = field(default_factory=Profiles)
    first: FirstProfiles = field(default_factory=FirstProfiles)

    # times, monotonic ns
    started_ns: int = 0
    adopting_until_ns: int = 0  # after a restart: adopt what runs before saying anything
    phase_since_ns: int = 0
    switched_ns: int = 0
    in_force_ns: int = 0
    gathering_since_ns: int = 0
    next_turn_ns: int = 0
    journal_retry_ns: int = 0

    # what was heard
    counts: RunCounts = field(default_factory=RunCounts)
    machines_desired: tuple[str, ...] = ()
    machines_running: tuple[str, ...] = ()
    spools: dict[str, tuple[SpoolLeft, ...]] = field(default_factory=dict)  # VM → what is in its spools
    spools_again_ns: int = 0  # no plan is made before for events that nobody reads
    incarnations: dict[Slot, int] = field(default_factory=dict)  # highest ever reported
    failures: dict[str, VmStrikes] = field(
        default_factory=dict
    )  # VM → calls that its workers did not survive
    keys_seen: dict[str, tuple[int, tuple[KeysSeen, ...]]] = field(
        default_factory=dict
    )  # VM → when, and what it reported
    states_held: dict[int, HeldState] = field(
        default_factory=dict
    )  # thread of a keyed task → what it said last
    hot_keys: tuple[HotKey, ...] = ()
    hot_looked_ns: int = 0
    hot_since: dict[str, tuple[int, HotKey]] = field(
        default_factory=dict
    )  # task → since when, as it was reported last
    watermarks: dict[str, tuple[int | None, int, int]] = field(
        default_factory=dict
    )  # task → its watermark, since when it has that, and how many rows were done then
    foreign: dict[str, tuple[int, str]] = field(
        default_factory=dict
    )  # VM → when and why its version was refused

    # what was thought
    learning: Learning = field(default_factory=Learning)
    background: BackgroundJobs = field(default_factory=BackgroundJobs)
    latency: LatencyPredicted | None = None  # the newest
    considered: frozenset[str] = frozenset()  # VMs that were there when it was planned last
    measured_headroom: Headroom | None = None
    proven: dict[int, float] = field(default_factory=dict)  # epoch → highest rate at which it was stable
    windows_bad: int = 0  # of the probation under way
    windows_passed: int = 0
    unproved: str = ""  # why it is not known that rows are processed under the plan on probation
    probation_done: int | None = None  # rows done when it began
    done_before: int = 0  # rows done when the plan came into force
    crashes_before: dict[Slot, int] = field(default_factory=dict)  # of workers, when its last window began
    unbuilt_since: dict[int, int] = field(default_factory=dict)  # thread → since when it cannot be built
    left_out: dict[Slot, int] = field(default_factory=dict)  # slots that plans do without, until then
    given_up_since: dict[Slot, int] = field(default_factory=dict)  # quarantined slots → since when
    reusable: frozenset[Slot] = frozenset()  # of both, those to try where nothing else is left
    nothing_else: bool = False  # no plan could be made without these
    # (of an enactment that goes neither on nor back: slots that it is new to and that are not ready; None: it goes on)
    dead_end: frozenset[Slot] | None = None
    starved: dict[Slot, tuple[int, ...]] = field(default_factory=dict)  # when workers died for want of memory
    # (instead of which plan, until when, what is to be planned for want of memory)
    memory_wanted: tuple[Plan, int, Diagnosis] | None = None
    memory_more: dict[str, float] = field(
        default_factory=dict
    )  # task → of a slot, per thread, beyond its model
    open_circuits: dict[str, int] = field(default_factory=dict)  # plan id → until
    ways: tuple[VmWay, ...] = ()  # between VMs
    cut_off: dict[tuple[str, str], int] = field(
        default_factory=dict
    )  # VMs that did not reach each other → until when one without threads is not planned with
    cut_tried: tuple[Any, str] = (None, "")  # what a plan without a pair was looked for by, why there is none
    proposal: PlanProposal | None = None
    plans: dict[str, Plan] = field(default_factory=dict)  # id → plan that was decided about, the newest last
    last_decision: dict[str, Any] | None = None
    actions: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=ACTIONS_KEPT))
    events: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))
    event_number: int = 0
    alarms: dict[str, str] = field(default_factory=dict)  # what → in words
    clock_stepped_ns: int = 0  # when a VM's clock was seen to have been set last (monotonic)
    alarm_since_ns: dict[str, int] = field(default_factory=dict)  # what → when it was raised (UTC)
    found_off: dict[str, str] = field(default_factory=dict)  # model or VM → by how much, in words
    refits_tried_ns: int = 0  # a plan with models that an analysis refitted was called for (monotonic)
    advice: str = ""  # what would be done now (mode advise)
    advised_slots: int = 0  # … with so many slots
    held: str = ""  # why no plan is made by itself
    troubles: dict[str, int] = field(default_factory=dict)
    traffic: TrafficSeen = field(default_factory=TrafficSeen)

    def remember(self, plan: Plan) -> bool:
        """Keep it, so that it can be named; was it new?"""
        fresh = plan.id not in self.plans
        self.plans.pop(plan.id, None)
        self.plans[plan.id] = plan
        if len(self.plans) > PLANS_KEPT:
            del self.plans[next(iter(self.plans))]
        return fresh

    @property
    def topology(self) -> Topology | None:
        return self.durable.run.topology if self.durable.run else None

    @property
    def load(self) -> SourceLoad:
        sources = self.counts.sources
        arrivals = tuple((task, known.arrivals) for (task, _), known in sources.items())
        had = {place: known.emitted for place, known in sources.items() if known.exhausted or known.held}
        return SourceLoad(self.topology, self.durable.schedule, arrivals, had)

    @property
    def models(self) -> dict[str, Model]:
        return {model.task: model for model in self.durable.run.models} if self.durable.run else {}

    @property
    def headroom(self) -> Headroom:
        """As it was measured last, else as it is set."""
        return self.measured_headroom or Headroom(self.settings.headroom)

    @property
    def epoch(self) -> int:
        return self.durable.rollout.epoch if self.durable.rollout else 0

    @property
    def plan(self) -> Plan | None:
        return self.durable.rollout.plan if self.durable.rollout else None

    @property
    def mode(self) -> str:
        return self.durable.mode or self.settings.mode

    @property
    def epoch_to_be(self) -> int:
        """Of the plan that waits for its machines, or of the one that agents are held to."""
        return self.durable.waiting.epoch if self.durable.waiting is not None else self.epoch

    @property
    def hold(self) -> str:
        """Why no plan is made by itself, in words; empty when one may be."""
        held = self.durable.held_plan
        if self.held or held is None:
            return self.held
        what = "it" if held.epoch == self.epoch_to_be else "what had to take its place"
        return (
            f"an operator brought plan {held.plan} back at {utc_iso(held.wall_ns)[:19]}Z, and {what} is held"
        )

    def may_lease(self, report: Report) -> bool:
        """May this VM's exclusive threads go on? Only if it obeys a state with the present holders."""
        exclusive = self.topology is not None and self.topology.exclusive
        current = self.desired is not None and report.token >= self.holders_token
        return bool(exclusive) and current and report.vm not in self.durable.held_dead

    def obeyed_draining(self, worker: WorkerStatus | None) -> bool:
        """Does this worker obey a desired state that drains?"""
        told = self.desired is not None and self.desired.draining
        return told and worker is not None and self.desired is not None and worker.token >= self.desired.token

    def young_machines(self, now: Now) -> set[str]:
        """Machines that were not had for so long yet as they are to be."""
        born_ns = now.wall_ns - self.settings.machine_life_s * 1e9
        return {vm for vm, at_ns in self.durable.asked_ns.items() if at_ns > born_ns}

    def in_force_s(self, now: Now) -> float | None:
        """How long the plan has been in force; None while one is being enacted."""
        return (now.mono_ns - self.in_force_ns) / 1e9 if self.in_force and not self.enacting else None

    @property
    def in_force(self) -> bool:
        return self.durable.phase in ("probation", "committed")

    @property
    def withheld(self) -> frozenset[Slot]:
        """Slots of the VMs that other runs have."""
        granted = self.durable.granted
        if granted is None:
            return frozenset()
        known = (member.vm for member in self.members.members.values())
        return frozenset(slot for vm in known for slot in vm.all_slots()) - {*granted}

    @property
    def enacting(self) -> bool:
        return self.durable.waiting is not None or self.durable.phase in ("prepared", "switched")


# ── What one turn of the controller does to the world, collected while it thinks ────────────────────────
#
# Records change `knowledge.durable` at once; they come out as one Persist in front of everything else, so
# nothing is sent that the journal does not know.


class Run(Protocol):
    """What commands ask of the loop, and have it do."""

    def view(self, now: Now) -> RunView: ...

    def submit(self, turn: Turn, submitted: Submitted) -> None: ...


class Turn:
    """One turn at `now` of the loop `run`."""

    def __init__(self, knowledge: Knowledge, now: Now, run: Run | None = None) -> None:
        self.knowledge, self.now, self._run = knowledge, now, run
        self._records: list[Record] = []
        self._instructions: list[Instruction] = []

    def record(self, record: Record) -> None:
        """Journal this, and know it from now on."""
        self.knowledge.durable = record.after(self.knowledge.durable)
        self._records.append(record)

    def do(self, instruction: Instruction) -> None:
        self._instructions.append(instruction)

    def event(self, kind: str, text: str, level: str = "info", **more: Any) -> None:
        """Something happened that people may want to know: a flat record, and a line on stderr."""
        k, text = self.knowledge, one_line(text)
        k.event_number += 1
        k.events.append(
            {
                "number": k.event_number,
                "time": utc_iso(self.now.wall_ns),
                "kind": kind,
                "epoch": k.epoch,
                "text": text,
                **more,
            }
        )
        self.do(Say(level, text))

    def alarm(self, what: str, text: str, over: str = "", level: str = "warning", **more: Any) -> None:
        """An alarm holds while it has a text. That it began and is over (in these words, if any) is reported once; its
        own words may change."""
        alarms = self.knowledge.alarms
        if text and what not in alarms:
            self.event("alarm", text, level=level, what=what, **more)
        if text:
            alarms[what] = one_line(text)
        elif alarms.pop(what, "") and over:
            self.event("alarm_over", over, what=what, **more)

    def decided(self, decision: dict[str, Any], plan: Plan | None = None) -> None:
        """A decision for the trace, `explain` and `status`; the `plan` that it is about."""
        decision["text"] = one_line(decision["text"])
        self.knowledge.last_decision = decision
        if decision["action"] != "none":
            self.knowledge.actions.append(decision)
        fresh = plan is not None and self.knowledge.remember(plan)
        self.do(Trace("decision", decision, plan if fresh else None))

    @property
    def members(self) -> Membership:
        return self.knowledge.members

    @property
    def stage(self) -> Stage:
        return self.knowledge.ending.stage

    def view(self) -> RunView:
        assert self._run is not None
        return self._run.view(self.now)

    def submit(self, submitted: Submitted) -> None:
        assert self._run is not None
        self._run.submit(self, submitted)

    @property
    def writes(self) -> bool:
        return bool(self._records)

    def instructions(self) -> list[Instruction]:
        if not self._records:
            return self._instructions
        return [Persist(tuple(self._records)), *self._instructions]
