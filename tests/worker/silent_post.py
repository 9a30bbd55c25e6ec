"""A thread's way out and its records, which nobody looks at: tests put in its place what they want to see."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.task_functions import key_function
from headgate.topology_runtime.wire.messages import Frame
from headgate.topology_runtime.worker.calls.user_code import ToRecord
from headgate.topology_runtime.worker.keyed_state.snapshot_files import SnapshotFiles
from headgate.topology_runtime.worker.operators.thread_core import Ports
from headgate.topology_runtime.worker.rows.acks import Addressed

SLOT = Slot("vm1", 0)


class SilentPost:
    slot, incarnation = SLOT, 1

    def ports(self, folder: Path | str = "", exactly_once: bool = False) -> Ports:
        """Numbers are drawn one after the other."""
        snapshots = partial(SnapshotFiles, str(folder))
        numbers = count(1).__next__
        return Ports(self, self, snapshots, numbers, key_function, self.wall_ns, exactly_once=exactly_once)

    def wall_ns(self) -> int:
        return time.time_ns()

    def deliver(self, frames: Iterable[Frame]) -> None: ...
    def send_word(self, word: Any) -> None: ...
    def send_acks(self, acks: Iterable[Addressed]) -> None: ...
    def write(self, done: ToRecord, holding: int) -> None: ...
