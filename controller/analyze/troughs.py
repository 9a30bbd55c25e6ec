"""When a plan is best lowered, where it is known what comes. Pure.

A plan that is lowered holds the slots of the threads that leave until it is committed, and has to be raised again before
the next rise. So lowering it from P to X for as long as no more than X is needed gains (P - X) × (that time - the time
that slots are held and the next plan takes). From all times at which it might be lowered, and all at which it would be
raised again, the one with the most gain is taken; it must be worth its moves.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from topology_runtime.stability.slopes import Floats

BINS = 64  # that what comes is looked at in
NEARLY = 0.9  # of the most that could be gained: it is not waited for the rest


class Trough(NamedTuple):
    """From then until then no more is needed. gain_s: what lowering a plan for it saves, in seconds of that plan."""

    begins_s: int
    ends_s: int
    needed_tps: float
    gain_s: float


def best_trough(needs: Floats, planned_tps: float, held_s: float) -> Trough | None:
    """The one that is worth most. needs: of each second to come. held_s: of a trough, in which nothing is gained.
    None where nothing is."""
    wide_s = math.ceil(len(needs) / BINS)
    full = np.concatenate((needs, np.full(-len(needs) % wide_s, needs[-1]))).reshape(-1, wide_s).max(axis=1)
    best = now = None
    for begins in range(len(full)):
        most = np.maximum.accumulate(full[begins:])
        long_s = wide_s * np.arange(1, len(most) + 1) - held_s
        gains = np.where(long_s > 0, (planned_tps - most) * long_s / planned_tps, -1.0)
        at = int(np.argmax(gains))
        found = Trough(begins * wide_s, (begins + at + 1) * wide_s, float(most[at]), float(gains[at]))
        if found.gain_s > 0 and (best is None or found.gain_s > best.gain_s):
            best = found
        now = now or found
    if best is None or now is None:
        return None
    return now if now.gain_s >= NEARLY * best.gain_s else best
