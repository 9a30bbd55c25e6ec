"""MBA's bundles for SAM where VMs are of several speeds (ours). Pure.

A full bundle has a slot to itself, so what it carries depends on the slot: bundles are counted in the order in which
SAM takes slots, each for what it carries where it will be (`vm_speeds.py`). What is left of a task is counted for the
slowest slots that are needed, and fits into faster ones, too. CPU is counted in slots of that speed.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from headgate.controller.models.plans import Allocation, TaskAllocation
from headgate.controller.models.task_models import Model, cpu, memory, peak, peak_rate
from headgate.controller.plan.allocators.allocation_rules import lone_tasks, slots_for, whole_times
from headgate.controller.plan.allocators.many_senders import among, senders_of
from headgate.controller.plan.allocators.mba import bundles_for
from headgate.controller.plan.mappers.free_slots import Room
from headgate.controller.plan.mappers.sam import SamTurns, put_rest
from headgate.controller.plan.predict.vm_speeds import at_speed, models_at
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import Infeasible

HELD = "VMs are of several speeds: a full bundle is counted with the memory that it holds, not with a whole slot's"
AS_SAM = (
    "VMs are of several speeds: threads are counted where SAM has their bundles, and slots taken as alike"
)


def for_own_slots(
    usual: Allocation, topology: Topology, models: Mapping[str, Model], room: Room
) -> Allocation:
    """`usual`, MBA's for slots of its `slot_speed`, with the bundles of tasks that may have any number of threads
    counted anew; itself where all slots of the room are of that speed, or do not suffice. models: at speed 1."""
    if all(vm.speed == usual.slot_speed for vm in room.vms):
        return usual
    try:
        turns = _OwnSlots(usual, topology, models, room)
        turns.run()
    except Infeasible:  # whoever maps it says so
        return usual
    return replace(usual, tasks=tuple(turns.counted[task.task] for task in usual.tasks))


def as_held(
    usual: Allocation, models: Mapping[str, Model], names: Mapping[str, str], room: Room
) -> Allocation:
    """`usual`, MBA's, where a full bundle takes the memory that its threads hold and not a slot's whole: of slots that
    are faster than `slot_speed` each has CPU for more than one. names: task → its model."""
    tasks = tuple(
        task
        if task.static or not task.full_bundles or models[names[task.task]].unmeasured
        else replace(
            task,
            memory_slots=task.rest_memory
            + task.full_bundles * min(1.0, memory(models[names[task.task]], task.bundle_threads)),
        )
        for task in usual.tasks
    )
    cpus = sorted(room.cpus(usual), reverse=True)
    return replace(usual, tasks=tasks, slots=slots_for(tasks, cpus), counted=HELD)


def as_alike(
    usual: Allocation, topology: Topology, models: Mapping[str, Model], room: Room
) -> Allocation | None:
    """`usual` with bundles counted where SAM has them, each as one slot however fast it is; None: they do not fit."""
    own = for_own_slots(usual, topology, models, room)
    if own is usual:
        return None
    tasks = tuple(
        task if task.static else replace(task, cpu_slots=task.full_bundles + task.rest_cpu)
        for task in own.tasks
    )
    return replace(own, tasks=tasks, slots=slots_for(tasks), counted=AS_SAM)


def counted_for(
    topology: Topology, models: Mapping[str, Model], rate_tps: float, speed: float, fastest: float
) -> dict[str, Model]:
    """The models for slots of VMs of that speed, where there are VMs up to `fastest`, too: a task of one thread that
    carries its rate only there needs more than one such slot's CPU."""
    found, rates = models_at(models, speed), topology.rates(rate_tps)
    if fastest <= speed:
        return found
    lone = lone_tasks(topology)
    others = {task.model_name for task in topology.tasks if task.name not in lone}
    for task in topology.tasks:
        name = task.model_name
        if task.name not in lone or task.static is not None or name in others:
            continue
        most_tps, fast = peak_rate(found[name], 1), at_speed(models[name], fastest)
        if rates[task.name] > most_tps > 0 and fast.points[0].threads == 1:
            times = fast.points[0].rate_tps / most_tps
            found[name] = replace(fast, points=(replace(fast.points[0], cpu=times),))
    return found


