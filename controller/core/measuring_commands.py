"""`submit` of what lacks models, and what is asked of such a submission. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headgate.controller.core import first_profiles
from headgate.controller.core.letter_commands import whole
from headgate.controller.knowledge.knowledge import Knowledge
from headgate.controller.knowledge.model_data import model_data, model_of
from headgate.controller.knowledge.models import Model
from headgate.controller.knowledge.records import SubmissionTaken, Submitted
from headgate.controller.knowledge.run_view import RunView
from headgate.controller.knowledge.turn import Turn
from headgate.controller.views.status import measuring_data
from headgate.topology_runtime.errors import Conflict, InvalidInput
from headgate.topology_runtime.faults.words import counted

NUMBER_MOST = 1 << 62
BY_MOST = 128  # characters


def models_of(documents: Sequence[Any]) -> tuple[Model, ...]:
    """Of the data of model files. Raises InvalidInput with every fault."""
    read = [model_of(data) for data in documents]
    faults = [
        f"{_name(data)}: {fault}" for data, (_, some) in zip(documents, read, strict=True) for fault in some
    ]
    if faults:
        raise InvalidInput("the models are none", faults=faults)
    return tuple(model for model, _ in read if model is not None)


def _name(data: Any) -> str:
    return str(data.get("task", "?"))[:64] if isinstance(data, dict) else "?"


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
    tasks = first_profiles.unmodelled(submitted.topology, submitted.models)
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


def submission(k: Knowledge, view: RunView, arguments: dict[str, Any]) -> dict[str, Any]:
    """How one stands: measuring, accepted (it is run), dropped (why), or unknown."""
    number = whole(arguments, "number", 0, 0, NUMBER_MOST)
    d = k.durable
    answer: dict[str, Any] = {"schema": "headgate/submission/v1", "submission": number, "state": "unknown"}
    if d.taken is not None and d.taken.number == number:
        return {**answer, "state": "measuring", "measuring": measuring_data(view.measuring)}
    if number and number == d.accepted:
        return {**answer, "state": "accepted", "models": [model_data(model) for model in d.measured]}
    if d.dropped is not None and number == d.dropped.number:
        dropped = {"what": d.dropped.what, "cause": d.dropped.cause or None, "hint": d.dropped.hint or None}
        return {**answer, "state": "dropped", "error": dropped}
    return answer


def withdraw(turn: Turn, arguments: dict[str, Any]) -> dict[str, Any]:
    """It is not to be run after all. Raises Conflict when it is no more waiting."""
    number, taken = whole(arguments, "number", 0, 0, NUMBER_MOST), turn.knowledge.durable.taken
    if taken is None or taken.number != number:
        raise Conflict(
            "this submission does not wait any more", hint="`headgate status`; `headgate stop` ends a run"
        )
    first_profiles.drop(turn, "the submission was withdrawn")
    return {"submission": number, "topology": taken.submitted.topology.name}
