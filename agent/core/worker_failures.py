"""What was under way when workers were lost in user code, and what follows from it. Pure.

1. A worker is lost in user code when a call takes too long, or when it dies and nobody made it: by a fatal
   signal, by an exit of its own, out of memory.
2. The call is known when the worker had named it, or when it is a source's read. What is known is counted
   per identity; such a loss is no crash of the slot.
3. After a loss the slot's next workers are *careful* for a minute (after losses of which nothing was known,
   twice as long each time): they name each row before it is started. The losses of which nothing was known
   count for the first row that is found so.
4. Failed three times, a row is *poison*: it becomes a dead letter before user code meets it again.
5. Every VM counts what failed there and hears of the others what they counted: rows that are sent again go
   elsewhere, and three times is meant of all VMs together. Who hears of a loss elsewhere is careful too.
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from headgate.topology_runtime.wire.dead_letter_messages import CallKind, Struck, VmStrikes
from headgate.topology_runtime.worker.calls.attempts import FAILURES_MOST

CAREFUL_NS = 60_000_000_000
DOUBLED_MOST = 6
STRUCK_KEPT = 500
TOLD_MOST, ERROR_MOST = 20, 300  # sent to other VMs: so many, the latest, with so much of what happened

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
class WorkerFailures:
    """struck: on this VM. elsewhere: on all others together."""

    struck: dict[Name, Struck] = field(default_factory=dict)  # the latest last
    elsewhere: dict[Name, Struck] = field(default_factory=dict)
    _slots: dict[int, OfSlot] = field(default_factory=dict)
    _heard: tuple[VmStrikes, ...] = ()
    _unknown: int = 0  # losses elsewhere of which nothing is known and that no row here was charged with
    _careful_until_ns: int = -1  # all slots, since something was lost elsewhere

    def lost(self, slot: int, calls: tuple[UnderWay, ...], hung: int, why: str, now_ns: int) -> Struck | None:
        """A worker was lost in user code; what failed, None when that is not known. hung: the thread
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
        return tuple(one for one in map(self._in_all, names) if one.times >= FAILURES_MOST)

    @property
    def counts(self) -> VmStrikes:
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
            times += min(extra + self._unknown, FAILURES_MOST - 2)
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
    buried = "it becomes a dead letter" if struck.times >= FAILURES_MOST else "it is tried again"
    return f"task {struck.task}, row of {where}: {struck.error}; {buried}"


# ── Is a worker hung? Pure: it is shown what the worker's meter and /proc say, and when ─────────────────
#
# A worker is hung when (docs/explanation/faults.md)
# 1. it is stopped (SIGSTOP, a debugger) for 3 s,
# 2. its main loop does not advance for 3 s although rows wait, its CPU is idle and no thread is in a call,
# 3. a thread has been in one call for longer than its task's `max_call_s`: a call for one row, not a frame
# (but of a batched task); in a source's read or poll too. A call of open or close is the worker's own to
# report, so it counts only when the main loop does not advance either, and open may take a minute.
# A call that is long but legal, a worker starved of CPU, and an agent that was itself stalled are no hang.

NS = 1_000_000_000
FROZEN_NS = 3 * NS
OWN_GAP_NS = NS  # if we were not looking for so long ourselves, nothing is known
IDLE_SHARE = 0.01  # of a core: a frozen worker's I/O threads stay far below it
IDLE_LEAST_NS = 10_000_000  # one tick of the kernel's CPU account
STOPPED = frozenset("Tt")
OPEN_LEAST_NS = 60 * NS  # a task may load much when it begins


class Call(NamedTuple):
    """A thread in user code. started_ns: when its frame was started (monotonic). moved: another number than
    before, and it is not in the same call."""

    thread: int
    task: int
    kind: CallKind
    started_ns: int
    moved: int


class HangReading(NamedTuple):
    """One look at a worker. ran_ns: CPU time it had plus time its main thread waited for a CPU.
    queued: rows waiting."""

    now_ns: int
    state: str
    progress: int
    ran_ns: int
    queued: int
    calls: tuple[Call, ...]


class Hang(NamedTuple):
    """Why a worker is hung, and the thread that is in a call for too long (−1: none)."""

    why: str
    thread: int = -1


