"""A thread in the place of one that is no more, on a VM where no other could say what its snapshots hold."""

from __future__ import annotations

from queue import Empty

from topology_runtime.state_moves import StateAsked
from topology_runtime.worker.threads import IDLE_S, TaskThread


class AnsweringThread(TaskThread):
    """Runs no user code: whatever ended the others here does not end it."""

    def startup(self) -> None:
        return

    def shutdown(self) -> None:
        return

    def turn(self) -> None:
        try:
            item = self.inbox.get(timeout=IDLE_S)
        except Empty:
            return
        if isinstance(item, StateAsked):
            self.answer_for(item)
