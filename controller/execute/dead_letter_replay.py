"""Dead letters whose rows are to be sent again: which source thread has which of them, until each is done or has died
again. Pure.

 1. A dead letter goes to the source thread of its own source and partition (else to one of a source above its task)
    that stays, and to another one once that is no longer desired or has a new worker.
 2. A source thread has at most 512 dead letters and 512 KiB of rows at a time. It gets the whole of what it is to send
    again whenever that changes, five times a second at most, and every two seconds until it says the same; with the
    rows that it did not say it has.
 3. A dead letter is dropped, and counted as sent again, when the thread that has it says that its row is done, and not
    before. One whose row dies again is a dead letter as it was (dead_letters.py): the task reports it, and its root
    is never done.
 4. What is asked for is with the dead letters on disk: the next life goes on. Rows that were on their way then may come
    twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate.controller.knowledge.dead_letters import KeptDeadLetter
from headgate.controller.knowledge.knowledge import Knowledge, Turn
from headgate.controller.knowledge.loop_events import Send
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.wire.dead_letter_messages import (
    AGAIN_MOST,
    MESSAGE_BYTES,
    LetterRow,
    SendAgain,
)
from headgate.topology_runtime.wire.messages import Report, ThreadSpec

NS = 1_000_000_000
SOONEST_NS, AGAIN_NS = NS // 5, 2 * NS
STALE = frozenset({-1})  # what an earlier life of the controller had said


@dataclass
class ReplayLine:
    """One source thread: in the worker of `slot` of `incarnation`. here: what it is to send again, by
    serial; there: the serials that it said it has, or has done."""

    slot: Slot
    incarnation: int
    here: dict[int, int] = field(default_factory=dict)
    there: frozenset[int] = frozenset()
    said: frozenset[int] | None = None
    said_ns: int = 0

    def due(self, now_ns: int) -> bool:
        quiet_ns, desired = now_ns - self.said_ns, self.here.keys()
        if self.said is None or desired != self.said:
            return quiet_ns >= SOONEST_NS
        return desired != self.there and quiet_ns >= AGAIN_NS


@dataclass
class DeadLetterReplay:
    """All source threads that have dead letters, or had."""

    lines: dict[int, ReplayLine] = field(default_factory=dict)

    def hear(self, turn: Turn, report: Report) -> None:
        """What source threads of a VM have, and what of it is done."""
        k = turn.knowledge
        for worker in report.workers:
            told = {now.thread for now in worker.again}
            for thread, line in self.lines.items():
                if (line.slot, line.incarnation) == (worker.slot, worker.incarnation) and thread not in told:
                    line.there = frozenset()
            for now in worker.again:
                if not self._is(k, now.thread, worker.slot, worker.incarnation):
                    continue
                line = self.lines.setdefault(now.thread, ReplayLine(worker.slot, worker.incarnation))
                line.there = frozenset(now.open) | frozenset(now.done)
                if now.boot != k.durable.boot:
                    line.there = STALE
                    continue
                for serial in line.here.keys() & frozenset(now.done):
                    k.counts.letters.done_again(line.here.pop(serial))

    def go_on(self, turn: Turn, running: bool) -> None:
        """Give dead letters to source threads, and order these. `running`: no more are given while the run ends."""
        k = turn.knowledge
        asked = k.counts.letters.asked
        if not asked and not self.lines:
            return
        for thread, line in list(self.lines.items()):
            if not self._is(k, thread, line.slot, line.incarnation):
                del self.lines[thread]
            else:
                line.here = {
                    serial: number for serial, number in line.here.items() if asked.get(number) == serial
                }
        if running and asked and k.topology is not None:
            self._give(k, k.topology)
        for thread, line in self.lines.items():
            if line.due(turn.now.mono_ns):
                line.said, line.said_ns = frozenset(line.here), turn.now.mono_ns
                rows = rows_of(k, {n: line.here[n] for n in line.here if n not in line.there})
                boot, serials = k.durable.boot, tuple(line.here)
                turn.do(
                    Send(line.slot.vm, SendAgain(boot, line.slot, line.incarnation, thread, serials, rows))
                )
        self.lines = {
            n: line for n, line in self.lines.items() if line.here or line.there or line.due(1 << 62)
        }

    def _is(self, k: Knowledge, thread: int, slot: Slot, incarnation: int) -> bool:
        """Is this the thread's worker of now, and does the thread stay?"""
        rollout = k.durable.rollout
        desired = rollout.by_number.get(thread) if rollout is not None else None
        if desired is None or desired.leaving or desired.slot != slot or slot.vm in k.durable.held_dead:
            return False
        return k.incarnations.get(slot) == incarnation

    def _give(self, k: Knowledge, topology: Topology) -> None:
        """Rules 1 and 2."""
        given = {serial for line in self.lines.values() for serial in line.here}
        for number, serial in k.counts.letters.asked.items():
            if serial in given:
                continue
            letter = k.counts.letters.kept[number]
            thread = sender_of(k, topology, letter)
            incarnation = k.incarnations.get(thread.slot) if thread is not None else None
            if thread is None or incarnation is None:
                continue
            line = self.lines.setdefault(thread.thread, ReplayLine(thread.slot, incarnation))
            kept = k.counts.letters.kept
            size = sum(len(kept[other].data) for other in line.here.values())
            if len(line.here) >= AGAIN_MOST or (line.here and size + len(letter.data) > MESSAGE_BYTES):
                return
            line.here[serial] = number


def sender_of(k: Knowledge, topology: Topology, letter: KeptDeadLetter) -> ThreadSpec | None:
    """Rule 1; None: there is none now."""
    rollout = k.durable.rollout
    above = sources_above(topology, letter.task)
    threads = [t for t in rollout.threads if t.task in above and not t.leaving] if rollout is not None else []
    own = letter.source, letter.partition
    return min(
        threads,
        key=lambda t: ((t.task, t.partition) != own, t.task != letter.source, t.thread),
        default=None,
    )


def sources_above(topology: Topology, task: str) -> frozenset[str]:
    """Sources whose rows come to this task; none when there is no such task."""
    return tasks_above(topology, task) & {source.name for source in topology.sources}


def tasks_above(topology: Topology, task: str) -> frozenset[str]:
    """Tasks whose rows come to this one, and itself; none when there is no such task."""
    above, look = set[str](), [task]
    while look:
        name = look.pop()
        if name in topology.by_name and name not in above:
            above.add(name)
            look += [edge.source for _, edge in topology.in_edges(name)]
    return frozenset(above)


def rows_of(k: Knowledge, letters: dict[int, int]) -> tuple[LetterRow, ...]:
    """Of serial → dead letter."""
    kept = [(serial, k.counts.letters.kept[number]) for serial, number in letters.items()]
    return tuple(
        LetterRow(serial, one.number, one.task, one.feeder, one.thread, one.shape, one.data)
        for serial, one in kept
    )
