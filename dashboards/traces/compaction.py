"""Many small segments of a run that is over become few large ones.

The new segments of a table are written beside it, together with what is not merged, as a folder of its own. The two
folders then change names in one step: whoever reads sees the old files or the new ones, and each row once. A reader
that has listed the old ones finds them gone and lists again; no new file has the name of an old one. What a kill leaves
is in one hidden folder, which the next compaction removes; no folder in it has the name of a table, for DuckDB's `**`
looks into hidden folders, too.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.dashboards.analytics.curation import clock_jumps as clocks
from headgate.dashboards.analytics.curation.trace_segments import Segment, judged
from headgate.dashboards.analytics.storage.result_tables import LeftOut
from headgate.dashboards.analytics.storage.trace_runs import TraceRun
from headgate.topology_runtime.errors import Conflict
from headgate.topology_runtime.platform.disk import exchange, sync_directory
from headgate.topology_runtime.traces.old_traces import BUSY_S, alone, size_of
from headgate.topology_runtime.traces.trace_tables import TABLES

if TYPE_CHECKING:
    import pyarrow.parquet as pq

# ── Which segments become one. Pure ─────────────────────────────────────────────────────────────────────

LARGE_ROWS = 5_000_000  # of a file at most
LARGE_SPAN_US = clocks.GAP_S * clocks.SECOND_US  # a longer one looks like a clock that jumped


@dataclass(frozen=True)
class NewSegment:
    """A file to be, and what it is made of: one segment is linked, several are merged."""

    name: str
    parts: tuple[Segment, ...]

    @property
    def span(self) -> clocks.Span:
        return min(part.begin_us for part in self.parts), max(part.end_us for part in self.parts)


Plan = dict[str, list[NewSegment]]  # of each table that gets new ones


def merged(segments: Sequence[Segment], single: set[str], names: Sequence[str]) -> list[NewSegment]:
    """The new segments of one table; none when there is nothing to merge. single: names of those that stay alone.
    names: of all files there are.

    Segments of one writer stay in their order, under higher numbers than it gave; others keep their names."""
    lives: dict[str, list[tuple[int, Segment]]] = {}
    for segment in segments:
        if match := clocks.ORDERED.match(segment.place.name):
            lives.setdefault(match[1], []).append((int(match[2]), segment))
    numbers: dict[str, int] = {}
    for match in filter(None, map(clocks.ORDERED.match, names)):
        numbers[match[1]] = max(numbers.get(match[1], 0), int(match[2]))
    found = []
    for life, members in sorted(lives.items()):
        groups = list(_groups([one for _, one in sorted(members, key=lambda item: item[0])], single))
        if len(groups) < len(members):
            found += [
                NewSegment(f"{life}-{numbers[life] + n:06d}.parquet", tuple(group))
                for n, group in enumerate(groups, 1)
            ]
    return found


def _groups(segments: Sequence[Segment], single: set[str]) -> Iterator[list[Segment]]:
    group: list[Segment] = []
    for segment in segments:
        if group and not _fits(group, segment, single):
            yield group
            group = []
        group.append(segment)
    if group:
        yield group


def _fits(group: Sequence[Segment], segment: Segment, single: set[str]) -> bool:
    every = [*group, segment]
    span_us = max(one.end_us for one in every) - min(one.begin_us for one in every)
    return (
        group[-1].shape == segment.shape
        and single.isdisjoint({segment.place.name, group[-1].place.name})
        and sum(one.rows for one in every) <= LARGE_ROWS
        and span_us <= LARGE_SPAN_US
    )


def clock_fits(segments: Sequence[Segment], new: Plan, started_us: int | None) -> bool:
    """Are all rows still counted when the segments are merged so?"""
    gone = {part.place for of in new.values() for one in of for part in one.parts}
    after = [(s.table, s.place.name, (s.begin_us, s.end_us)) for s in segments if s.place not in gone]
    after += [(table, one.name, one.span) for table, of in new.items() for one in of]
    if clocks.outside([span for _, _, span in after], started_us):
        return False
    return not any(
        clocks.backwards(
            [name for of, name, _ in after if of == table], [s for of, _, s in after if of == table]
        )
        for table in TABLES
    )


# ── One run ─────────────────────────────────────────────────────────────────────────────────────────────

WORK = ".compacting"
ROW_GROUP = 500_000
Tell = Callable[[int, int], None]  # so many segments were read, of so many


@dataclass
class Compacted:
    """What became of a run's segments: how many and how large they were and are, why it was left alone, and the files
    that stay as they are because they cannot be used."""

    run: str
    files_before: int
    bytes_before: int
    files_after: int
    bytes_after: int
    why: str | None
    left: list[LeftOut]


def compact(run: TraceRun, now_s: float, tell: Tell) -> Compacted:
    """Raises OSError, Conflict when another compaction is at work in it."""
    folder = Path(run.place.path)
    segments, left = judged(run)
    files, size = _files(folder)
    done = Compacted(run.key, files, size, files, size, None, [row for row in left if row.rows != 0])
    quiet_s = now_s - _changed_s(folder)
    if quiet_s < BUSY_S:
        done.why = f"written to {max(0, quiet_s):.0f} s ago: it is left alone for {BUSY_S:.0f} s"
    elif any(row.kind == "clock" for row in left):
        done.why = "its clock jumped: which rows count follows from its segments as they are"
    elif _plan(folder, segments, set()) or (folder / WORK).exists():
        with _work_folder(folder) as work:
            _Rewriting(run, work, tell).run(done)
        done.files_after, done.bytes_after = _files(folder)
    return done


def _files(folder: Path) -> tuple[int, int]:
    """(segments, their bytes) of all tables."""
    stats = [file.stat() for table in TABLES for file in (folder / table).glob("*.parquet")]
    return len(stats), sum(stat.st_size for stat in stats)


def _changed_s(folder: Path) -> float:
    """The newest change of a file in it, but for what a compaction left, seconds since 1970."""
    return max(
        (
            size_of(one)[1] if one.is_dir() else one.lstat().st_mtime
            for one in folder.iterdir()
            if one.name != WORK
        ),
        default=0.0,
    )


def _plan(folder: Path, segments: Sequence[Segment], single: set[str]) -> Plan:
    """The new segments of the tables that get some. A table's folder that is not as we make them gets none."""
    found: Plan = {}
    for table in TABLES:
        mine, at = [one for one in segments if one.table == table], folder / table
        if mine and not at.is_symlink() and not any(child.is_dir() for child in at.iterdir()):
            new = merged(mine, single, os.listdir(at))
            found |= {table: new} if new else {}
    return found


