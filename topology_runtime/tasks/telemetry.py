"""This machine's own process telemetry: endless, real, and never twice the same.

Rows are (id, XML document), one process a row, round robin over the processes that live.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

import psutil

from headgate.topology_runtime.logic import Context, LiveSource

BATCH = 16  # processes read at once: one by one at 150 a second each would cost three times the CPU
DOCUMENT = (
    '<process time_ms="{time_ms}"><name>{name}</name><pid>{pid}</pid><user_s>{user_s}</user_s>'
    "<system_s>{system_s}</system_s><rss_bytes>{rss}</rss_bytes><virtual_bytes>{virtual}</virtual_bytes>"
    "<threads>{threads}</threads>{io}</process>"
)
IO = "<read_bytes>{0.read_bytes}</read_bytes><write_bytes>{0.write_bytes}</write_bytes>"


class Telemetry(LiveSource):
    """One process per row: name, CPU times, memory, threads and, where that may be read, bytes of I/O.

    Ids are `<start of the source in ns>-<partition>-<count>`: no two events share one."""

    arriving = False  # as many as are asked for

    def __init__(self) -> None:
        self._prefix = f"{time.time_ns():x}-0"
        self._count = 0
        self._ready: deque[tuple[str, str]] = deque()
        self._processes: Iterator[psutil.Process] = iter(())
        self._closed_io: set[int] = set()  # processes whose I/O counters are not for us

    def open(self, context: Context) -> None:
        self._prefix = f"{time.time_ns():x}-{context.partition}"

    def poll(self, limit: int) -> Sequence[tuple[str, str]]:
        while not self._ready:
            self._read_ahead()
        return [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]

    def _read_ahead(self) -> None:
        for _ in range(BATCH):
            document = self._document()
            if document is not None:
                self._ready.append((f"{self._prefix}-{self._count}", document))
                self._count += 1

    def _document(self) -> str | None:
        """The next process; None when it has ended meanwhile."""
        process = next(self._processes, None)
        if process is None:
            self._processes = psutil.process_iter()
            return None
        try:
            with process.oneshot():
                cpu, memory = process.cpu_times(), process.memory_info()
                return DOCUMENT.format(
                    time_ms=time.time_ns() // 1_000_000,
                    name=escape(_printable(process.name())),
                    pid=process.pid,
                    user_s=cpu.user,
                    system_s=cpu.system,
                    rss=memory.rss,
                    virtual=memory.vms,
                    threads=process.num_threads(),
                    io=self._io(process),
                )
        except psutil.Error:  # it ended, or is not for us to read
            return None

    def _io(self, process: psutil.Process) -> str:
        if process.pid in self._closed_io:
            return ""
        try:
            return IO.format(process.io_counters())
        except (psutil.AccessDenied, AttributeError, OSError):  # no permission, or no such counters here
            self._closed_io.add(process.pid)
            return ""


def _printable(name: str) -> str:
    """XML has no place for control characters or lone surrogates, process names have."""
    return "".join(c if c.isprintable() else "?" for c in name)
