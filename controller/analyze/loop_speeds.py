"""How fast VMs are by the loop that their agents run while nothing else does, before any row was seen there. Pure.

A VM is as fast as the loop is there, beside the fastest VM of the run (of three machines or more, the second
fastest): of where a model was measured the loop's figure is not known, and a VM that is taken to be faster than it
says would be loaded with rows that it may not carry. What the loop takes at an agent's start is up to 1.8 times what
it takes at best, where a machine is shared, and within ten seconds up to 1.2 times (measured on such a machine): so
it has to be nearly half as fast at first, and later as far off as makes a model wrong. VMs on one machine are as fast
as each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from headgate.controller.analyze.model_bias import MOST, WORTH
from headgate.topology_runtime.wire.messages import LoopSeen

LONG_S = 10  # the loop is looked at for so long before a small difference counts
AT_FIRST = 0.55  # of the fastest, at most, before
DIGITS = 2
MANY = 2  # machines among which it is not known which one is odd


class Looped(NamedTuple):
    """What is known of a VM: its loop, and its speed as it was said to be."""

    loop: LoopSeen
    speed: float = 1.0


def loop_speeds(vms: Mapping[str, Looped]) -> dict[str, float]:
    """VM → its speed, times its own, where it is known: at most 1, and 1 where the difference may be chance.

    >>> slow, fast = LoopSeen(200.0, 60, "a"), LoopSeen(100.0, 60, "b")
    >>> loop_speeds({"vm1": Looped(fast), "vm2": Looped(slow)})
    {'vm1': 1.0, 'vm2': 0.5}
    """
    machines: defaultdict[str, list[Looped]] = defaultdict(list)
    for vm, one in vms.items():
        if one.loop.round_ns > 0:
            machines[one.loop.host or f"vm {vm}"].append(one)
    best = {where: min(one.loop.round_ns for one in here) for where, here in machines.items()}
    long = {where: max(one.loop.seconds for one in here) for where, here in machines.items()}
    rates = {
        vm: (where, 1 / best[where] / one.speed)
        for vm, one in vms.items()
        if (where := one.loop.host or f"vm {vm}") in best and one.loop.round_ns > 0
    }
    beside = _beside(dict(rates.values()))
    return {vm: _counted(rate / beside, long[where]) for vm, (where, rate) in rates.items()}


def _beside(rates: Mapping[str, float]) -> float:
    """Machine → how fast its loop is: the fastest, and of three or more the second, so that none which says what it
    likes makes all others slow."""
    ordered = sorted(rates.values(), reverse=True) or [1.0]
    return ordered[len(ordered) > MANY]


def _counted(speed: float, seconds: int) -> float:
    sure = speed <= (1 / WORTH if seconds >= LONG_S else AT_FIRST)
    return round(min(1.0, max(1 / MOST, speed)), DIGITS) if sure else 1.0
