"""The thread of a keyed task (what it decides is in keyed_core.py): its snapshots are files."""

from __future__ import annotations

import sys

from topology_runtime.worker import snapshots
from topology_runtime.worker.keyed_core import KeyedCore
from topology_runtime.worker.task_core import TaskCore
from topology_runtime.worker.threads import TaskThread


class KeyedThread(TaskThread):
    """A thread of a task with `state: keyed`."""

    _lost = 0
    _unsaved = ""

    def make_core(self) -> TaskCore:
        core = KeyedCore(self.desired, self.topology, self.host.board, self.random64, self.record)
        core.store = self._files()
        return core

    def _files(self) -> snapshots.SnapshotFiles:
        return snapshots.SnapshotFiles(self.host.directory, self.task.name, self.desired.thread)

    def turn(self) -> None:
        super().turn()
        core = self.core
        assert isinstance(core, KeyedCore)
        if len(core.keyed.ranges.lost) > self._lost:
            lost, self._lost = len(core.keyed.ranges.lost) - self._lost, len(core.keyed.ranges.lost)
            self._say(f"the state of {lost} key ranges was lost with the threads that had it")
        if bool(core.unsaved) != bool(self._unsaved):
            self._unsaved = core.unsaved
            self._say(
                f"no snapshot can be written: {core.unsaved}; its rows are kept until one can"
                if core.unsaved
                else f"snapshots are written again, after {core.saves_failed} failures in all"
            )
            self.host.changed()

    def _say(self, text: str) -> None:
        name = f"thread {self.desired.thread} of {self.task.name}"
        print(f"headgate: {name}: {text}", file=sys.stderr, flush=True)

    def shutdown(self) -> None:
        super().shutdown()
        core = self.core
        if not isinstance(core, KeyedCore) or core.flow is None or core.keyed.ranges.versions:
            return
        try:
            self._files().remove()
        except OSError as error:
            self._say(f"its snapshot cannot be removed: {error}")  # it is cleaned later
