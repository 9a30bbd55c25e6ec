"""Answers to what clients ask (`Request.command` → data). Pure: a command may record, and say what to do.

A command that cannot be done raises a HeadgateError; the client gets its code, words and exit code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import msgspec

from headgate.controller.analyze.demand import planned_for
from headgate.controller.core import thinking
from headgate.controller.core.cordoning import COMMANDS as CORDON_COMMANDS
from headgate.controller.core.decide import PlanQuestion, moving_little
from headgate.controller.core.deciding import decide_made, enact_proposal, present, question
from headgate.controller.core.first_profiles import unmodelled
from headgate.controller.core.letter_commands import COMMANDS as LETTER_COMMANDS
from headgate.controller.core.letter_commands import whole
from headgate.controller.core.measuring_commands import models_of, refuse_if_taken, submission, take, withdraw
from headgate.controller.core.offers import offer
from headgate.controller.core.provided import addable
from headgate.controller.core.rate_question import rates_asked, side_by_side, whatif
from headgate.controller.core.recoding import replaced
from headgate.controller.core.rollback import plans, rollback
from headgate.controller.execute.ending import SCHEDULE_LEAD_NS, Ending
from headgate.controller.knowledge.knowledge import Knowledge
from headgate.controller.knowledge.membership import Membership
from headgate.controller.knowledge.records import HoldCleared, Scheduled, Submitted
from headgate.controller.knowledge.run_view import PlanProposal, RunView
from headgate.controller.knowledge.turn import Turn
from headgate.controller.knowledge.turns import Answer, AnswerLater, Command, Now, PlanMade
from headgate.controller.plan.latency_floor import refuse_below_floor
from headgate.controller.plan.planner import takes_time
from headgate.controller.plan.slot_fit import fitted
from headgate.controller.views.explanation import explain
from headgate.controller.views.status import status
from headgate.controller.views.summary import summary
from headgate.topology_runtime.errors import Conflict, HeadgateError, InvalidInput, UsageError
from headgate.topology_runtime.faults.words import significant
from headgate.topology_runtime.messages import Reply, refusal
from headgate.topology_runtime.topology import Topology

Arguments = dict[str, Any]
RATE_MOST_TPS = 1e9
MODES = ("auto", "advise", "approve")
QUIET_TPS = 1.0  # a question's rate does not matter before its rates are filled in


class Run(Protocol):
    """What commands ask of the loop, and have it do."""

    knowledge: Knowledge
    members: Membership
    ending: Ending

    def view(self, now: Now) -> RunView: ...

    def submit(self, turn: Turn, submitted: Submitted) -> None: ...


class Submission(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `submit`: what the loader made of the user's topology, the data of model files, rates.
    measure: models that lack, first; known: those that were measured before, each of one kind of machine; by: who
    submits, in his words."""

    topology: Topology
    models: tuple[Any, ...]
    steps: tuple[tuple[float, float], ...]
    period_s: float = 0.0
    user_paths: tuple[str, ...] = ()
    uncapped: bool = False
    package: str = ""
    measure: bool = False
    known: tuple[Any, ...] = ()
    by: str = ""


def answer(run: Run, turn: Turn, command: Command) -> None:
    """Do what is asked and answer; a handler that gives a `partial` has it done beside the loop, and one that needs a
    plan which is being made there is asked again when that is made."""
    request = command.request
    try:
        handler = COMMANDS.get(request.command)
        if handler is None:
            raise UsageError(f"the controller knows no command {request.command!r}", hint=", ".join(COMMANDS))
        found = handler(run, turn, request.arguments)
    except thinking.NotYet:
        thinking.park(turn, command)
        return
    except HeadgateError as error:
        turn.do(Answer(command.number, refusal(error)))
        return
    later = isinstance(found, partial)
    turn.do(AnswerLater(command.number, found) if later else Answer(command.number, Reply(data=found)))


def plan_made(run: Run, turn: Turn, made: PlanMade) -> None:
    """A plan was made beside the loop: use it for what it was asked for, and answer who waits for one."""
    asked = thinking.take(turn, made)
    if asked is None or run.ending.stage != "running" or run.knowledge.durable.run is None:
        return
    decide_made(turn, run.members, asked)
    thinking.used(turn, asked, made.seconds)
    for command in thinking.unpark(turn):
        answer(run, turn, command)


