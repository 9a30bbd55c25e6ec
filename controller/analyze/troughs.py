"""When a plan is best lowered, where it is known what comes. Pure.

A plan that is lowered holds the slots of the threads that leave until it is committed, and has to be raised again
before the next rise. So lowering it from P to X for as long as no more than X is needed gains (P - X) × (that time -
the time that slots are held and the next plan takes). From all times at which it might be lowered, and all at which it
would be raised again, the one with the most gain is taken; it must be worth its moves.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from headgate.topology_runtime.stability.slopes import Floats

BINS = 128  # that what comes is looked at in
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
    full, wide_s = _binned(needs)
    begin, end = np.indices((len(full), len(full)))
    most = np.maximum.accumulate(np.where(end >= begin, full, 0.0), axis=1)
    long_s = wide_s * (end - begin + 1) - held_s
    gains = np.where(long_s > 0, (planned_tps - most) * long_s / planned_tps, -1.0)
    ends = gains.argmax(axis=1)
    each = gains[np.arange(len(full)), ends]
    at = 0 if each[0] >= NEARLY * each.max() else int(each.argmax())
    if each[at] <= 0:
        return None
    return Trough(at * wide_s, int(ends[at] + 1) * wide_s, float(most[at, ends[at]]), float(each[at]))


def next_trough(needs: Floats, planned_tps: float, held_s: float, worth_s: float) -> Trough | None:
    """The best one that gains so much; where it is still to come, the best of those that are over before it begins,
    and so on. None where none gains so much."""
    found = None
    trough = best_trough(needs, planned_tps, held_s)
    while trough is not None and trough.gain_s >= worth_s:
        found = trough
        trough = best_trough(needs[: found.begins_s], planned_tps, held_s) if found.begins_s else None
    return found


def step_to(needs: Floats, planned_tps: float, held_s: float, trough: Trough) -> Trough | None:
    """The best step on the way: the plan is lowered for what comes until the trough begins, and is committed by then,
    so that the slots of threads that leave in it are gone so much sooner. None where there is not enough time."""
    full, wide_s = _binned(needs[: trough.begins_s + 1])
    long_s = trough.begins_s - wide_s * np.arange(len(full))
    most = np.maximum.accumulate(full[::-1])[::-1]
    gains = np.where(long_s >= held_s, (planned_tps - most) * long_s / planned_tps, -1.0)
    at = 0 if gains[0] >= NEARLY * gains.max() else int(gains.argmax())
    if gains[at] <= 0:
        return None
    return Trough(at * wide_s, trough.begins_s, float(most[at]), float(gains[at]))


def _binned(needs: Floats) -> tuple[Floats, int]:
    """(the most in each bin, its width in s)."""
    wide_s = math.ceil(len(needs) / BINS)
    padded = np.concatenate((needs, np.full(-len(needs) % wide_s, needs[-1])))
    return padded.reshape(-1, wide_s).max(axis=1), wide_s
