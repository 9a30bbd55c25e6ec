"""How a run ends: the offer ends, sources stop reading, everything runs empty, agents are ordered to end. Pure.

    running → ending    no more is offered; what is due already is still read      ≤ 1 s
            → draining  sources read no more, panes fire, ledgers run empty        while rows make progress
            → settling  the last samples and counts of every VM come in            ≤ 2.5 s
            → leaving   agents end their workers and say goodbye                   ≤ 4 s
            → over

It ends by itself once every source has ended; panes and `finish`: end_of_input.py. What does not move for half a
minute, or not within the limit that the user set, is left: read, not done, and read again by a run that is resumed.
Lost is what no such run would read: knowledge/rows_left.py tells the two apart.

A second request to stop goes to leaving at once, unless it sets a limit.
"""

from __future__ import annotations

import math

from headgate.controller.execute.end_of_input import (
    every_source_ended,
    go_on,
    replayed,
    timed_threads,
    unfinished,
)
from headgate.controller.execute.kept_counts import keep_tallies
from headgate.controller.execute.rollout import give_up, say_uncommitted
from headgate.controller.knowledge.event_times_now import event_time_of
from headgate.controller.knowledge.journal_records import Draining, Ended, Scheduled
from headgate.controller.knowledge.knowledge import Knowledge, Stage, Turn
from headgate.controller.knowledge.loop_events import Now, ReleaseMachine, Send
from headgate.controller.knowledge.rows_left import left_of, lost_of
from headgate.controller.knowledge.run_view import NOT_COUNTED, open_keys_of
from headgate.controller.knowledge.spooled_events import held_on
from headgate.topology_runtime.wire.messages import SampleBlock, Shutdown, Token
from headgate.topology_runtime.wire.run_options import EVERY_SOURCE
from headgate.topology_runtime.wording import counted

NS = 1_000_000_000
SCHEDULE_LEAD_NS = NS // 5  # a change of the offer lies so far ahead that every source knows it in time
CATCH_UP_NS = NS
STUCK_MOST = 3  # steps of the end that are tried again though nothing moved
IDLE_NS = 30 * NS  # while no row gets done: who is behind may catch up
SETTLE_NS = 5 * NS // 2  # two blocks of a second each, and half a second to come
LEAVE_NS = 4 * NS


def ask_to_end(turn: Turn, reason: str, timeout_s: float = 0.0) -> None:
    """Somebody or something asks the run to end; asked again, it ends at once, or by the limit that is set then."""
    k, schedule = turn.knowledge, turn.knowledge.durable.schedule
    k.ending.timeout_s = timeout_s or k.ending.timeout_s
    if timeout_s and turn.stage == "draining":
        turn.record(Draining(k.durable.draining, k.durable.draining_ns, timeout_s))
    elif timeout_s and turn.stage == "ending":
        pass  # it is journaled with what comes next
    elif turn.stage == "running" and schedule is not None:
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
        turn.record(Scheduled(schedule, k.ending.reason))
    k.ending.intake_ended_ns = schedule.end_ns if schedule is not None else 0


def go_on_ending(turn: Turn) -> None:
    """An earlier life had begun to end the run."""
    d, ending = turn.knowledge.durable, turn.knowledge.ending
    ending.intake_ended_ns = d.schedule.end_ns if d.schedule else d.draining_ns
    ending.reason, ending.timeout_s = d.draining or d.ends_for, d.drain_timeout_s
    _go(turn, "draining" if d.draining else "ending")


def last_samples(k: Knowledge, block: SampleBlock) -> None:
    """Are these a VM's last?"""
    if k.ending.stage == "settling" and block.wall_ns >= k.ending.settled_wall_ns:
        k.ending.blocks.add(block.vm)


def _none_pending(k: Knowledge) -> bool:
    """Is all done that timers gave?"""
    found = [k.members.threads.get(thread.thread) for thread in timed_threads(k)] if k.durable.rollout else []
    return all(now is not None and now.empty for now in found)


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
        turn.record(Draining(ending.reason, turn.now.wall_ns, ending.timeout_s))
    elif ending.stage == "draining":
        if not k.durable.draining:  # the journal did not take it
            turn.record(Draining(ending.reason, turn.now.wall_ns, ending.timeout_s))
        idle_ns = _idle_ns(turn)
        empty = k.durable.draining != EVERY_SOURCE and all_stopped(k) and _none_pending(k)
        drained = empty or go_on(turn, idle_ns)
        over = idle_ns >= IDLE_NS or 0 < drain_timeout_s(k) * NS <= waited_ns
        if not drained and over:
            ending.unfinished = unfinished(k) if k.durable.draining == EVERY_SOURCE else ()
            _say_what_is_left(turn, waited_ns)
        if drained or over:
            ending.settled_wall_ns = turn.now.wall_ns
            if k.durable.draining == EVERY_SOURCE:
                ending.intake_ended_ns = turn.now.wall_ns  # a bounded input lasts until it is done
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
        turn.record(Ended(turn.now.wall_ns, left_of(k) + _unread(turn), _open_keys(k)))


