"""The VM nearest to what a thread needs, without looking at every VM. Pure.

A tree over the VMs that something may still fit into, like beside like: a node knows the least that is
free in any VM below it, which bounds the distance from below, and the most, which says whether anything
fits. The search leaves out what cannot be nearest. The tree is built anew as VMs come to differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import TypeVar

from headgate.controller.knowledge.models import EPSILON
from headgate.controller.plan.room import Weights

MIXED = -1  # the rack of a node above VMs of several racks
SAME_RACK, OTHER_RACK = 0.5, 1.0  # NWDist of paper 0, section 7.3; 0 within a VM
TOGETHER = 4  # VMs that are not sorted any further

_T = TypeVar("_T")


class Nearest:
    """VMs count in filling order. Free CPU and memory in slots; `slot`: free memory of the emptiest slot."""

    def __init__(self, racks: Sequence[str], sizes: Sequence[int], weights: Weights) -> None:
        """Every VM j is empty, with `sizes[j]` slots."""
        number = {rack: i for i, rack in enumerate(sorted(set(racks)))}
        self._racks = [number[rack] for rack in racks]
        self._weights = weights
        self._cpu = [float(size) for size in sizes]
        self._memory = list(self._cpu)
        self._slot = [1.0] * len(sizes)
        self._open = set(range(len(sizes)))
        self._build()

    def set(self, vm: int, cpu: float, memory: float, slot: float) -> None:
        """`vm` now has `cpu` and `memory` free in all, and `slot` of memory in its emptiest slot."""
        self._cpu[vm], self._memory[vm], self._slot[vm] = cpu, memory, slot
        self._change(vm, cpu, cpu, memory, slot)

    def close(self, vm: int) -> None:
        """Nothing fits into `vm` any more."""
        self._open.remove(vm)
        self._change(vm, math.inf, -math.inf, math.inf, -math.inf)

    def find(self, cpu: float, memory: float, reference: int) -> int | None:
        """The VM at the least distance of those that have `cpu` free, and `memory` in some slot; of equals
        the first. `reference`: the VM that threads were put into last."""
        least_cpu, least_memory = cpu - EPSILON, memory - EPSILON
        by_cpu, by_memory = self._weights.cpu, self._weights.memory
        near, far = self._weights.network * SAME_RACK, self._weights.network * OTHER_RACK
        low_cpu, low_memory, high_cpu, high_slot = (
            self._low_cpu, self._low_memory, self._high_cpu, self._high_slot,
        )  # fmt: skip
        first, rack, leaves, home = self._first, self._rack, self._leaves, self._racks[reference]
        best, found = self._within(reference, cpu, memory), reference
        fits = high_cpu[1] >= least_cpu and high_slot[1] >= least_memory  # of one VM the root is its leaf
        stack = [(0.0, 1)] if fits else []
        while stack:
            bound, node = stack.pop()
            if bound > best or (bound == best and first[node] >= found):
                continue
            if node >= leaves:
                best, found = bound, first[node]
                continue
            below = []
            for child in (2 * node, 2 * node + 1):
                if high_cpu[child] < least_cpu or high_slot[child] < least_memory:
                    continue
                over_memory, over_cpu = low_memory[child] - memory, low_cpu[child] - cpu
                bound = by_memory * over_memory * over_memory if over_memory > 0 else 0.0
                if over_cpu > 0:
                    bound += by_cpu * over_cpu * over_cpu
                bound += near if rack[child] == home or rack[child] == MIXED else far
                if bound <= best:
                    below.append((bound, child))
            if len(below) == 2 and below[0][0] <= below[1][0]:
                below.reverse()  # the nearer one is looked at first
            stack += below
        return found if best < math.inf else None

    def _within(self, vm: int, cpu: float, memory: float) -> float:
        """The distance of a VM from itself as the reference, infinite when the thread does not fit."""
        if vm not in self._open or self._cpu[vm] < cpu - EPSILON or self._slot[vm] < memory - EPSILON:
            return math.inf
        over_memory, over_cpu = max(self._memory[vm] - memory, 0.0), max(self._cpu[vm] - cpu, 0.0)
        return self._weights.memory * over_memory * over_memory + self._weights.cpu * over_cpu * over_cpu

    def _build(self) -> None:
        order: list[int] = []
        for _, vms in groupby(sorted(self._open, key=self._racks.__getitem__), self._racks.__getitem__):
            self._sort(sorted(vms), order, 0)
        self._leaves = 1 << max(0, len(order) - 1).bit_length()
        self._leaf = {vm: self._leaves + place for place, vm in enumerate(order)}
        self._low_cpu = self._tree([self._cpu[vm] for vm in order], math.inf)
        self._low_memory = self._tree([self._memory[vm] for vm in order], math.inf)
        self._high_cpu = self._tree([self._cpu[vm] for vm in order], -math.inf)
        self._high_slot = self._tree([self._slot[vm] for vm in order], -math.inf)
        self._first = self._tree(order, len(self._racks))
        self._rack = self._tree([self._racks[vm] for vm in order], MIXED)
        for node in range(self._leaves - 1, 0, -1):
            self._gather(node)
            left, right = 2 * node, 2 * node + 1
            self._first[node] = min(self._first[left], self._first[right])
            self._rack[node] = self._rack[left] if self._rack[left] == self._rack[right] else MIXED
        self._changes_left = max(32, len(order) // 2)  # until it is built anew

    def _sort(self, vms: list[int], order: list[int], depth: int) -> None:
        """Append `vms` to `order`, halved by free CPU, memory and slot in turn."""
        if len(vms) <= TOGETHER:
            order += vms
            return
        ranked = sorted(vms, key=(self._cpu, self._memory, self._slot)[depth % 3].__getitem__)
        half = len(ranked) // 2
        self._sort(ranked[:half], order, depth + 1)
        self._sort(ranked[half:], order, depth + 1)

    def _tree(self, values: list[_T], empty: _T) -> list[_T]:
        """Node n has children 2n and 2n + 1; the last `_leaves` nodes are the values."""
        return [empty] * self._leaves + values + [empty] * (self._leaves - len(values))

    def _change(self, vm: int, low_cpu: float, high_cpu: float, low_memory: float, high_slot: float) -> None:
        node = self._leaf[vm]
        self._low_cpu[node], self._high_cpu[node] = low_cpu, high_cpu
        self._low_memory[node], self._high_slot[node] = low_memory, high_slot
        while node > 1:
            node //= 2
            self._gather(node)
        self._changes_left -= 1
        if self._changes_left == 0:
            self._build()

    def _gather(self, node: int) -> None:
        left, right = 2 * node, 2 * node + 1
        low, high = self._low_cpu, self._high_cpu
        low[node] = low[left] if low[left] < low[right] else low[right]
        high[node] = high[left] if high[left] > high[right] else high[right]
        low, high = self._low_memory, self._high_slot
        low[node] = low[left] if low[left] < low[right] else low[right]
        high[node] = high[left] if high[left] > high[right] else high[right]
