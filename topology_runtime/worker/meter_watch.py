"""What a thread's calls of user code leave in the meter, for the agent to see when they do not end."""

from __future__ import annotations

import threading

from headgate.topology_runtime.clock import monotonic_ns
from headgate.topology_runtime.worker import meter as mt
from headgate.topology_runtime.worker.watch import CallWatch, Identity


class MeterWatch(CallWatch):
    """Of thread number `thread`, whose record begins at `at`. `one`: held in careful calls."""

    def __init__(self, words: memoryview, at: int, thread: int, one: threading.Lock) -> None:
        super().__init__()
        self._words, self._at, self._thread, self._one = words, at, thread, one
        self._alone = self._whole = False  # this call holds `one`; no frame is round this call

    def look(self) -> None:
        """Between frames: what does the agent ask for?"""
        self.careful = self._words[mt.H_CAREFUL] != 0

    def enter(self, identity: Identity) -> None:
        words, started = self._words, self._at + mt.CALL_STARTED_NS
        self.calls += 1
        self._whole = not words[started]
        if self.careful:
            words[started] = 0  # it does not count how long this one waits for the others
            self._one.acquire()
            self._alone = True
            source, partition, position, variant, kind = identity
            words[mt.H_ROW_SOURCE], words[mt.H_ROW_PARTITION] = source, partition
            words[mt.H_ROW_POSITION], words[mt.H_ROW_VARIANT] = position, variant
            words[mt.H_ROW_KIND] = mt.KINDS.index(kind)
            words[mt.H_ROW_THREAD] = self._thread + 1
        if not words[started]:
            words[started] = monotonic_ns()

    def leave(self) -> None:
        if self._alone:
            self._alone = False
            self._words[mt.H_ROW_THREAD] = 0
            self._one.release()
        if self._whole:
            self._words[self._at + mt.CALL_STARTED_NS] = 0

    def calling(self, kind: int) -> MeterWatch:
        """`with watch.calling(kind)`: round a call that is about no row. It is timed."""
        self._words[self._at + mt.CALL_KIND] = kind
        return self

    def __enter__(self) -> None:
        self._words[self._at + mt.CALL_STARTED_NS] = monotonic_ns()

    def __exit__(self, *_: object) -> None:
        words, at = self._words, self._at
        words[at + mt.CALL_STARTED_NS] = 0
        words[at + mt.CALL_KIND] = mt.ROW
