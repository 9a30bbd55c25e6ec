"""Plans in force and rows that wait, second by second of virtual time. Pure.

A policy looks once a second. What it asks for is planned by `core.decide.choose`, and is in force after the delays
given; until a plan is committed the slots of threads that leave are held, and the plan is not lowered, as in the
controller (`rivals` are not bound by that). A plan carries what is predicted for it, unless models are said to be off;
what comes above that waits its turn. What only the whole loop sees (samples, faults) is not in it: a test holds both
to the same plans.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from headgate.controller.analyze.demand import LEVEL_S, Offer
from headgate.controller.core.plan_choice import PlanQuestion, choose
from headgate.controller.core.rate_following import queue_s
from headgate.controller.execute.plan_diff import diff
from headgate.controller.execute.rollout_steps import PROBATION_WINDOWS
from headgate.controller.knowledge.controller_config import ControllerSettings
from headgate.controller.knowledge.diagnoses import Horizon, Past
from headgate.controller.models.plans import Plan, ThreadAt
from headgate.controller.models.task_models import Model
from headgate.controller.plan.planner import PlanRequest
from headgate.controller.plan.predict.prediction import predict
from headgate.controller.replay.ideal_machines import Delays
from headgate.lab.rate_policies.policy_rules import PLANNERS
from headgate.lab.rate_policies.rule_turns import Decider, Turn1s
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import Infeasible
from headgate.topology_runtime.rates.schedule import NS
from headgate.topology_runtime.wording import significant

# ── What a policy needed and what it failed to carry. Pure ───
#
# slot-seconds    of slots with threads, those that leave until a plan is committed included
# short           time in which more is offered than the plan in force carries, and the rows above it
# late            rows that waited longer than they may: what is above the plan waits its turn, first come
# first done

Row = dict[str, Any]

HOUR_S = 3600.0
SHORT_MOST = 0.01  # of the rows, above a plan: a policy that leaves more short is no cheaper one


class ScoreSeries(NamedTuple):
    """Span by span, at its end."""

    at_s: list[float]
    offered_tps: list[float]
    planned_tps: list[float]
    carried_tps: list[float]
    backlog: list[float]


@dataclass
class PolicyScore:
    """Sums over spans of time in which nothing changes. may_wait_s: what rows may wait. keeps: each span, for
    `waits` and the timeline."""

    may_wait_s: float
    keeps: bool = True
    seconds: float = 0.0
    slot_seconds: float = 0.0
    vm_seconds: float = 0.0
    usd: float = 0.0
    offered: float = 0.0
    planned: float = 0.0
    short_s: float = 0.0
    short_rows: float = 0.0
    moves: int = 0
    repeated: float = 0.0
    plans_at_s: list[float] = field(default_factory=list)
    backlog: float = 0.0
    timeline: ScoreSeries = field(default_factory=lambda: ScoreSeries([], [], [], [], []))
    _at_s: list[float] = field(default_factory=lambda: [0.0])
    _came: list[float] = field(default_factory=lambda: [0.0])
    _done: list[float] = field(default_factory=lambda: [0.0])

    def span(self, long_s: float, rows: float, planned_tps: float, carried_tps: float) -> None:
        """So many rows came in so long, under a plan for `planned_tps` that carries `carried_tps`."""
        self.seconds += long_s
        self.offered += rows
        self.planned += planned_tps * long_s
        above = rows - carried_tps * long_s
        if above > 1e-9 * rows:
            self.short_s += long_s
            self.short_rows += above
        before, done = self.backlog, min(self.backlog + rows, carried_tps * long_s)
        self.backlog += rows - done
        if not self.keeps:
            return
        span = (self.seconds, rows / long_s, planned_tps, carried_tps, self.backlog)
        came, all_done = self._came[-1] + rows, self._done[-1] + done
        if before == self.backlog == 0 and self._goes_on(span):  # the last one is as long as both
            for column in (*self.timeline, self._at_s, self._came, self._done):
                column.pop()
        for column, value in zip(self.timeline, span, strict=True):
            column.append(value)
        self._at_s.append(self.seconds)
        self._came.append(came)
        self._done.append(all_done)

    def _goes_on(self, span: tuple[float, ...]) -> bool:
        """Is it the last one's rate, plan and queue?"""
        last = [column[-1] for column in self.timeline[1:]] if self.timeline.at_s else []
        return bool(last) and all(abs(a - b) <= 1e-9 * max(a, b) for a, b in zip(span[1:], last, strict=True))

    def held(self, long_s: float, slots: int, vms: int, usd_per_hour: float) -> None:
        self.slot_seconds += slots * long_s
        self.vm_seconds += vms * long_s
        self.usd += usd_per_hour * long_s / HOUR_S

    def waits(self) -> tuple[float, float, float]:
        """(rows that waited longer than they may, the wait of 99 of 100 rows and the longest, in s); of those that
        were not done, as long as they waited so far."""
        at_s, came, done = (np.array(column) for column in (self._at_s, self._came, self._done))
        rows = np.diff(came)
        some = rows > 0
        rows, middle = rows[some], ((came[1:] + came[:-1]) / 2)[some]
        due_s = ((at_s[1:] + at_s[:-1]) / 2)[some]
        wait_s = np.maximum(0.0, np.interp(middle, done, at_s) - due_s)
        wait_s = np.where(middle <= done[-1], wait_s, at_s[-1] - due_s)
        by_wait = np.argsort(wait_s)
        within = np.searchsorted(rows[by_wait].cumsum(), 0.99 * rows.sum())
        p99_s = wait_s[by_wait[min(within, len(rows) - 1)]] if len(rows) else 0.0
        return float(rows[wait_s > self.may_wait_s].sum()), float(p99_s), float(wait_s.max(initial=0.0))

    def behind_s(self) -> float:
        """From a rate above the plan in force until one is in force that carries what comes, in s: the middle one of
        all such times; 0 if there was none."""
        ends_s, offered, carried = (
            np.array(column)
            for column in (self.timeline.at_s, self.timeline.offered_tps, self.timeline.carried_tps)
        )
        above = np.concatenate([[False], offered > carried * (1 + 1e-9), [False]])
        edges = np.flatnonzero(above[1:] != above[:-1]).reshape(-1, 2)
        starts_s = np.concatenate([[0.0], ends_s])
        return float(np.median(starts_s[edges[:, 1]] - starts_s[edges[:, 0]])) if len(edges) else 0.0

    @property
    def most_in_a_minute(self) -> int:
        times = self.plans_at_s
        return max((sum(a <= b < a + 60 for b in times) for a in times), default=0)

    def row(self, policy: str, static: float, bare: float) -> Row:
        """The policy's line. static, bare: slot-seconds of one plan for the peak, with headroom and without."""
        late, p99_s, wait_s = self.waits()
        offered = max(self.offered, 1e-9)
        return {
            "policy": policy,
            "slot_seconds": round(self.slot_seconds, 1),
            "of_static": round(self.slot_seconds / static, 4),
            "of_bare": round(self.slot_seconds / bare, 4),
            "short_share": round(self.short_rows / offered, 6),
            "short_tuples": round(self.short_rows, 1),
            "short_s": round(self.short_s, 1),
            "late_share": round(late / offered, 6),
            "late_tuples": round(late, 1),
            "p99_wait_s": round(p99_s, 2),
            "longest_wait_s": round(wait_s, 2),
            "behind_s": round(self.behind_s(), 2),
            "repeated": round(self.repeated, 1),
            "plans": len(self.plans_at_s),
            "plans_in_a_minute_most": self.most_in_a_minute,
            "moves": self.moves,
            "planned_of_offered": round(self.planned / offered, 4),
            "vm_seconds": round(self.vm_seconds, 1),
            "usd": round(self.usd, 6),
        }


