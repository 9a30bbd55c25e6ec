"""Old traces of a topology: which go, by number, size and age, and how one is removed.

Only folders that are traces (with a `run.json` of ours) are counted and removed, and never one that is being
written. What is removed is renamed first: half a trace is never seen under its name.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from headgate.topology_runtime.traces.trace_tables import ANY_VERSION, RUN_FILE
from headgate.topology_runtime.wire.run_options import Keep

log = logging.getLogger(__name__)

BUSY_S = 60.0  # a trace is written to every second: one changed since then is perhaps being written
REMOVED = ".removed-"  # what a removal leaves when it is broken off; the next one finishes it
DAY_S = 86400.0
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)  # of file systems that have none


@dataclass(frozen=True)
class Old:
    """A trace on disk. `changed_s`: the newest change of a file in it, seconds since 1970."""

    folder: Path
    size_bytes: int
    changed_s: float


class _Head(msgspec.Struct):
    schema: str = ""


def remove_old(current: Path, keep: Keep, now_s: float) -> tuple[Old, ...]:
    """Remove what `keep` does not keep beside the trace `current`; what was removed, oldest first.

    What cannot be removed is said and stays. `now_s`: seconds since 1970."""
    finish_removals(current.parent)
    if keep == Keep():
        return ()
    there = [old for old in traces_in(current.parent) if old.folder != current]
    mine_bytes = size_of(current)[0]
    return tuple(
        old for old in excess(there, keep, now_s, len(there) + 1, mine_bytes) if _removed(old.folder)
    )


def finish_removals(topology: Path) -> None:
    for rest in topology.glob(f"{REMOVED}*"):
        shutil.rmtree(rest, ignore_errors=True)


def traces_in(topology: Path) -> list[Old]:
    """The traces in this folder, oldest first."""
    folders = (one for one in topology.iterdir() if not one.name.startswith(".") and not one.is_symlink())
    there = (Old(one, *size_of(one)) for one in folders if one.is_dir() and is_trace(one))
    return sorted(there, key=lambda old: old.changed_s)


def size_of(folder: Path) -> tuple[int, float]:
    """(bytes, newest change of a file in it, seconds since 1970)."""
    files = [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]
    stats = [os.lstat(path) for path in files]
    return sum(s.st_size for s in stats), max((s.st_mtime for s in stats), default=0.0)


def excess(there: list[Old], keep: Keep, now_s: float, runs: int, more_bytes: int = 0) -> Iterator[Old]:
    """Which of these (oldest first) are too many, too old, or too much. `runs`: how many there are with those that are
    written now and not among these, which have `more_bytes`."""
    total_bytes = more_bytes + sum(old.size_bytes for old in there)
    for old in there:
        if now_s - old.changed_s < BUSY_S:
            continue
        too_many = keep.runs is not None and runs > keep.runs
        too_much = keep.total_bytes is not None and total_bytes > keep.total_bytes
        too_old = keep.days is not None and now_s - old.changed_s > keep.days * DAY_S
        if too_many or too_much or too_old:
            runs, total_bytes = runs - 1, total_bytes - old.size_bytes
            yield old


def is_trace(folder: Path) -> bool:
    try:
        head = msgspec.json.decode((folder / RUN_FILE).read_bytes(), type=_Head)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return False
    return head.schema.startswith(ANY_VERSION)


def remove(folder: Path) -> bool:
    """Remove a trace; False when it is being written. Raises OSError."""
    with alone(folder) as nobody_writes:
        if not nobody_writes:
            return False
        gone = folder.with_name(f"{REMOVED}{folder.name}")
        os.rename(folder, gone)
    shutil.rmtree(gone)
    return True


def _removed(folder: Path) -> bool:
    try:
        return remove(folder)
    except OSError as error:
        log.error("trace: the old trace %s cannot be removed: %s", folder, error)
        return False


# ── A trace is held by whoever records it, as long as its process lives ─────────────────────────────────


@contextmanager
def recorded(folder: Path) -> Iterator[None]:
    """Hold the trace while it is written; waits until nobody changes its files. One that cannot be held is written
    all the same."""
    with ExitStack() as stack:
        try:
            _locked(stack.enter_context(_opened(folder)), fcntl.LOCK_SH)
        except OSError as error:
            log.warning("trace: %s cannot be held: %s", folder, error)
        yield


@contextmanager
def alone(folder: Path) -> Iterator[bool]:
    """Is the trace held by nobody? Then nobody begins to write it within. Raises OSError."""
    with _opened(folder) as fd:
        yield _locked(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _locked(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    return True
