"""A task that computes: for trying out plans."""

from __future__ import annotations

from time import thread_time_ns
from typing import TypeVar

from headgate.topology_runtime.logic import any_thread

Row = TypeVar("Row")


@any_thread
class Spin:
    """Burns `cpu_ms` of CPU time per row, then gives the row on."""

    def __init__(self, cpu_ms: float = 1.0) -> None:
        self._ns = int(cpu_ms * 1e6)

    def __call__(self, row: Row) -> Row:
        until_ns = thread_time_ns() + self._ns
        while thread_time_ns() < until_ns:
            pass
        return row