def _ping(run: Run, turn: Turn, arguments: Arguments) -> Any:
    k = run.knowledge
    return {"boot": k.durable.boot, "pid": k.pid, "run": k.settings.run}


def _status(run: Run, turn: Turn, arguments: Arguments) -> Any:
    return status(run.view(turn.now))


def _summary(run: Run, turn: Turn, arguments: Arguments) -> Any:
    return summary(run.view(turn.now))


def _explain(run: Run, turn: Turn, arguments: Arguments) -> Any:
    return explain(run.view(turn.now), whole(arguments, "last", 10, 1, 1000))


def _events(run: Run, turn: Turn, arguments: Arguments) -> Any:
    since, view = whole(arguments, "since", 0, 0, 1 << 62), run.view(turn.now)
    found = [event for event in view.events if event["number"] > since]
    return {"schema": "headgate/events/v1", "events": found, "last": view.event_number}


def _whatif(run: Run, turn: Turn, arguments: Arguments) -> Any:
    """What other rates would need. `offered`: the rates are offered, and the rows are of what would be planned then.
    `compare`: by every scheduler."""
    k, rates = run.knowledge, rates_asked(arguments)
    if arguments.get("offered"):
        planned_tps = k.plan.rate_tps if k.plan else 0.0
        rates = tuple(planned_for(rate_tps, planned_tps, k.settings.headroom) for rate_tps in rates)
    asked = question(k, run.members, QUIET_TPS)
    if arguments.get("compare"):
        return partial(side_by_side, asked, rates)
    return partial(whatif, asked.request, rates, bool(arguments.get("full")))


def _rate_set(run: Run, turn: Turn, arguments: Arguments) -> Any:
    rate = arguments.get("rate_tps")
    if not isinstance(rate, int | float) or isinstance(rate, bool) or not 0 <= rate <= RATE_MOST_TPS:
        raise InvalidInput(f"the rate {rate!r} is no rate", hint="tuples per second, 0 or more")
    k = run.knowledge
    schedule = k.durable.schedule
    if schedule is None or run.ending.stage != "running":
        raise Conflict(
            "nothing is offered now, so no rate can be set", hint="`headgate status` shows the run"
        )
    turn.record(Scheduled(schedule.changed(turn.now.wall_ns + SCHEDULE_LEAD_NS, float(rate))))
    arriving = k.topology is not None and bool(k.topology.arriving)
    what = "arriving rows are read at most at" if arriving else "the offered rate is"
    turn.event("rate_set", f"{what} {significant(rate, 6)} tuples/s from now on", rate_tps=float(rate))
    return {"rate_tps": float(rate), "before_tps": schedule.rate_at(turn.now.wall_ns)}


def _stop(run: Run, turn: Turn, arguments: Arguments) -> Any:
    run.ending.ask(turn, "stop was asked for")
    return {"stage": run.ending.stage, "run": run.knowledge.settings.run}


