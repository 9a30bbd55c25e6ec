"""What was under way when workers were lost in user code, and what follows from it. Pure.

1. A worker is lost in user code when a call takes too long, or when it dies and nobody made it: by a fatal
   signal, by an exit of its own, out of memory.
2. The call is known when the worker had named it, or when it is a source's read. What is known is counted
   per identity; such a loss is no crash of the slot.
3. After a loss the slot's next workers are *careful* for a minute (after losses of which nothing was known,
   twice as long each time): they name each row before it is begun. The losses of which nothing was known
   count for the first row that is found so.
4. Struck three times, a row is *poison*: it becomes a dead letter before user code meets it again.
5. Every VM counts what was struck there and hears of the others what they counted: rows that are sent again go
   elsewhere, and three times is meant of all VMs together. Who hears of a loss elsewhere is careful too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from headgate.topology_runtime.struck import CallKind, Struck, VmStrikes
from headgate.topology_runtime.worker.watch import STRIKES_MOST

CAREFUL_NS = 60_000_000_000
DOUBLED_MOST = 6
STRUCK_KEPT = 500
TOLD_MOST, ERROR_MOST = 20, 300  # told to other VMs: so many, the latest, with so much of what happened

NOTHING = VmStrikes()

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
    """struck: on this VM. elsewhere: on all others together."""

    struck: dict[Name, Struck] = field(default_factory=dict)  # the latest last
    elsewhere: dict[Name, Struck] = field(default_factory=dict)
    _slots: dict[int, OfSlot] = field(default_factory=dict)
    _heard: tuple[VmStrikes, ...] = ()
    _unknown: int = 0  # losses elsewhere of which nothing is known and that no row here was charged with
    _careful_until_ns: int = -1  # all slots, since something was lost elsewhere

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
        return now_ns < max(self._careful_until_ns, of.careful_until_ns if of is not None else -1)

    @property
    def poison(self) -> tuple[Struck, ...]:
        """By what was counted on all VMs."""
        names = {**self.elsewhere, **self.struck}
        return tuple(one for one in map(self._in_all, names) if one.times >= STRIKES_MOST)

    @property
    def told(self) -> VmStrikes:
        """For the other VMs."""
        if not self.struck and not self._slots:
            return NOTHING
        latest = list(self.struck.values())[-TOLD_MOST:]
        short = tuple(replace(one, error=one.error[:ERROR_MOST], traceback="") for one in latest)
        return VmStrikes(short, sum(of.unknown for of in self._slots.values()))

    def hear(self, others: tuple[VmStrikes, ...], now_ns: int) -> bool:
        """What is counted on the other VMs now; True when it is not what was."""
        if others == self._heard:
            return False
        before, unknown_before = self.elsewhere, sum(vm.unknown for vm in self._heard)
        self._heard, self.elsewhere = others, {}
        for one in (one for vm in others for one in vm.struck):
            known = self.elsewhere.get(name := _name(one))
            self.elsewhere[name] = replace(one, times=one.times + known.times) if known is not None else one
        unknown = sum(vm.unknown for vm in others)
        self._unknown = max(0, min(unknown, self._unknown + unknown - unknown_before))
        if self.elsewhere.keys() - before.keys():  # what was lost here and not known was this row's doing
            for of in self._slots.values():
                of.unknown = 0
        self._careful_until_ns = now_ns + CAREFUL_NS
        return True

    def _in_all(self, name: Name) -> Struck:
        here, there = self.struck.get(name), self.elsewhere.get(name)
        if here is None or there is None:
            return here or self.elsewhere[name]
        return replace(here, times=here.times + there.times)

    def _strike(self, call: UnderWay, extra: int, why: str) -> Struck:
        """One more on this VM; how often in all."""
        name = call.task, call.source, call.partition, call.position, call.variant, call.kind
        before, there = self.struck.pop(name, None), self.elsewhere.get(name)
        times = 1 + (before.times if before is not None else 0)
        if before is None and there is None and call.kind != "read":
            times += min(extra + self._unknown, STRIKES_MOST - 2)
            self._unknown = 0
        in_all = times + (there.times if there is not None else 0)
        error = f"{why} ({in_all} tries)" + (f", in {call.line}" if call.line else "")
        stack = call.stack or (before.traceback if before is not None else "")
        self.struck[name] = Struck(*name[:5], call.kind, times, error, stack)
        while len(self.struck) > STRUCK_KEPT:
            del self.struck[next(iter(self.struck))]
        return self._in_all(name)

    def take_up(self, saved: tuple[Struck, ...]) -> None:
        """What an earlier life of this agent counted."""
        self.struck.update((_name(one), one) for one in saved)


def _name(one: Struck) -> Name:
    return one.task, one.source, one.partition, one.position, one.variant, one.kind


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
