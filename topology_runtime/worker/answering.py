"""The work of a thread in the place of one that is no more, on a VM where no other could answer for its snapshots."""

from __future__ import annotations

from queue import Empty

from topology_runtime.state_moves import StateAsked
from topology_runtime.worker.threads import IDLE_S, ThreadWork


class AnsweringWork(ThreadWork):
    """Runs no user code: whatever ended the others here does not end it."""

    def turn(self) -> None:
        try:
            item = self.thread.inbox.get(timeout=IDLE_S)
        except Empty:
            return
        if isinstance(item, StateAsked):
            self.thread.answer_for(item)
