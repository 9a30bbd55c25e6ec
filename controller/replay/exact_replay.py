"""The recorded inputs, given to the controller's loop once more: the same code, the recorded times. Pure.

1. A controller that was started again begins a new life: a new loop, which knows what the journal held then
   (the recorded `started` event has it all).
2. What a turn decided whose records the journal did not take was never written, so it is left out here too.
3. Clients' questions change nothing, so they are not answered; but every event makes the loop look whether
   an enactment can go on, so each is still a step.
4. Rows at sinks are not counted for duplicates, and views are made only for who looks: no decision asks for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headgate.controller.core.loop import Loop
from headgate.controller.knowledge import loop_events as t
from headgate.controller.monitor.sink_counts import FinishedRows
from headgate.controller.recording.early_inputs import QUESTIONS
from headgate.controller.replay.recorded_run import InputLine, RecordedRun
from headgate.topology_runtime.wire.messages import FinishedRuns, Request
from headgate.topology_runtime.wording import utc_iso

_PING = Request("ping")
_json = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Moment:
    """One step of a loop: what it was given and when, and what it did. `loop`: as it is just now."""

    now: t.Now
    event: t.Event
    instructions: list[t.Instruction]
    loop: Loop


@dataclass(slots=True)
class Life:
    """The decisions of one controller, as lines. ended: by its own word; else it was killed, or still
    runs. last_ns: UTC of the last input."""

    began: str
    decisions: list[bytes] = field(default_factory=list)
    ended: bool = False
    last_ns: int = 0


class _Uncounted(FinishedRows):
    def add(self, finished: Iterable[FinishedRuns], vm: str = "") -> None:
        """Count nothing."""


class ExactReplay:
    """A run, once more. `lives`: what was decided so far."""

    def __init__(self, run: RecordedRun, watched: bool = False) -> None:
        self._run, self._watched = run, watched
        self.lives: list[Life] = []

    def moments(self, lines: Iterable[InputLine]) -> Iterator[Moment]:
        """Every step, as it is made."""
        loop, held = None, list[bytes]()
        for line in lines:
            now, event = line.now_ns, line.event
            if not isinstance(event, t.JournalFailed) and held:
                self.lives[-1].decisions += held
            if isinstance(event, t.Started):
                loop = self._born(now)
            assert loop is not None, "inputs begin with a start (recorded.in_order)"
            instructions = loop.step(_cheap(event), now)
            held = []
            life = self.lives[-1]
            life.last_ns = now.wall_ns
            for instruction in instructions:
                if isinstance(instruction, t.Trace) and instruction.kind == "decision":
                    held.append(_json.encode(instruction.data))
                elif isinstance(instruction, t.Finish):
                    life.ended = True
            yield Moment(now, event, instructions, loop)
        if held:
            self.lives[-1].decisions += held

    def _born(self, now: t.Now) -> Loop:
        """A controller as it was when this life began. A topology that was submitted by a command comes
        with that command's event."""
        at_once = bool(self.lives) or self._run.started < utc_iso(now.wall_ns)
        loop = Loop(self._run.settings, self._run.submitted() if at_once else None, self._watched)
        loop.finished = _Uncounted()
        self.lives.append(Life(utc_iso(now.wall_ns), last_ns=now.wall_ns))
        return loop


def decisions_of(instructions: Iterable[t.Instruction]) -> list[dict[str, Any]]:
    """What was decided in this step."""
    return [i.data for i in instructions if isinstance(i, t.Trace) and i.kind == "decision"]


def _cheap(event: t.Event) -> t.Event:
    """The same step without its answer (rule 3)."""
    if isinstance(event, t.Command) and event.request.command in QUESTIONS:
        return t.Command(event.number, _PING)
    return event


# ── Are the decisions of the replay those that were recorded? Pure ──────────────────────────────────────
#
# A controller that was killed may have left out the end of what it did: decisions and inputs are written
# separately, up to a second late. So a decision of the last second of such a life that is in one of them only
# is no difference; it is counted as unverified and said.