def rank_of(row: Row) -> tuple[bool, float, float]:
    """First those that carry enough, by what they needed."""
    fails = row["short_share"] > SHORT_MOST
    return fails, row["short_share"] if fails else 0.0, row["slot_seconds"]


HALF_S = 0.5
KEPT = 64  # plans that are reckoned with
PHASE_S = 0.25  # of the first turn: changes of a rate are not seen just as they come
BUSY_ERROR = 0.02  # of a busy share over a second, as read
PROBATION_S = PROBATION_WINDOWS * ControllerSettings(run="").probation_window_s


def two_normal(state: int) -> tuple[int, float, float]:
    """(next state, two values of a standard normal distribution): Knuth's MMIX generator, Box and Muller's way."""
    parts = []
    for _ in range(2):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        parts.append(((state >> 11) + 1) / 2**53)
    far = math.sqrt(-2 * math.log(parts[0]))
    return state, far * math.cos(2 * math.pi * parts[1]), far * math.sin(2 * math.pi * parts[1])


@dataclass(frozen=True)
class BacktestQuestion:
    """What to plan with. vms: those that may be had, in order; the first plan's are there from the start. restart_s:
    a rule of others stops all for so long with each plan, and does again what was done since a checkpoint, of which
    there is one every checkpoint_s; 0: all change plans as the controller does. models_off: rows cost so many times
    what models say; plans_off: standard deviation of ln of the same from plan to plan, besides. headroom_measured: by
    the errors of the run, for ours."""

    topology: Topology
    models: dict[str, Model]
    vms: tuple[Vm, ...]
    delays: Delays = Delays()
    allocator: str = "mba"
    mapper: str = "sam"
    routing: str = "weighted"
    interference: str = "cpu"
    best_that_fits: bool = False  # a first plan for less than asked for will do
    restart_s: float = 0.0
    checkpoint_s: float = 10.0
    models_off: float = 1.0
    plans_off: float = 0.0
    headroom_measured: bool = True

    def carries(self, plan: Plan) -> float:
        """What slots that share their CPU carry, whatever the planner reckons with."""
        if self.interference == "cpu":
            return plan.prediction.rate_tps
        return predict(
            self.topology, self.models, plan.placement, plan.vms, plan.rate_tps, routing=self.routing
        ).rate_tps


