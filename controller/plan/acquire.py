"""Which VMs to acquire for a number of slots (paper 0, section 7.1). Pure.

`sizes` are templates: what a VM of each size is; their names are not used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from headgate.topology_runtime.cluster import Vm

Acquire = Callable[[int, Sequence[Vm]], tuple[Vm, ...]]

PICO = 10**12  # prices count in millionths of a millionth of a dollar


def exact(slots: int, sizes: Sequence[Vm]) -> tuple[Vm, ...]:
    """As many of the largest size as fit, then of the next …; wastes nothing when there is a size of 1.

    What remains below the smallest size takes one VM of it (paper 0, section 8.2)."""
    chosen: list[Vm] = []
    for size in _falling(sizes):
        count, slots = divmod(slots, size.slots)
        chosen += [size] * count
    if slots > 0:
        chosen.append(_falling(sizes)[-1])
    return _named(chosen)


def covering(slots: int, sizes: Sequence[Vm]) -> tuple[Vm, ...]:
    """As many of the largest size as fit, then the smallest single VM that holds the rest: fewer VMs,
    and maybe some slots more than needed."""
    falling = _falling(sizes)
    count, rest = divmod(slots, falling[0].slots)
    chosen = [falling[0]] * count
    if rest > 0:
        chosen.append(next(size for size in reversed(falling) if size.slots >= rest))
    return _named(chosen)


def cheapest(slots: int, sizes: Sequence[Vm]) -> tuple[Vm, ...]:
    """The mix with at least `slots` slots that costs least; of equals that of fewest VMs, then that of
    fewest slots, then that of the sizes listed first. The largest VMs come first.

    By dynamic programming over 0 … `slots`: the best mix for n slots is one VM and the best for the rest."""
    prices = [round(size.usd_per_hour * PICO) for size in sizes]  # whole numbers add up exactly
    best = [(0, 0, 0)]  # cost, VMs, slots of the best mix for so many slots
    last = [0]  # the size that it adds to the best mix for the rest
    for desired in range(1, slots + 1):
        found: tuple[tuple[int, int, int], int] | None = None
        for number, size in enumerate(sizes):
            cost, vms, held = best[max(0, desired - size.slots)]
            mix = (cost + prices[number], vms + 1, held + size.slots), number
            found = mix if found is None or mix < found else found
        assert found is not None, "no size to choose from"
        best.append(found[0])
        last.append(found[1])
    chosen: list[Vm] = []
    while slots > 0:
        chosen.append(sizes[last[slots]])
        slots -= chosen[-1].slots
    return _named(_falling(chosen))


MIXES: dict[str, Acquire] = {"exact": exact, "cheapest": cheapest, "covering": covering}


def _falling(sizes: Sequence[Vm]) -> list[Vm]:
    return sorted(sizes, key=lambda size: size.slots, reverse=True)


def _named(chosen: Sequence[Vm]) -> tuple[Vm, ...]:
    return tuple(replace(size, vm=f"vm{number}") for number, size in enumerate(chosen, 1))
