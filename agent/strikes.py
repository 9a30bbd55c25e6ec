"""What was under way when workers were lost in user code, and what follows from it. Pure.

1. A worker is lost in user code when a call takes too long, or when it dies and nobody made it: by a fatal
   signal, by an exit of its own, out of memory.
2. The call is known when the worker had named it, or when it is a source's read. What is known is counted
   per identity; such a loss is no crash of the slot.
3. After a loss the slot's next workers are *careful* for a minute (after losses of which nothing was known,
   twice as long each time): they name each row before it is begun. The losses of which nothing was known
   count for the first row that is found so.
4. Struck three times, a row is *poison*: it becomes a dead letter before user code meets it again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from topology_runtime.struck import CallKind, Struck
from topology_runtime.worker.watch import STRIKES_MOST

CAREFUL_NS = 60_000_000_000
DOUBLED_MOST = 6
STRUCK_KEPT = 500

Name = tuple[str, str, int, int, int, str]  # task, source, partition, position, variant, kind


class UnderWay(NamedTuple):
    """A call of user code that was not over. ident: how stacks name its thread; stack: what they say of it;
    line: where that is in the user's code."""

    thread: int
    ident: int
    task: str
    source: str
    partition: int
    position: int
    variant: int
    kind: CallKind
    stack: str = ""
    line: str = ""


@dataclass
class OfSlot:
    """unknown: losses of which nothing is known, since one was."""

    careful_until_ns: int = -1
    unknown: int = 0


@dataclass
class Strikes:
    struck: dict[Name, Struck] = field(default_factory=dict)  # the latest last
    _slots: dict[int, OfSlot] = field(default_factory=dict)

    def lost(self, slot: int, calls: tuple[UnderWay, ...], hung: int, why: str, now_ns: int) -> Struck | None:
        """A worker was lost in user code; what was struck, None when that is not known. hung: the thread
        whose call took too long, −1: it died."""
        of = self._slots.setdefault(slot, OfSlot())
        call = _guilty(calls, hung)
        if call is None:
            of.unknown += 1
        of.careful_until_ns = now_ns + (CAREFUL_NS << min(max(0, of.unknown - 1), DOUBLED_MOST))
        if call is None:
            return None
        extra, of.unknown = (of.unknown, 0) if call.kind != "read" else (0, of.unknown)
        return self._strike(call, extra, why)

    def careful(self, slot: int, now_ns: int) -> bool:
        of = self._slots.get(slot)
        return of is not None and now_ns < of.careful_until_ns

    @property
    def poison(self) -> tuple[Struck, ...]:
        return tuple(one for one in self.struck.values() if one.times >= STRIKES_MOST)

    def _strike(self, call: UnderWay, extra: int, why: str) -> Struck:
        name = call.task, call.source, call.partition, call.position, call.variant, call.kind
        before = self.struck.pop(name, None)
        times = 1 + (before.times if before is not None else min(extra, STRIKES_MOST - 2))
        error = f"{why} ({times} tries)" + (f", in {call.line}" if call.line else "")
        stack = call.stack or (before.traceback if before is not None else "")
        self.struck[name] = struck = Struck(*name[:5], call.kind, times, error, stack)
        while len(self.struck) > STRUCK_KEPT:
            del self.struck[next(iter(self.struck))]
        return struck

    def take_up(self, saved: tuple[Struck, ...]) -> None:
        """What an earlier life of this agent counted."""
        for one in saved:
            self.struck[one.task, one.source, one.partition, one.position, one.variant, one.kind] = one


def _guilty(calls: tuple[UnderWay, ...], hung: int) -> UnderWay | None:
    """The call that the worker was lost in."""
    if hung >= 0:
        return next((call for call in calls if call.thread == hung), None)
    named = [call for call in calls if call.kind != "read"]
    return named[0] if named else calls[0] if len(calls) == 1 else None


def described(struck: Struck) -> str:
    """For people: which row, and what happens."""
    where = f"{struck.source}[{struck.partition}] position {struck.position}"
    if struck.kind == "read":
        return f"source {struck.task} at {where}: {struck.error}; read again later and later"
    buried = "it is buried as a dead letter" if struck.times >= STRIKES_MOST else "it is tried again"
    return f"task {struck.task}, row of {where}: {struck.error}; {buried}"
