"""How a run ends: the offer ends, sources stop reading, everything runs empty, agents are ordered to end. Pure.

    running → ending    no more is offered; what is due already is still read      ≤ 1 s
            → draining  sources read no more, panes fire, ledgers run empty        while rows make progress
            → settling  the last samples and counts of every VM come in            ≤ 2.5 s
            → leaving   agents end their workers and say goodbye                   ≤ 4 s
            → over

It ends by itself once every source has ended; panes and `finish`: end_of_input.py. What does not move for half a
minute, or not within the limit that the user set, is left: not done, not lost, and read again by a run that is resumed.

A second request to stop goes to leaving at once.
"""

from __future__ import annotations

import math

from headgate.controller.execute.end_of_input import EVERY_SOURCE, every_source_ended, go_on, replayed
from headgate.controller.execute.rollout import give_up
from headgate.controller.knowledge.journal_records import Draining, Ended, Scheduled
from headgate.controller.knowledge.knowledge import Knowledge, Stage, Turn
from headgate.controller.knowledge.loop_events import ReleaseMachine, Send
from headgate.controller.knowledge.spooled_events import held_on
from headgate.topology_runtime.wire.messages import SampleBlock, Shutdown, Token
from headgate.topology_runtime.wording import counted

NS = 1_000_000_000
SCHEDULE_LEAD_NS = NS // 5  # a change of the offer lies so far ahead that every source knows it in time
CATCH_UP_NS = NS
STUCK_MOST = 3  # steps of the end that are tried again though nothing moved
IDLE_NS = 30 * NS  # while no row gets done: who is behind may catch up
SETTLE_NS = 5 * NS // 2  # two blocks of a second each, and half a second to come
LEAVE_NS = 4 * NS


def ask_to_end(turn: Turn, reason: str) -> None:
    """Somebody or something asks the run to end; asked again, it ends at once."""
    k, schedule = turn.knowledge, turn.knowledge.durable.schedule
    if turn.stage == "running" and schedule is not None:
        k.ending.reason = reason
        turn.event("ending", f"the run ends: {reason}")
        _go(turn, "ending")
        _end_offer(turn)
    elif turn.stage not in ("leaving", "over"):
        turn.event("ending", f"the run ends at once: {reason}")
        _leave(turn, reason)


def _end_offer(turn: Turn) -> None:
    """Once it is journaled; until then again and again."""
    k, schedule = turn.knowledge, turn.knowledge.durable.schedule
    if schedule is not None and not schedule.end_ns:
        schedule = schedule.ended(turn.now.wall_ns + SCHEDULE_LEAD_NS)
        turn.record(Scheduled(schedule))
    k.ending.intake_ended_ns = schedule.end_ns if schedule is not None else 0


def go_on_ending(turn: Turn) -> None:
    """An earlier life had started to drain."""
    d, ending = turn.knowledge.durable, turn.knowledge.ending
    ending.intake_ended_ns = d.schedule.end_ns if d.schedule else d.draining_ns
    ending.reason = d.draining
    _go(turn, "draining")


def last_samples(k: Knowledge, block: SampleBlock) -> None:
    """Are these a VM's last?"""
    if k.ending.stage == "settling" and block.wall_ns >= k.ending.settled_wall_ns:
        k.ending.blocks.add(block.vm)


