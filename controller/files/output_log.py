"""What tasks print, as a controller has it: the newest lines for whoever asks, all of them for the trace.

Nothing is decided by them, so the core never hears of them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from headgate.topology_runtime.errors import BadMessage
from headgate.topology_runtime.platform.clock import monotonic_ns, wall_ns
from headgate.topology_runtime.wire.messages import Reply, Request, refusal
from headgate.topology_runtime.wire.output_messages import (
    DROPPED,
    LineBudget,
    OutputLine,
    OutputLines,
    is_of,
    more,
)
from headgate.topology_runtime.wording import utc_iso

SCHEMA = "headgate/logs/v1"
KEPT_LINES, KEPT_CHARS = 10_000, 8 << 20  # the newest ones
ANSWER_LINES = 1_000  # whoever wants more asks again
LINES_A_SECOND, CHARS_A_SECOND = 5_000, 1 << 20  # of all VMs

Line = Mapping[str, Any]
_encode = msgspec.json.Encoder().encode


class LinesAsked(msgspec.Struct):
    """after: the number of the line that came last; the numbers of a later life of the controller are higher.
    last: only so many, the newest. since_ns: only those said since (UTC)."""

    after: int = 0
    last: int = ANSWER_LINES
    who: str = ""
    since_ns: int = 0


class OutputLog:
    """`record`: where every line goes as JSON, once there is a trace; those before wait."""

    def __init__(self) -> None:
        self._lines: deque[Line] = deque()
        self._chars = 0
        self._number = wall_ns() // 1000
        self._budget = LineBudget(LINES_A_SECOND, CHARS_A_SECOND)
        self._left_out: Counter[tuple[str, int]] = Counter()
        self._record: Callable[[list[bytes]], None] | None = None

    def record(self, record: Callable[[list[bytes]], None]) -> None:
        self._record = record
        record([_encode(line) for line in self._lines])

    def take(self, message: OutputLines) -> None:
        """What an agent tells."""
        self._budget.refill(monotonic_ns())
        new: list[Line] = []
        for line in message.lines:
            if self._budget.take(len(line.text)):
                new.append(self._line(message.vm, line))
            else:
                self._left_out[message.vm, line.slot] += 1
        if self._left_out and self._budget.lines > 0:
            for (vm, slot), count in self._left_out.items():
                new.append(self._line(vm, OutputLine(wall_ns(), slot, "", 0, DROPPED, more(count))))
            self._left_out.clear()
        self._keep(new)

    def _line(self, vm: str, line: OutputLine) -> Line:
        self._number += 1
        return {
            "number": self._number,
            "time": utc_iso(line.time_ns),
            "vm": vm,
            "slot": line.slot,
            "task": line.task or None,
            "thread": line.thread if line.task else None,
            "level": line.level,
            "text": line.text,
        }

    def _keep(self, new: list[Line]) -> None:
        self._lines.extend(new)
        self._chars += sum(len(line["text"]) for line in new)
        while len(self._lines) > KEPT_LINES or self._chars > KEPT_CHARS:
            self._chars -= len(self._lines.popleft()["text"])
        if self._record is not None and new:
            self._record([_encode(line) for line in new])

    def answer(self, request: Request) -> Reply | None:
        """Of a request for lines; None of any other."""
        if request.command != "logs":
            return None
        try:
            asked = msgspec.convert(request.arguments, LinesAsked)
        except msgspec.ValidationError as error:
            return refusal(BadMessage("logs are asked for in a way that is not understood", cause=str(error)))
        found = list(self._found(asked))
        # whoever goes on from a line gets what comes after it; whoever begins gets the newest
        lines = found[:ANSWER_LINES] if asked.after else found[-min(asked.last, ANSWER_LINES) or len(found) :]
        last = lines[-1]["number"] if len(found) > ANSWER_LINES else self._number
        return Reply({"schema": SCHEMA, "last": last, "lines": lines})

    def _found(self, asked: LinesAsked) -> Iterable[Line]:
        since = utc_iso(max(0, asked.since_ns))
        for line in self._lines:
            if line["number"] > asked.after and line["time"] >= since and is_of(line, asked.who):
                yield line
