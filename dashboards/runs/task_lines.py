"""What tasks of a run printed: as its controller has it, as its trace has it, and so much of it as a console bears."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.traces.line_parts import parts_of
from headgate.topology_runtime.traces.trace_tables import OUTPUT
from headgate.topology_runtime.wire.output_messages import (
    DROPPED,
    NS,
    LineBudget,
    OutputLine,
    line_words,
    lines_in,
    more,
    stands_for,
)
from headgate.topology_runtime.wording import utc_iso

Line = Mapping[str, Any]
LINES_A_SECOND, CHARS_A_SECOND, AT_ONCE_S = 50, 16 * 1024, 4  # on the console of `up`


def lines_of(trace: Path) -> Iterator[Line]:
    """All lines that a trace has, the oldest first; what a kill left half written is none. Raises InvalidInput."""
    try:
        for part in parts_of(trace / OUTPUT):
            with gzip.open(part) if part.suffix == ".gz" else part.open("rb") as file:
                yield from (json.loads(row) for row in file if row.endswith(b"\n"))
    except (OSError, EOFError, ValueError) as error:
        raise InvalidInput(f"cannot read what tasks printed in trace {trace}", cause=str(error)) from error


def lines_of_slots(state: Path) -> list[Line]:
    """By the logs of slots in the state of a run, which is kept where it failed: it may have ended before they were
    passed on."""
    found: list[tuple[str, OutputLine]] = []
    for log in sorted(state.glob("agents/*/logs/worker-*.log")):
        vm, slot = log.parents[1].name, log.stem.removeprefix("worker-")
        if slot.isdecimal():
            at_ns = log.stat().st_mtime_ns
            rows = log.read_bytes().splitlines()
            found += [(vm, line) for row in rows for line in lines_in(row, int(slot), at_ns)]
    found.sort(key=lambda one: one[1].time_ns)
    return [
        {"number": number, "time": utc_iso(line.time_ns), "vm": vm, "slot": line.slot, "task": line.task or None,
         "thread": line.thread, "level": line.level, "text": line.text}
        for number, (vm, line) in enumerate(found, 1)
    ]  # fmt: skip


class ConsoleLines:
    """Lines for people, so many a second; what is more is counted, and told once a second."""

    def __init__(self) -> None:
        self._budget = LineBudget(LINES_A_SECOND, CHARS_A_SECOND, AT_ONCE_S)
        self._left_out = 0
        self._told_ns = 0

    def shown(self, lines: Sequence[Line], now_ns: int, last: bool = False) -> list[str]:
        """Those of these lines that are shown. last: no more come."""
        self._budget.refill(now_ns)
        found = []
        for line in lines:
            if line["level"] != DROPPED and self._budget.take(len(line["text"])):
                found.append(line_words(line))
            else:
                self._left_out += stands_for(line)
        if self._left_out and (last or now_ns - self._told_ns >= NS):
            found.append(f"{more(self._left_out)}: headgate logs")
            self._left_out, self._told_ns = 0, now_ns
        return found
