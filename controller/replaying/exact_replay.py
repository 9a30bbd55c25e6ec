"""The recorded inputs, given to the controller's loop once more: the same code, the recorded times. Pure.

1. A controller that was started again begins a new life: a new loop, which knows what the journal held then
   (the recorded `started` event has it all).
2. What a turn decided whose records the journal did not take was never written, so it is left out here too.
3. Clients' questions change nothing, so they are not answered; but every event makes the loop look whether
   an enactment can go on, so each is still a step.
4. Rows at sinks are not counted for duplicates, and views are made only for who looks: no decision asks for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headgate.controller.core.loop import Loop
from headgate.controller.knowledge import turns as t
from headgate.controller.monitor.sink_logs import FinishedRows
from headgate.controller.recording.early_inputs import QUESTIONS
from headgate.controller.replaying.recorded import InputLine, RecordedRun
from headgate.topology_runtime.messages import FinishedRuns, Request
from headgate.topology_runtime.utc import utc_iso

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
    def add(self, finished: Iterable[FinishedRuns]) -> None:
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
