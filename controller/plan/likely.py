"""What a placement is likely to carry when several of its slots are about full. Pure.

It carries what its slowest slot carries, and each slot carries a little more or less than its models say: OFF_BY,
what they were off by in trials. Where one slot limits alone, more is as likely as less. Where six are full together,
as a good plan has them, the slowest of six tells, and that one is likely below what was predicted for each
(decision 23; the optimizer's curse of J. E. Smith, R. L. Winkler, Management Science 52, 2006):

    E[least of L(s) (1 + OFF_BY z(s)) over the slots s],  z: independent standard normals
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

from headgate.controller.plan.load import PlacementLoad
from headgate.controller.plan.shares import Split

OFF_BY = 0.05  # standard deviation, relative: what CPU of slots was off by within each of 144 trials
BELOW, ABOVE, STEPS = 6.0, 4.0, 80  # of the integral, in OFF_BY round the lowest limit
FAR = 10.0  # a slot so many OFF_BY above it makes no difference
DIGITS = 3  # limits that are the same to so many are counted together


def likely_rate(load: PlacementLoad, split: Split) -> float | None:
    """Input rate in tuples/s that is to be expected of `split`; None when nothing limits it."""
    if split.limit is None:
        return None
    return expected_least(limits_of_slots(load, split.shares, split.limit.rate_tps).values())


def limits_of_slots(load: PlacementLoad, shares: Sequence[float], rate_tps: float) -> dict[int, float]:
    """Slot → the input rate at which it is full, with wakes counted at `rate_tps`."""
    at = load.at(shares, rate_tps)
    lowest: dict[int, float] = {}
    for limit in chain(at.limits_at(shares), at.cpu_limits_at(shares)):
        lowest[limit.slot] = min(limit.rate_tps, lowest.get(limit.slot, math.inf))
    return lowest


def expected_least(limits: Iterable[float], off_by: float = OFF_BY) -> float:
    """Of limits that are each off by a normal error, relative, of that standard deviation; at least one limit.

    E[X] = from + ∫ P(X > x) dx, from where P is 1 to where it is 0."""
    known = list(limits)
    least = min(known)
    if least <= 0:
        return 0.0
    times = Counter(round(limit / least, DIGITS) for limit in known if limit < least * (1 + FAR * off_by))
    step = (BELOW + ABOVE) * off_by / STEPS
    low = 1 - BELOW * off_by
    above = [
        math.prod(_above(low + n * step, at, off_by) ** k for at, k in times.items())
        for n in range(STEPS + 1)
    ]
    return least * (low + step * (math.fsum(above) - (above[0] + above[-1]) / 2))


def _above(x: float, limit: float, off_by: float) -> float:
    """P(limit (1 + off_by z) > x)."""
    return 0.5 * math.erfc((x / limit - 1) / (off_by * math.sqrt(2)))