class HangWatch:
    """Watches one worker. `max_call_ns`: task number → how long a call may take."""

    def __init__(self) -> None:
        self._last_ns = 0
        self._since: HangReading | None = None  # the first of the readings without progress
        self._calls: dict[int, tuple[Call, int]] = {}  # thread → its call, and since when it is in that
        self._progress, self._advanced_ns = -1, 0  # of the main loop, and when it was last seen to advance

    def look(self, reading: HangReading, max_call_ns: Mapping[int, int]) -> Hang | None:
        """Is the worker hung? None when it is not, or not known to be."""
        gap_ns, self._last_ns = reading.now_ns - self._last_ns, reading.now_ns
        stalled = gap_ns > OWN_GAP_NS
        if stalled or reading.progress != self._progress:
            self._progress, self._advanced_ns = reading.progress, reading.now_ns
        if stalled:
            self._since, self._calls = reading, {}
        self._follow(reading)
        if stalled:
            return None
        return self._call_too_long(reading, max_call_ns) or self._frozen(reading)

    def _follow(self, reading: HangReading) -> None:
        """Since when is each thread in its call? Counted from our own first look at it."""
        before, self._calls = self._calls, {}
        for call in reading.calls:
            known = before.get(call.thread)
            since_ns = known[1] if known is not None and known[0] == call else reading.now_ns
            self._calls[call.thread] = call, since_ns

    def _call_too_long(self, reading: HangReading, max_call_ns: Mapping[int, int]) -> Hang | None:
        stuck = reading.now_ns - self._advanced_ns >= FROZEN_NS
        for call, since_ns in self._calls.values():
            if call.task not in max_call_ns or (call.kind in ("open", "close") and not stuck):
                continue
            age_ns, most_ns = reading.now_ns - since_ns, most_of(call.kind, max_call_ns[call.task])
            if age_ns > most_ns:
                where = "a call" if call.kind in ("row", "bucket") else f"{call.kind}()"
                return Hang(
                    f"{where} has taken {age_ns / NS:.1f} s of at most {most_ns / NS:g} s", call.thread
                )
        return None

    def _frozen(self, reading: HangReading) -> Hang | None:
        since = self._since
        if since is None or self._moves(since, reading):
            self._since = reading
            return None
        frozen_ns = reading.now_ns - since.now_ns
        if frozen_ns < FROZEN_NS:
            return None
        if reading.state in STOPPED:
            return Hang(f"it has been stopped for {frozen_ns / NS:.1f} s")
        return Hang(
            f"no progress for {frozen_ns / NS:.1f} s with an idle CPU and {reading.queued} rows waiting"
        )

    @staticmethod
    def _moves(since: HangReading, now: HangReading) -> bool:
        if now.state in STOPPED:
            return since.state not in STOPPED
        elapsed_ns = now.now_ns - since.now_ns
        ran_ns = now.ran_ns - since.ran_ns
        busy = ran_ns > IDLE_SHARE * elapsed_ns + IDLE_LEAST_NS
        return (
            since.state in STOPPED
            or now.progress != since.progress
            or busy
            or not now.queued
            or bool(now.calls)
        )


def most_of(kind: CallKind, max_call_ns: int) -> int:
    """How long a call of this kind may take."""
    return max(OPEN_LEAST_NS, max_call_ns) if kind == "open" else max_call_ns


# ── The stacks that a worker wrote into its log before its end, read out of the text. Pure ──────────────
#
# faulthandler writes one paragraph per thread, the most recent call first:
#
# Thread 0x00007f1c2a7fc640 (most recent call first):
# File "rows.py", line 12 in work

HEAD = re.compile(r"^(?:Current thread|Thread) 0x([0-9a-f]+)\b.*:$")
CALL = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')
OURS = "/topology_runtime/worker/"
LIBRARIES = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
STACK_MOST = 4000  # characters


def of_thread(log: str, ident: int) -> str:
    """The last stack in a log of the thread with this ident; empty when there is none."""
    found: list[str] = []
    inside = False
    for line in log.splitlines():
        head = HEAD.match(line)
        if head is not None:
            inside = int(head[1], 16) == ident
            if inside:
                found = []
        elif inside and CALL.match(line):
            found.append(line)
        else:
            inside = False
    return "\n".join(found)[:STACK_MOST]


def line_of(stack: str) -> str:
    """`file:line in function` of the innermost call that is the user's own; empty when none is seen."""
    calls = [call for line in stack.splitlines() if (call := CALL.match(line)) is not None]
    users = []
    for call in calls:
        if OURS in call[1]:
            break
        users.append(call)
    own = [call for call in users if not call[1].startswith(LIBRARIES)] or users
    return f"{own[0][1]}:{own[0][2]} in {own[0][3]}" if own else ""
