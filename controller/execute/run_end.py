"""How a run ends: the offer ends, sources stop reading, everything runs empty, agents are ordered to end. Pure.

    running → ending    no more is offered; what is due already is still read      ≤ 1 s
            → draining  sources read no more, ledgers run empty                    ≤ 30 s; 10 s without a row done
            → settling  the last samples and counts of every VM come in            ≤ 2.5 s
            → leaving   agents end their workers and say goodbye                   ≤ 4 s
            → over

A second request to stop goes to leaving at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from headgate.controller.execute.rollout import sight_of
from headgate.controller.knowledge.journal_records import Draining, Ended, Scheduled
from headgate.controller.knowledge.knowledge import Knowledge, Turn
from headgate.controller.knowledge.loop_events import ReleaseMachine, Send
from headgate.controller.knowledge.membership import Membership
from headgate.topology_runtime.wire.messages import SampleBlock, Shutdown, Token

NS = 1_000_000_000
SCHEDULE_LEAD_NS = NS // 5  # a change of the offer lies so far ahead that every source knows it in time
CATCH_UP_NS = NS
DRAIN_NS, IDLE_NS = 30 * NS, 10 * NS  # in all, and while no row gets done: who is behind may catch up
SETTLE_NS = 5 * NS // 2  # two blocks of a second each, and half a second to come
LEAVE_NS = 4 * NS

Stage = Literal["running", "ending", "draining", "settling", "leaving", "over"]


@dataclass
class Ending:
    """Where the end of the run stands; `intake_ended_ns`: UTC, when the offer ended."""

    stage: Stage = "running"
    since_ns: int = 0
    settled_wall_ns: int = 0
    intake_ended_ns: int = 0
    blocks: set[str] = field(default_factory=set)
    _done: tuple[int, int] = (-1, 0)  # rows, and since when it is so many

    def ask(self, turn: Turn, reason: str) -> None:
        """Somebody or something asks the run to end; asked again, it ends at once."""
        k = turn.knowledge
        if self.stage == "running" and k.in_force_once:
            schedule = k.durable.schedule
            assert schedule is not None
            if not schedule.end_ns:
                schedule = schedule.ended(turn.now.wall_ns + SCHEDULE_LEAD_NS)
                turn.record(Scheduled(schedule))
            self.intake_ended_ns = schedule.end_ns
            turn.event("ending", f"the run ends: {reason}")
            k.ending_reason = reason
            self._go(turn, "ending")
        elif self.stage not in ("leaving", "over"):
            turn.event("ending", f"the run ends at once: {reason}")
            self._leave(turn, reason)

    def resume(self, turn: Turn) -> None:
        """An earlier life had started to drain."""
        d = turn.knowledge.durable
        self.intake_ended_ns = d.schedule.end_ns if d.schedule else d.draining_ns
        turn.knowledge.ending_reason = d.draining
        self._go(turn, "draining")

    def block(self, block: SampleBlock) -> None:
        if self.stage == "settling" and block.wall_ns >= self.settled_wall_ns:
            self.blocks.add(block.vm)

    def advance(self, turn: Turn, members: Membership) -> None:
        """Go on when a stage is done or has had its time."""
        waited_ns = turn.now.mono_ns - self.since_ns
        if self.stage == "ending" and (waited_ns >= CATCH_UP_NS or caught_up(turn)):
            turn.record(Draining(turn.knowledge.ending_reason, turn.now.wall_ns))
            self._go(turn, "draining")
        elif self.stage == "draining":
            drained, over = all_stopped(turn.knowledge, members), self._waited_enough(turn)
            if not drained and over:
                unread = sum(lag.rows for lag in turn.knowledge.load.lags(turn.now.wall_ns))
                left = f"; {unread:,} rows that came are not read and stay in their spool" if unread else ""
                text = f"not empty after {waited_ns / NS:.0f} s of draining{left}"
                turn.event("alarm", text, level="warning")
            if drained or over:
                self.settled_wall_ns = turn.now.wall_ns
                self._go(turn, "settling")
        elif self.stage == "settling":
            here = {m.vm.vm for m in members.up() if m.report is not None}
            if here <= self.blocks or waited_ns >= SETTLE_NS:
                self._leave(turn, turn.knowledge.ending_reason)
        elif self.stage == "leaving" and (not members.up() or waited_ns >= LEAVE_NS):
            self._over(turn)

    def _waited_enough(self, turn: Turn) -> bool:
        """Is nothing got done any more, or is the time for it over?"""
        done, now_ns = turn.knowledge.counts.done, turn.now.mono_ns
        if done != self._done[0]:
            self._done = done, now_ns
        return now_ns - self._done[1] >= IDLE_NS or now_ns - self.since_ns >= DRAIN_NS

    def _go(self, turn: Turn, stage: Stage) -> None:
        self.stage, self.since_ns = stage, turn.now.mono_ns

    def _leave(self, turn: Turn, reason: str) -> None:
        turn.knowledge.ending_reason = reason
        self.intake_ended_ns = self.intake_ended_ns or turn.now.wall_ns
        self._go(turn, "leaving")

    def order_end(self, turn: Turn, members: Membership) -> None:
        """While leaving, every VM still there is ordered to shut down with every turn that has the time."""
        k = turn.knowledge
        if self.stage != "leaving":
            return
        token = Token(k.durable.boot, k.epoch, k.counter + 1)
        for member in members.up():
            told, sent_ns = k.sent.get(member.vm.vm, (Token(), 0))
            if told != token or turn.now.mono_ns - sent_ns >= NS:
                k.sent[member.vm.vm] = (token, turn.now.mono_ns)
                turn.do(Send(member.vm.vm, Shutdown(token, k.ending_reason)))

    def _over(self, turn: Turn) -> None:
        self._go(turn, "over")
        for vm in turn.knowledge.durable.machines:
            turn.do(ReleaseMachine(vm.vm))
        turn.record(Ended(turn.now.wall_ns))


def caught_up(turn: Turn) -> bool:
    """Have the sources read all that was offered?"""
    k = turn.knowledge
    schedule = k.durable.schedule
    if schedule is None:
        return True
    return turn.now.wall_ns >= schedule.end_ns and k.counts.emitted >= offered_of(k, turn.now.wall_ns)


def offered_of(k: Knowledge, wall_ns: int) -> int:
    """Rows offered so far: every source takes the whole input rate, or what comes there."""
    schedule, topology = k.durable.schedule, k.topology
    if topology is not None and topology.arriving:
        return math.ceil(k.load.positions_at(wall_ns) - 1e-9)
    return schedule.due(wall_ns) * len(topology.sources) if schedule and topology else 0


def all_stopped(k: Knowledge, members: Membership) -> bool:
    """Has every source thread stopped with an empty ledger?"""
    rollout, topology = k.durable.rollout, k.topology
    if rollout is None or topology is None:
        return True
    sight = sight_of(members)
    sources = {task.name for task in topology.sources}
    for thread in rollout.threads:
        if thread.task not in sources:
            continue
        now = sight.sources.get(thread.thread)
        present = sight.thread(thread)
        worker = sight.workers.get(thread.slot)
        stopped = now is not None and present is not None and now.stopped and k.obeyed_draining(worker)
        if not (stopped or (present is not None and present.ended)):
            return False
    return True