@contextmanager
def _work_folder(folder: Path) -> Iterator[Path]:
    """An empty folder in the run, of this compaction alone; it is gone afterwards."""
    work = folder / WORK
    work.mkdir(exist_ok=True)
    fd = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = os.path.samestat(os.fstat(fd), work.stat())
        except (BlockingIOError, FileNotFoundError):
            mine = False
        if not mine:
            raise Conflict(f"another compaction is at work in {folder}", hint="wait for it")
        for rest in work.iterdir():
            shutil.rmtree(rest)
        try:
            yield work
        finally:
            shutil.rmtree(work)
    finally:
        os.close(fd)


class _Rewriting:
    """Writes the new folders of the tables and puts them in place."""

    def __init__(self, run: TraceRun, work: Path, tell: Tell) -> None:
        self._run, self._work, self._tell = run, work, tell
        self._folder = Path(run.place.path)
        self._segments = judged(run)[0]  # once more: the last compaction may have ended just now
        self._torn: set[str] = set()
        self._read = self._of = 0

    def run(self, done: Compacted) -> None:
        plan = self._plan()
        self._of = sum(len(one.parts) for new in plan.values() for one in new)
        if not clock_fits(self._segments, plan, self._run.started_us):
            done.why = "its clock is uneven: which rows count follows from its segments as they are"
            return
        for table in plan:
            seen = _listing(self._folder / table)
            while (new := self._plan().get(table)) and (bad := self._written(table, new)) is not None:
                self._torn.add(bad.file.rpartition("/")[2])
                done.left.append(bad)
                shutil.rmtree(self._work / f"new-{table}")
            if new and not self._put(table, seen):
                done.why = "something began to write to it: what was not merged yet is left alone"
                return

    def _plan(self) -> Plan:
        return _plan(self._folder, self._segments, self._torn)

    def _put(self, table: str, seen: dict[str, tuple[int, int]]) -> bool:
        with alone(self._folder) as nobody_writes:
            if not nobody_writes or _listing(self._folder / table) != seen:
                return False
            exchange(self._work / f"new-{table}", self._folder / table)
            sync_directory(self._folder)
        return True

    def _written(self, table: str, segments: Sequence[NewSegment]) -> LeftOut | None:
        """Make the new folder of a table. A segment that cannot be read, if there is one: then it is not whole."""
        old, new = self._folder / table, self._work / f"new-{table}"
        new.mkdir()
        moved = {part.place.name for one in segments for part in one.parts}
        for file in old.iterdir():
            if file.name not in moved:
                os.link(file, new / file.name, follow_symlinks=False)
        for one in segments:
            if len(one.parts) == 1:
                os.link(one.parts[0].place.path, new / one.name)
            elif (bad := _write(new / one.name, one.parts, self._step)) is not None:
                return bad
        shutil.copystat(old, new)
        _same_owner(old, new)
        sync_directory(new)
        return None

    def _step(self) -> None:
        self._read += 1
        self._tell(self._read, self._of)


