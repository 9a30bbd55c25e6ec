"""Alarms: event time stands still in a task, or the times of all rows are wrong. No clock, no I/O."""

from __future__ import annotations

from headgate.controller.knowledge.event_times_now import event_time_of, said_by
from headgate.controller.knowledge.knowledge import Turn
from headgate.controller.knowledge.run_view import EventTimeNow

NS = 1_000_000_000
STANDS_NS = 60 * NS  # a watermark that does not move for so long, while rows are done
AHEAD_S = 5.0  # by so much clocks may differ


def look(turn: Turn) -> None:
    """Does one stand still while rows are done? Are the times of all rows of a task wrong?"""
    k, now_ns = turn.knowledge, turn.now.mono_ns
    if k.topology is None or not k.topology.timed or k.durable.rollout is None:
        return
    for name, (said, _) in said_by(k).items():
        wrong = next((now.times_wrong for now in said if now.times_wrong), "")
        text = f"{name}: {wrong}" if wrong else ""
        turn.alarm(f"times {name}", text, f"the times of {name} are as they should be")
    for now in event_time_of(k, turn.now.wall_ns):
        what, before = f"watermark {now.task}", k.watermarks.get(now.task)
        running = not k.durable.draining and now.state not in ("ended", "no timestamps")
        if before is None or before[0] != now.watermark_us or not running:
            k.watermarks[now.task] = now.watermark_us, now_ns, k.counts.done
            turn.alarm(what, "", f"the watermark of {now.task} moves again")
        elif now_ns - before[1] >= STANDS_NS and k.counts.done > before[2]:
            why = _why_it_stands(now)
            turn.alarm(what, f"the watermark of {now.task} has not moved for a minute while rows come: {why}")


def _why_it_stands(now: EventTimeNow) -> str:
    if now.lag_s is not None and now.lag_s < -AHEAD_S:
        whose = now.held_by or "what comes to it"
        return (
            f"it is {-now.lag_s:,.0f} s ahead of the clock, by rows of {whose}; rows from before it are late"
        )
    if not now.held_by:
        return "a task before it holds it back"
    why = ": no row with a time of it is done" if now.watermark_us is None else ""
    return f"{now.held_by} holds it back{why}"
