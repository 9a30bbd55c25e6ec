"""A task that keeps no rows: map, flat-map or filter over whole frames. Pure but for the user's code."""

from __future__ import annotations

from topology_runtime.messages import Frame
from topology_runtime.worker.acks import Addressed, passed_on
from topology_runtime.worker.runs import Batch
from topology_runtime.worker.thread_core import Behaviour
from topology_runtime.worker.user_code import UserCode


class MapTask(Behaviour):
    def __init__(self, code: UserCode) -> None:
        self.code, self.results = code, code.results

    def take(self, frame: Frame, now_ns: int) -> list[Addressed]:
        self.results.edge = frame.edge
        batch = self.code.run(Batch(frame.rows, frame.runs, frame.roots))
        self.results.edge = None
        return passed_on(frame.roots, self.results.emit(batch, now_ns))
