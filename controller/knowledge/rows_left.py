"""What a run has read and not done when it ends: rows that are *left*, and rows that are *lost*. Pure.

Left: in the ledger of its source, or behind where its source would read on. Who resumes the run reads it again.
Lost: its source has read on and no ledger knows it, so nobody would ever send it again. That is a bug of ours.
"""

from __future__ import annotations

from headgate.controller.knowledge.knowledge import Knowledge


def lost_of(k: Knowledge) -> int:
    """By what sources say; once the run is leaving, by what they said last before."""
    if k.ending.lost is not None:
        return k.ending.lost
    lost = 0
    for place, known in k.counts.sources.items():
        present = [now for now in k.members.sources.values() if (now.task, now.partition) == place]
        if present:
            to_read_again = known.emitted - max(now.emitted for now in present)
            lost += max(0, known.emitted - known.done - to_read_again - sum(now.in_flight for now in present))
    return lost


def left_of(k: Knowledge) -> int:
    """Of a run that is leaving or over; what is open before that is in flight."""
    if k.ending.lost is None:
        return 0
    return max(0, k.counts.emitted - k.counts.done - k.ending.lost)
