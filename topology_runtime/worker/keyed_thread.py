"""The thread of a keyed task (what it decides is in keyed_core.py): its snapshots are files."""

from __future__ import annotations

import sys

from topology_runtime.worker import snapshots
from topology_runtime.worker.keyed_core import KeyedCore
from topology_runtime.worker.task_core import TaskCore
from topology_runtime.worker.threads import TaskThread


class KeyedThread(TaskThread):
    """A thread of a task with `state: keyed`."""

    _said = 0

    def make_core(self) -> TaskCore:
        core = KeyedCore(self.wanted, self.topology, self.host.board, self.random64, self.record)
        core.store = snapshots.Files(self.host.directory, self.task.name, self.wanted.thread)
        return core

    def turn(self) -> None:
        super().turn()
        core = self.core
        if isinstance(core, KeyedCore) and core.lost_ranges > self._said:
            lost, self._said = core.lost_ranges - self._said, core.lost_ranges
            text = f"the state of {lost} key ranges was lost with their owner; they start anew"
            print(
                f"headgate: thread {self.wanted.thread} of {self.task.name}: {text}",
                file=sys.stderr,
                flush=True,
            )

    def shutdown(self) -> None:
        super().shutdown()
        core = self.core
        if isinstance(core, KeyedCore) and not core.keyed.owned:
            snapshots.Files(self.host.directory, self.task.name, self.wanted.thread).remove()
