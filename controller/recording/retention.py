"""Old traces of a topology are removed when a new run begins and as it grows, by number, size and age; the
recorder's thread does it, so that no run waits for a disk.

Only folders that are traces (with a `run.json` of ours) are counted and removed; never the run being written,
never one that another controller still writes to. What is removed is renamed first: half a trace is never
seen under its name. A run that is too large all by itself loses the oldest of its inputs and views: it cannot be
replayed then, nor looked at from its beginning, but all that is analysed of it stays.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from headgate.topology_runtime.line_parts import number_of, parts_of
from headgate.topology_runtime.trace_keep import Keep
from headgate.topology_runtime.trace_tables import ANY_VERSION, INPUTS, RUN_FILE, VIEWS

log = logging.getLogger(__name__)

BUSY_S = 60.0  # a trace is written to every second: one changed since then is perhaps being written
REMOVED = ".removed-"  # what a removal leaves when it is broken off; the next one finishes it
DAY_S = 86400.0


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
    for rest in current.parent.glob(f"{REMOVED}*"):
        shutil.rmtree(rest, ignore_errors=True)
    if keep == Keep():
        return ()
    there = sorted(traces_beside(current), key=lambda old: old.changed_s)
    mine_bytes = _size_of(current)[0]
    return tuple(old for old in excess(there, keep, now_s, mine_bytes) if _remove(old.folder))


def shorten(current: Path, keep: Keep) -> int:
    """Remove the oldest parts of the run's own inputs and views while it is larger than all traces may be; how
    many."""
    gone = 0
    parts = [part for name in (INPUTS, VIEWS) for part in parts_of(current / name) if number_of(part)]
    for part in sorted(parts, key=os.path.getmtime):
        if keep.total_bytes is None or _size_of(current)[0] <= keep.total_bytes:
            break
        part.unlink()
        gone += 1
    return gone


def traces_beside(current: Path) -> Iterator[Old]:
    """The other traces of the topology."""
    for folder in current.parent.iterdir():
        if folder != current and not folder.is_symlink() and folder.is_dir() and _is_trace(folder):
            yield Old(folder, *_size_of(folder))


def _size_of(folder: Path) -> tuple[int, float]:
    """(bytes, newest change of a file in it, seconds since 1970)."""
    files = [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]
    stats = [os.lstat(path) for path in files]
    return sum(s.st_size for s in stats), max((s.st_mtime for s in stats), default=0.0)


def excess(there: list[Old], keep: Keep, now_s: float, mine_bytes: int) -> Iterator[Old]:
    """Which of these (oldest first) are too many, too old, or too much beside the run being written."""
    runs, total_bytes = len(there) + 1, mine_bytes + sum(old.size_bytes for old in there)
    for old in there:
        if now_s - old.changed_s < BUSY_S:
            continue
        too_many = keep.runs is not None and runs > keep.runs
        too_much = keep.total_bytes is not None and total_bytes > keep.total_bytes
        too_old = keep.days is not None and now_s - old.changed_s > keep.days * DAY_S
        if too_many or too_much or too_old:
            runs, total_bytes = runs - 1, total_bytes - old.size_bytes
            yield old


def _is_trace(folder: Path) -> bool:
    try:
        head = msgspec.json.decode((folder / RUN_FILE).read_bytes(), type=_Head)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return False
    return head.schema.startswith(ANY_VERSION)


def _remove(folder: Path) -> bool:
    gone = folder.with_name(f"{REMOVED}{folder.name}")
    try:
        os.rename(folder, gone)
        shutil.rmtree(gone)
    except OSError as error:
        log.error("trace: the old trace %s cannot be removed: %s", folder, error)
        return False
    return True


def words_of(removed: tuple[Old, ...]) -> str:
    """What was removed, in words."""
    names = ", ".join(old.folder.name for old in removed[:5]) + (", …" if len(removed) > 5 else "")
    size_mb = sum(old.size_bytes for old in removed) / 1e6
    runs = "1 old trace" if len(removed) == 1 else f"{len(removed)} old traces"
    return f"removed {runs}, {size_mb:,.1f} MB ({names}): --trace-keep"
