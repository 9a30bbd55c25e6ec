"""The prediction ledger on disk: `traces/TOPOLOGY/ledger.jsonl`, JSON lines that are only appended to.

1. An entry is added whole or not at all, under a lock: several runs of a topology may write at once.
2. An invalid line is named and left out by whoever reads; it is never fixed or cut off, and no line after it is
   lost: what is appended begins on a line of its own.
3. A file of more than `MOST_BYTES` becomes `ledger.old.jsonl` (the one before it goes), and the newest half of what it
   says begins the next one. Entries older than `OLDEST_DAYS` do not count.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from headgate.controller.models.prediction_ledger import LedgerEntry, correction_of, latest
from headgate.controller.models.task_models import Model
from headgate.controller.recording.trace_writer import write_whole

MOST_BYTES = 4 << 20  # some two thousand plans
READ_BYTES = 4 * MOST_BYTES  # a larger one is not ours; the end of it is looked at
OLDEST_DAYS = 365.0
LEARNED_FROM = 50  # plans at most
WAITING_MOST = 100  # entries that a full disk did not take

_json = msgspec.json.Encoder()
_entry = msgspec.json.Decoder(LedgerEntry)


@dataclass
class LedgerRead:
    """What is whole: the newest entry of each plan, oldest plan first; and what is not, with its line."""

    entries: tuple[LedgerEntry, ...] = ()
    faults: list[str] = field(default_factory=list)


class LedgerFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: list[LedgerEntry] = []

    def append(self, entry: LedgerEntry) -> None:
        """Add this, and what the disk did not take before. Raises OSError: then it waits for the next one."""
        self._waiting = [*self._waiting, entry][-WAITING_MOST:]
        lines = b"".join(_json.encode(one) + b"\n" for one in self._waiting)
        with self._locked() as fd:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                lines = b"\n" + lines  # after what a crash, or somebody else, left of a line
            write_whole(fd, lines, size)
            if size + len(lines) > MOST_BYTES:
                self._start_again()
        self._waiting = []

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The file, ours alone: the one that has the name now."""
        while True:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                if _is_at(fd, self._path):
                    yield fd
                    return
            finally:
                os.close(fd)

    def _start_again(self) -> None:
        newest = read_ledger(self._path).entries
        lines = [_json.encode(entry) + b"\n" for entry in newest]
        while sum(map(len, lines)) > MOST_BYTES // 2:
            del lines[: max(1, len(lines) // 4)]
        new = self._path.with_name(f"{self._path.name}.new")
        new.write_bytes(b"".join(lines))
        os.link(self._path, aside := self._path.with_name(f".{self._path.name}.aside"))
        os.replace(aside, self._path.with_name(f"{self._path.stem}.old{self._path.suffix}"))
        os.replace(new, self._path)


def speaking_of(
    entries: Iterable[LedgerEntry], topology: str, models: Iterable[Model]
) -> tuple[LedgerEntry, ...]:
    """Of a topology the newest entries about one of these models, without their slots."""
    at_hand = {(model.task, correction_of(model).of) for model in models}
    telling = [
        entry
        for entry in entries
        if entry.topology == topology and any((task.model, task.version) in at_hand for task in entry.tasks)
    ]
    return tuple(msgspec.structs.replace(entry, slots=()) for entry in telling[-LEARNED_FROM:])


def _is_at(fd: int, path: Path) -> bool:
    """Has nobody started it again while we waited for it?"""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def read_ledger(path: Path, now: datetime | None = None) -> LedgerRead:
    """What there is; nothing where there is no file. What cannot be read is a fault, never an error."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - READ_BYTES))
            content = file.read(READ_BYTES)
    except FileNotFoundError:
        return LedgerRead()
    except OSError as error:
        return LedgerRead(faults=[f"{path}: cannot be read: {error.strerror}"])
    faults, entries = list[str](), list[LedgerEntry]()
    if size > READ_BYTES:
        faults.append(f"{path}: has {size:,} bytes; only the last {READ_BYTES:,} are looked at")
    oldest = (now or datetime.now(UTC)) - timedelta(days=OLDEST_DAYS)
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            entry = _entry.decode(line)
            if datetime.fromisoformat(entry.time) >= oldest:
                entries.append(entry)
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError, TypeError, RecursionError) as error:
            faults.append(f"{path}:{number}: no entry, left out: {error}")
    return LedgerRead(latest(entries), faults)
