"""Plans that take long are made beside the loop: asked for in one turn, used in a later one. Pure.

The shell makes them in a thread of its own and gives them back as an event, `PlanMade`, which is recorded like every
other, so a replay gets the same plan at the same moment. A plan follows from what was asked (`PlanRequest`), and is
used for just that: where VMs, models, pins or the plan in force are others by then, it is dropped, and made again if it
is still called for. Which threads stay is no part of what is asked: a plan is moved onto those that are there when it
is used; and so are traffic and the sizes of states, which are measured again and again. Which plans take long follows
from what is asked too (`takes_time`), not from a clock.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from headgate.controller.core.plan_choice import planned
from headgate.controller.knowledge.diagnoses import Diagnosis
from headgate.controller.knowledge.knowledge import FoundPlan, OrderedPlan, Turn
from headgate.controller.knowledge.loop_events import Answer, Command, MakePlan, Measured, PlanMade
from headgate.controller.models.plans import Plan
from headgate.controller.plan.planner import PlanRequest, takes_time
from headgate.topology_runtime.errors import Conflict, HeadgateError, Infeasible, InvalidInput
from headgate.topology_runtime.wire.messages import refusal
from headgate.topology_runtime.wording import significant

NS = 1_000_000_000
REST = 4  # times as long as a plan took that changed nothing: so much of a core at most goes into such plans
LONG_NS = 60 * NS  # a plan that takes longer raises an alarm
PARKED_MOST = 16  # commands; more are refused
PARTS = (("vms", "the VMs"), ("may_add", "the VMs that may be added"), ("excluded", "the quarantined slots"),
         ("pinned", "where sources are"), ("models", "the models"), ("topology", "the topology"),
         ("base_epoch", "the plan in force"), ("in_force", "what of it lives"), ("rate_tps", "the rate"))  # fmt: skip

Planned = Callable[[PlanRequest], tuple[Plan, str]]


class NotYet(Exception):
    """A plan is being made beside the loop, or a pause is made: the words why."""


def planned_in_background(turn: Turn, diagnosis: Diagnosis | None = None, urgent: bool = False) -> Planned:
    """As `plan_choice.planned` for whoever can wait: at once where that is quick, else what was made of this very
    request; raises NotYet until then. What is urgent does not wait for what is not. diagnosis: that asks."""

    def make(request: PlanRequest) -> tuple[Plan, str]:
        if not takes_time(request):
            return planned(request)
        found = turn.knowledge.background.found
        if found is None or _measured_as(found.request, request) != request:
            raise NotYet(_ask(turn, request, diagnosis, urgent))
        if found.error is not None:
            raise found.error
        assert found.plan is not None
        return found.plan, found.degraded

    return make


def _measured_as(asked: PlanRequest, request: PlanRequest) -> PlanRequest:
    """With what is measured again and again as it is now."""
    return replace(asked, traffic=request.traffic, states=request.states)


def _ask(turn: Turn, request: PlanRequest, diagnosis: Diagnosis | None, urgent: bool) -> str:
    """Have this plan made, if none is being made and no pause; why there is none yet."""
    background, now_ns = turn.knowledge.background, turn.now.mono_ns
    asked = background.asked
    if asked is not None and (asked.urgent or not urgent):
        return f"a plan for {asked.request.rate_tps:,.1f} rows/s is being made"
    if now_ns < background.rest_until_ns and diagnosis is not None and not urgent:
        return "a plan that changed nothing was made a moment ago, and the next one waits"
    background.number += 1
    epoch = turn.knowledge.durable.next_epoch
    background.asked = OrderedPlan(background.number, request, now_ns, epoch, diagnosis, urgent)
    turn.do(MakePlan(background.number, partial(planned, request)))
    return f"a plan for {request.rate_tps:,.1f} rows/s is being made"


def made_whole(turn: Turn, request: PlanRequest) -> Plan:
    """Of a request that takes time the plan for all of its rate; raises NotYet, or Infeasible."""
    plan, degraded = planned_in_background(turn)(request)
    if degraded:
        raise Infeasible(f"no plan for {significant(request.rate_tps, 6)} rows/s fits", cause=degraded)
    return plan


def park(turn: Turn, command: Command) -> None:
    """Answer this command when the plan that is being made is there."""
    parked = turn.knowledge.background.parked
    if len(parked) < PARKED_MOST:
        parked.append(command)
    else:
        error = Conflict("too many wait for plans that are being made", hint="ask again in a moment")
        turn.do(Answer(command.number, refusal(error)))


def unpark(turn: Turn) -> list[Command]:
    """Those that waited, to be asked again."""
    background = turn.knowledge.background
    parked, background.parked = background.parked, []
    return parked


def take(turn: Turn, made: PlanMade) -> OrderedPlan | None:
    """Know what was made; what had asked for it, None when nothing waits for it any more."""
    background = turn.knowledge.background
    asked = background.asked
    if asked is None or asked.number != made.number:  # something urgent came, or an earlier life had asked
        return None
    background.asked = None
    background.found = FoundPlan(asked.request, made.plan, made.degraded, _error_of(made))
    if asked.diagnosis is not None:
        background.rest_until_ns = turn.now.mono_ns + int(REST * made.seconds * NS)
    return asked


def used(turn: Turn, asked: OrderedPlan, seconds: float) -> None:
    """Did what was made lead to an enactment? Then no pause is made, and how long it took is known."""
    background, epoch = turn.knowledge.background, turn.knowledge.durable.next_epoch
    if epoch != asked.next_epoch:
        background.rest_until_ns = 0
        background.took_s = epoch - 1, seconds


def measured(turn: Turn, event: Measured) -> None:
    """How long the plan of an epoch took, with what was made of it beside the loop."""
    k = turn.knowledge
    kept = {rollout.epoch for rollout in k.durable.rollouts}
    known = {epoch: s for epoch, s in k.counts.planning_s.items() if epoch in kept}
    made, took_s = k.background.took_s
    seconds = event.seconds + (took_s if made == event.epoch else 0.0)
    k.counts.planning_s = known | {event.epoch: seconds}


def changes(then: PlanRequest, now: PlanRequest) -> str:
    """What is not as it was when a plan was asked for, in words; empty when all is."""
    return " and ".join(words for part, words in PARTS if getattr(then, part) != getattr(now, part))


def watch(turn: Turn) -> None:
    """Say that a plan takes very long."""
    asked = turn.knowledge.background.asked
    if asked is not None and turn.now.mono_ns - asked.since_ns > LONG_NS:
        what = f"a plan for {asked.request.rate_tps:,.1f} rows/s has been made for {LONG_NS // NS} s"
        turn.alarm("plan", f"{what} and is not finished; allocator `mba` and mapper `sam` are quick")


def _error_of(made: PlanMade) -> HeadgateError | None:
    if made.error is None:
        return None
    code, _, what, cause, hint, faults = made.error
    kinds = {kind.code: kind for kind in (Infeasible, InvalidInput, Conflict)}
    return kinds.get(code, HeadgateError)(what, cause=cause, hint=hint, faults=faults)
