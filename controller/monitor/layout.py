"""Where a VM's rows belong: threads → tasks, slots → their series, links → edges between tasks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headgate.topology_runtime.errors import BadMessage
from headgate.topology_runtime.topology import Topology

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

TASK_COUNTS = (
    "tuples_in", "tuples_out", "cpu_ns", "run_delay_ns", "busy_ns", "wait_ns", "bytes_in", "bytes_out",
)  # fmt: skip
IN, OUT, CPU, DELAY, BUSY, WAIT, BYTES_IN, BYTES_OUT = range(8)
MEAN, QUEUE, THREADS = range(8, 11)  # latency × rows, then gauges × seconds
WORK = 11  # CPU × the speed of its VM
TASK_COLUMNS = 12
SLOT_CPU, SLOT_THROTTLED, SLOT_MEMORY, SLOT_KILLS, SLOT_TIME = range(5)
SLOT_COLUMNS = 5
TUPLES, BYTES, FRAMES, BUFFER, CHANNEL = range(5)
SLOTS_TUPLES, VMS_TUPLES, VMS_BYTES = range(5, 8)  # of these from another slot, from another VM
EDGE_COLUMNS = 8


class TaskMap:
    """Numbers of tasks and edges of a topology, and which thread runs which task."""

    def __init__(self, topology: Topology) -> None:
        self.tasks = tuple(task.name for task in topology.tasks)
        self.edges = tuple(dict.fromkeys((edge.source, edge.target) for edge in topology.edges))
        self._number = {name: number for number, name in enumerate(self.tasks)}
        # one row and column more than tasks: for threads that are not known (number −1)
        self._edge_of = np.full((len(self.tasks) + 1, len(self.tasks) + 1), -1, np.int64)
        for number, (source, target) in enumerate(self.edges):
            self._edge_of[self._number[source], self._number[target]] = number
        self._task_of = np.full(1024, -1, np.int64)  # by thread + 1; both ends stay −1: threads not known
        self._slot_of = np.full(1024, -1, np.int64)  # likewise: the number of its slot …
        self._vm_of = np.full(1024, -1, np.int64)  # … and of its VM

    def learn(self, threads: Ints, tasks: tuple[str, ...], slots: Ints, vm: int) -> Ints:
        """The task number of each thread row; remembered, with the numbers of its slot and its VM. Raises BadMessage
        for an unknown task."""
        try:
            numbers = np.array([self._number[task] for task in tasks], np.int64)
        except KeyError as error:
            raise BadMessage(f"samples of a task that is not in the topology: {error.args[0]}") from error
        if threads.size:
            least = int(threads.max()) + 3
            if least > len(self._task_of):
                more = max(least, 2 * len(self._task_of)) - len(self._task_of)
                self._task_of = np.pad(self._task_of, (0, more), constant_values=-1)
                self._slot_of = np.pad(self._slot_of, (0, more), constant_values=-1)
                self._vm_of = np.pad(self._vm_of, (0, more), constant_values=-1)
            self._task_of[threads + 1] = numbers
            self._slot_of[threads + 1] = slots
            self._vm_of[threads + 1] = vm
        return numbers

    def edges_of(self, senders: Ints, receivers: Ints) -> Ints:
        """The edge number of each link, −1 where an end is not known (yet)."""
        edges: Ints = self._edge_of[self._tasks(senders), self._tasks(receivers)]
        return edges

    def apart(self, senders: Ints, receivers: Ints) -> tuple[Bools, Bools]:
        """Per link: are both ends known and in different slots? On different VMs?"""
        of, to = senders + 1, receivers + 1
        vm_of, vm_to = self._vm_of.take(of, mode="clip"), self._vm_of.take(to, mode="clip")
        known = (vm_of >= 0) & (vm_to >= 0)
        slots = self._slot_of.take(of, mode="clip") != self._slot_of.take(to, mode="clip")
        return slots & known, (vm_of != vm_to) & known

    def _tasks(self, threads: Ints) -> Ints:
        return self._task_of.take(threads + 1, mode="clip")


def one_hot(numbers: Ints, width: int) -> Floats:
    """(rows, width): 1 in the column of each row's number."""
    out = np.zeros((len(numbers), width))
    out[np.arange(len(numbers)), numbers] = 1.0
    return out
