"""The controller's journal: an append-only file of records, and the lock that keeps it to one writer.

Rules:
 1. One append is one frame `[sequence, crc32, records]` (msgpack); it returns when it is fsynced.
 2. A torn tail (a frame that does not end before the file does, or the last frame when its sum is
    wrong: it was never acknowledged) is cut off on opening.
 3. Anything else that does not read is corruption in the middle, and refused with its offset.
 4. An append that fails is taken back; when that fails too, the journal takes no more.
 5. A long journal is shortened: another file, with what its records add up to as its one record, takes its name.

The reader is `msgpack.Unpacker`: it stops cleanly at a torn tail, and is independent of the writer.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import msgpack
import msgspec

from headgate.controller.knowledge.journal_records import Record, SoFar, fold_all
from headgate.topology_runtime.errors import Conflict, InvalidInput
from headgate.topology_runtime.platform.disk import sync_directory

ARRAY_OF_THREE = b"\x93"  # how every frame begins
HEAD_BYTES = 15  # array, two integers of at most nine and five bytes
LONG_BYTES = 1 << 19  # some hundred plans
GROWN = 4  # times as long as it was when it was shortened: most of it is what was
MOST_FRAMES = 1 << 32  # a sequence number above this is no sequence number

_encode = msgspec.msgpack.Encoder().encode
_records: msgspec.msgpack.Decoder[tuple[Record, ...]] = msgspec.msgpack.Decoder(tuple[Record, ...])


class Journal:
    """The journal in `directory`, opened for this process alone. Raises Conflict when another
    controller has it, InvalidInput when it is corrupt."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = locked(directory / "lock")
        self.path = directory / "journal.bin"
        self._fd = _opened(self.path)
        try:
            self.records, self._end, self._sequence = read(self.path)
            os.ftruncate(self._fd, self._end)
            os.fsync(self._fd)
            sync_directory(directory)
        except BaseException:
            self.close()
            raise
        self._broken = False
        self._short = 0  # bytes, when it was shortened

    @property
    def long(self) -> bool:
        """Would it be much shorter as what it adds up to?"""
        return self._end > max(LONG_BYTES, GROWN * self._short)

    def shorten_if_long(self) -> None:
        """Raises OSError."""
        if self.long:
            self.shorten()

    def shorten(self) -> None:
        """Write again what the records add up to; raises OSError, and then the journal says the same as before."""
        records = self._all()
        new = self.path.with_name(self.path.name + ".new")
        frame = _frame(0, (SoFar(fold_all(records)),))
        fd = _opened(new)
        try:
            os.ftruncate(fd, 0)
            _write_all(fd, frame, 0)
            os.fsync(fd)
            os.replace(new, self.path)
        except OSError:
            os.close(fd)
            new.unlink(missing_ok=True)
            raise
        os.close(self._fd)
        self._fd, self._sequence, self._broken = fd, 1, False
        self._end = self._short = len(frame)
        sync_directory(self.path.parent)

    def _all(self) -> tuple[Record, ...]:
        """Every record that was appended; raises OSError when the disk has lost some."""
        try:
            records, _, sequence = read(self.path)
        except InvalidInput as error:
            raise OSError(f"it does not read back: {error.what}") from error
        if sequence != self._sequence:
            raise OSError(f"it does not read back: {sequence} frames of {self._sequence}")
        return records

    def append(self, records: Sequence[Record]) -> None:
        """Write and fsync; raises OSError, and then nothing was written."""
        if self._broken:
            raise OSError(f"{self.path} could not be put right after a failed write")
        frame = _frame(self._sequence, records)
        try:
            _write_all(self._fd, frame, self._end)
            os.fsync(self._fd)
        except OSError:
            self._take_back()
            raise
        self._sequence += 1
        self._end += len(frame)

    def _take_back(self) -> None:
        try:
            os.ftruncate(self._fd, self._end)
        except OSError:
            self._broken = True

    def close(self) -> None:
        os.close(self._fd)
        os.close(self._lock)


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _frame(sequence: int, records: Sequence[Record]) -> bytes:
    data = _encode(tuple(records))
    return _encode((sequence, crc32(data), data))


def read(path: Path) -> tuple[tuple[Record, ...], int, int]:
    """(records, offset behind the last good frame, next sequence) of the journal at `path`."""
    return of_bytes(path.read_bytes(), path)


def of_bytes(data: bytes, path: Path) -> tuple[tuple[Record, ...], int, int]:
    """The same of what was read there."""
    records: list[Record] = []
    good = sequence = 0
    unpacker = _unpacker(data)
    while True:
        found = _records_of(_unpacked(unpacker), sequence)
        if found is None:
            break
        records += found
        sequence += 1
        good = unpacker.tell()
    if good < len(data) and _frame_after(data, good, sequence):
        raise InvalidInput(
            f"the journal {path} is corrupt at offset {good}",
            cause="a record there does not read, but later ones do",
            hint="keep the file for inspection and start with an empty --state-dir",
        )
    return tuple(records), good, sequence


def _unpacker(data: bytes) -> msgpack.Unpacker:
    unpacker = msgpack.Unpacker(max_buffer_size=len(data) or 1, strict_map_key=False)
    unpacker.feed(data)
    return unpacker


def _unpacked(unpacker: msgpack.Unpacker) -> object:
    """The next value; None when there is none, or what is there is no msgpack that we write."""
    try:
        return unpacker.unpack()
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
        return None


def _records_of(frame: object, sequence: int) -> tuple[Record, ...] | None:
    """The records of a frame as it was unpacked; None unless it is the whole and right one."""
    if not (isinstance(frame, list) and len(frame) == 3):
        return None
    number, check, data = frame
    if number != sequence or not isinstance(data, bytes) or crc32(data) != check:
        return None
    try:
        return _records.decode(data)
    except msgspec.DecodeError:
        return None


def _frame_after(data: bytes, bad: int, sequence: int) -> bool:
    """Is there a whole later frame behind the bad one at `bad`? Then the bad one is no torn tail."""
    at = data.find(ARRAY_OF_THREE, bad + 1)
    while at >= 0:
        number = _sequence_at(data, at)
        if number is not None and number >= sequence:
            frame = _unpacked(_unpacker(data[at:]))
            if _records_of(frame, number) is not None:
                return True
        at = data.find(ARRAY_OF_THREE, at + 1)
    return False


def _sequence_at(data: bytes, at: int) -> int | None:
    """The sequence number of what looks like the head of a frame."""
    head = _unpacker(data[at + 1 : at + HEAD_BYTES])
    number, check = _unpacked(head), _unpacked(head)
    if type(number) is not int or type(check) is not int or not 0 <= number < MOST_FRAMES:
        return None
    return number


def _write_all(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:  # a write may be short without an error
        written = os.pwrite(fd, view, offset)
        view = view[written:]
        offset += written


def locked(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(fd)
        raise Conflict(
            f"a controller runs on {path.parent} already (process {holder})",
            hint="stop it first, or give another --state-dir",
        ) from error
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    except OSError:
        return fd  # a full disk: the lock holds, whoever is refused does not learn by whom
    return fd
