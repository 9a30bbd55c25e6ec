"""Keeps the machine's cores awake while something is measured.

A core that idles falls asleep, clocks down, or loses its turn on the host: on the test machine a row then
cost 1.71 to 2.40 ms of CPU, differently from second to second; awake 1.70 to 1.91 ms. Models so tell what a
slot does on a machine that works, which is when it matters. (Keeping the cores busy with processes of the
lowest priority does that too, but delays what is measured.)
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from types import TracebackType

QUALITY = Path("/dev/cpu_dma_latency")  # Linux: no core sleeps deeper than the latency that is asked for here


class Awake:
    """No core sleeps while the `with` block lasts; the kernel forgets it with the process. `so`: False where
    this machine or this user cannot ask for that."""

    def __init__(self, device: Path = QUALITY) -> None:
        self._device = device
        self._file: int | None = None

    def __enter__(self) -> Awake:
        try:
            file = os.open(self._device, os.O_WRONLY)
        except OSError:  # no such device, or not for us: measured as it is, and `so` says it
            return self
        try:
            os.write(file, struct.pack("=i", 0))
        except OSError:
            os.close(file)
        else:
            self._file = file
        return self

    @property
    def so(self) -> bool:
        return self._file is not None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
