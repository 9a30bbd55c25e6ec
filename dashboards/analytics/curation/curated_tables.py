"""Segments into curated tables, partitioned by topology, run and date; what has been done is not done again.

New segments of a date become one part or several. Parts that are there and not much larger are merged with them, so
that a row is read again a few times and not in each turn of a run that goes on (a part that cannot be read is made
again of the segments that are there still; what was in no other is left out). Parts
count once the run's manifest names them, so a pass that was cut off leaves nothing wrong behind: the next
one deletes what no manifest names, and makes the rest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING

from headgate.dashboards.analytics.curation import trace_segments as manifests
from headgate.dashboards.analytics.curation.compaction import DAY_US, DONE, Done, Job, compacted
from headgate.dashboards.analytics.curation.trace_segments import Manifest, Segment, TracePart
from headgate.dashboards.analytics.storage.data_folders import DataPlace
from headgate.dashboards.analytics.storage.result_tables import LeftOut
from headgate.dashboards.analytics.storage.spark_session import in_tasks
from headgate.dashboards.analytics.storage.trace_runs import TraceRun
from headgate.topology_runtime.traces.trace_tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PART_ROWS = 4_000_000  # of a curated file, about 200 MB of samples
MERGED_MOST = 2  # times the rows that come to it: a part that has more stays as it is


@dataclass(frozen=True)
class PartToMake:
    """A part to be made: the job, what it is of, the segments in it, the parts it takes the place of."""

    run: TraceRun
    date: str
    job: Job
    segments: dict[str, str]  # digest → name
    uris: dict[str, str]  # URI → digest
    replaces: tuple[TracePart, ...]


@dataclass(frozen=True)
class Curated:
    """The manifest of each run, and segments whose pages could not be read."""

    manifests: dict[str, Manifest]
    left: list[LeftOut]

    @property
    def rows(self) -> dict[str, int]:
        """By table."""
        counts = dict.fromkeys(TABLES, 0)
        for manifest in self.manifests.values():
            for part in manifest.parts:
                counts[part.table] += part.rows
        return counts


def curate(
    spark: SparkSession,
    curated: DataPlace,
    found: Sequence[tuple[TraceRun, Sequence[Segment]]],
    left: Sequence[LeftOut] = (),
) -> Curated:
    """Bring the curated tables up to date with these segments; what of them is `left` out now is in no longer."""
    known = {run.key: known_parts(curated, run, segments) for run, segments in found}
    known = {run.key: without(known[run.key], run, segments, left) for run, segments in found}
    for run, _ in found:
        delete_strangers(curated, run, known[run.key])
    if _lost_a_part(spark, curated, found, known):  # segments of it that are there still are read again
        _lost_a_part(spark, curated, found, known)
    left = [why for manifest in known.values() for why in dict.fromkeys(manifest.unreadable.values())]
    return Curated(known, left)


def _lost_a_part(
    spark: SparkSession,
    curated: DataPlace,
    found: Sequence[tuple[TraceRun, Sequence[Segment]]],
    known: dict[str, Manifest],
) -> bool:
    """Make what is desired and enter it into `known`. Could a part that was there not be read?"""
    desired = [w for run, segments in found for w in plan(curated, run, segments, known[run.key])]
    made = in_tasks(spark, compacted, [w.job for w in desired], DONE)
    done = [Done.of(row) for row in made]
    for run, segments in found:
        mine = [(w, d) for w, d in zip(desired, done, strict=True) if w.run is run]
        if mine:
            known[run.key] = entered(known[run.key], mine, {s.digest for s in segments})
            manifests.write(curated, run, known[run.key])
            delete_strangers(curated, run, known[run.key])
    return any(uri not in w.uris for w, d in zip(desired, done, strict=True) for uri, _ in d.unreadable)


def plan(curated: DataPlace, run: TraceRun, segments: Iterable[Segment], known: Manifest) -> list[PartToMake]:
    """The parts to be made. Pure."""
    by_day: dict[tuple[str, int], list[Segment]] = defaultdict(list)
    inside: dict[tuple[str, int], set[str]] = {}
    for segment in segments:
        for day in range(segment.begin_us // DAY_US, segment.end_us // DAY_US + 1):
            of = segment.table, day
            if of not in inside:
                inside[of] = known.has(segment.table, date_of(day))
            if segment.digest not in inside[of]:
                by_day[of].append(segment)
    desired = []
    for (table, day), fresh in sorted(by_day.items()):
        folder = manifests.folder_of(curated, table, run) / f"date={date_of(day)}"
        there = [p for p in known.parts if (p.table, p.date) == (table, date_of(day))]
        for n, group in enumerate(_groups(fresh)):
            desired.append(_desired(run, folder, table, day, group, _merged(there, group) if n == 0 else []))
    return desired


def _merged(parts: Iterable[TracePart], group: Iterable[Segment]) -> list[TracePart]:
    """Those that these segments are merged with: the sizes of what is left rise by more than twice each."""
    found: list[TracePart] = []
    rows = sum(segment.rows for segment in group)
    for part in sorted(parts, key=lambda part: (part.rows, part.file)):
        if part.rows > MERGED_MOST * rows or 2 * part.rows >= PART_ROWS:
            break
        found.append(part)
        rows += part.rows
    return found


def date_of(day: int) -> str:
    """2026-11-21 of a number of days since 1970."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)).date().isoformat()


