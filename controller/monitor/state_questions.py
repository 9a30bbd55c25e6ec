"""Who is asked for the state of a key, and what becomes of the answers. Pure.

The key's range says whose it is: the thread that has it by the routes in force, or, while a plan is brought into force,
each that may have it; only one of them does. Nothing is decided by a state, so the core never hears of it, and no trace
has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headgate.topology_runtime.api.topology import Task
from headgate.topology_runtime.errors import (
    BadMessage,
    BadRow,
    Conflict,
    HeadgateError,
    InvalidInput,
    Unreachable,
)
from headgate.topology_runtime.wire.messages import DesiredState, Reply, ThreadSpec, refusal
from headgate.topology_runtime.wire.state_questions import KEY_MOST, STATE_MOST, StateAnswer, StateQuestion
from headgate.topology_runtime.wording import counted, utc_iso
from headgate.topology_runtime.worker.calls.router import owners, range_of, unrolled
from headgate.topology_runtime.worker.keyed_state.state_tables import json_text, key_of, key_text, split
from headgate.topology_runtime.worker.rows import row_values as wire

SCHEMA = "headgate/state/v1"
WAIT_NS = 5_000_000_000  # for answers
OPEN_MOST = 16  # questions; a thread looks at each between two frames
AGAIN = "ask again in a moment"


class KeyAsked(msgspec.Struct, frozen=True):
    """Arguments of the command `state`. key: as JSON, or a text that is none."""

    task: str
    key: str


@dataclass
class _Open:
    """A question: of which request, of what, whom it was put to, and until when answers count."""

    request: int
    task: Task
    key: str
    key_range: int
    asked: dict[int, ThreadSpec]
    until_ns: int
    left: set[int] = field(default_factory=set)


class StateQuestions:
    """first: the number of the first question; above all of an earlier life of the controller. desired: the newest."""

    def __init__(self, first: int) -> None:
        self._number = first
        self._open: dict[int, _Open] = {}
        self.desired: DesiredState | None = None

    def ask(self, request: int, arguments: dict[str, Any], now_ns: int) -> list[tuple[str, StateQuestion]]:
        """(VM, question) of a request, whose reply comes from `hear` or `over`. Raises HeadgateError."""
        try:
            given = msgspec.convert(arguments, KeyAsked)
        except msgspec.ValidationError as error:
            raise BadMessage(
                "a state is asked for in a way that is not understood", cause=str(error)
            ) from error
        if self.desired is None or not self.desired.routes:
            raise Conflict("nothing runs yet", hint=AGAIN)
        task = _keyed(self.desired, given.task)
        key, data = _written(given.key)
        if len(self._open) >= OPEN_MOST:
            raise Conflict(f"{counted(OPEN_MOST, 'question')} for states are open", hint=AGAIN)
        key_range = range_of(key)
        asked = _holders(self.desired, task, key_range)
        if not asked:
            raise _moving(task.name, key_range)
        self._number += 1
        number, until_ns = self._number, now_ns + WAIT_NS
        self._open[number] = _Open(request, task, key_text(key), key_range, asked, until_ns, set(asked))
        return [
            (spec.slot.vm, StateQuestion(number, spec.slot, thread, key_range, data))
            for thread, spec in asked.items()
        ]

    def hear(self, answer: StateAnswer) -> tuple[int, Reply] | None:
        """(request, reply), if that is what was waited for."""
        found = self._open.get(answer.number)
        spec = found.asked.get(answer.thread) if found is not None else None
        if found is None or spec is None or (answer.vm, answer.slot) != (spec.slot.vm, spec.slot):
            return None
        found.left.discard(answer.thread)
        if answer.outcome == "elsewhere":
            if found.left:
                return None
            del self._open[answer.number]
            return found.request, refusal(_moving(found.task.name, found.key_range))
        del self._open[answer.number]
        try:
            return found.request, Reply(_told(found, spec, answer))
        except HeadgateError as error:
            return found.request, refusal(error)

    def over(self, now_ns: int) -> Iterator[tuple[int, Reply]]:
        """Requests that are waited for no more."""
        for number, found in list(self._open.items()):
            if now_ns >= found.until_ns:
                del self._open[number]
                whose = ", ".join(f"thread {n} in {found.asked[n].slot}" for n in sorted(found.left))
                error = Unreachable(
                    f"{whose} of {found.task.name} has not answered for {WAIT_NS // 1_000_000_000} s",
                    cause="it is in a call, waits for a service, or its VM is cut off",
                    hint="`headgate status`",
                )
                yield found.request, refusal(error)


def _keyed(desired: DesiredState, name: str) -> Task:
    """Raises InvalidInput."""
    task = desired.topology.by_name.get(name)
    keyed = ", ".join(task.name for task in desired.topology.tasks if task.state == "keyed") or "none"
    cause = f"tasks with state per key: {keyed}"
    if task is None:
        raise InvalidInput(f"there is no task {name[:200]}", cause=cause)
    if task.state != "keyed":
        raise InvalidInput(f"{name} has no state per key", cause=cause)
    return task


def _written(text: str) -> tuple[Any, bytes]:
    """A key, and as a row by itself. Raises InvalidInput."""
    if len(text) > KEY_MOST:
        raise InvalidInput(
            f"the key is too long: {len(text):,} characters", cause=f"at most {KEY_MOST:,} are taken"
        )
    try:
        key = wire.one_key(key_of(text))
        data = wire.write([key], wire.NESTED)
    except BadRow as error:
        raise InvalidInput(
            f"{text[:200]} is no key", cause=error.cause or error.what, hint=error.hint
        ) from error
    if len(data) > KEY_MOST:
        raise InvalidInput(
            "the key is too long", cause=f"{len(data):,} bytes; at most {KEY_MOST:,} are taken"
        )
    return key, data


def _holders(desired: DesiredState, task: Task, key_range: int) -> dict[int, ThreadSpec]:
    """Threads that may have a range now."""
    edges = {number for number, _ in desired.topology.in_edges(task.name)}
    tables = [owners(route) for route in desired.routes if route.edge in edges]
    tables += [unrolled(layer.ranges) for layer in desired.keepers if layer.task == task.name]
    numbers = {table[key_range] for table in tables if table}
    found = {spec.thread: spec for spec in desired.threads if spec.task == task.name and not spec.answers}
    return {number: found[number] for number in sorted(numbers & found.keys())}


def _moving(task: str, key_range: int) -> Conflict:
    return Conflict(f"key range {key_range} of {task} is moving right now", hint=AGAIN)


def _told(found: _Open, spec: ThreadSpec, answer: StateAnswer) -> dict[str, Any]:
    """Raises HeadgateError where there is no state to tell."""
    task, where = found.task, f"thread {spec.thread} in {spec.slot}"
    whose = f"the state of key {found.key[:200]} of {task.name}"
    if answer.outcome == "large":
        raise InvalidInput(
            f"{whose} is too large to be shown", cause=f"it has more than {STATE_MOST:,} bytes",
            hint="`headgate checkpoint export` writes states of any size",
        )  # fmt: skip
    if answer.outcome == "failed":
        raise HeadgateError(f"{whose} cannot be saved, so not shown", cause=f"{answer.why} ({where})")
    try:
        parts = (
            split(wire.read(answer.saved, wire.NESTED)[0], task.timed) if answer.outcome == "found" else None
        )
        state = msgspec.json.decode(json_text(parts[0])) if parts is not None else None
        timers = (
            [{"at_us": at, "name": name, "by_clock": clock} for at, name, clock in parts[1]] if parts else []
        )
    except (msgspec.DecodeError, ValueError, TypeError, LookupError, RecursionError) as error:
        raise HeadgateError(f"{whose} cannot be read", cause=f"{error} ({where})") from error
    if parts is None:
        raise InvalidInput(
            f"{task.name} has no state of key {found.key[:200]}",
            cause=f"key range {found.key_range} is with {where}",
            hint="a key that is a text is written with quotes where it looks like JSON: '\"17\"' is no number",
        )
    return {
        "schema": SCHEMA,
        "task": task.name,
        "key": msgspec.json.decode(found.key),
        "range": found.key_range,
        "thread": spec.thread,
        "vm": spec.slot.vm,
        "slot": spec.slot.number,
        "asked": utc_iso(answer.wall_ns),
        "state_version": task.state_version,
        "state": state,
        "timers": timers,
    }