class _OwnSlots(SamTurns):
    """SAM's turns, in which tasks that may have any number of threads take as many slots as they need; `counted`: each
    task by then."""

    def __init__(
        self, usual: Allocation, topology: Topology, models: Mapping[str, Model], room: Room
    ) -> None:
        super().__init__(usual, room)
        fastest = max(vm.speed for vm in room.vms)
        self._base = counted_for(topology, models, usual.rate_tps, usual.slot_speed, fastest)
        self._models = models
        fixed = lone_tasks(topology)
        self._name = {task.name: task.model_name for task in topology.tasks}
        self._free = {
            task.task
            for task in usual.tasks
            if not task.static and task.task not in fixed and not self._base[self._name[task.task]].unmeasured
        }
        threads = {task.task: task.threads for task in usual.tasks}
        self._senders = {name: senders_of(topology, name, threads) for name in self._free}
        self._together = {name: peak(self._at(name, fastest))[1] for name in self._free}
        self._left_tps = {task.task: task.rate_tps for task in usual.tasks}
        self._full: dict[str, list[float]] = {name: [] for name in self._free}
        self.counted = {task.task: task for task in usual.tasks}

    def _at(self, name: str, speed: float) -> Model:
        """The task's model on VMs of that speed, among those that send to it."""
        return among(at_speed(self._models[self._name[name]], speed), self._senders[name])

    def took_slot(self, task: TaskAllocation) -> bool:
        if task.task not in self._free:
            return super().took_slot(task)
        if self._bundle_took_slot(task.task):
            return True
        self.counted[task.task] = self._rest(task)
        return False

    def _bundle_took_slot(self, name: str) -> bool:
        """The next empty one."""
        place = self.board.next_empty()
        if place is None:
            return False
        speed = self.board.cpus[place] * self.allocation.slot_speed
        carried = peak_rate(self._at(name, speed), self._together[name])
        times, rest_tps = whole_times(self._left_tps[name], carried)
        if not times and not self._lacks_threads(name):
            return False
        self._left_tps[name] = max(0.0, (times - 1) * carried + rest_tps)
        self._full[name].append(self.board.cpus[place])
        self.board.take(place)
        return True

    def _lacks_threads(self, name: str) -> bool:
        """Is what is left more than a slot's threads carry where VMs are slowest, though its CPU would do? Then it has
        to be where it is counted for."""
        model, together = among(self._base[self._name[name]], self._senders[name]), self._together[name]
        peak_tps = peak_rate(model, together)
        return self._left_tps[name] > peak_tps and self._left_tps[name] * cpu(model, together) <= peak_tps

    def _rest(self, usual: TaskAllocation) -> TaskAllocation:
        """What is left of a task is placed, and the task counted."""
        name, model = usual.task, self._base[self._name[usual.task]]
        full, together = self._full[name], self._together[name]
        one = bundles_for(name, self._left_tps[name], model, self._senders[name])
        rest = (one.rest_threads, one.rest_cpu, one.rest_memory)
        if not self._left_tps[name] and full:
            rest = (0, 0.0, 0.0)
        elif one.full_bundles:  # more than the slowest slot carries, less than the next empty one
            place = self.board.next_empty()
            if place is None:
                raise Infeasible(f"no slot is left for task {name!r}")
            peak_tps = peak_rate(among(model, self._senders[name]), together)
            most = min(self.board.cpus[place], self._left_tps[name] / peak_tps)
            rest = (together, most, min(1.0, memory(model, together)))
        threads, rest_cpu, rest_memory = rest
        counted = TaskAllocation(
            name,
            usual.rate_tps,
            threads=len(full) * together + threads,
            cpu_slots=sum(full) + rest_cpu,
            memory_slots=len(full) + rest_memory,
            full_bundles=len(full),
            bundle_threads=together,
            rest_threads=threads,
            rest_cpu=rest_cpu,
            rest_memory=rest_memory,
        )
        if threads:
            put_rest(self.board, counted, threads)
        return counted