LATE_NS = 1_000_000_000
NEVER = "9999"
MISSING = "(missing)"
# what decisions of older traces do not say; nothing is decided by it
LATER: tuple[tuple[str, ...], ...] = (("enacted",), ("plan", "limited_by"), ("plan", "limited_by_slot"))


@dataclass(frozen=True, slots=True)
class Difference:
    """The first one: decision `number` (from 1), the field that differs and what it is in both; a decision
    that only one has is None in the other, and has no field."""

    number: int
    time: str
    field: str | None
    recorded: Any
    replayed: Any


@dataclass(frozen=True, slots=True)
class PolicyComparison:
    """decisions: how many were recorded. unverified: those of them, and of the replay, that have no
    counterpart because a controller was killed."""

    decisions: int
    unverified: int
    difference: Difference | None

    @property
    def equal(self) -> bool:
        return self.difference is None


def compare(recorded: Sequence[bytes], lives: Sequence[Life]) -> PolicyComparison:
    """Lines of `decisions.jsonl` against those of each life of the replay."""
    at = unverified = 0
    for number, life in enumerate(lives):
        until = lives[number + 1].began if number + 1 < len(lives) else NEVER
        late = NEVER if life.ended else utc_iso(life.last_ns - LATE_NS)
        mine = at
        while mine < len(recorded) and (until == NEVER or _time(recorded[mine]) < until):
            mine += 1
        both = min(mine - at, len(life.decisions))
        for place in range(both):
            if (found := _differ(recorded[at + place], life.decisions[place], at + place + 1)) is not None:
                return PolicyComparison(len(recorded), unverified, found)
        for line, is_recorded in (
            *((line, True) for line in recorded[at + both : mine]),
            *((line, False) for line in life.decisions[both:]),
        ):
            if _time(line) < late:
                return PolicyComparison(len(recorded), unverified, _alone(line, is_recorded, at + both + 1))
            unverified += 1
        at = mine
    if at < len(recorded):
        return PolicyComparison(len(recorded), unverified, _alone(recorded[at], True, at + 1))
    return PolicyComparison(len(recorded), unverified, None)


def _time(line: bytes) -> str:
    return str(msgspec.json.decode(line)["time"])


def _alone(line: bytes, is_recorded: bool, number: int) -> Difference:
    data = msgspec.json.decode(line)
    return Difference(
        number, data["time"], None, data if is_recorded else None, None if is_recorded else data
    )


def _differ(recorded: bytes, replayed: bytes, number: int) -> Difference | None:
    if recorded == replayed:
        return None
    whole, again = msgspec.json.decode(recorded), msgspec.json.decode(replayed)
    for path in LATER:
        _forget(path, whole, again)
    found = first_field(whole, again)
    if found is None:
        return None
    path, a, b = found
    return Difference(number, whole["time"], ".".join(path) or None, a, b)


def _forget(path: Sequence[str], whole: Any, again: Any) -> None:
    """Take from `again` what `whole` does not say at that path."""
    for key in path[:-1]:
        whole, again = whole.get(key), again.get(key)
        if not isinstance(whole, dict) or not isinstance(again, dict):
            return
    if path[-1] not in whole:
        again.pop(path[-1], None)


def first_field(a: Any, b: Any) -> tuple[tuple[str, ...], Any, Any] | None:
    """Where two plain values differ first, and what is there: (("evidence", "demand", "offered_tps"), 30, 31);
    no path when they do as wholes; None when they are equal."""
    if isinstance(a, dict) and isinstance(b, dict):
        pairs = [(key, a.get(key, MISSING), b.get(key, MISSING)) for key in dict.fromkeys([*a, *b])]
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        pairs = [(str(place), x, y) for place, (x, y) in enumerate(zip(a, b, strict=True))]
    else:
        return None if a == b and type(a) is type(b) else ((), a, b)
    for key, x, y in pairs:
        below = first_field(x, y)
        if below is not None:
            return (key, *below[0]), below[1], below[2]
    return None
