"""Files as a source: lines of text, CSV, JSON lines, Parquet; one file, a folder or a glob; compressed or not.

A position is a record: the n-th of all files, one after the other in the order of their names. With several threads,
thread k of n takes the records k, k + n, …. A file is read once and must stay as it is; `repeat` begins again at the
end, `follow` goes on with what is written to one file, also when it is rotated or emptied (as `tail -F`).
"""

from __future__ import annotations

import glob as globs
import os
import struct
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NoReturn
from zlib import crc32

import msgspec

from headgate.topology_runtime.api.logic import Context, Exhausted, Source
from headgate.topology_runtime.connectors.record_formats import (
    FORMATS,
    JsonRecords,
    RecordReader,
    TextRecords,
    format_of,
    reader_of,
)
from headgate.topology_runtime.connectors.remote_files import found_at, is_remote, opened_at, version_of
from headgate.topology_runtime.errors import BadRow, InvalidInput, ServiceAway
from headgate.topology_runtime.platform.disk import write_whole

EMPTIED = "it was emptied, or written anew"
GIVEN = struct.Struct("<qq")  # of what is followed: the next record, and its byte in the newest file
BY_LINE = (TextRecords, JsonRecords)  # formats that can be followed
EVERY = 1024  # records between two places that are kept
LOOK_S = 1.0  # so often a file elsewhere is looked at while it is read
HEAD_BYTES = 256  # by which a file that was written anew is told


class FileSeen(msgspec.Struct):
    """One file when its first record was read. first: number of that record. head: its first bytes. over: it grows no
    more. lost: what it held is gone."""

    path: str
    inode: int
    size: int
    mtime_ns: int
    first: int = 0
    head: bytes = b""
    over: bool = False
    lost: str = ""