def _open_keys(k: Knowledge) -> int:
    """Of windows and timers. Where the end of the input has come to all tasks, none is open but those that are
    counted."""
    if k.ending.unfinished:
        return open_keys_of(k.ending.event_time) or NOT_COUNTED
    return max(open_keys_of(k.ending.event_time), 0 if k.durable.draining == EVERY_SOURCE else NOT_COUNTED)


def _say_what_is_open(turn: Turn) -> None:
    k = turn.knowledge
    named = [f"{counted(now.open_keys, 'key')} of {now.task}" for now in k.ending.event_time if now.open_keys]
    if named and (k.ending.unfinished or k.durable.draining != EVERY_SOURCE):
        text = f"windows or timers are open of {', '.join(named)}: `headgate up --resume`, or a checkpoint, goes on"
        turn.event("open", text, level="warning")


def drain_timeout_s(k: Knowledge) -> float:
    """The limit of who stopped the run, else of who submitted it, else of who started the controller; 0: there is
    none."""
    run = k.durable.run
    return (
        k.ending.timeout_s or (run.drain_timeout_s if run is not None else 0.0) or k.settings.drain_timeout_s
    )


def _say_what_is_left(turn: Turn, waited_ns: int) -> None:
    k = turn.knowledge
    unread = _unread(turn)
    spooled = f"; {unread:,} rows that came are not read and stay in their spool" if unread else ""
    rows = counted(k.counts.emitted - k.counts.done, "row")
    text = f"not empty after {waited_ns / NS:.0f} s of draining: {rows} left, which a resumed run reads again{spooled}"
    if k.ending.unfinished:
        text += f"; the end of the input did not come to {', '.join(k.ending.unfinished)}"
    turn.event("left", text, level="warning")


def _unread(turn: Turn) -> int:
    """Rows that came and are still to be read."""
    return sum(lag.rows for lag in turn.knowledge.load.lags(turn.now.wall_ns))


def order_end(turn: Turn) -> None:
    """While leaving, every VM still there is ordered to shut down with every turn that has the time."""
    k = turn.knowledge
    token = Token(k.durable.boot, k.epoch, k.counter + 1)
    due = [member.vm.vm for member in k.members.up() if _is_due(turn, member.vm.vm, token)]
    if due:
        keep_tallies(turn)  # sources with offsets let go all that is done
    for vm in due:
        k.sent[vm] = (token, turn.now.mono_ns)
        turn.do(Send(vm, Shutdown(token, k.ending.reason)))


def _is_due(turn: Turn, vm: str, token: Token) -> bool:
    told, sent_ns = turn.knowledge.sent.get(vm, (Token(), 0))
    return told != token or turn.now.mono_ns - sent_ns >= NS


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
    ending.lost = lost_of(turn.knowledge)
    ending.event_time = event_time_of(turn.knowledge, turn.now.wall_ns)
    _say_what_is_open(turn)
    say_uncommitted(turn)
    _go(turn, "leaving")


def caught_up(turn: Turn) -> bool:
    """Have the sources read all that was offered?"""
    k = turn.knowledge
    schedule = k.durable.schedule
    if schedule is None:
        return True
    return turn.now.wall_ns >= schedule.end_ns and k.counts.emitted >= offered_of(k, turn.now.wall_ns)


def offered_of(k: Knowledge, wall_ns: int) -> int:
    """Rows offered so far: every source takes the whole input rate, or what comes there, while it has any."""
    return math.ceil(k.load.positions_at(wall_ns, whole=True) - 1e-6)


def backlogs_of(k: Knowledge, now: Now) -> dict[str, int]:
    """Source → rows offered and not done, as of when its threads were heard last: what was done since is not known."""
    found = {}
    for task in k.topology.sources if k.topology is not None else ():
        heard_ns = now.wall_ns - k.counts.age_ns(task.name, now.mono_ns)
        heard_ns = min(heard_ns, k.ending.intake_ended_ns or heard_ns)
        done = sum(known.done for (name, _), known in k.counts.sources.items() if name == task.name)
        found[task.name] = max(0, math.ceil(k.load.positions_of(task, heard_ns, whole=True) - 1e-6) - done)
    return found


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
