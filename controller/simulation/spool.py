"""The spool of a live source in a simulated VM: the real one, over files in memory, on a disk that may be full."""

from __future__ import annotations

from collections.abc import Callable

from headgate.topology_runtime.worker.spool import Spool


class SimSpool(Spool):
    """`full()`: does the VM's disk take no more?"""

    def __init__(self, folder: str, position: int, until: int | None, full: Callable[[], bool]) -> None:
        self._full = full
        super().__init__(folder, position, until)

    def _write(self, data: bytes) -> None:
        if self._full():
            raise OSError(28, "no space left on the simulated disk")
        super()._write(data)

    def _reserve(self) -> None:
        if self._full():
            raise OSError(28, "no space left on the simulated disk")
