"""Answers to what clients ask (`Request.command` → data). Pure: a command may record, and say what to do.

A command that cannot be done raises a HeadgateError; the client gets its code, words and exit code.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from traceback import extract_tb
from typing import Annotated, Any

import msgspec

from headgate.controller.analyze.demand import planned_for
from headgate.controller.core import background_planning, profiling
from headgate.controller.core.decisions import addable, decide_made, enact_proposal, present, question
from headgate.controller.core.granted_slots import GRANT_COMMANDS
from headgate.controller.core.model_updates import offer, task_named
from headgate.controller.core.operator_actions import CORDON_COMMANDS as CORDON_COMMANDS
from headgate.controller.core.operator_actions import plans, rollback
from headgate.controller.core.plan_choice import (
    PlanQuestion,
    moving_little,
    rates_asked,
    side_by_side,
    whatif,
)
from headgate.controller.core.profiling import unmodelled
from headgate.controller.core.rolling_upgrade import replaced
from headgate.controller.execute.run_end import SCHEDULE_LEAD_NS, ask_to_end
from headgate.controller.knowledge.dead_letters import DeadLetterQueue, KeptDeadLetter
from headgate.controller.knowledge.journal_records import HoldCleared, Scheduled, SubmissionTaken, Submitted
from headgate.controller.knowledge.knowledge import Knowledge, Turn
from headgate.controller.knowledge.loop_events import Answer, AnswerLater, Command, PlanMade, Say
from headgate.controller.knowledge.run_view import PlanProposal
from headgate.controller.models.model_data import model_data, model_of
from headgate.controller.models.task_models import Model
from headgate.controller.plan.planner import takes_time
from headgate.controller.plan.predict.prediction import refuse_below_floor
from headgate.controller.plan.predict.slot_fit import fitted
from headgate.controller.views.run_documents import explain, measuring_data, status, summary
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import Conflict, HeadgateError, InvalidInput, UsageError
from headgate.topology_runtime.wire.dead_letter_messages import told_place
from headgate.topology_runtime.wire.messages import Reply, refusal
from headgate.topology_runtime.wording import counted, error_text, significant, utc_iso
from headgate.topology_runtime.worker.rows import row_values

# ── Answers to what clients ask about dead letters. Pure, as commands.py ────────────────────────────────

Arguments = dict[str, Any]
NUMBERS_MOST = 100_000  # in one command
TAKEN_IN_MOST = 500  # dead letters of an earlier run in one command
LIST_HINT = "`headgate deadletter list` shows those that are kept"


def _counts(letters: DeadLetterQueue) -> dict[str, Any]:
    """How many rows died, in all (distinct source positions) and by task, and of how many the dead letter is kept."""
    kept = Counter(letter.task for letter in letters.of())
    rows = dict.fromkeys(kept, 0) | letters.counts()
    return {
        "dead_lettered": letters.count,
        "dropped": letters.dropped,
        "replayed": letters.replayed,
        "replaying": len(letters.asked),
        "tasks": [{"task": t, "rows": rows[t], "kept": kept[t]} for t in sorted(rows)],
    }


def _row(letters: DeadLetterQueue, letter: KeptDeadLetter) -> dict[str, Any]:
    """A dead letter as `headgate deadletter list` has it."""
    return {
        "id": letter.number,
        "time": utc_iso(letter.wall_ns),
        "task": letter.task,
        **told_place(letter.source, letter.partition, letter.position, letter.row, letter.feeder),
        "n": letters.times.get(letter.number, 1),
        "error": letter.error,
    }


def listed(turn: Turn, arguments: Arguments) -> Any:
    """Dead letters after a number, oldest first, and how many rows there are of each task."""
    after, most = whole(arguments, "after", 0, 0, 1 << 62), whole(arguments, "most", 500, 1, 500)
    letters, task = turn.knowledge.counts.letters, _task(arguments)
    found = [letter for letter in letters.of(task) if letter.number > after]
    return {**_counts(letters), "letters": [_row(letters, one) for one in found[:most]]}


def shown(turn: Turn, arguments: Arguments) -> Any:
    letters = turn.knowledge.counts.letters
    letter = _letter(letters, whole(arguments, "id", 0, 0, 1 << 62))
    more = {"thread": letter.thread, "row": letter.row, "traceback": letter.traceback}
    return {**_row(letters, letter), **more}


def drop(turn: Turn, arguments: Arguments) -> Any:
    """Delete dead letters: by their ids, of a task, or all. With an unknown id nothing is dropped."""
    letters = turn.knowledge.counts.letters
    dropped = sum(letters.drop(letter.number) for letter in _chosen(letters, arguments))
    make_room(turn, letters)
    turn.event("dead_letters_dropped", f"an operator dropped {dropped:,} dead letters")
    return {"dropped": dropped, **_counts(letters)}


def make_room(turn: Turn, letters: DeadLetterQueue) -> None:
    """Alarms of tasks of which more dead letters can be kept now are over."""
    for task in letters.counts():
        if letters.keeps(task):
            turn.knowledge.alarms.pop(f"dead letters {task}", None)


def replay(turn: Turn, arguments: Arguments) -> Any:
    """Have the rows of dead letters sent again: by their ids, of a task, or all. When one of them cannot be, none is.
    `dry`: only say which. `skip`: leave out those whose rows cannot be read back."""
    letters, topology = turn.knowledge.counts.letters, _running(turn)
    task = _task(arguments)
    if task is not None and task not in topology.by_name:
        raise _no_task(topology, [task])
    chosen = _chosen(letters, arguments)
    gone = sorted({letter.task for letter in chosen} - topology.by_name.keys())
    if gone:
        raise _no_task(topology, gone)
    bad = {letter.number: why for letter in chosen if (why := unsendable(topology, letter))}
    if bad and not arguments.get("skip"):
        number, why = next(iter(bad.items()))
        more = f" (and {len(bad) - 1:,} more)" if len(bad) > 1 else ""
        raise InvalidInput(
            f"dead letter {number}{more} cannot be sent again",
            cause=why,
            hint="`deadletter replay --skip-unreadable` sends the others; `deadletter show` has the row as text",
        )
    numbers = [letter.number for letter in chosen if letter.number not in bad]
    fresh = 0 if arguments.get("dry") else sum(map(letters.ask, numbers))
    if fresh:
        turn.event("dead_letters_replayed", f"an operator has the rows of {fresh:,} dead letters sent again")
    return {"ids": numbers, "unreadable": sorted(bad), "asked": fresh}


def replaying(turn: Turn, arguments: Arguments) -> Any:
    """What has become of these dead letters: still to be done, dead letters as before, or none any more."""
    letters = turn.knowledge.counts.letters
    ids = _ids(arguments)
    waiting = [number for number in ids if number in letters.asked]
    again = [number for number in ids if number in letters.kept and number not in letters.asked]
    return {
        "waiting": len(waiting),
        "died_again": again,
        "done": len(ids) - len(waiting) - len(again),
        "stage": turn.stage,
    }


def take_in(turn: Turn, arguments: Arguments) -> Any:
    """Dead letters of an earlier run become dead letters of this one. When one of them cannot be, none does. `dry`:
    only whether they could."""
    letters, topology = turn.knowledge.counts.letters, _running(turn)
    name = arguments.get("run")
    if not isinstance(name, str) or not name:
        raise InvalidInput("the run that the dead letters are of has no name")
    more = {"record": "letter", "run": name, "wall_ns": turn.now.wall_ns}
    try:
        given = msgspec.convert(arguments.get("letters"), list[dict[str, Any]])
        rows = [row | more | {"number": 0, "of": row.get("number")} for row in given[: TAKEN_IN_MOST + 1]]
        made = msgspec.convert(rows, list[KeptDeadLetter], strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput("invalid dead letters", cause=str(error)) from error
    if len(given) > TAKEN_IN_MOST:
        raise InvalidInput(f"{len(given):,} dead letters at once", cause=f"at most {TAKEN_IN_MOST}")
    gone = sorted({letter.task for letter in made} - topology.by_name.keys())
    if gone:
        raise _no_task(topology, gone)
    for letter in made:
        if why := unsendable(topology, letter):
            raise InvalidInput(f"dead letter {letter.of} of {name} cannot be sent again", cause=why)
    return {"ids": [] if arguments.get("dry") else [letters.take_in(letter) for letter in made]}


def unsendable(topology: Topology, letter: KeptDeadLetter) -> str:
    """Why the row of a dead letter cannot be given to its task; empty when it can."""
    if not letter.data:
        return "its row was not kept: it was too large, came in a flood, or is one that the task gave on"
    if letter.feeder not in {edge.source for _, edge in topology.in_edges(letter.task)}:
        return f"no rows of {letter.feeder or 'another task'} go to {letter.task} here"
    try:
        count = len(row_values.read(letter.data, letter.shape))
    except msgspec.DecodeError as error:
        return f"its row cannot be read back: {error}"
    return "" if count == 1 else f"its row cannot be read back: {count} rows"


def _running(turn: Turn) -> Topology:
    topology = turn.knowledge.topology
    if topology is None or turn.stage != "running" or turn.knowledge.durable.rollout is None:
        raise Conflict(
            "no run is going on that could process rows",
            cause="it has not started, or ends",
            hint="replay into a later run: headgate deadletter replay --trace TRACE",
        )
    return topology


def _no_task(topology: Topology, names: list[str]) -> InvalidInput:
    return InvalidInput(
        f"there is no task {', '.join(names)} in {topology.name}",
        cause=f"its tasks are {', '.join(task.name for task in topology.tasks)}",
        hint="rows can only be sent again to a task of the same name",
    )


def _ids(arguments: Arguments) -> list[int]:
    ids = arguments.get("ids") or []
    if not isinstance(ids, list) or not all(type(number) is int for number in ids):
        raise InvalidInput("the ids of dead letters are whole numbers", hint=LIST_HINT)
    if len(ids) > NUMBERS_MOST:
        raise InvalidInput(f"{len(ids):,} ids at once", cause=f"at most {NUMBERS_MOST:,}")
    return ids


def _chosen(letters: DeadLetterQueue, arguments: Arguments) -> Iterable[KeptDeadLetter]:
    """By their ids, of a task, or all; each once."""
    chosen = [_letter(letters, number) for number in _ids(arguments)]
    task = _task(arguments)
    if arguments.get("all") or task is not None:
        chosen += letters.of(task)
    return list({letter.number: letter for letter in chosen}.values())


def _task(arguments: Arguments) -> str | None:
    task = arguments.get("task")
    if task is not None and not isinstance(task, str):
        raise InvalidInput(f"a task is given by its name, not by {task!r}")
    return task


def _letter(letters: DeadLetterQueue, number: int) -> KeptDeadLetter:
    letter = letters.kept.get(number)
    if letter is None:
        raise InvalidInput(f"there is no dead letter {number}", hint=LIST_HINT)
    return letter


def whole(arguments: Arguments, name: str, default: int, least: int, most: int) -> int:
    value = arguments.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidInput(f"{name} must be a whole number from {least} to {most}, not {value!r}")
    return value


DEAD_LETTER_COMMANDS = {
    "deadletters": listed,
    "deadletter": shown,
    "deadletter_drop": drop,
    "deadletter_replay": replay,
    "deadletter_replaying": replaying,
    "deadletter_take_in": take_in,
}


# ── `submit` of what lacks models, and what is asked of such a submission. Pure ─────────────────────────

NUMBER_MOST = 1 << 62
BY_MOST = 128  # characters


def models_of(documents: Sequence[Any]) -> tuple[Model, ...]:
    """Of the data of model files. Raises InvalidInput with every fault."""
    read = [model_of(data) for data in documents]
    faults = [
        f"{task_named(data)}: {fault}"
        for data, (_, some) in zip(documents, read, strict=True)
        for fault in some
    ]
    if faults:
        raise InvalidInput("invalid models", faults=faults)
    return tuple(model for model, _ in read if model is not None)


def refuse_if_taken(k: Knowledge) -> None:
    """Raises Conflict while another submission is measured."""
    if (taken := k.durable.taken) is not None:
        who = f" of {taken.by}" if taken.by else ""
        raise Conflict(
            f"{taken.submitted.topology.name}{who} was submitted first: its tasks are being measured",
            hint="`headgate status` shows how far; `headgate stop` ends it",
        )


def take(turn: Turn, submitted: Submitted, by: str, known: tuple[Model, ...]) -> dict[str, Any]:
    """Measure first what lacks a model. Raises InvalidInput where that cannot be."""
    tasks = profiling.unmodelled(submitted.topology, submitted.models)
    by_name = submitted.topology.by_name
    faults = [f"task {name!r}: no `run`" for name in tasks.values() if by_name[name].run is None]
    if faults:
        raise InvalidInput(
            "the models cannot be measured: there is no code",
            faults=faults,
            hint="give models with --models DIR",
        )
    known = tuple(model for model in known if model.task in tasks and not model.unmeasured)
    number = turn.now.wall_ns
    turn.record(SubmissionTaken(submitted, number, by[:BY_MOST], known))
    text = f"{submitted.topology.name} is to be run, and {counted(len(tasks), 'task')} to be measured first"
    turn.event("taken", text)
    return {"submission": number, "measured": sorted(tasks.values())}


def submission(turn: Turn, arguments: Arguments) -> Any:
    """How one stands: measuring, accepted (it is run), dropped (why), or unknown."""
    number = whole(arguments, "number", 0, 0, NUMBER_MOST)
    d = turn.knowledge.durable
    answer: dict[str, Any] = {"schema": "headgate/submission/v1", "submission": number, "state": "unknown"}
    if d.taken is not None and d.taken.number == number:
        return {**answer, "state": "measuring", "measuring": measuring_data(turn.view().measuring)}
    if number and number == d.accepted:
        return {**answer, "state": "accepted", "models": [model_data(model) for model in d.measured]}
    if d.dropped is not None and number == d.dropped.number:
        dropped = {"what": d.dropped.what, "cause": d.dropped.cause or None, "hint": d.dropped.hint or None}
        return {**answer, "state": "dropped", "error": dropped}
    return answer


def withdraw(turn: Turn, arguments: Arguments) -> Any:
    """It is not to be run after all. Raises Conflict when it is no more waiting."""
    number, taken = whole(arguments, "number", 0, 0, NUMBER_MOST), turn.knowledge.durable.taken
    if taken is None or taken.number != number:
        raise Conflict(
            "this submission does not wait any more", hint="`headgate status`; `headgate stop` ends a run"
        )
    profiling.drop(turn, "the submission was withdrawn")
    return {"submission": number, "topology": taken.submitted.topology.name}


RATE_MOST_TPS = 1e9
DRAIN_MOST_S = 7 * 86400.0
MODES = ("auto", "advise", "approve")
QUIET_TPS = 1.0  # a question's rate does not matter before its rates are filled in


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
    drain_timeout_s: Annotated[float, msgspec.Meta(ge=0, le=DRAIN_MOST_S)] = 0.0


def answer(turn: Turn, command: Command) -> None:
    """Do what is asked and answer; a handler that gives a `partial` has it done beside the loop, and one that needs a
    plan which is being made there is asked again when that is made."""
    request = command.request
    try:
        handler = COMMANDS.get(request.command)
        if handler is None:
            raise UsageError(f"the controller knows no command {request.command!r}", hint=", ".join(COMMANDS))
        found = handler(turn, request.arguments)
    except background_planning.NotYet:
        background_planning.park(turn, command)
        return
    except HeadgateError as error:
        turn.do(Answer(command.number, refusal(error)))
        return
    except Exception as error:  # of arguments that nobody meant, or a bug: it is answered, and said where
        what, why = f"{request.command} cannot be done with these arguments", error_text(error)
        at = extract_tb(error.__traceback__)[-1]
        turn.do(Say("error", f"{what}: {why} ({at.name}, line {at.lineno})"))
        turn.do(Answer(command.number, refusal(InvalidInput(what, cause=why))))
        return
    later = isinstance(found, partial)
    turn.do(AnswerLater(command.number, found) if later else Answer(command.number, Reply(data=found)))


def plan_made(turn: Turn, made: PlanMade) -> None:
    """A plan was made beside the loop: use it for what it was asked for, and answer who waits for one."""
    asked = background_planning.take(turn, made)
    if asked is None or turn.stage != "running" or turn.knowledge.durable.run is None:
        return
    decide_made(turn, asked)
    background_planning.used(turn, asked, made.seconds)
    for command in background_planning.unpark(turn):
        answer(turn, command)


def _ping(turn: Turn, arguments: Arguments) -> Any:
    k = turn.knowledge
    return {"boot": k.durable.boot, "pid": k.pid, "run": k.settings.run}


def _events(turn: Turn, arguments: Arguments) -> Any:
    since, view = whole(arguments, "since", 0, 0, 1 << 62), turn.view()
    found = [event for event in view.events if event["number"] > since]
    return {"schema": "headgate/events/v1", "events": found, "last": view.event_number}


def _whatif(turn: Turn, arguments: Arguments) -> Any:
    """What other rates would need. `offered`: the rates are offered, and the rows are of what would be planned then.
    `compare`: by every scheduler."""
    k, rates = turn.knowledge, rates_asked(arguments)
    if arguments.get("offered"):
        planned_tps = k.plan.rate_tps if k.plan else 0.0
        rates = tuple(planned_for(rate_tps, planned_tps, k.headroom) for rate_tps in rates)
    asked = question(k, QUIET_TPS)
    if arguments.get("compare"):
        return partial(side_by_side, asked, rates)
    return partial(whatif, asked.request, rates, bool(arguments.get("full")))


def _rate_set(turn: Turn, arguments: Arguments) -> Any:
    rate = arguments.get("rate_tps")
    if not isinstance(rate, int | float) or isinstance(rate, bool) or not 0 <= rate <= RATE_MOST_TPS:
        raise InvalidInput(f"invalid rate {rate!r}", hint="rows per second, 0 or more")
    k = turn.knowledge
    schedule = k.durable.schedule
    if schedule is None or turn.stage != "running":
        raise Conflict(
            "nothing is offered now, so no rate can be set", hint="`headgate status` shows the run"
        )
    turn.record(Scheduled(schedule.changed(turn.now.wall_ns + SCHEDULE_LEAD_NS, float(rate))))
    arriving = k.topology is not None and bool(k.topology.arriving)
    what = "arriving rows are read at most at" if arriving else "the offered rate is"
    turn.event("rate_set", f"{what} {significant(rate, 6)} rows/s from now on", rate_tps=float(rate))
    return {"rate_tps": float(rate), "before_tps": schedule.rate_at(turn.now.wall_ns)}


def _stop(turn: Turn, arguments: Arguments) -> Any:
    timeout_s = arguments.get("drain_timeout_s", 0)
    if (
        not isinstance(timeout_s, int | float)
        or isinstance(timeout_s, bool)
        or not 0 <= timeout_s <= DRAIN_MOST_S
    ):
        raise InvalidInput(f"invalid time limit {timeout_s!r}", hint="seconds above 0, at most a week")
    ask_to_end(turn, "stop was asked for", float(timeout_s))
    return {"stage": turn.stage, "run": turn.knowledge.settings.run}


def _submit(turn: Turn, arguments: Arguments) -> Any:
    k = turn.knowledge
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
    _refuse_unsigned(turn, given.package)
    if not given.steps or not all(math.isfinite(x) and x >= 0 for step in given.steps for x in step):
        raise InvalidInput("the offered rates are no rates", hint="steps of (seconds, rows/s), from 0 s on")
    here = (*present(k), *k.settings.initial)[:1]
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
        given.drain_timeout_s,
    )
    answer = {"topology": given.topology.name, "run": k.settings.run}
    if given.measure and unmodelled(given.topology, submitted.models):
        return {**answer, **take(turn, submitted, given.by, models_of(given.known))}
    turn.submit(submitted)
    return answer


def _replace(turn: Turn, arguments: Arguments) -> Any:
    """Other code for what runs."""
    here = present(turn.knowledge)
    _refuse_unsigned(turn, str(arguments.get("package", "")), bool(arguments.get("back")))
    return replaced(turn, arguments, (here, addable(turn.knowledge, here)))


def _refuse_unsigned(turn: Turn, package: str, known: bool = False) -> None:
    """Raises InvalidInput where code from a folder would not be run."""
    strict = [member.vm.vm for member in turn.members.up() if member.only_signed]
    if strict and not package and not known:
        raise InvalidInput(
            f"{', '.join(sorted(strict))} runs signed packages only", hint="headgate submit --ship"
        )


def _plan(turn: Turn, arguments: Arguments) -> Any:
    """What would be planned now for a rate. Nothing is enacted; with `propose` it waits for `apply`."""
    rate = arguments.get("rate_tps")
    if not isinstance(rate, int | float) or isinstance(rate, bool) or not 0 < rate <= RATE_MOST_TPS:
        raise InvalidInput(f"invalid rate {rate!r}", hint="rows per second, more than 0")
    k = turn.knowledge
    asked = question(k, float(rate))
    if not takes_time(asked.request):
        plan = moving_little(asked)
    elif not arguments.get("propose"):
        return partial(_planned, asked)
    else:
        plan = moving_little(asked, lambda request: background_planning.made_whole(turn, request))
    if arguments.get("propose"):
        here = {vm.vm for vm in present(k)}
        more = tuple(vm for vm in plan.vms if vm.vm not in here)
        k.proposal = PlanProposal(
            plan, "operator", f"asked for {significant(rate, 6)} rows/s", k.epoch, more, ""
        )
    return msgspec.to_builtins(plan)


def _planned(asked: PlanQuestion) -> Any:
    return msgspec.to_builtins(moving_little(asked))


def _apply(turn: Turn, arguments: Arguments) -> Any:
    """Enact the plan that waits for an operator's word."""
    k = turn.knowledge
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
    enact_proposal(turn)
    return {"id": proposal.plan.id, "epoch": k.durable.next_epoch - 1}


