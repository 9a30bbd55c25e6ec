"""Snapshots that a thread of their own writes, so that the thread of the task goes on with rows meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from queue import SimpleQueue

from headgate.topology_runtime.worker.keyed_state.state_snapshots import (
    KeyedSnapshot,
    SavedPart,
    SavedWhole,
    SnapshotStore,
)


class SavedBeside:
    """A store whose `save` returns at once (form.SnapshotStore). counts: whether this VM may work now. wake: have
    `look` called."""

    def __init__(
        self,
        store: SnapshotStore,
        name: str,
        counts: Callable[[], bool] = lambda: True,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._store, self._name, self._counts, self._wake = store, name, counts, wake
        self._jobs: SimpleQueue[Callable[[], None] | None] | None = None
        self._idle = threading.Event()
        self._idle.set()
        self._unseen = False  # one was written, or was not, and nobody has looked
        self._error = ""

    @property
    def late(self) -> bool:
        return self._store.late

    @property
    def stands(self) -> bool:
        return self._store.stands

    @property
    def whole_due(self) -> bool:
        return self._store.whole_due

    @property
    def under_way(self) -> bool:
        return not self._idle.is_set() or (self._unseen and not self._counts())

    def look(self) -> None:
        self._unseen = False
        if self._error:
            raise OSError(self._error)

    def load(self) -> SavedWhole | None:
        self._idle.wait()
        self._unseen = False
        return self._store.load()

    def of(self, thread: int, ranges: Collection[int] = ()) -> KeyedSnapshot | SavedWhole | None:
        return self._store.of(thread, ranges)

    def save(self, part: SavedPart) -> None:
        if self._jobs is None:
            self._jobs = SimpleQueue()
            name = f"{self._name} snapshots"
            threading.Thread(target=self._work, args=(self._jobs,), name=name, daemon=True).start()
        self._idle.clear()
        self._jobs.put(lambda: self._write(part))

    def remove(self) -> None:
        """When there is time; what does not go is cleaned later."""
        if self._jobs is None:
            self._remove()
        else:
            self._jobs.put(self._remove)
        self.close()

    def close(self) -> None:
        if self._jobs is not None:
            self._jobs.put(None)
            self._jobs = None

    def _work(self, jobs: SimpleQueue[Callable[[], None] | None]) -> None:
        while (job := jobs.get()) is not None:
            job()

    def _write(self, part: SavedPart) -> None:
        try:
            self._store.save(part)
            self._error = ""
        except Exception as error:  # whatever a store's package raises: nothing is let go
            self._error = str(error) or repr(error)
        self._unseen = True
        self._idle.set()
        self._wake()

    def _remove(self) -> None:
        with suppress(OSError):
            self._store.remove()
