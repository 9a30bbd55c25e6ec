"""What a trace holds of a run: `run.json`, and the lines of `inputs.jsonl` and `decisions.jsonl`. Pure.

Every fault is listed with its place; nothing of a trace that has one is replayed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from headgate.controller.knowledge import loop_events as t
from headgate.controller.knowledge.controller_config import ControllerSettings
from headgate.controller.knowledge.journal_records import Submitted
from headgate.controller.models.model_data import model_of
from headgate.controller.models.task_models import Model
from headgate.topology_runtime.api.topology import Topology, topology_of_document
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.traces.trace_tables import SCHEMA
from headgate.topology_runtime.wording import counted, utc_ns

Steps = tuple[tuple[float, float], ...]


class InputLine(msgspec.Struct, frozen=True):
    """A line of `inputs.jsonl`: what the loop was given, and when."""

    now_ns: t.Now
    kind: str
    event: t.Event


class RecordedLoad(msgspec.Struct, frozen=True):
    """The offered load: steps of (seconds, rows/s), repeating after `period_s` (0: never). uncapped: what came was
    taken, and the first step is what the first plan was made for."""

    steps: Steps
    period_s: float = 0.0
    uncapped: bool = False


@dataclass(frozen=True)
class RecordedRun:
    """A run as it began. `started`: when its topology was submitted (UTC, ISO)."""

    name: str
    settings: ControllerSettings
    topology: Topology
    models: tuple[Model, ...]
    offer: RecordedLoad
    started: str
    version: str

    def submitted(self) -> Submitted:
        """What the loop was given to run."""
        offer, wall_ns = self.offer, utc_ns(self.started)
        return Submitted(self.topology, self.models, offer.steps, offer.period_s, (), wall_ns, offer.uncapped)


_lines = msgspec.json.Decoder(InputLine)


def run_of(data: bytes, where: str) -> RecordedRun:
    """The bytes of `run.json` → the run. Raises InvalidInput with every fault."""
    try:
        raw = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{where} is no JSON", cause=str(error)) from error
    refuse_other_schemas(raw, where)
    faults: list[str] = []
    parts: dict[str, tuple[Any, type[Any]]] = {
        "settings": (raw.get("settings"), ControllerSettings),
        "topology": (raw.get("topology"), Topology),
        "schedule": (raw.get("schedule"), RecordedLoad),
    }
    found = {key: _converted(key, value, kind, faults) for key, (value, kind) in parts.items()}
    models = _models_of(raw.get("models"), faults)
    offer = found["schedule"]
    if offer is not None and not offer.steps:
        faults.append("schedule.steps: the run offered nothing")
    started = raw.get("started")
    if not _is_time(started):
        faults.append("started: expected a time")
    if faults:
        raise InvalidInput(f"{where} has {counted(len(faults), 'fault')}", faults=faults)
    version = str(raw.get("headgate") or "unknown")
    settings = found["settings"]
    return RecordedRun(settings.run, settings, found["topology"], models, offer, str(started), version)


def _is_time(value: Any) -> bool:
    try:
        return isinstance(value, str) and utc_ns(value) >= 0
    except (ValueError, TypeError, OverflowError):  # no time, or one without a zone
        return False


def refuse_other_schemas(raw: Any, where: str) -> None:
    """Raises InvalidInput unless this is a trace of the version known here."""
    schema = raw.get("schema") if isinstance(raw, dict) else None
    if schema == SCHEMA:
        return
    kind, known = SCHEMA.rsplit("/", 1)
    newer = re.fullmatch(re.escape(kind) + r"/v(\d+)", schema) if isinstance(schema, str) else None
    if newer and int(newer[1]) > int(known[1:]):
        hint = "use the headgate that recorded it, or a newer one"
        raise InvalidInput(
            f"{where} is of a newer headgate", cause=f"schema {schema}, known {known}", hint=hint
        )
    raise InvalidInput(
        f"{where} is no trace of headgate", cause=f"schema: expected {SCHEMA!r}, got {schema!r:.60}"
    )


def _converted(key: str, value: Any, kind: type[Any], faults: list[str]) -> Any:
    try:
        return topology_of_document(value) if kind is Topology else msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        faults.append(f"{key}: {error}" if value is not None else f"{key}: is missing")
        return None


def _models_of(raw: Any, faults: list[str]) -> tuple[Model, ...]:
    if not isinstance(raw, list):
        faults.append("models: expected a list")
        return ()
    models = []
    for number, each in enumerate(raw):
        model, found = model_of(each)
        faults += [f"models[{number}].{fault}" for fault in found]
        if model is not None:
            models.append(model)
    return tuple(models)


def lines_of(data: bytes, first: int, where: str) -> list[InputLine]:
    """Whole lines of `inputs.jsonl`, the first of them with this number. Raises InvalidInput."""
    try:
        return _lines.decode_lines(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return [_line_of(line, number, where) for number, line in enumerate(data.splitlines(), first)]


def _line_of(data: bytes, number: int, where: str) -> InputLine:
    try:
        return _lines.decode(data)
    except msgspec.ValidationError as error:
        hint = "was it recorded by another version of headgate?"
        raise InvalidInput(f"{where}: line {number} is no input", cause=str(error), hint=hint) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{where}: line {number} is torn or no JSON", cause=str(error)) from error


def in_order(lines: Iterator[tuple[str, int, InputLine]], where: str) -> Iterator[InputLine]:
    """Lines, with their file and number, as they come. Raises InvalidInput where the controller's own clock goes
    back within one life, and when the first line is not the begin of one."""
    last_ns, begun = 0, False
    for file, number, line in lines:
        if isinstance(line.event, t.Started):
            last_ns, begun = 0, True
        if not begun:
            raise InvalidInput(
                f"{file}: line {number} is {line.kind!r}, not the start of a controller",
                cause="what it knew before is not in the trace, so its decisions cannot be made again",
            )
        if line.now_ns.mono_ns < last_ns:
            back_s = (last_ns - line.now_ns.mono_ns) / 1e9
            raise InvalidInput(f"{file}: line {number}: the monotonic clock jumps back by {back_s:.3f} s")
        last_ns = line.now_ns.mono_ns
        yield line
    if not begun:
        raise InvalidInput(f"{where} holds no inputs", cause="the file is empty")


def decisions_of(lines: Sequence[bytes], where: str) -> None:
    """Raises InvalidInput with every line that is no decision of the version known here (the first 20)."""
    faults = []
    for number, line in enumerate(lines, 1):
        try:
            schema = msgspec.json.decode(line, type=_Schema).schema
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            faults.append(f"line {number}: {error}")
            continue
        if schema != DECISION:
            faults.append(f"line {number}: schema: expected {DECISION!r}, got {schema!r:.60}")
    if faults:
        more = [f"and {len(faults) - MOST_FAULTS} more"] if len(faults) > MOST_FAULTS else []
        raise InvalidInput(
            f"{where} has {counted(len(faults), 'fault')}", faults=[*faults[:MOST_FAULTS], *more]
        )


class _Schema(msgspec.Struct):
    schema: str


DECISION = "headgate/decision/v1"
MOST_FAULTS = 20
