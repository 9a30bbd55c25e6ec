"""The segments of a run, judged by their footers alone: rows, times, columns. What cannot be used is listed."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import blake2b

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headgate.dashboards.analytics.curation import clock_jumps as clocks
from headgate.dashboards.analytics.storage.data_folders import DataPlace
from headgate.dashboards.analytics.storage.result_tables import LeftOut
from headgate.dashboards.analytics.storage.trace_runs import TraceRun
from headgate.topology_runtime.traces.trace_tables import COUNT, NUMBER, TABLES, TEXT

# ── Which files fit the tables of a trace. Explicit: nothing is inferred ────────────────────────────────

OPTIONAL = {
    "latency": ("tuples",),  # not in the contract's list: 1 each when a trace has no such column
}


def fits(kind: str, found: pa.DataType) -> bool:
    """Can a column of this Arrow type be read as one of ours without a change of meaning?"""
    is_a = pa.types
    if is_a.is_dictionary(found):
        found = found.value_type
    if kind == TEXT:
        return bool(is_a.is_string(found) or is_a.is_large_string(found))
    if kind == COUNT:
        return bool(is_a.is_integer(found) and found != pa.uint64())
    if kind == NUMBER:
        return bool(is_a.is_floating(found))
    return bool(is_a.is_timestamp(found) and found.tz == "UTC")


def column_faults(table: str, found: pa.Schema) -> tuple[list[str], list[str], int]:
    """(what makes it unreadable, unknown columns, how many of our columns it has)."""
    faults, known = [], TABLES[table]
    for name, kind in known.items():
        at = found.get_all_field_indices(name)
        if not at:
            if name not in OPTIONAL.get(table, ()):
                faults.append(f"column {name!r} is missing")
        elif len(at) > 1:
            faults.append(f"column {name!r} is there {len(at)} times")
        elif not fits(kind, found.field(at[0]).type):
            faults.append(f"column {name!r} is {found.field(at[0]).type}, not {kind}")
    unknown = [name for name in found.names if name not in known]
    return faults, unknown, len(set(found.names) & set(known))


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

MAGIC = b"PAR1"
TAIL_BYTES = 65_536  # holds the footer of nearly every segment
AT_ONCE = 8


Shape = tuple[tuple[str, str], ...]
SHAPES: dict[Shape, Shape] = {}  # each once, however many files have it


@dataclass(frozen=True)
class Segment:
    """A Parquet file that can be used. `digest`: of its footer, which holds sizes and extremes of every
    column; begin_us, end_us: times of its first and last row; shape: names and types of its columns."""

    place: DataPlace
    table: str
    rows: int
    begin_us: int
    end_us: int
    digest: str
    shape: Shape = ()


FileState = tuple[str, DataPlace, int, int]  # table, file, bytes, ns of its last change
Judgement = tuple[Segment | None, list[LeftOut]]


class JudgedFiles:
    """What has been found of files; one that is as it was need not be looked at again."""

    def __init__(self) -> None:
        self._found: dict[FileState, Judgement] = {}

    def judge(self, files: Sequence[FileState]) -> list[Judgement]:
        fresh = [file for file in files if file not in self._found]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = dict(zip(fresh, pool.map(lambda file: judged_file(*file[:2]), fresh), strict=True))
        self._found = {file: found.get(file) or self._found[file] for file in files}
        return list(self._found.values())


def judged(run: TraceRun, files: JudgedFiles | None = None) -> tuple[list[Segment], list[LeftOut]]:
    """(segments in order of table and time, what is left out)."""
    there = [
        (table, run.place / table / name, size, changed_ns)
        for table in TABLES
        for name, size, changed_ns in (run.place / table).sizes()
    ]
    found = (files or JudgedFiles()).judge(there)
    left = [why for _, whys in found for why in whys]
    segments = [segment for segment, _ in found if segment is not None]
    segments, again = _once(segments)
    segments, jumped = _by_clock(segments, run.started_us)
    return sorted(segments, key=lambda s: (s.table, s.begin_us, s.place.name)), left + again + jumped


def judged_file(table: str, file: DataPlace) -> Judgement:
    """What can be used of it, and why not."""

    def out(kind: str, reason: str, rows: int | None = None) -> LeftOut:
        return LeftOut(file.uri, kind, reason, rows)

    if file.name.startswith("_"):
        return None, [out("unfinished", "the segment was not finished when the run was cut off")]
    if not file.name.endswith(".parquet"):
        return None, [out("foreign", "is no Parquet file by its name")]
    try:
        metadata, footer = _footer(file)
    except _Unfit as error:
        return None, [out(error.kind, str(error))]
    except Exception as error:  # whatever a hostile file makes the reader raise: the file is out
        return None, [out("unreadable", f"{type(error).__name__}: {error}".splitlines()[0])]
    rows = int(metadata.num_rows)
    schema = metadata.schema.to_arrow_schema()
    faults, unknown, ours = column_faults(table, schema)
    if faults:
        kind = "schema" if 2 * ours > len(TABLES[table]) else "foreign"
        return None, [out(kind, "; ".join(faults[:3]) + (" …" if len(faults) > 3 else ""), rows)]
    if not rows:
        return None, [out("empty", "no rows are in it", 0)]
    span = _span(file, metadata)
    if span is None:
        return None, [out("clock", "its rows have no time", rows)]
    notes = [
        out("schema", f"column {name!r} is unknown: it was left out, its rows are in", 0) for name in unknown
    ]
    digest = blake2b(footer, digest_size=16).hexdigest()
    shape = tuple((field.name, str(field.type)) for field in schema)
    return Segment(file, table, rows, *span, digest, SHAPES.setdefault(shape, shape)), notes


class _Unfit(Exception):
    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


def _footer(file: DataPlace) -> tuple[pq.FileMetaData, bytes]:
    """(metadata, the footer's bytes). Raises _Unfit."""
    with file.files().open_input_file(file.path) as stream:
        size = stream.size()
        if size == 0:
            raise _Unfit("empty", "is empty")
        begins = bytes(stream.read_at(min(size, len(MAGIC)), 0)) == MAGIC
        if not begins:
            raise _Unfit("foreign", "is no Parquet file by its content")
        tail = bytes(stream.read_at(min(size, TAIL_BYTES), max(0, size - TAIL_BYTES)))
        if size < 12 or tail[-4:] != MAGIC:
            raise _Unfit("truncated", "ends before its footer")
        length = int.from_bytes(tail[-8:-4], "little") + 8
        if length > size:
            raise _Unfit("truncated", "its footer is longer than the file")
        footer = tail[-length:] if length <= len(tail) else bytes(stream.read_at(length, size - length))
        return pq.read_metadata(stream), footer


def _span(file: DataPlace, metadata: pq.FileMetaData) -> tuple[int, int] | None:
    """Times of the first and last row in µs, from the footer if it says; None when no row has a time."""
    at = metadata.schema.names.index("time")
    found = []
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(at).statistics
        if statistics is None or not statistics.has_min_max:
            return _span_read(file)
        found += [clocks.us_of(statistics.min), clocks.us_of(statistics.max)]
    return (min(found), max(found)) if found else None


def _span_read(file: DataPlace) -> tuple[int, int] | None:
    try:
        with file.files().open_input_file(file.path) as stream:
            ends = pc.min_max(pq.read_table(stream, columns=["time"])["time"])
    except Exception:  # its pages cannot be read: the same as no times
        return None
    low, high = ends["min"].as_py(), ends["max"].as_py()
    return None if low is None else (clocks.us_of(low), clocks.us_of(high))


def _once(segments: Sequence[Segment]) -> tuple[list[Segment], list[LeftOut]]:
    """Each content once: of files with the same footer those with the same bytes are one."""
    firsts: dict[tuple[str, str], list[Segment]] = {}
    kept, left = [], []
    for segment in sorted(
        segments, key=lambda s: (s.table, not clocks.ORDERED.match(s.place.name), s.place.name)
    ):
        same = firsts.setdefault((segment.table, segment.digest), [])
        twin = next((other for other in same if _content(other.place) == _content(segment.place)), None)
        if twin is None:
            if same:  # the same footer over other bytes: told apart by those
                segment = replace(segment, digest=_content(segment.place))
            same.append(segment)
            kept.append(segment)
        else:
            why = f"has the same bytes as {twin.place.name}"
            left.append(LeftOut(segment.place.uri, "duplicate", why, segment.rows))
    return kept, left


def _content(file: DataPlace) -> str:
    found = blake2b(digest_size=16)
    with file.files().open_input_stream(file.path) as stream:
        while part := stream.read(1 << 20):
            found.update(part)
    return found.hexdigest()


def _by_clock(segments: Sequence[Segment], started_us: int | None) -> tuple[list[Segment], list[LeftOut]]:
    whys: dict[int, str] = clocks.outside([(s.begin_us, s.end_us) for s in segments], started_us)
    for table in TABLES:
        members = [n for n, s in enumerate(segments) if s.table == table and n not in whys]
        names = [segments[n].place.name for n in members]
        spans = [(segments[n].begin_us, segments[n].end_us) for n in members]
        whys |= {members[n]: why for n, why in clocks.backwards(names, spans).items()}
    left = [LeftOut(s.place.uri, "clock", whys[n], s.rows) for n, s in enumerate(segments) if n in whys]
    return [s for n, s in enumerate(segments) if n not in whys], left