def _resume(turn: Turn, arguments: Arguments) -> Any:
    """Clear what keeps the controller from planning by itself; `mode` changes the mode."""
    k = turn.knowledge
    mode = arguments.get("mode", k.mode)
    if mode not in MODES:
        raise InvalidInput(f"there is no mode {mode!r}", hint=", ".join(MODES))
    was = k.hold
    turn.record(HoldCleared(mode, turn.now.wall_ns))
    k.held = ""
    turn.members.clear_alarm()
    k.open_circuits.clear()
    k.alarms.clear()
    turn.event("resumed", f"an operator let planning go on (mode {mode})")
    return {"mode": mode, "was_held": was or None}


COMMANDS: dict[str, Callable[[Turn, Arguments], Any]] = {
    "ping": _ping,
    "status": lambda turn, arguments: status(turn.view()),
    "summary": lambda turn, arguments: summary(turn.view()),
    "explain": lambda turn, arguments: explain(turn.view(), whole(arguments, "last", 10, 1, 1000)),
    "events": _events,
    "whatif": _whatif,
    "rate_set": _rate_set,
    "stop": _stop,
    "submit": _submit,
    "replace": _replace,
    "submission": submission,
    "withdraw": withdraw,
    "plan": _plan,
    "apply": _apply,
    "resume": _resume,
    "plans": plans,
    "rollback": rollback,
    "offer": offer,
    **CORDON_COMMANDS,
    **GRANT_COMMANDS,
    **DEAD_LETTER_COMMANDS,
}
