"""Which VMs to acquire for a number of slots (paper 0, section 7.1). Pure.

`sizes` are templates: what a VM of each size is; their names are not used.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from topology_runtime.cluster import Vm


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


def _falling(sizes: Sequence[Vm]) -> list[Vm]:
    return sorted(sizes, key=lambda size: size.slots, reverse=True)


def _named(chosen: Sequence[Vm]) -> tuple[Vm, ...]:
    return tuple(replace(size, vm=f"vm{number}") for number, size in enumerate(chosen, 1))