def _groups(segments: Iterable[Segment]) -> list[list[Segment]]:
    """Segments in order of time, cut into groups of at most PART_ROWS unless one alone has more."""
    groups: list[list[Segment]] = []
    rows = 0
    for segment in sorted(segments, key=lambda s: (s.begin_us, s.place.name)):
        if not groups or rows + segment.rows > PART_ROWS:
            groups.append([])
            rows = 0
        groups[-1].append(segment)
        rows += segment.rows
    return groups


def _desired(
    run: TraceRun, folder: DataPlace, table: str, day: int, group: list[Segment], parts: list[TracePart]
) -> PartToMake:
    inside = {s.digest: s.place.name for s in group}
    for part in parts:
        inside |= part.segments
    name = blake2b("".join(sorted(inside)).encode(), digest_size=12).hexdigest()
    whole = all(s.begin_us // DAY_US == s.end_us // DAY_US for s in group)
    earlier = (
        folder / part.file for part in reversed(parts)
    )  # the largest is the oldest: rows stay in order of time
    inputs = (*earlier, *(s.place for s in group))
    job = Job(table, folder / f"part-{name}.parquet", inputs, day, not whole)
    return PartToMake(run, date_of(day), job, inside, {s.place.uri: s.digest for s in group}, tuple(parts))


def entered(manifest: Manifest, made: list[tuple[PartToMake, Done]], there: set[str]) -> Manifest:
    """With the parts that were made, and what could not be read of segments and old parts; `there`: digests of
    the segments that are on disk."""
    gone = {part for desired, _ in made for part in map(_name, desired.replaces)}
    parts = [part for part in manifest.parts if _name(part) not in gone]
    unreadable = dict(manifest.unreadable)
    for desired, done in made:
        outside = _outside(desired, done)
        unreadable |= {d: why for d, why in outside.items() if d in desired.uris.values() or d not in there}
        inside = {digest: name for digest, name in desired.segments.items() if digest not in outside}
        if done.rows:
            job = desired.job
            parts.append(
                TracePart(job.table, desired.date, job.output.name, done.rows, done.size_bytes, inside)
            )
    return Manifest(manifest.schema, manifest.started_us, parts, unreadable)


def _outside(desired: PartToMake, done: Done) -> dict[str, LeftOut]:
    """Digest → why, of the segments whose rows are not in the part that was made."""
    old = {(desired.job.output.parent / part.file).uri: part for part in desired.replaces}
    found: dict[str, LeftOut] = {}
    for uri, why in done.unreadable:
        digests = old[uri].segments if uri in old else [desired.uris[uri]]
        found |= dict.fromkeys(digests, LeftOut(uri, "unreadable", why, None))
    return found


def _name(part: TracePart) -> tuple[str, str, str]:
    return part.table, part.date, part.file


def known_parts(curated: DataPlace, run: TraceRun, segments: Iterable[Segment]) -> Manifest:
    """The manifest, or an empty one when files of the same names now hold something else."""
    manifest = manifests.read(curated, run)
    names = manifest.names()
    changed = any(names.get((s.table, s.place.name), s.digest) != s.digest for s in segments)
    return manifests.empty(run) if changed else manifest


def without(
    manifest: Manifest, run: TraceRun, segments: Iterable[Segment], left: Iterable[LeftOut]
) -> Manifest:
    """Without the parts that hold a segment whose clock is not believed any more, now that more is known of the run:
    they are made again of their other segments. A part whose other segments are gone stays."""
    there = {segment.digest for segment in segments}
    out = {why.file for why in left if why.kind == "clock"}

    def is_sound(part: TracePart) -> bool:
        doubted = {d for d, name in part.segments.items() if (run.place / part.table / name).uri in out}
        return not doubted or not set(part.segments) <= there | doubted

    return Manifest(
        manifest.schema, manifest.started_us, list(filter(is_sound, manifest.parts)), manifest.unreadable
    )


def delete_strangers(curated: DataPlace, run: TraceRun, manifest: Manifest) -> None:
    """Delete files that the manifest does not name: left by a pass that was cut off, or replaced."""
    named = set(map(_name, manifest.parts))
    for table in TABLES:
        for date, is_folder in manifests.folder_of(curated, table, run).children():
            for file, _ in date.children() if is_folder else []:
                if (table, date.name.removeprefix("date="), file.name) not in named:
                    file.delete()
