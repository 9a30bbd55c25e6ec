"""Durable snapshots of keyed state in a directory or object store that outlives the VM (docs/decisions/0097).

Objects cannot be appended to: a whole snapshot is one object, what changed since is in others behind it. Their names
say whose they are and in which order:

    RUN/state/TASK~THREAD/LIFE.WHOLE.FIRST-LAST

LIFE: the incarnation of the worker that wrote it, so nothing that an earlier one still writes is taken for newer.
WHOLE: its whole snapshots, numbered; with those of a new one all before are removed. FIRST-LAST: which changes are in
it (0-0: the whole one). Small changes are written again with those before, and take their place, so that there are few.

Whoever takes over a thread's ranges says so first (TAKEN_OVER), then reads. Whoever wrote looks for that word before
its snapshot counts. So one of them comes second, and knows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from queue import SimpleQueue

import msgspec

from headgate.topology_runtime.connectors.object_folder import ObjectFolder, object_folder
from headgate.topology_runtime.errors import HeadgateError, InvalidInput
from headgate.topology_runtime.worker.keyed_state import state_snapshots as form
from headgate.topology_runtime.worker.keyed_state.state_snapshots import (
    KeyedSnapshot,
    NotRead,
    StateChange,
    StreamedSnapshot,
    Whole,
)

ADDED_LEAST = 8 << 20  # bytes of changes behind a whole snapshot, though that is smaller
AGAIN_BYTES = 512 << 10  # changes up to this size are written again with those that come
READ_AGAIN_S = 1.0  # after a read that failed
RUN_NOTE = "run"  # there in the folder of every run: without it the place is not the one that it was
TAKEN_OVER = "taken-over"
STATE = "state"


@dataclass(frozen=True)
class FarPlace:
    """Where the snapshots of a run are, and which life of a worker this is."""

    url: str
    run: str
    life: int

    def open(self) -> ObjectFolder:
        """For one thread. Raises OSError."""
        try:
            return object_folder(f"{self.url.rstrip('/')}/{self.run}")
        except HeadgateError as error:
            raise OSError(f"{error.what}: {error.cause}") from error


def note_run(url: str, run: str) -> None:
    """Before a run begins: its folder is there, and can be written. Raises InvalidInput."""
    try:
        FarPlace(url, run, 0).open().put(RUN_NOTE, run.encode())
    except OSError as error:
        raise InvalidInput(
            f"snapshots of keyed state cannot be kept in {url}",
            cause=f"{type(error).__name__}: {error}",
            hint="make the bucket or folder, and let this user write there",
        ) from error


@dataclass(frozen=True, order=True, slots=True)
class _Name:
    """life, whole: of its chain. first, last: which changes."""

    life: int
    whole: int
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.life:010}.{self.whole:08}.{self.first:08}-{self.last:08}"


def _named(text: str) -> _Name | None:
    life, _, rest = text.partition(".")
    whole, _, changes = rest.partition(".")
    numbers = [life, whole, *changes.split("-")]
    if len(numbers) != 4 or not all(number.isdigit() for number in numbers):
        return None
    return _Name(*map(int, numbers))


def folder_of(task: str, thread: int) -> str:
    return f"{STATE}/{task}~{thread}"


def read(place: ObjectFolder, task: str, thread: int) -> tuple[KeyedSnapshot | None, list[_Name]]:
    """What a thread saved last, and the names of all that is there of it. Raises OSError where the place does not
    answer, msgspec.DecodeError where what it has is damaged."""
    folder = folder_of(task, thread)
    names = sorted(filter(None, map(_named, place.names(folder))))
    if not names and not place.there(RUN_NOTE):
        raise OSError(f"{place.url} has nothing of this run: it is not the place that it was")
    chains: dict[tuple[int, int], list[_Name]] = {}
    for name in names:
        chains.setdefault((name.life, name.whole), []).append(name)
    for _, chain in sorted(chains.items(), reverse=True):
        if (found := _chained(place, folder, chain)) is not None:
            return found, names
    if chains:
        raise msgspec.DecodeError(f"no whole snapshot in {place.url}/{folder} can be read")
    return None, names


def _chained(place: ObjectFolder, folder: str, chain: list[_Name]) -> KeyedSnapshot | None:
    """A whole snapshot and what changed since, up to the last object that is whole. None: the whole one never was."""
    begin, data, at = chain[0], b"", 0
    if begin.first == 0:
        data = place.get(f"{folder}/{begin}")
    if not form.is_complete(data):
        if len(chain) > 1:
            raise msgspec.DecodeError(f"{place.url}/{folder}/{begin} is damaged, or not there")
        return None
    parts, left = [data], chain[1:]
    while following := [name for name in left if name.first == at + 1]:
        for name in reversed(following):  # the longest first
            data = place.get(f"{folder}/{name}")
            if form.is_complete(form.MAGIC + data):
                parts.append(data)
                at = name.last
                break
        else:
            break
    if any(name.first > at + 1 for name in left):
        raise msgspec.DecodeError(
            f"an object between others in {place.url}/{folder} is damaged, or not there"
        )
    return form.read(b"".join(parts))


def begin_with(place: ObjectFolder, task: str, thread: int, snapshot: bytes) -> None:
    """Before a run begins: a thread that never was had this whole snapshot (form.whole). Raises OSError."""
    place.put(f"{folder_of(task, thread)}/{_Name(0, 1, 0, 0)}", snapshot)


class FarSnapshots:
    """Those of thread `thread` of `task`: written by a thread of their own (form.SnapshotStore). counts: whether this
    VM may work now; wake: have `look` called."""

    def __init__(
        self,
        place: FarPlace,
        task: str,
        thread: int,
        counts: Callable[[], bool] = lambda: True,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._place, self._task, self._thread = place, task, thread
        self._folder = folder_of(task, thread)
        self._counts, self._wake = counts, wake
        self._store: ObjectFolder | None = None  # of the thread that writes
        self._jobs: SimpleQueue[Callable[[], None] | None] | None = None
        self._idle = threading.Event()
        self._idle.set()
        self._unseen = False  # one was written, or was not, and nobody has looked
        self._error = ""
        self._whole = self._added = -1  # bytes; −1: the next one is to be whole
        self._chain = _Name(place.life, 0, 0, 0)  # the newest object of ours
        self._tail = b""  # what is in it, if it may be written again with more
        self._there: list[_Name] = []  # all that may be there
        self._reads: dict[int, _Read] = {}

    @property
    def whole_due(self) -> bool:
        return self._whole < 0 or self._added > max(self._whole, ADDED_LEAST)

    @property
    def under_way(self) -> bool:
        return not self._idle.is_set() or (self._unseen and not self._counts())

    def look(self) -> None:
        self._unseen = False
        if self._error:
            raise OSError(self._error)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def load(self) -> KeyedSnapshot | None:
        self._idle.wait()
        self._unseen, self._whole = False, -1
        place = self._place.open()
        if place.there(f"{self._folder}/{TAKEN_OVER}"):
            raise OSError(f"others have taken over what thread {self._thread} of {self._task} had")
        try:
            found, self._there = read(place, self._task, self._thread)
        except msgspec.DecodeError as error:
            raise OSError(f"the snapshot of thread {self._thread} of {self._task}: {error}") from error
        wholes = [name.whole for name in self._there if name.life == self._place.life]
        self._chain = _Name(self._place.life, max(wholes, default=0), 0, 0)
        return found

    def of(self, thread: int) -> KeyedSnapshot | None:
        reading = self._reads.get(thread)
        if reading is None:
            reading = self._reads[thread] = _Read(self._place, self._task, thread, self._wake)
        if reading.is_alive():
            raise NotRead(reading.trouble)
        del self._reads[thread]
        if reading.damaged:
            raise OSError(reading.damaged)
        return reading.found

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    def save(self, snapshot: Whole) -> None:
        data = form.whole(snapshot) if isinstance(snapshot, StreamedSnapshot) else b""
        self._begin(lambda: self._put_whole(data or form.whole(snapshot)))

    def add(self, change: StateChange) -> None:
        self._begin(lambda: self._put_change(form.added(change)))

    def remove(self) -> None:
        """Its ranges are all elsewhere: what is there of it goes, when there is time."""
        if self._jobs is not None:
            self._jobs.put(self._remove_all)
        self.close()

    def close(self) -> None:
        if self._jobs is not None:
            self._jobs.put(None)
            self._jobs = None

    def _begin(self, write: Callable[[], None]) -> None:
        if self._jobs is None:
            self._jobs = SimpleQueue()
            name = f"{self._task}-{self._thread} snapshots"
            threading.Thread(target=self._work, args=(self._jobs,), name=name, daemon=True).start()
        self._idle.clear()
        self._jobs.put(lambda: self._write(write))

    def _work(self, jobs: SimpleQueue[Callable[[], None] | None]) -> None:
        while (job := jobs.get()) is not None:
            job()

    def _write(self, write: Callable[[], None]) -> None:
        try:
            if self._store is None:
                self._store = self._place.open()
            write()
            if self._store.there(f"{self._folder}/{TAKEN_OVER}"):
                raise OSError(f"others have taken over what thread {self._thread} of {self._task} had")
            self._error = ""
        except Exception as error:  # whatever a store's package raises: nothing is let go
            self._whole, self._error = -1, str(error) or repr(error)
        self._unseen = True
        self._idle.set()
        self._wake()

    def _put(self, name: _Name, data: bytes) -> None:
        assert self._store is not None
        self._there.append(name)
        self._store.put(f"{self._folder}/{name}", data)
        self._chain = name

    def _put_whole(self, data: bytes) -> None:
        before, self._whole = list(self._there), -1
        self._chain = _Name(self._place.life, self._chain.whole + 1, 0, 0)  # also if it fails
        self._put(self._chain, data)
        self._whole, self._added, self._tail = len(data), 0, b""
        self._remove(before)

    def _put_change(self, record: bytes) -> None:
        whole, before = self._whole, self._chain
        self._whole = -1
        again = bool(self._tail) and len(self._tail) + len(record) <= AGAIN_BYTES
        data = self._tail + record if again else record
        name = _Name(before.life, before.whole, before.first if again else before.last + 1, before.last + 1)
        self._put(name, data)
        self._whole, self._added, self._tail = whole, self._added + len(record), data
        if again:
            self._remove([before])

    def _remove(self, names: Collection[_Name]) -> None:
        """What does not go stays, until the next whole one."""
        assert self._store is not None
        for name in names:
            try:
                self._store.remove(f"{self._folder}/{name}")
            except OSError:
                return
            self._there.remove(name)

    def _remove_all(self) -> None:
        if self._store is not None:
            self._remove(list(self._there))


class _Read(threading.Thread):
    """Reads what a thread that is gone had, until the place answers."""

    def __init__(self, place: FarPlace, task: str, thread: int, wake: Callable[[], None]) -> None:
        super().__init__(name=f"{task}-{thread} read", daemon=True)
        self._place, self._task, self._thread, self._wake = place, task, thread, wake
        self.found: KeyedSnapshot | None = None
        self.damaged = self.trouble = ""
        self.start()

    def run(self) -> None:
        while True:
            try:
                place = self._place.open()
                place.put(f"{folder_of(self._task, self._thread)}/{TAKEN_OVER}", b"")
                self.found, _ = read(place, self._task, self._thread)
            except msgspec.DecodeError as error:
                self.damaged = str(error)
            except Exception as error:  # whatever a store's package raises: it is asked again
                self.trouble = str(error) or repr(error)
                time.sleep(READ_AGAIN_S)
                continue
            break
        self._wake()


def clean(place: ObjectFolder, kept: Collection[int]) -> list[str]:
    """Remove the snapshots of threads that are not `kept` and older than the newest of them: nobody can ask for them.
    That they were taken over stays said. Returns the names of what was removed. Raises OSError."""
    removed = []
    newest = max(kept, default=-1)
    for folder in place.folders(STATE):
        thread = folder.rpartition("~")[2]
        if thread.isdigit() and int(thread) < newest and int(thread) not in kept:
            for name in place.names(f"{STATE}/{folder}"):
                if name != TAKEN_OVER:
                    place.remove(f"{STATE}/{folder}/{name}")
                    removed.append(f"{folder}/{name}")
    return removed