def advance(turn: Turn) -> None:
    """Go on when a stage is done or has had its time."""
    k, ending = turn.knowledge, turn.knowledge.ending
    if turn.now.mono_ns < k.journal_retry_ns:
        return
    if ending.stage == "running" and every_source_ended(k):
        ask_to_end(turn, EVERY_SOURCE)
    waited_ns = turn.now.mono_ns - ending.since_ns
    if ending.stage in ("ending", "draining"):
        _end_offer(turn)
    if ending.stage == "ending" and (waited_ns >= CATCH_UP_NS or caught_up(turn)):
        _go(turn, "draining")
        if k.durable.waiting is not None:
            give_up(turn, "the run ends", failed=False)
        turn.record(Draining(ending.reason, turn.now.wall_ns))
    elif ending.stage == "draining":
        if not k.durable.draining:  # the journal did not take it
            turn.record(Draining(ending.reason, turn.now.wall_ns))
        idle_ns = _idle_ns(turn)
        empty = k.durable.draining != EVERY_SOURCE and all_stopped(k)
        drained = empty or go_on(turn, idle_ns)
        over = idle_ns >= IDLE_NS or 0 < k.settings.drain_timeout_s * NS <= waited_ns
        if not drained and over:
            unread = sum(lag.rows for lag in k.load.lags(turn.now.wall_ns))
            left = f"; {unread:,} rows that came are not read and stay in their spool" if unread else ""
            rows = k.counts.emitted - k.counts.done
            text = f"not empty after {waited_ns / NS:.0f} s of draining: {rows:,} rows are left{left}"
            turn.event("alarm", text, level="warning")
        if drained or over:
            ending.settled_wall_ns = turn.now.wall_ns
            _go(turn, "settling")
    elif ending.stage == "settling":
        here = {m.vm.vm for m in k.members.up() if m.report is not None}
        if here <= ending.blocks or waited_ns >= SETTLE_NS:
            _leave(turn, ending.reason)
    elif ending.stage == "leaving" and (not k.members.up() or waited_ns >= LEAVE_NS):
        _go(turn, "over")
        for vm in k.durable.machines:
            if events := held_on(k, vm.vm):
                what = f"{vm.vm} is not given back: {counted(events, 'event')} on its disk are not read"
                turn.event("alarm", what, level="warning")
            else:
                turn.do(ReleaseMachine(vm.vm))
        turn.record(Ended(turn.now.wall_ns))


def order_end(turn: Turn) -> None:
    """While leaving, every VM still there is ordered to shut down with every turn that has the time."""
    k = turn.knowledge
    token = Token(k.durable.boot, k.epoch, k.counter + 1)
    for member in k.members.up():
        told, sent_ns = k.sent.get(member.vm.vm, (Token(), 0))
        if told != token or turn.now.mono_ns - sent_ns >= NS:
            k.sent[member.vm.vm] = (token, turn.now.mono_ns)
            turn.do(Send(member.vm.vm, Shutdown(token, k.ending.reason)))


def _idle_ns(turn: Turn) -> int:
    """For how long no row has got done, none has come to a sink, no plan was made and no step of the end was done. Of a
    step that is done again each row that is sent again counts once, but not for ever."""
    k, ending, now_ns = turn.knowledge, turn.knowledge.ending, turn.now.mono_ns
    end = k.durable.end
    done = k.counts.done + sum(map(sum, k.counts.latency.values()))
    done += k.durable.next_epoch + (len(end.over) + len(end.finish) if end is not None else 0)
    if end is not None and ending.stuck < STUCK_MOST:
        done += end.number + min(replayed(k), ending.replays)
    if done != ending.done[0]:
        ending.done = done, now_ns
    return now_ns - max(ending.done[1], ending.since_ns)


def _go(turn: Turn, stage: Stage) -> None:
    turn.knowledge.ending.stage, turn.knowledge.ending.since_ns = stage, turn.now.mono_ns


def _leave(turn: Turn, reason: str) -> None:
    ending = turn.knowledge.ending
    ending.reason, ending.intake_ended_ns = reason, ending.intake_ended_ns or turn.now.wall_ns
    _go(turn, "leaving")


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
    if schedule is None or topology is None:
        return 0
    due = schedule.due(wall_ns)
    return math.ceil(
        sum(
            k.counts.had(task.name, task.static.threads if task.static else 1, due)
            for task in topology.sources
        )
    )


def all_stopped(k: Knowledge) -> bool:
    """Has every source thread stopped with an empty ledger?"""
    rollout, topology = k.durable.rollout, k.topology
    if rollout is None or topology is None:
        return True
    sources = {task.name for task in topology.sources}
    for thread in rollout.threads:
        if thread.task not in sources:
            continue
        now = k.members.sources.get(thread.thread)
        present = k.members.thread(thread)
        worker = k.members.workers.get(thread.slot)
        stopped = now is not None and present is not None and now.stopped and k.obeyed_draining(worker)
        if not (stopped or (present is not None and present.ended)):
            return False
    return True
