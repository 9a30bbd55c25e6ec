"""How fast VMs are, as far as that is seen: by rows, which count, and where there were none by agents' loops. Pure.

A VM is slow whose rows cost more CPU than the same rows on other VMs: a slower machine, or a neighbour on it. Seen in
spans of `SPAN_S`, where threads of one task are on several VMs: in two in which a VM has rows, and the newer one says
how much. Both need not be of one plan, so that plans in a row do not hide it: what each predicts of the rows that came
is compared with what they took. Plans take such a VM for as slow as it shows, until its rows show that it is
not, or, where it has no rows, for a while: twice as long each time. What loops show (`analyze/loop_speeds.py`) is
taken for VMs without rows, and asks for no plan.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from headgate.controller.analyze.loop_speeds import Looped, loop_speeds
from headgate.controller.analyze.model_bias import WORTH, LearnedFactor, vm_costs
from headgate.controller.core.learned_models import slots_without_model
from headgate.controller.core.prediction_accounting import RowsUse, TaskShares, entry_of
from headgate.controller.core.profiling import may_plan
from headgate.controller.knowledge.diagnoses import Demand, Diagnosis
from headgate.controller.knowledge.journal_records import VmSpeedSeen
from headgate.controller.knowledge.knowledge import Knowledge, Turn
from headgate.controller.knowledge.measured_window import MeasuredWindow
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.stability.slopes import Floats
from headgate.topology_runtime.wire.messages import SampleBlock
from headgate.topology_runtime.wording import counted

NS = 1_000_000_000
SPAN_S = 4.0
WARM_S = 2.0  # after threads of a VM came or went, what rows cost there is not looked at
OLDEST_S = 30.0  # between the two spans
FORGOTTEN_S = 300.0  # without rows, the first time
DOUBLED_MOST = 6
MORE = 1.1  # times as slow as before, or a part: of a VM that is slow
DIGITS = 2
_OF_THREADS, _OF_SLOTS = ("tuples_in", "cpu_ns"), ("slot", "cpu_ns")

Costs = Mapping[str, tuple[LearnedFactor, LearnedFactor]]


class _Threads(NamedTuple):
    """Those of a VM, as its samples list them."""

    vm: Vm
    tasks: tuple[str, ...]
    threads: bytes
    slots: bytes


class SpeedEvidence:
    """Which VMs are another one than thought: in two spans in which they have rows, and not in one between."""

    def __init__(self) -> None:
        self._once: dict[str, tuple[int, float]] = {}  # VM → when it was in one span, and its speed

    def add(self, costs: Costs, thought: Mapping[str, float], now_ns: int) -> dict[str, float]:
        """The costs of another span; VM → its speed, of those that are now known to be another one."""
        seen, found = seen_speeds(costs, thought), dict[str, float]()
        for vm in costs.keys() - seen.keys():
            self._once.pop(vm, None)  # as it is thought to be
        for vm, speed in seen.items():
            at_ns, before = self._once.pop(vm, (now_ns - round(OLDEST_S * NS), speed))
            if now_ns - at_ns < OLDEST_S * NS and (speed < 1) == (before < 1):
                found[vm] = speed
            else:
                self._once[vm] = now_ns, speed
        return found


class VmSpeedWatch:
    """What rows cost on each VM, span by span."""

    def __init__(self) -> None:
        self._now: dict[str, tuple[_Threads, int]] = {}  # VM → its threads, since when
        self._rows: dict[_Threads, Floats] = {}  # rows and ns of CPU of each thread
        self._slots: defaultdict[Slot, float] = defaultdict(float)  # ns of CPU
        self._seconds: defaultdict[str, float] = defaultdict(float)  # of each VM, that these are of
        self._began_ns = 0
        self._evidence = SpeedEvidence()
        self._changed: dict[str, float] = {}  # that no plan was asked for yet

    def block(self, block: SampleBlock, vm: Vm, now_ns: int) -> None:
        """Samples that are sound (`Intake.add_block` took them)."""
        threads = _Threads(vm, block.tasks, *(block.threads.get(name, b"") for name in ("thread", "slot")))
        before, since_ns = self._now.get(vm.vm, (None, now_ns))
        if threads != before:
            since_ns = now_ns
            self._now[vm.vm] = threads, since_ns
        if now_ns - since_ns < WARM_S * NS:
            return
        new = np.array([np.frombuffer(block.threads.get(name, b""), np.int64) for name in _OF_THREADS], float)
        self._rows[threads] = self._rows[threads] + new if threads in self._rows else new
        self._seconds[vm.vm] += block.window_ns / NS
        of_slots = (np.frombuffer(block.slots.get(name, b""), np.int64).tolist() for name in _OF_SLOTS)
        for number, cpu_ns in zip(*of_slots, strict=True):
            self._slots[Slot(vm.vm, number)] += cpu_ns

    def look(self, turn: Turn, window: MeasuredWindow) -> None:
        """Once a turn, before it is decided what to do: what is seen is known to any plan that is made now."""
        _forget(turn)
        take_loops(turn)
        if turn.now.mono_ns - self._began_ns < SPAN_S * NS:
            return
        used = self._used(window)
        self._begin(turn.now.mono_ns)
        k, run = turn.knowledge, turn.knowledge.durable.run
        if used and run is not None and k.plan is not None and not k.members.silent(turn.now, k.in_force_ns):
            shares = TaskShares(k.plan, run.topology, k.models, slots_without_model(k)).by_vm(used)
            self._judge(turn, vm_costs([entry_of(turn, k.plan, run.topology, shares)]))

    def found(self, turn: Turn, need: Demand) -> Diagnosis | None:
        """A plan to be made, since a VM is another one than the plan in force takes it for; None: none is, or that plan
        does without it."""
        k = turn.knowledge
        if not self._changed or not may_plan(k) or k.plan is None:
            return None
        planned = {vm.vm: vm for vm in k.plan.vms}
        changed, self._changed = self._changed, {}
        changed = {
            vm: speed
            for vm, speed in changed.items()
            if (member := k.members.members.get(vm)) is not None
            and vm in planned
            and planned[vm].speed != k.durable.as_fast_as_seen(member.vm).speed
        }
        if not changed:
            return None
        why = "; ".join(_words(vm, speed) for vm, speed in changed.items())
        return Diagnosis("replan", "vm_speed", why, need.target_tps, dict(changed), ())

    def _used(self, window: MeasuredWindow) -> dict[tuple[Slot, str], RowsUse]:
        """(Slot, task) → what it did in this span; timers' CPU is shared out as in `window`."""
        sums: defaultdict[tuple[Slot, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
        cores, all_cpu = dict[str, float](), defaultdict[Slot, float](float)
        for (vm, tasks, _, slots), counted_up in self._rows.items():
            cores[vm.vm] = vm.slot_cores
            numbers = np.frombuffer(slots, np.int64).tolist()
            for task, number, rows, cpu_ns in zip(tasks, numbers, *counted_up.tolist(), strict=True):
                slot, of_rows = Slot(vm.vm, number), _part_of_rows(window, task)
                of = sums[slot, task]
                of[0], of[1] = of[0] + rows, of[1] + cpu_ns * of_rows
                all_cpu[slot] += cpu_ns
        return {
            (slot, task): RowsUse(
                rows / self._seconds[slot.vm],
                self._slots[slot] * cpu_ns / all_cpu[slot] / (self._seconds[slot.vm] * NS * cores[slot.vm]),
            )
            for (slot, task), (rows, cpu_ns) in sums.items()
            if self._seconds[slot.vm] > 0 and all_cpu[slot] > 0
        }

    def _begin(self, now_ns: int) -> None:
        self._rows, self._slots, self._seconds = {}, defaultdict(float), defaultdict(float)
        self._began_ns = now_ns

    def _judge(self, turn: Turn, costs: Costs) -> None:
        thought = {vm: one.speed for vm, one in turn.knowledge.durable.speeds.items()}
        for vm, speed in self._evidence.add(costs, thought, turn.now.mono_ns).items():
            self._changed[vm] = speed
            turn.record(VmSpeedSeen(vm, speed, turn.now.wall_ns))
            turn.event("speed", _words(vm, speed), level="warning" if speed < 1 else "info", vm=vm)


def seen_speeds(costs: Costs, before: Mapping[str, float]) -> dict[str, float]:
    """VM → its speed, times its own, of those where it is surely another one than `before` (left out: 1). A VM that
    was slow tells first: beside it the others look slow when it is not any more."""
    slow = {vm for vm, speed in before.items() if speed < 1}
    again = {vm: speed for vm in slow & costs.keys() if (speed := _speed(costs[vm], before[vm])) is not None}
    if again:
        return again
    return {
        vm: speed
        for vm, cost in costs.items()
        if vm not in slow and (speed := _speed(cost, 1.0)) is not None and speed < 1
    }


def _part_of_rows(window: MeasuredWindow, task: str) -> float:
    """Of the CPU of its threads: what rows took, with their part of all timers."""
    now = window.tasks.get(task)
    return now.row_cores / now.cpu_cores if now is not None and now.cpu_cores > 0 else 1.0


def _speed(cost: tuple[LearnedFactor, LearnedFactor], before: float) -> float | None:
    """None: as before."""
    beside, against = cost
    if not beside.off_from(1 / before, MORE if before < 1 else WORTH):
        return None
    if not beside.off or beside.factor <= 1 or against.factor <= math.sqrt(WORTH):
        return 1.0
    return round(1 / beside.factor, DIGITS)


def _forget(turn: Turn) -> None:
    """VMs without rows that were slow a while ago."""
    k = turn.knowledge
    used = _used_vms(k)
    for vm, seen in k.durable.speeds.items():
        wait_s = FORGOTTEN_S * 2 ** min(DOUBLED_MOST, max(0, seen.times - 1))
        slow = seen.speed < 1 and seen.by == "rows"
        if slow and vm not in used and turn.now.wall_ns - seen.at_ns >= wait_s * NS:
            turn.record(VmSpeedSeen(vm, 1.0, turn.now.wall_ns, "loop"))
            text = f"VM {vm} is planned with as any other again, after {counted(round(wait_s), 'second')}"
            turn.event("speed", text, vm=vm)


def take_loops(turn: Turn) -> None:
    """What agents' loops show of VMs whose rows showed nothing, where it is another speed than before."""
    k = turn.knowledge
    known, used = k.durable.speeds, _used_vms(k)
    seen = loop_speeds({name: Looped(one.loop, one.vm.speed) for name, one in k.members.members.items()})
    for vm, speed in seen.items():
        before = known.get(vm)
        planned = before.speed if before is not None else 1.0
        differs = max(speed, planned) > MORE * min(speed, planned)
        if differs and vm not in used and (before is None or before.by == "loop"):
            turn.record(VmSpeedSeen(vm, speed, turn.now.wall_ns, "loop"))
            turn.event("speed", _loop_words(vm, speed), level="warning" if speed < 1 else "info", vm=vm)


def _used_vms(k: Knowledge) -> set[str]:
    return {bundle.slot.vm for bundle in k.plan.placement.bundles} if k.plan is not None else set()


def _loop_words(vm: str, speed: float) -> str:
    if speed == 1.0:
        return f"VM {vm} is as fast as others by its agent's loop: it is planned with as such"
    return (
        f"the loop of VM {vm}'s agent takes {1 / speed:.2g} times as long as the fastest VM's: it is planned with at "
        f"{speed:g} of its speed until its rows show another"
    )


def _words(vm: str, speed: float) -> str:
    if speed == 1.0:
        return f"rows on VM {vm} cost no more CPU than elsewhere any more"
    times = f"rows on VM {vm} cost {1 / speed:.2g} times the CPU of those elsewhere"
    return f"{times}: it is planned with at {speed:g} of its speed"
