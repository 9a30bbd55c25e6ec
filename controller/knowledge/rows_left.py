"""What a run has read and not done when it ends: rows that are *left*, and rows that are *lost*. Pure.

Left: in the ledger of its source, or behind where its source would read on. Who resumes the run reads it again.
Lost: its source has read on and no ledger knows it, so nobody would ever send it again. That is a bug of ours, and
never what was not heard in time: only what the thread that reads says itself is looked at. What others left open is
journaled.
"""

from __future__ import annotations

from headgate.controller.knowledge.knowledge import Knowledge
from headgate.topology_runtime.wire.messages import SourceStatus


def lost_of(k: Knowledge) -> int:
    """By what sources say; once the run is leaving, by what they said last before."""
    if k.ending.lost is not None:
        return k.ending.lost
    lost = 0
    for place, known in k.counts.sources.items():
        for now in k.members.sources.values():
            if (now.task, now.partition) == place and _reads(k, now) and now.thread not in known.apart:
                done = max(known.main_done, now.acked + now.acked_above)
                lost += max(0, min(now.emitted, known.emitted) - done - now.in_flight)
    return lost


def _reads(k: Knowledge, now: SourceStatus) -> bool:
    rollout = k.durable.rollout
    thread = rollout.by_number.get(now.thread) if rollout is not None else None
    return (
        thread is not None
        and (thread.task, thread.partition) == (now.task, now.partition)
        and not thread.leaving
    )


def left_of(k: Knowledge) -> int:
    """Of a run that is leaving or over; what is open before that is in flight."""
    if k.ending.lost is None:
        return 0
    return max(0, k.counts.emitted - k.counts.done - k.ending.lost)
