"""What VMs say of keyed state: ranges whose state was lost, snapshots that cannot be written. No clock, no I/O."""

from __future__ import annotations

from collections.abc import Iterable

from headgate.controller.knowledge.records import StateLost
from headgate.controller.knowledge.turn import Turn
from headgate.topology_runtime import messages as m
from headgate.topology_runtime.worker.ranges import of_runs, runs_of

ALARM = "state"


def hear(turn: Turn, workers: Iterable[m.WorkerStatus]) -> None:
    """Journal what is lost as soon as it is known; what is known already is told again and again."""
    rollout = turn.knowledge.durable.rollout
    tasks = {t.thread: t.task for t in rollout.threads} if rollout is not None else {}
    for worker in workers:
        for now in worker.threads:
            if now.lost and now.thread in tasks:
                _lost(turn, tasks[now.thread], now, str(worker.slot))
            if now.applied_again:
                again = turn.knowledge.counts.applied_again
                again[now.thread] = max(again.get(now.thread, 0), now.applied_again)


def _lost(turn: Turn, task: str, now: m.ThreadStatus, slot: str) -> None:
    k = turn.knowledge
    known = of_runs(k.durable.state_lost.get(task, ()))
    fresh = of_runs(now.lost) - known
    if not fresh:
        return
    turn.record(StateLost(task, now.thread, runs_of(fresh), turn.now.wall_ns))
    gone = f"; held dead: {', '.join(k.durable.held_dead)}" if k.durable.held_dead else ""
    text = (
        f"the state of {len(fresh)} key ranges of task {task} was lost with the threads that had it{gone}; "
        f"thread {now.thread} on {slot} goes on with what is left"
    )
    k.alarms[ALARM] = text
    turn.event("state_lost", text, level="error", task=task, slot=slot, ranges=len(fresh))


def troubles(report: m.Report) -> tuple[str, ...]:
    """Why snapshots are not written on a VM, once for each reason."""
    reasons = {now.unsaved: now.thread for worker in report.workers for now in worker.threads if now.unsaved}
    return tuple(f"no snapshot of thread {thread}: {why}" for why, thread in sorted(reasons.items()))


def lost_ranges(state_lost: dict[str, tuple[tuple[int, int], ...]]) -> dict[str, int]:
    """Task → how many of its key ranges lost state."""
    return {task: len(of_runs(runs)) for task, runs in sorted(state_lost.items())}
