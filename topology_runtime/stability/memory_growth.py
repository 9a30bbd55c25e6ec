"""Memory that only grows: what a process held more and more of, at a steady pace. Pure.

Theil–Sen on means of at most 48 blocks of a process's life (it ends where memory falls by a tenth), with an interval by
block bootstrap. A leak grows surely, and by a tenth of what is held or more: what grows only while a task warms up, or
with the rate, leaves the line by so much that it is not sure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headgate.topology_runtime.stability.slopes import Slope, median_slopes, trend

LEAST_POINTS, LEAST_S = 12, 60.0
FALLEN = 0.1  # another process, or memory that was given back
GROWN = 0.1  # of what is held in the mean

Points = Sequence[tuple[float, float]]  # time in s, fraction of the slot's memory


def longest_life(points: Points) -> Points:
    """The longest stretch in which memory never falls by a tenth from one point to the next."""
    lives: list[list[tuple[float, float]]] = [[]]
    for point in points:
        if lives[-1] and has_fallen(lives[-1][-1][1], point[1]):
            lives.append([])
        lives[-1].append(point)
    return max(lives, key=len)


def has_fallen(before: float, after: float) -> bool:
    """By a tenth: another life begins."""
    return after < (1 - FALLEN) * before


def leak_of(points: Points) -> Slope | None:
    """The pace of a leak in fractions of the slot per second; None when there is none."""
    if len(points) < LEAST_POINTS or points[-1][0] - points[0][0] < LEAST_S:
        return None
    at_s, memory = (np.array([point[n] for point in points]) for n in (0, 1))
    at_s = at_s - at_s[0]
    if median_slopes(at_s, memory[None])[0] * at_s[-1] < GROWN * memory.mean():
        return None  # an interval takes long, and most slots grow by less
    slope = trend(at_s, memory)
    return slope if slope.low > 0 else None