def with_planner(policy: str, question: BacktestQuestion) -> BacktestQuestion:
    """The question as this policy plans."""
    if policy not in PLANNERS:
        return question
    allocator, mapper = PLANNERS[policy]
    return replace(question, allocator=allocator, mapper=mapper, routing="shuffle", interference="none")


class Offering(Protocol):
    """What is offered: a schedule, or what was heard."""

    def rate_at(self, now_ns: int) -> float: ...

    def offered(self, now_ns: int) -> float: ...


@dataclass
class _Rollout:
    """A plan on its way. vms: there once it is in force."""

    plan: Plan
    carries_tps: float
    told_tps: float
    threads: tuple[ThreadAt, ...]
    slots_from_s: float
    in_force_s: float
    vms: tuple[str, ...]
    stops: bool = False  # nothing is done from `slots_from_s` on until it is in force


@dataclass
class FluidWorld:
    """One policy over one schedule. held: is it bound by probation? keeps: each span of time for its score. said: of
    the newest plan, or why there was none."""

    question: BacktestQuestion
    decider: Decider
    schedule: Offering
    held: bool = True
    keeps: bool = True
    said: str = ""
    score: PolicyScore = field(init=False)
    plans: list[tuple[float, float]] = field(
        default_factory=list
    )  # when, for what rate; the first is not among them
    plan: Plan | None = None  # in force
    _carries_tps: float = 0.0
    _told_tps: float = 0.0  # predicted
    _first_tps: float = 0.0
    _threads: tuple[ThreadAt, ...] = ()
    _next_thread: int = 0
    _on: tuple[str, ...] = ()
    _coming: _Rollout | None = None
    _in_force_at_s: float = -1e9
    _left: frozenset[Slot] = frozenset()  # slots of threads that leave, until the plan is committed
    _committed: bool = False
    _counted: tuple[bool, int, int, float] | None = (
        None  # (is the coming plan counted?, slots, VMs, USD/h) of a span
    )
    _errors: int = 20261201  # state of the generator of errors of measuring
    _plans_errors: int = 20261202  # … of plans

    def __post_init__(self) -> None:
        self.score = PolicyScore(queue_s(self.question.topology), self.keeps)

    @property
    def planned(self) -> Plan | None:
        """The newest plan: on its way, or in force."""
        return self._coming.plan if self._coming is not None else self.plan

    def seconds(self, seconds: float) -> Iterator[float]:
        """Every turn, as it is made."""
        rate_tps = self.schedule.rate_at(0)
        first = self._chosen(max(self.decider.first_tps(rate_tps), 1.0))
        assert first is not None, "the first plan is for nothing that runs"
        self.plan, self._threads, self._on = first.plan, first.threads, first.vms
        self._carries_tps, self._told_tps = first.carries_tps, first.told_tps
        self._first_tps = first.plan.rate_tps
        halves = [rate_tps] * (2 * LEVEL_S)  # as if it had been offered before
        self._pass(0.0, PHASE_S)
        at_s = PHASE_S
        while at_s < seconds:
            done_before = self.score.offered - self.score.backlog
            for _ in range(2):
                rows = self._pass(at_s, at_s + HALF_S)
                halves = [rows / HALF_S, *halves[: 2 * LEVEL_S - 1]]
                at_s += HALF_S
            self._turn(at_s, tuple(halves), self.score.offered - self.score.backlog - done_before)
            yield at_s

    # ── time passes ─────────────────────────────────────────────────────────────────────────────

    def _pass(self, from_s: float, to_s: float) -> float:
        """Rows that came."""
        cuts = [from_s, to_s]
        if self._coming is not None:
            cuts += [self._coming.slots_from_s, self._coming.in_force_s]
        cuts.append(self._in_force_at_s + PROBATION_S)
        cuts = sorted({cut for cut in cuts if from_s <= cut <= to_s})
        return sum(self._span(a, b) for a, b in zip(cuts, cuts[1:], strict=False))

    def _span(self, from_s: float, to_s: float) -> float:
        self._moves_on(from_s)
        assert self.plan is not None
        rows = self.schedule.offered(round(to_s * NS)) - self.schedule.offered(round(from_s * NS))
        starts = self._coming is not None and from_s >= self._coming.slots_from_s
        stopped = starts and self._coming is not None and self._coming.stops
        self.score.span(to_s - from_s, rows, self.plan.rate_tps, 0.0 if stopped else self._carries_tps)
        if self._counted is None or self._counted[0] != starts:
            self._counted = (starts, *self._held_by(starts))
        self.score.held(to_s - from_s, *self._counted[1:])
        return rows

    def _held_by(self, starts: bool) -> tuple[int, int, float]:
        """(slots, VMs, USD/h) that are held. starts: threads of the coming plan are there, too."""
        slots = {thread.slot for thread in self._threads} | self._left
        on = set(self._on)
        if self._coming is not None:
            on |= set(self._coming.vms)
            if starts:
                slots |= {thread.slot for thread in self._coming.threads}
        return len(slots), len(on), sum(vm.usd_per_hour for vm in self.question.vms if vm.vm in on)

    def _moves_on(self, at_s: float) -> None:
        """A plan comes into force, or is committed."""
        if (new := self._coming) is not None and at_s >= new.in_force_s:
            staying = {thread.slot for thread in new.threads}
            self._left = frozenset({thread.slot for thread in self._threads} | self._left) - staying
            self.plan, self._threads, self._coming = new.plan, new.threads, None
            self._carries_tps, self._told_tps = new.carries_tps, new.told_tps
            self._in_force_at_s = new.in_force_s
            self._on = tuple(dict.fromkeys((*self._on, *new.vms)))
            self._committed, self._counted = False, None
        if self._committed or self._coming is not None:
            return
        if not self.held or at_s >= self._in_force_at_s + PROBATION_S:
            self._committed, self._counted = True, None
            self._left = frozenset()
            used = {thread.slot.vm for thread in self._threads}
            self._on = tuple(vm for vm in self._on if vm in used)

    # ── a turn ──────────────────────────────────────────────────────────────────────────────────

    def _turn(self, at_s: float, halves: tuple[float, ...], done_tps: float) -> None:
        self._moves_on(at_s)
        plan = self.plan
        assert plan is not None
        in_force_s = at_s - self._in_force_at_s if self._coming is None else None
        rate_tps = self.decider.look(
            Turn1s(
                at_s,
                Offer(halves, backlog=self.score.backlog),
                plan.rate_tps if self._coming is None else self._coming.plan.rate_tps,
                self._told_tps,
                len(plan.placement.by_slot()),
                *self._measured(done_tps),
                in_force_s,
                self._past(at_s, in_force_s),
                self._horizon(plan),
            )
        )
        if rate_tps is None or in_force_s is None:
            return
        if self.held and in_force_s < PROBATION_S and rate_tps <= plan.rate_tps:
            return  # `core.deciding.why_still`
        new = self._chosen(max(rate_tps, 1e-3), at_s)
        if new is None:
            return
        self.score.plans_at_s.append(at_s)
        self.plans.append((at_s, new.plan.rate_tps))
        self._coming, self._counted = self._stopping(new, done_tps), None

    def _measured(self, done_tps: float) -> tuple[float, float]:
        """(rows/s done, the part of the second that the slowest task's threads worked), as counted in a second: rows
        come by chance, so that work and rows are about √rows off, and the clock of work is a little off besides."""
        self._errors, rows_off, clock_off = two_normal(self._errors)
        chance = 1 + rows_off / max(1.0, done_tps) ** 0.5
        busy = done_tps / max(self._carries_tps, 1e-9) * (1 + BUSY_ERROR * clock_off)
        counted = max(0.0, min(chance, 1 / max(busy, 1e-9))) if busy > 0 else 0.0
        return done_tps * counted, min(1.0, busy * counted)

    def _stopping(self, new: _Rollout, done_tps: float) -> _Rollout:
        """The plan as others bring it into force, who stop all: what is repeated comes first once it runs."""
        if self.held or not self.question.restart_s:
            return new
        repeated = done_tps * (new.slots_from_s % self.question.checkpoint_s)
        self.score.repeated += repeated
        long_s = self.question.restart_s + repeated / max(new.carries_tps, 1e-9)
        return replace(new, in_force_s=new.slots_from_s + long_s, stops=True)

    def _past(self, at_s: float, in_force_s: float | None) -> Past:
        plans = [(at_s - plan_s, rate_tps) for plan_s, rate_tps in self.plans[-KEPT:]]
        return Past.of(
            in_force_s or 0.0, plans if len(self.plans) > KEPT else [(at_s, self._first_tps), *plans]
        )

    def _horizon(self, plan: Plan) -> Horizon:
        delays, vms = self.question.delays, self.question.vms
        if len(self._on) >= len(vms):
            return Horizon(delays.enact_s, 0.0)
        there = sum(vm.slots for vm in vms if vm.vm in self._on)
        return Horizon(delays.enact_s, delays.machine_s, plan.rate_tps * there / max(1, plan.slots.used))

    def _chosen(self, rate_tps: float, at_s: float = 0.0) -> _Rollout | None:
        """The plan for this rate and when it is in force; None where nothing has to be moved for it."""
        q, here = self.question, tuple(vm for vm in self.question.vms if vm.vm in self._on)
        request = PlanRequest(
            topology=q.topology, models=q.models, rate_tps=rate_tps, vms=here,
            may_add=tuple(vm for vm in q.vms if vm.vm not in self._on), pinned=self._pins(),
            allocator=q.allocator, mapper=q.mapper, routing=q.routing, interference=q.interference,
        )  # fmt: skip
        choice = choose(
            PlanQuestion(request, self._threads, self.plan, False, frozenset(), self._next_thread)
        )
        self.said = choice.text
        if choice.plan is None or choice.degraded:
            if self.plan is None and not (q.best_that_fits and choice.plan is not None):
                raise Infeasible(
                    f"no plan carries {significant(rate_tps, 6)} rows/s",
                    cause=choice.degraded or choice.text,
                )
            if choice.plan is None:
                return None
        if choice.action == "adopt":
            self.plan = choice.plan
            return None
        change = diff(self._threads, choice.plan.placement, q.topology, self._next_thread)
        self._next_thread = change.next_thread
        if self.plan is not None:
            self.score.moves += len(change.start) + len(change.leave)
        machine_s = q.delays.machine_s if choice.asked else 0.0
        vms = tuple(vm.vm for vm in choice.plan.vms)
        begins_s = at_s + machine_s
        threads, told_tps = (*change.keep, *change.start), q.carries(choice.plan)
        self._plans_errors, far, _ = two_normal(self._plans_errors)
        carries_tps = told_tps / (q.models_off * math.exp(q.plans_off * far))
        return _Rollout(
            choice.plan, carries_tps, told_tps, threads, begins_s, begins_s + q.delays.enact_s, vms
        )

    def _pins(self) -> dict[str, tuple[Slot, ...]]:
        """Tasks of fixed size stay where they are."""
        fixed = [task.name for task in self.question.topology.tasks if task.static is not None]
        found = {name: tuple(t.slot for t in self._threads if t.task == name) for name in fixed}
        return {name: slots for name, slots in found.items() if slots}
