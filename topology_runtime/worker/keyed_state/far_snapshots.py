"""Durable snapshots of keyed state in a directory or object store that outlives the VM (docs/decisions/0097).

Objects cannot be appended to: a whole snapshot is one object, what changed since is in others behind it. Their names
say whose they are and in which order:

    RUN/state/TASK~THREAD/LIFE.WHOLE.FIRST-LAST

LIFE: the incarnation of the worker that wrote it, so nothing that an earlier one still writes is taken for newer.
WHOLE: its whole snapshots, numbered; with those of a new one all before are removed. FIRST-LAST: which changes are in
it. 0-0, 0-1, …: the whole one, in pieces; 0-0 says how many and is written last, so that without it there is none.
Small changes are written again with those before, and take their place, so that there are few.

A thread that has nothing yet goes on from the snapshots of one that is gone: their objects are copied to it, which a
folder or a store does by itself, as pieces of a whole one of its own, and what it changes goes behind them.

Whoever takes over a thread's ranges says so first (TAKEN_OVER), then reads. Whoever wrote looks for that word before
its snapshot counts. So one of them comes second, and knows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec

from headgate.topology_runtime.connectors.object_folder import ObjectFolder, object_folder
from headgate.topology_runtime.errors import HeadgateError, InvalidInput
from headgate.topology_runtime.worker.keyed_state import state_snapshots as form
from headgate.topology_runtime.worker.keyed_state.state_snapshots import (
    KeyedSnapshot,
    NotRead,
    SavedPart,
    SavedWhole,
)

ADDED_LEAST = 8 << 20  # bytes of changes behind a whole snapshot, though that is smaller
PIECE_BYTES = 32 << 20  # of a whole snapshot, in an object
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


def read(place: ObjectFolder, task: str, thread: int) -> tuple[bytes | None, list[_Name]]:
    """What a thread saved last (`state_snapshots.stream`), and the names of all that is there of it. Raises OSError
    where the place does not answer, msgspec.DecodeError where what it has is damaged."""
    found, names = _objects(place, task, thread)
    return _together(found) if found else None, names


def _objects(place: ObjectFolder, task: str, thread: int) -> tuple[list[_Object], list[_Name]]:
    """The same, object by object."""
    folder = folder_of(task, thread)
    names = sorted(filter(None, map(_named, place.names(folder))))
    if not names and not place.there(RUN_NOTE):
        raise OSError(f"{place.url} has nothing of this run: it is not the place that it was")
    chains: dict[tuple[int, int], list[_Name]] = {}
    for name in names:
        chains.setdefault((name.life, name.whole), []).append(name)
    for _, chain in sorted(chains.items(), reverse=True):
        if found := _chained(place, folder, chain):
            return found, names
    if any(name.first or not name.last for name in names):  # others are of a whole one that was not finished
        raise msgspec.DecodeError(f"no whole snapshot in {place.url}/{folder} can be read")
    return [], names


class _Object(NamedTuple):
    """start: of its records, but how a whole snapshot begins."""

    name: _Name
    data: bytes
    start: int

    @property
    def records(self) -> memoryview:
        return memoryview(self.data)[self.start :]


def _chained(place: ObjectFolder, folder: str, chain: list[_Name]) -> list[_Object]:
    """A whole snapshot and what changed since, up to the last object that is whole. []: the whole one never was."""
    begin, left = chain[0], [name for name in chain if name.first]
    data = place.get(f"{folder}/{begin}") if begin.first == begin.last == 0 else b""
    if not form.is_complete(data):
        if left:
            raise msgspec.DecodeError(f"{place.url}/{folder}/{begin} is damaged, or not there")
        return []
    found, at, rest = [_Object(begin, data, form.behind_begin(data))], 0, form.stream(data).rest
    for piece, start in enumerate(rest.starts or [len(form.MAGIC)] * rest.pieces, 1):
        name = _Name(begin.life, begin.whole, 0, piece)
        data = place.get(f"{folder}/{name}") if name in chain else b""
        if not form.is_complete(data, bare=not start):
            raise msgspec.DecodeError(f"{place.url}/{folder}/{name} is damaged, or not there")
        found.append(_Object(name, data, start))
    while following := [name for name in left if name.first == at + 1]:
        for name in reversed(following):  # the longest first
            data = place.get(f"{folder}/{name}")
            if form.is_complete(data, bare=True):
                found.append(_Object(name, data, 0))
                at = name.last
                break
        else:
            break
    if any(name.first > at + 1 for name in left):
        raise msgspec.DecodeError(
            f"an object between others in {place.url}/{folder} is damaged, or not there"
        )
    return found


def _saved(found: list[_Object]) -> SavedWhole:
    return form.stream_of(found[0].data, (one.records for one in found))


def _together(found: list[_Object]) -> bytes:
    """As one object."""
    return b"".join([form.begin_of(found[0].data), *(one.records for one in found)])


def begin_with(place: ObjectFolder, task: str, thread: int, snapshot: bytes) -> None:
    """Before a run begins: a thread that never was had saved this. Raises OSError."""
    place.put(f"{folder_of(task, thread)}/{_Name(0, 1, 0, 0)}", snapshot)


class FarSnapshots:
    """Those of thread `thread` of `task` (form.SnapshotStore). wake: have `of` asked again."""

    under_way = False  # it is there, or was not written, when `save` returns
    late = True  # a request may be on its way when its worker dies

    def __init__(
        self, place: FarPlace, task: str, thread: int, wake: Callable[[], None] = lambda: None
    ) -> None:
        self._place, self._task, self._thread, self._wake = place, task, thread, wake
        self._folder = folder_of(task, thread)
        self._store: ObjectFolder | None = None  # of the thread that writes
        self._whole = self._added = -1  # bytes; −1: the next one is to be whole
        self._numbered = 0  # whole ones of ours
        self._chain = _Name(place.life, 0, 0, 0)  # the newest object of the one that stands
        self._tail = b""  # what is in it, if it may be written again with more
        self._making: _Making | None = None
        self._there: list[_Name] = []  # all that may be there
        self._reads: dict[int, _Read] = {}

    @property
    def stands(self) -> bool:
        return self._whole >= 0

    @property
    def whole_due(self) -> bool:
        too_long = not self.stands or self._added > max(self._whole // 2, ADDED_LEAST)
        return too_long and self._making is None

    def look(self) -> None:
        """Nothing is left to be said."""

    def close(self) -> None:
        """Nothing is open."""

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def load(self) -> SavedWhole | None:
        self._whole, self._making = -1, None
        place = self._place.open()
        if place.there(f"{self._folder}/{TAKEN_OVER}"):
            raise OSError(f"others have taken over what thread {self._thread} of {self._task} had")
        try:
            found, self._there = _objects(place, self._task, self._thread)
            saved = _saved(found) if found else None
        except msgspec.DecodeError as error:
            raise OSError(f"the snapshot of thread {self._thread} of {self._task}: {error}") from error
        wholes = [name.whole for name in self._there if name.life == self._place.life]
        self._numbered = max(wholes, default=0)
        return saved

    def of(self, thread: int, ranges: Collection[int] = ()) -> KeyedSnapshot | SavedWhole | None:
        ranges = ranges if self._store is None and not self.stands else ()
        reading = self._reads.get(thread)
        if reading is None:
            heir = None
            if ranges and not any(one.heir for one in self._reads.values()):
                self._numbered += 1
                heir = _Heir(self._folder, _Name(self._place.life, self._numbered, 0, 0), frozenset(ranges))
            reading = _Read(self._place, self._task, thread, self._wake, heir)
            self._reads[thread] = reading
        if reading.is_alive():
            raise NotRead(reading.trouble)
        del self._reads[thread]
        if reading.damaged:
            raise OSError(reading.damaged)
        if not isinstance(reading.found, SavedWhole):
            return reading.found
        self._there += reading.copied
        if not ranges:  # it has begun something of its own meanwhile
            return reading.found.whole()
        self._chain = reading.copied[-1]
        self._whole, self._added, self._tail = reading.sizes[0], reading.sizes[1], b""
        return reading.found

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    def save(self, part: SavedPart) -> None:
        try:
            if self._store is None:
                self._store = self._place.open()
            self._put_part(part)
            if self._store.there(f"{self._folder}/{TAKEN_OVER}"):
                raise OSError(f"others have taken over what thread {self._thread} of {self._task} had")
        except BaseException:
            self._whole, self._making = -1, None
            raise

    def remove(self) -> None:
        """Its ranges are all elsewhere: what is there of it goes."""
        if self._store is not None:
            self._remove(list(self._there))

    def _put(self, name: _Name, data: bytes) -> None:
        assert self._store is not None
        self._there.append(name)
        self._store.put(f"{self._folder}/{name}", data)

    def _put_part(self, part: SavedPart) -> None:
        if part.begun is None and self._making is not None:
            self._making.records.append(form.swept(part))
        if part.change is not None:
            record = form.added(part.change)
            if self._making is not None:
                self._making.records.append(record)
            if self.stands and not part.ends:
                self._put_change(record)
        if part.begun is not None:
            self._numbered += 1  # also if it fails
            self._making = _Making(part.begun, _Name(self._place.life, self._numbered, 0, 0))
            self._making.records.append(form.swept(part))
        if (making := self._making) is None:
            return
        if part.ends:
            self._put_whole(making)
        elif sum(map(len, making.records)) >= PIECE_BYTES:
            self._put_piece(making)

    def _put_piece(self, making: _Making) -> None:
        making.pieces += 1
        data, making.records = b"".join((form.MAGIC, *making.records)), []
        making.size += len(data)
        self._put(replace(making.name, last=making.pieces), data)

    def _put_whole(self, making: _Making) -> None:
        """It takes the place of the one before."""
        self._whole = -1
        if making.pieces and making.records:
            self._put_piece(making)
        begun = msgspec.structs.replace(making.begun, pieces=making.pieces)
        data = b"".join((form.whole(begun), *making.records))
        before = [
            name for name in self._there if (name.life, name.whole) != (making.name.life, making.name.whole)
        ]
        self._put(making.name, data)
        self._whole, self._added, self._tail = making.size + len(data), 0, b""
        self._chain, self._making = making.name, None
        self._remove(before)

    def _put_change(self, record: bytes) -> None:
        whole, before = self._whole, self._chain
        self._whole = -1
        again = bool(self._tail) and len(self._tail) + len(record) <= AGAIN_BYTES
        data = self._tail + record if again else record
        name = _Name(before.life, before.whole, before.first if again else before.last + 1, before.last + 1)
        self._put(name, data)
        self._whole, self._added, self._tail = whole, self._added + len(record), data
        self._chain = name
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


@dataclass
class _Making:
    """A whole snapshot that is being made: what it begins with, the name of that, and what is yet to be put."""

    begun: KeyedSnapshot
    name: _Name
    records: list[bytes] = field(default_factory=list)
    pieces: int = 0
    size: int = 0


@dataclass(frozen=True)
class _Heir:
    """A thread that is to go on from what another saved: its folder, what begins its whole snapshot, its ranges."""

    folder: str
    begin: _Name
    ranges: frozenset[int]

    def has_most(self, there: set[int]) -> bool:
        return bool(there) and 2 * len(self.ranges & there) >= len(there)


class _Read(threading.Thread):
    """Reads what a thread that is gone had, until the place answers. heir: it goes to this one as it is, if most of it
    is to be there; copied: its objects then, the beginning last; sizes: of the whole one, and of changes behind it."""

    def __init__(
        self, place: FarPlace, task: str, thread: int, wake: Callable[[], None], heir: _Heir | None = None
    ) -> None:
        super().__init__(name=f"{task}-{thread} read", daemon=True)
        self._place, self._task, self._thread, self._wake, self.heir = place, task, thread, wake, heir
        self.found: KeyedSnapshot | SavedWhole | None = None
        self.copied: list[_Name] = []
        self.sizes = 0, 0
        self.damaged = self.trouble = ""
        self.start()

    def run(self) -> None:
        while True:
            try:
                self._read(self._place.open())
            except msgspec.DecodeError as error:
                self.damaged = str(error)
            except Exception as error:  # whatever a store's package raises: it is asked again
                self.trouble = str(error) or repr(error)
                time.sleep(READ_AGAIN_S)
                continue
            break
        self._wake()

    def _read(self, place: ObjectFolder) -> None:
        folder = folder_of(self._task, self._thread)
        place.put(f"{folder}/{TAKEN_OVER}", b"")
        found, _ = _objects(place, self._task, self._thread)
        if not found:
            return
        saved, heir = _saved(found), self.heir
        if heir is not None and heir.has_most(saved.ranges):
            self.copied = _copied(place, folder, found, heir)
            changes = sum(len(one.data) for one in found if one.name.first)
            self.sizes = sum(len(one.data) for one in found) - changes, changes
            self.found = saved
        else:
            self.found = saved.whole()


def _copied(place: ObjectFolder, folder: str, found: list[_Object], heir: _Heir) -> list[_Name]:
    """All of another thread's, as a whole snapshot in pieces; the beginning comes last, as ever."""
    names = [replace(heir.begin, last=piece) for piece in range(1, len(found) + 1)]
    for name, one in zip(names, found, strict=True):
        place.put(f"{heir.folder}/{name}", one.data, same_as=f"{folder}/{one.name}")
    begin = form.begin_of(found[0].data, tuple(one.start for one in found))
    place.put(f"{heir.folder}/{heir.begin}", begin)
    return [*names, heir.begin]


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