class FilesSource(Source[Any]):
    """Records of files. path: a file, a folder or a glob, here or elsewhere (`s3://…`: with fsspec). format: text, csv,
    json (one value a line) or parquet; left out, the file's name says it. types, delimiter: of CSV, where its first
    records do not say them. Text is a string a line, without blank ones; CSV and Parquet are dicts. What cannot be
    read becomes a dead letter.

    Raises InvalidInput for files that are not there, or change while they are read."""

    gives_errors = True

    def __init__(
        self,
        path: str,
        *,
        follow: bool = False,
        repeat: bool = False,
        format: str | None = None,
        types: Mapping[str, str] | None = None,
        delimiter: str | None = None,
    ) -> None:
        if format is not None and format not in FORMATS:
            raise InvalidInput(f"invalid format {format!r}", hint=f"one of {', '.join(FORMATS)}")
        if follow and (repeat or is_remote(path) or globs.has_magic(path) or os.path.isdir(path)):
            raise InvalidInput(f"cannot follow {path}", cause="follow=True is for one file here, read once")
        self._path, self._format = path if is_remote(path) else os.path.abspath(path), format
        self._follow, self._repeat = follow, repeat
        self._types, self._delimiter = types, delimiter
        self._first, self._stride = 0, 1
        self._kept: Path | None = None
        self._given = -1
        self._files: list[FileSeen] = []
        self._file: BinaryIO | None = None
        self._records: RecordReader | None = None
        self._number = -1  # of the file that is open
        self._at = 0  # the next record
        self._places: list[tuple[int, int, int]] = []  # record, file, its place there
        self._look_s = 0.0  # when a file elsewhere is looked at again
        self._total: int | None = None  # records of all files, once known

    def open(self, context: Context) -> None:
        self._first, self._stride = context.partition, context.partitions
        if context.directory:
            name = f"files-{context.task}-{context.partition}-{crc32(self._path.encode()):08x}.json"
            self._kept = Path(context.directory) / name  # of this path: other code may name another one
        before = _read_kept(self._kept)
        self._files = before if before is not None else [_seen(path) for path in self._found()]
        if before is None:
            self._keep()
        if self._follow and self._kept is not None:
            self._go_on(self._kept)

    def close(self) -> None:
        self._close_file()
        if self._given >= 0:
            os.close(self._given)
            self._given = -1

    def read(self, position: int, limit: int) -> Sequence[Any]:
        if not self._files:
            self._files = [_seen(path) for path in self._found()]
        try:
            records = self._from(self.number_of(position), limit * self._stride)
        except ServiceAway:
            self._close_file()  # it is read again from a place that is known
            raise
        if not records and not self._follow:
            raise Exhausted
        if self._follow:
            self._note_given()
        return records[:: self._stride]

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = self._records = None

    def number_of(self, position: int) -> int:
        """Which record of all files that position is."""
        return self._first + position * self._stride

    # ── which files ─────────────────────────────────────────────────────────────────────────────

    def _found(self) -> list[str]:
        path = self._path
        if is_remote(path):
            found = found_at(path)
            return found or _no_file(path, "there is no such file")
        if os.path.isdir(path):
            path = os.path.join(globs.escape(path), "*")
        found = [path] if os.path.lexists(path) else sorted(globs.glob(path, recursive=True))
        found = [
            name for name in found if not os.path.isdir(name) and not os.path.basename(name).startswith(".")
        ]
        odd = [name for name in found if not os.path.isfile(name)]
        if odd or not found:
            none = "there is no file in it" if os.path.isdir(self._path) else "there is no such file"
            _no_file(self._path, f"{odd[0]} is no plain file" if odd else none)
        return found

    def _keep(self) -> None:
        if self._kept is not None:
            write_whole(self._kept, msgspec.json.encode(self._files))

    def _go_on(self, kept: Path) -> None:
        """With what an earlier life of this thread followed. Where that was emptied meanwhile, the records that it gave
        stay theirs."""
        self._given = os.open(kept.with_suffix(".at"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        before = os.pread(self._given, GIVEN.size, 0)
        record, byte = GIVEN.unpack(before) if before else (0, 0)
        last = self._files[-1]
        now = _seen_at(self._path)
        if (
            now is not None
            and now.inode == last.inode
            and (now.size < byte or not now.head.startswith(last.head))
        ):
            last.lost, last.over, now.first = EMPTIED, True, record
            self._files.append(now)
            self._keep()
        self._places = [(seen.first, number, 0) for number, seen in enumerate(self._files) if number]

    def _note_given(self) -> None:
        """How far it has read: a worker that is killed leaves it."""
        if self._given >= 0 and self._records is not None and self._number == len(self._files) - 1:
            os.pwrite(self._given, GIVEN.pack(self._at, self._records.place or 0), 0)

    # ── records by number ───────────────────────────────────────────────────────────────────────

    def _from(self, start: int, most: int) -> list[Any]:
        """Records from number `start` on: fewer at the end of what there is."""
        if len(self._files) > 1 and self._follow and (gone := self._gone(start, most)):
            return gone
        taken: list[Any] = []
        while len(taken) < most:
            at = (start + len(taken)) % self._total if self._total else start + len(taken)
            if at != self._at or self._records is None:
                self._go_to(at)
            some = self._take(most - len(taken)) if self._at == at else []
            taken += some
            if not self._repeat or self._total == 0 or len(taken) >= most:
                break
            if self._total is None:
                self._total = self._at  # it is at the end of the last file
        return taken

    def _go_to(self, start: int) -> None:
        """Open the file that record is in, and read up to it."""
        known = bisect_right(self._places, (start, len(self._files), 0)) - 1
        record, number, byte = self._places[known] if known >= 0 else (0, 0, 0)
        if not (self._records is not None and self._number >= number and record <= self._at <= start):
            self._open(number, byte)
            self._at = record
        while self._at < start:
            if not self._take(min(EVERY, start - self._at)):
                return

    def _take(self, most: int) -> list[Any]:
        taken: list[Any] = []
        while len(taken) < most:
            if self._records is None:
                self._open(max(0, self._number), 0)
            assert self._records is not None
            self._check()
            some = self._records.read(min(EVERY, most - len(taken)))
            taken += some
            self._at += len(some)
            if some:
                self._note()
            elif not self._next():
                break
        return taken

    def _note(self) -> None:
        assert self._records is not None
        place = self._records.place
        if place is not None and (not self._places or self._at >= self._places[-1][0] + EVERY):
            self._places.append((self._at, self._number, place))

    def _open(self, number: int, byte: int) -> None:
        self._close_file()
        seen = self._files[number]
        where, self._number = self._where(seen), number
        self._file = opened_at(where) if is_remote(where) else open(where, "rb")  # noqa: SIM115 `close` ends it
        try:
            self._records = self._made(seen, self._file, byte)
            if self._follow and not (isinstance(self._records, BY_LINE) and self._records.place is not None):
                raise InvalidInput(f"cannot follow {seen.path}", cause="it is no plain text in UTF-8")
        except InvalidInput:
            self._close_file()
            raise

    def _made(self, seen: FileSeen, file: BinaryIO, byte: int) -> RecordReader:
        kind, growing = self._format or format_of(seen.path), self._follow and not seen.over
        return reader_of(kind, file, seen.path, byte, growing, self._types, self._delimiter)

    def _next(self) -> bool:
        """The file is at its end: is there more in another? What is followed may have another file by now."""
        if self._number + 1 < len(self._files):
            self._open(self._number + 1, 0)
            return True
        return self._follow and self._replaced()

    # ── files that change ───────────────────────────────────────────────────────────────────────

    def _check(self) -> None:
        """Before more is read. Raises InvalidInput when the open file is not as it was when its first record was read;
        one that is followed and was emptied, or written anew, is followed from its begin."""
        assert self._file is not None
        seen = self._files[self._number]
        if is_remote(seen.path):
            if time.monotonic() >= self._look_s:
                self._look_s = time.monotonic() + LOOK_S
                _unchanged(seen, _seen(seen.path))
            return
        here = os.fstat(self._file.fileno())
        if not self._follow:
            _unchanged(seen, _seen_as(seen.path, here))
        elif not seen.over:
            assert self._records is not None
            head = os.pread(self._file.fileno(), HEAD_BYTES, 0)
            if here.st_size < (self._records.place or 0) or not head.startswith(seen.head):
                seen.lost = EMPTIED
                self._go_on_with(FileSeen(seen.path, here.st_ino, here.st_size, here.st_mtime_ns, head=head))
            elif head != seen.head:
                seen.head = head
                self._keep()

    def _where(self, seen: FileSeen) -> str:
        """Where a file is now. Raises InvalidInput when it changed, or is not there any more."""
        if is_remote(seen.path):
            _unchanged(seen, _seen(seen.path))
            return seen.path
        try:
            now = os.stat(seen.path)
        except OSError as error:
            if not self._follow:
                raise InvalidInput(f"cannot read {seen.path}", cause=error.strerror) from error
        else:
            if not self._follow:
                _unchanged(seen, _seen_as(seen.path, now))
            if now.st_ino == seen.inode:
                return seen.path
        with os.scandir(os.path.dirname(seen.path)) as beside:  # rotated: it has another name now
            for entry in beside:
                if entry.inode() == seen.inode:
                    return entry.path
        raise InvalidInput(f"cannot read {seen.path} again", cause="that file is gone: it was rotated away")

    def _replaced(self) -> bool:
        """Was the file that is followed rotated? Then what stands behind its last newline is its last record, and the
        next one is of the file that has its name now."""
        assert isinstance(self._records, BY_LINE)
        seen = self._files[self._number]
        now = _seen_at(seen.path)
        if now is None or now.inode == seen.inode:
            return False
        if self._records.growing:
            self._records.growing = False
        else:
            self._go_on_with(now)
        return True

    def _go_on_with(self, now: FileSeen) -> None:
        """With another file, or another content, in place of the one that is open."""
        self._files[self._number].over, now.first = True, self._at
        self._files.append(now)
        self._keep()
        self._places.append((self._at, self._number + 1, 0))
        self._open(self._number + 1, 0)

    def _gone(self, start: int, most: int) -> list[BadRow]:
        """Records that were read before, of a file whose content is gone; none where that is still there."""
        for seen, after in pairwise(self._files):
            if seen.first <= start < after.first and not self._readable(seen):
                why = seen.lost or "it was rotated away"
                return [
                    BadRow(f"record {number:,} of {seen.path} cannot be read again: {why}")
                    for number in range(start, min(start + most, after.first))
                ]
        return []

    def _readable(self, seen: FileSeen) -> bool:
        try:
            return not seen.lost and bool(self._where(seen))
        except InvalidInput:
            return False


def _no_file(path: str, cause: str) -> NoReturn:
    raise InvalidInput(f"cannot read {path}", cause=cause, hint="a file, a folder or a glob like 'in/*.csv'")


def _seen(path: str) -> FileSeen:
    if is_remote(path):
        version, size = version_of(path)
        return FileSeen(path, version, size, 0)
    return _seen_as(path, os.stat(path))


def _seen_as(path: str, now: os.stat_result) -> FileSeen:
    return FileSeen(path, now.st_ino, now.st_size, now.st_mtime_ns)


def _seen_at(path: str) -> FileSeen | None:
    """What has this name now, and its first bytes; None: nothing, as between a rename and the next file."""
    try:
        with open(path, "rb") as file:
            now = os.fstat(file.fileno())
            return FileSeen(path, now.st_ino, now.st_size, now.st_mtime_ns, head=file.read(HEAD_BYTES))
    except OSError:
        return None


def _unchanged(seen: FileSeen, now: FileSeen) -> None:
    if (now.inode, now.size, now.mtime_ns) == (seen.inode, seen.size, seen.mtime_ns):
        return
    if now.inode != seen.inode:
        cause = "another file has its name now"
    elif now.size != seen.size:
        cause = f"it had {seen.size:,} bytes when the run began, and has {now.size:,}"
    else:
        cause = "it was written to"
    raise InvalidInput(
        f"{seen.path} changed while it was read",
        cause=cause,
        hint="keep files as they are while they are read; follow=True reads one that grows or is rotated",
    )


def _read_kept(kept: Path | None) -> list[FileSeen] | None:
    """What an earlier life of this thread saw; None when there was none."""
    if kept is None:
        return None
    try:
        return msgspec.json.decode(kept.read_bytes(), type=list[FileSeen])
    except FileNotFoundError:
        return None
