"""Memory that only grows: what a process held more and more of, at a steady pace, whatever its load. Pure.

Theil–Sen on means of at most 48 blocks of a process's life (it ends where memory falls by a tenth), with an interval by
block bootstrap. What goes with load is taken off before, by least squares on time and load; where load itself rose all
the time nothing is said. A leak grows surely, by a tenth of what is held or more, and goes on at half that pace or more
in the last third, load taken off or not: what grows only while a task warms up, or with the rate, does not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headgate.topology_runtime.stability.slopes import Floats, Slope, median_slopes, trend

BLOCKS = 48
LEAST_POINTS, LEAST_S = 12, 60.0
FALLEN = 0.1  # another process, or memory that was given back
GROWN = 0.1  # of what is held in the mean
GOES_ON, LATELY = 0.5, 3  # of its pace, in the last third
SAME_LOAD = 0.05  # of its mean: load that varies by no more does not move memory
WITH_TIME = 0.9  # correlation of load with time: what is due to which nobody can tell
SETTLED_S = 30.0  # after which what came with another plan is there

Points = Sequence[tuple[float, float, float]]  # time in s, fraction of the slot's memory, load in any unit


def longest_life(points: Points) -> Points:
    """The longest stretch in which memory never falls by a tenth from one point to the next."""
    lives: list[list[tuple[float, float, float]]] = [[]]
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
    at_s, memory, load = np.array(points, dtype=float).T
    at_s = at_s - at_s[0]
    net = net_of_load(at_s, memory, load)
    if net is None or median_slopes(at_s, net[None])[0] * at_s[-1] < GROWN * memory.mean():
        return None  # an interval takes long, and most slots grow by less
    slope = trend(at_s, net)
    if slope.low <= 0:
        return None
    first = len(points) - max(3, len(points) // LATELY)
    lately = (np.polyfit(at_s[first:] - at_s[first], series[first:], 1)[0] for series in (net, memory))
    return slope if min(lately) >= GOES_ON * slope.value else None


def net_of_load(at_s: Floats, memory: Floats, load: Floats) -> Floats | None:
    """Memory without what goes with load, at its mean; None where load went with time.

    >>> net_of_load(np.arange(4.0), np.array([1.0, 3.0, 1.0, 3.0]), np.array([1.0, 2.0, 1.0, 2.0])).round(6).tolist()
    [2.0, 2.0, 2.0, 2.0]
    """
    off = load - load.mean()
    if off.std() <= SAME_LOAD * abs(load.mean()):
        return memory
    if abs(np.corrcoef(at_s, load)[0, 1]) > WITH_TIME:
        return None
    terms = np.stack([np.ones(len(at_s)), at_s - at_s.mean(), off], axis=1)
    net: Floats = memory - max(0.0, float(np.linalg.lstsq(terms, memory, rcond=None)[0][2])) * off
    return net