def _submit(run: Run, turn: Turn, arguments: Arguments) -> Any:
    k = run.knowledge
    if k.durable.run is not None:
        raise Conflict(
            f"this controller runs {k.durable.run.topology.name} already",
            hint="one controller runs one topology: stop it, or start another controller",
        )
    refuse_if_taken(k)
    try:
        given = msgspec.convert(arguments, Submission, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput("the submission is not one", cause=str(error)) from error
    _refuse_unsigned(run, given.package)
    if not given.steps or not all(math.isfinite(x) and x >= 0 for step in given.steps for x in step):
        raise InvalidInput("the offered rates are no rates", hint="steps of (seconds, tuples/s), from 0 s on")
    here = (*present(k, run.members), *k.settings.initial)[:1]
    read = models_of(given.models)
    models = (fitted(read, given.topology, vm.slot_cores, vm.slot_memory_bytes) for vm in here)
    fitting = next(models, read)
    refuse_below_floor(given.topology, {model.task: model for model in fitting})
    submitted = Submitted(
        given.topology,
        fitting,
        given.steps,
        given.period_s,
        given.user_paths,
        turn.now.wall_ns,
        given.uncapped,
        given.package,
    )
    answer = {"topology": given.topology.name, "run": k.settings.run}
    if given.measure and unmodelled(given.topology, submitted.models):
        return {**answer, **take(turn, submitted, given.by, models_of(given.known))}
    run.submit(turn, submitted)
    return answer


def _submission(run: Run, turn: Turn, arguments: Arguments) -> Any:
    return submission(run.knowledge, run.view(turn.now), arguments)


def _replace(run: Run, turn: Turn, arguments: Arguments) -> Any:
    """Other code for what runs."""
    here = present(run.knowledge, run.members)
    _refuse_unsigned(run, str(arguments.get("package", "")), bool(arguments.get("back")))
    return replaced(run, turn, arguments, (here, addable(run.knowledge, run.members, here)))


def _refuse_unsigned(run: Run, package: str, known: bool = False) -> None:
    """Raises InvalidInput where code from a folder would not be run."""
    strict = [member.vm.vm for member in run.members.up() if member.only_signed]
    if strict and not package and not known:
        raise InvalidInput(
            f"{', '.join(sorted(strict))} runs signed packages only", hint="headgate submit --ship"
        )


def _plan(run: Run, turn: Turn, arguments: Arguments) -> Any:
    """What would be planned now for a rate. Nothing is enacted; with `propose` it waits for `apply`."""
    rate = arguments.get("rate_tps")
    if not isinstance(rate, int | float) or isinstance(rate, bool) or not 0 < rate <= RATE_MOST_TPS:
        raise InvalidInput(f"the rate {rate!r} is no rate", hint="tuples per second, more than 0")
    k = run.knowledge
    asked = question(k, run.members, float(rate))
    if not takes_time(asked.request):
        plan = moving_little(asked)
    elif not arguments.get("propose"):
        return partial(_planned, asked)
    else:
        plan = moving_little(asked, lambda request: thinking.made_whole(turn, request))
    if arguments.get("propose"):
        here = {vm.vm for vm in present(k, run.members)}
        more = tuple(vm for vm in plan.vms if vm.vm not in here)
        k.proposal = PlanProposal(
            plan, "operator", f"asked for {significant(rate, 6)} tuples/s", k.epoch, more, ""
        )
    return msgspec.to_builtins(plan)


def _planned(asked: PlanQuestion) -> Any:
    return msgspec.to_builtins(moving_little(asked))


def _apply(run: Run, turn: Turn, arguments: Arguments) -> Any:
    """Enact the plan that waits for an operator's word."""
    k = run.knowledge
    proposal = k.proposal
    desired = arguments.get("id")
    if proposal is None or (desired is not None and proposal.plan.id != desired):
        waiting = f"plan {proposal.plan.id} does" if proposal else "none does"
        raise Conflict(f"plan {desired} does not wait for approval: {waiting}", hint="`headgate status`")
    if proposal.base_epoch != k.epoch:
        raise Conflict(
            f"plan {proposal.plan.id} is stale: made for epoch {proposal.base_epoch}, this is {k.epoch}"
        )
    if k.durable.held_plan is not None:
        raise Conflict(
            f"plan {proposal.plan.id} is not brought into force: {k.hold}", hint="`headgate resume` ends it"
        )
    if k.enacting:
        raise Conflict("another enactment is running", hint="wait until it is committed")
    enact_proposal(turn, run.members)
    return {"id": proposal.plan.id, "epoch": k.durable.next_epoch - 1}


def _resume(run: Run, turn: Turn, arguments: Arguments) -> Any:
    """Clear what keeps the controller from planning by itself; `mode` changes the mode."""
    k = run.knowledge
    mode = arguments.get("mode", k.mode)
    if mode not in MODES:
        raise InvalidInput(f"there is no mode {mode!r}", hint=", ".join(MODES))
    was = k.hold
    turn.record(HoldCleared(mode, turn.now.wall_ns))
    k.held = ""
    run.members.clear_alarm()
    k.open_circuits.clear()
    k.alarms.clear()
    turn.event("resumed", f"an operator let planning go on (mode {mode})")
    return {"mode": mode, "was_held": was or None}


COMMANDS: dict[str, Callable[[Run, Turn, Arguments], Any]] = {
    "ping": _ping,
    "status": _status,
    "summary": _summary,
    "explain": _explain,
    "events": _events,
    "whatif": _whatif,
    "rate_set": _rate_set,
    "stop": _stop,
    "submit": _submit,
    "replace": _replace,
    "submission": _submission,
    "withdraw": lambda run, turn, arguments: withdraw(turn, arguments),
    "plan": _plan,
    "apply": _apply,
    "resume": _resume,
    "plans": plans,
    "rollback": rollback,
    "offer": offer,
    **CORDON_COMMANDS,
    **LETTER_COMMANDS,
}
