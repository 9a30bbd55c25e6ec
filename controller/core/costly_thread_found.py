"""A thread that costs more than its siblings is named, and goes on in another slot, in a fresh process. Pure.

`analyze/costly_threads.py` says which. It moves as threads do in any plan: to a slot that is free, once in `AGAIN_S`,
and where all that is in its slot may move; else it is only named.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from headgate.controller.analyze import slot_troubles
from headgate.controller.analyze.costly_threads import CostlyThread, CostlyThreads, ThreadCost, comparable
from headgate.controller.knowledge.diagnoses import Demand, Diagnosis
from headgate.controller.knowledge.knowledge import Knowledge, Turn
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.stability.slopes import Floats
from headgate.topology_runtime.wire.messages import SampleBlock

NS = 1_000_000_000
WINDOW_S = 10.0
AGAIN_S = 600.0
_COUNTED, _OF_SLOTS = ("tuples_in", "cpu_ns"), ("slot", "throttled_ns")


class _Columns(NamedTuple):
    """Whose samples these are: blocks of a VM mostly have the same threads in the same order."""

    vm: str
    speed: float
    tasks: tuple[str, ...]
    threads: bytes
    slots: bytes


class CostlyThreadWatch:
    """What each thread of the plan in force took, window by window."""

    def __init__(self) -> None:
        self._sums: dict[_Columns, Floats] = {}  # rows and ns of CPU of each thread
        self._throttled: defaultdict[Slot, float] = defaultdict(float)
        self._costly = CostlyThreads()
        self._epoch, self._began_ns = -1, 0
        self._named: set[int] = set()
        self._moved_ns: int | None = None

    def block(self, block: SampleBlock, vm: Vm) -> None:
        """Samples that are sound (`Intake.add_block` took them)."""
        whose = (block.threads.get(name, b"") for name in ("thread", "slot"))
        columns = _Columns(vm.vm, vm.speed, block.tasks, *whose)
        new = np.array([np.frombuffer(block.threads.get(name, b""), np.int64) for name in _COUNTED], float)
        self._sums[columns] = self._sums[columns] + new if columns in self._sums else new
        slots = (np.frombuffer(block.slots.get(name, b""), np.int64).tolist() for name in _OF_SLOTS)
        for number, throttled_ns in zip(*slots, strict=True):
            self._throttled[Slot(vm.vm, number)] += throttled_ns / NS

    def found(self, turn: Turn, need: Demand) -> Diagnosis | None:
        """A plan to be made without the slot of a thread that is costly; None: none is, or it is only named."""
        k = turn.knowledge
        if k.topology is None or k.plan is None or k.epoch != self._epoch:
            self._begin(k.epoch, turn.now.mono_ns)
            self._costly = CostlyThreads()
            return None
        seconds = (turn.now.mono_ns - self._began_ns) / NS
        if seconds < WINDOW_S:
            return None
        window = self._window(comparable(k.topology), seconds)
        self._begin(k.epoch, turn.now.mono_ns)
        costly = self._costly.add(window)
        return self._named_one(turn, costly, need) if costly is not None else None

    def _window(self, tasks: frozenset[str], seconds: float) -> list[ThreadCost]:
        found: dict[tuple[int, str, Slot, float], list[float]] = {}
        for (vm, speed, names, threads, slots), sums in self._sums.items():
            numbers = (np.frombuffer(column, np.int64).tolist() for column in (threads, slots))
            for task, thread, number, rows, cpu_ns in zip(names, *numbers, *sums.tolist(), strict=True):
                if task in tasks:
                    of = found.setdefault((thread, task, Slot(vm, number), speed), [0.0, 0.0])
                    of[0], of[1] = of[0] + rows, of[1] + cpu_ns / NS
        return [
            ThreadCost(thread, task, slot, speed, rows, cpu_s, self._throttled[slot] / seconds)
            for (thread, task, slot, speed), (rows, cpu_s) in found.items()
        ]

    def _begin(self, epoch: int, now_ns: int) -> None:
        self._sums, self._throttled = {}, defaultdict(float)
        self._epoch, self._began_ns = epoch, now_ns

    def _named_one(self, turn: Turn, costly: CostlyThread, need: Demand) -> Diagnosis | None:
        k, now_ns = turn.knowledge, turn.now.mono_ns
        whose = f"rows of thread {costly.thread} of {costly.task} in {costly.slot}"
        text = f"{whose} cost {costly.times:.2g} times the CPU of its siblings'"
        lately = self._moved_ns is not None and now_ns - self._moved_ns < AGAIN_S * NS
        goes = not lately and _may_go(k, costly.slot)
        then = "it goes on in another slot, in a fresh process" if goes else "it stays where it is"
        if costly.thread not in self._named:
            self._named.add(costly.thread)
            turn.event("thread", f"{text}: {then}", level="warning", vm=costly.slot.vm)
        if not goes:
            return None
        self._moved_ns = now_ns
        k.left_out[costly.slot] = now_ns + int(slot_troubles.LEFT_OUT_S * NS)
        evidence = {"left_out": str(costly.slot), "thread": costly.thread, "times": round(costly.times, 3)}
        rate_tps = max(k.plan.rate_tps if k.plan is not None else 0.0, need.target_tps)
        return Diagnosis("replan", "thread_costly", text, rate_tps, evidence, ())


def _may_go(k: Knowledge, slot: Slot) -> bool:
    """May all threads of the slot move, and is there a slot that is free?"""
    rollout, topology = k.durable.rollout, k.topology
    if rollout is None or topology is None:
        return False
    here = {thread.task for thread in rollout.threads if thread.slot == slot}
    names = k.members.here - set(k.durable.held_dead) - k.durable.cordoned.keys()
    every = {one for name in names for one in k.members.members[name].vm.all_slots()}
    free = every - {thread.slot for thread in rollout.threads} - slot_troubles.barred(k)
    return bool(free) and all(topology.by_name[task].movable for task in here)
