"""Plans in force and rows that wait, second by second of virtual time. Pure.

A policy looks once a second. What it asks for is planned by `core.decide.choose`, and is in force after the delays
given; until a plan is committed the slots of threads that leave are held, and the plan is not lowered, as in the
controller (`rivals` are not bound by that). A plan carries exactly what is predicted for it; what comes above that
waits its turn. What only the whole loop sees (samples, faults, models that are wrong) is not in it: a test holds
both to the same plans.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

from headgate.controller.analyze.demand import LEVEL_S, Offer
from headgate.controller.backtesting.deciders import PLANNERS, Decider, Turn1s
from headgate.controller.backtesting.policy_score import PolicyScore
from headgate.controller.core.decide import PlanQuestion, choose
from headgate.controller.core.following import queue_s
from headgate.controller.execute.diff import diff
from headgate.controller.execute.steps import PROBATION_WINDOWS
from headgate.controller.knowledge.config import ControllerSettings
from headgate.controller.knowledge.diagnoses import Horizon, Past
from headgate.controller.knowledge.models import Model
from headgate.controller.knowledge.plans import Plan, ThreadAt
from headgate.controller.plan.planner import PlanRequest
from headgate.controller.plan.predict import predict
from headgate.controller.replaying.world import Delays
from headgate.topology_runtime.cluster import Slot, Vm
from headgate.topology_runtime.errors import Infeasible
from headgate.topology_runtime.faults.words import significant
from headgate.topology_runtime.schedule import NS
from headgate.topology_runtime.topology import Topology

HALF_S = 0.5
KEPT = 64  # plans that are reckoned with
PHASE_S = 0.25  # of the first turn: changes of a rate are not seen just as they come
PROBATION_S = PROBATION_WINDOWS * ControllerSettings(run="").probation_window_s


@dataclass(frozen=True)
class BacktestQuestion:
    """What to plan with. vms: those that may be had, in order; the first plan's are there from the start."""

    topology: Topology
    models: dict[str, Model]
    vms: tuple[Vm, ...]
    delays: Delays = Delays()
    allocator: str = "mba"
    mapper: str = "sam"
    routing: str = "weighted"
    interference: str = "cpu"
    best_that_fits: bool = False  # a first plan for less than asked for will do

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
    threads: tuple[ThreadAt, ...]
    slots_from_s: float
    in_force_s: float
    vms: tuple[str, ...]


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
    _first_tps: float = 0.0
    _threads: tuple[ThreadAt, ...] = ()
    _next_thread: int = 0
    _on: tuple[str, ...] = ()
    _coming: _Rollout | None = None
    _in_force_at_s: float = -1e9
    _left: frozenset[Slot] = frozenset()  # slots of threads that leave, until the plan is committed

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
        self._carries_tps = first.carries_tps
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
        self.score.span(to_s - from_s, rows, self.plan.rate_tps, self._carries_tps)
        slots = {thread.slot for thread in self._threads} | self._left
        on = set(self._on)
        if self._coming is not None:
            on |= set(self._coming.vms)
            if from_s >= self._coming.slots_from_s:
                slots |= {thread.slot for thread in self._coming.threads}
        usd = sum(vm.usd_per_hour for vm in self.question.vms if vm.vm in on)
        self.score.held(to_s - from_s, len(slots), len(on), usd)
        return rows

    def _moves_on(self, at_s: float) -> None:
        """A plan comes into force, or is committed."""
        if (new := self._coming) is not None and at_s >= new.in_force_s:
            staying = {thread.slot for thread in new.threads}
            self._left = frozenset({thread.slot for thread in self._threads} | self._left) - staying
            self.plan, self._threads, self._coming = new.plan, new.threads, None
            self._carries_tps = new.carries_tps
            self._in_force_at_s = new.in_force_s
            self._on = tuple(dict.fromkeys((*self._on, *new.vms)))
        if self._coming is None and (not self.held or at_s >= self._in_force_at_s + PROBATION_S):
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
                self._carries_tps,
                done_tps,
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
        self._coming = new

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
                    f"no plan carries {significant(rate_tps, 6)} tuples/s",
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
        threads, carries_tps = (*change.keep, *change.start), q.carries(choice.plan)
        return _Rollout(choice.plan, carries_tps, threads, begins_s, begins_s + q.delays.enact_s, vms)

    def _pins(self) -> dict[str, tuple[Slot, ...]]:
        """Tasks of fixed size stay where they are."""
        fixed = [task.name for task in self.question.topology.tasks if task.static is not None]
        found = {name: tuple(t.slot for t in self._threads if t.task == name) for name in fixed}
        return {name: slots for name, slots in found.items() if slots}