def _listing(folder: Path) -> dict[str, tuple[int, int]]:
    with os.scandir(folder) as entries:
        return {entry.name: (entry.stat().st_size, entry.stat().st_mtime_ns) for entry in entries}


def _write(path: Path, parts: Sequence[Segment], step: Callable[[], None]) -> LeftOut | None:
    """One file of these segments. The first that cannot be read, if there is one. Raises OSError."""
    import pyarrow.parquet as pq

    first = Path(parts[0].place.path)
    schema = pq.read_schema(first).remove_metadata()
    with open(path, "wb") as file:
        with pq.ParquetWriter(file, schema) as writer:
            bad = _copy(writer, parts, step)
        file.flush()
        os.fsync(file.fileno())
    if bad is not None:
        return bad
    rows, wanted = pq.read_metadata(path).num_rows, sum(part.rows for part in parts)
    if rows != wanted:
        raise OSError(f"{path.name} has {rows:,} rows in place of {wanted:,}")
    newest = max((os.stat(part.place.path) for part in parts), key=lambda stat: stat.st_mtime_ns)
    os.utime(path, ns=(newest.st_atime_ns, newest.st_mtime_ns))  # the run is as old as it was
    shutil.copymode(first, path)
    _same_owner(first, path)
    return None


def _copy(writer: pq.ParquetWriter, parts: Sequence[Segment], step: Callable[[], None]) -> LeftOut | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    waiting: list[pa.Table] = []
    for part in parts:
        try:
            waiting.append(pq.ParquetFile(part.place.path).read().cast(writer.schema))
        except (OSError, pa.ArrowException) as error:
            why = f"cannot be read: {type(error).__name__}: {error}".splitlines()[0]
            return LeftOut(part.place.uri, "unreadable", why, part.rows)
        if sum(map(len, waiting)) >= ROW_GROUP or part is parts[-1]:
            writer.write_table(pa.concat_tables(waiting), ROW_GROUP)
            waiting = []
        step()
    return None


def _same_owner(old: Path, new: Path) -> None:
    stat = old.stat()
    with suppress(PermissionError):  # of somebody else's trace: who may write here need not be its owner
        os.chown(new, stat.st_uid, stat.st_gid)
