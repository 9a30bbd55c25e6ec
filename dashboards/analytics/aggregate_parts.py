"""Which aggregates are there, what they were made of, and which stretches of which tables have to be made. Pure but for
reading and writing the manifest.

A run is cut at multiples of a *span*, which windows divide. What is in a stretch of a table are its segments that lie
in it (of rates also those up to a minute before it); while these are the same ones, what was made of them counts. So a
run that goes on costs, of each table, the stretches to which something came. Parts of stretches that are closed are
fused by tens, hundreds and thousands, of what was made of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b

import msgspec

from headgate.dashboards.analytics.data_places import DataPlace
from headgate.dashboards.analytics.judging import Segment
from headgate.dashboards.analytics.manifest import Manifest
from headgate.topology_runtime.trace_tables import TABLES

SCHEMA = "headgate/aggregates/v2"
FUSED = (10, 100, 1000)  # stretches, whose parts become one
SECOND_US, DAY_US = 1_000_000, 86_400_000_000
LOOKS_BACK_US = {"rates": 60 * SECOND_US}  # of a row: what it is counted from

Spans = dict[str, tuple[int, int]]  # digest of a segment → its first and last µs
SpansOf = Mapping[str, Mapping[str, Spans]]  # run → table → of its segments


class AggregatedPart(msgspec.Struct, frozen=True):
    """Rows of a table of a run from stretch `begin` to before `end`; `number` is in every row, its tenths of a thousand
    name the pass that wrote them. made_of: digest of what is in it."""

    run: str
    table: str
    number: int
    begin: int
    end: int
    made_of: str


class AggregateManifest(msgspec.Struct, frozen=True):
    """`of`: what all of it depends on (the code, the widths of windows and stretches). `spans`: run → table → of
    each of its segments."""

    schema: str
    of: str
    passes: int
    spans: dict[str, dict[str, Spans]]
    parts: list[AggregatedPart]


PARTS_MOST = 1000  # that one pass makes


def empty(of: str) -> AggregateManifest:
    return AggregateManifest(SCHEMA, of, 0, {}, [])


def pass_of(part: AggregatedPart) -> int:
    return part.number // PARTS_MOST


def spans_of(known: Mapping[str, Spans], manifest: Manifest, segments: Iterable[Segment]) -> dict[str, Spans]:
    """Of every segment whose rows are curated, by table; of one that is gone and was never seen here all the date."""
    found: dict[str, Spans] = {table: {} for table in TABLES}
    seen = {(s.table, s.digest): (s.begin_us, s.end_us) for s in segments}
    for part in manifest.parts:
        begin_us = round(datetime.fromisoformat(f"{part.date}T00:00:00+00:00").timestamp() * 1e6)
        of_table = known.get(part.table, {})
        for digest in part.segments:
            there = seen.get((part.table, digest)) or of_table.get(digest)
            found[part.table][digest] = there or (begin_us, begin_us + DAY_US - 1)
    return {table: its for table, its in found.items() if its}


def stretches(table: str, spans: Spans, span_s: int) -> dict[int, str]:
    """Stretch → digest of the segments of this table that are in it."""
    inside: dict[int, list[str]] = {}
    span_us, later_us = span_s * SECOND_US, LOOKS_BACK_US.get(table, 0)
    for digest, (begin_us, end_us) in sorted(spans.items()):
        for stretch in range(begin_us // span_us, (end_us + later_us) // span_us + 1):
            inside.setdefault(stretch, []).append(digest)
    return {stretch: _digest(digests) for stretch, digests in inside.items()}


def _digest(words: Iterable[str]) -> str:
    return blake2b("\n".join(words).encode(), digest_size=12).hexdigest()


def made_of(there: Mapping[int, str], begin: int, end: int) -> str:
    return _digest(f"{stretch} {there[stretch]}" for stretch in range(begin, end) if stretch in there)


@dataclass(frozen=True)
class FusedParts:
    """A part to be made of others, whose place it takes."""

    part: AggregatedPart
    of: tuple[AggregatedPart, ...]


@dataclass(frozen=True)
class Planned:
    """Parts that still count, parts to be made, and parts that take the place of others. stretches: (run, table) → what
    is in each."""

    kept: list[AggregatedPart]
    fresh: list[AggregatedPart]
    fused: list[FusedParts]
    stretches: dict[tuple[str, str], dict[int, str]]


def planned(known: AggregateManifest, spans: SpansOf, span_s: int, apart: bool) -> Planned:
    """What this pass, the next after those that are known, keeps and makes. apart: the last two stretches of a run are
    parts of their own, for they will be made again; else a table of runs that are all begun anew is one part each, of
    one number. What is fused has the numbers of the pass after it."""
    there = {
        (run, table): stretches(table, its, span_s) for run, of in spans.items() for table, its in of.items()
    }
    kept: list[AggregatedPart] = []
    fresh: list[AggregatedPart] = []
    for table in TABLES:
        mine, its = _of_table(
            known, {run: t for (run, name), t in there.items() if name == table}, table, apart
        )
        kept += mine
        fresh += its
    if len({part.number for part in fresh}) > PARTS_MOST:
        return planned(msgspec.structs.replace(known, parts=[]), spans, span_s, apart=False)
    first = (known.passes + 1) * PARTS_MOST
    places = {number: first + n for n, number in enumerate(dict.fromkeys(part.number for part in fresh))}
    fresh = [msgspec.structs.replace(part, number=places[part.number]) for part in fresh]
    return Planned(kept, fresh, _fusable(known.passes + bool(fresh) + 1, there, kept, fresh), there)


def _of_table(
    known: AggregateManifest, there: Mapping[str, Mapping[int, str]], table: str, apart: bool
) -> tuple[list[AggregatedPart], list[AggregatedPart]]:
    """(kept, fresh) of one table; fresh ones of one number belong to one part of several runs."""
    kept: list[AggregatedPart] = []
    fresh: list[AggregatedPart] = []
    at = list(TABLES).index(table)
    whole = not apart
    for run, its in there.items():
        mine = [
            p
            for p in known.parts
            if (p.run, p.table) == (run, table) and p.made_of == made_of(its, p.begin, p.end)
        ]
        missing = sorted(set(its) - {stretch for p in mine for stretch in range(p.begin, p.end)})
        whole &= not (mine and missing)
        kept += mine
        ranges = (
            _neighbours(missing, max(its) - 1 if apart else None)
            if mine or apart
            else [(missing[0], missing[-1] + 1)]
            if missing
            else []
        )
        fresh += [
            AggregatedPart(run, table, 0, begin, end, made_of(its, begin, end)) for begin, end in ranges
        ]
    numbers = [at if whole else len(TABLES) * (n + 1) + at for n in range(len(fresh))]
    return kept, [msgspec.structs.replace(p, number=n) for p, n in zip(fresh, numbers, strict=True)]


def _fusable(
    number: int,
    there: Mapping[tuple[str, str], Mapping[int, str]],
    kept: Iterable[AggregatedPart],
    fresh: Sequence[AggregatedPart],
) -> list[FusedParts]:
    """Of each table of a run those of the kept parts that lie in the same thousand stretches, or hundred, or ten, when
    all of these are closed and nothing in them has to be made again. `number`: of the pass."""
    found: list[FusedParts] = []
    for (run, table), its in there.items():
        mine = sorted((p for p in kept if (p.run, p.table) == (run, table)), key=lambda part: part.begin)
        again = [(p.begin, p.end) for p in fresh if (p.run, p.table) == (run, table)]
        for length in reversed(FUSED):
            blocks: dict[int, list[AggregatedPart]] = {}
            for part in mine:
                if part.begin // length == (part.end - 1) // length:
                    blocks.setdefault(part.begin // length, []).append(part)
            for block, parts in blocks.items():
                begin, end = parts[0].begin, parts[-1].end
                clear = not any(a < end and begin < b for a, b in again)
                if len(parts) > 1 and clear and (block + 1) * length < max(its):
                    one = AggregatedPart(
                        run, table, number * PARTS_MOST + len(found), begin, end, made_of(its, begin, end)
                    )
                    found.append(FusedParts(one, tuple(parts)))
                    mine = [part for part in mine if part not in parts]
    return found


def is_cut(kept: Iterable[AggregatedPart], fresh: Sequence[AggregatedPart]) -> bool:
    """Do the fresh parts of a table hold less than all rows of their runs, or have they several numbers?"""
    runs = {part.run for part in fresh}
    return bool(runs & {part.run for part in kept}) or len({part.number for part in fresh}) > 1


def _neighbours(missing: list[int], apart_from: int | None) -> list[tuple[int, int]]:
    """As [begin, end) of stretches that follow each other; each from `apart_from` on alone."""
    found: list[tuple[int, int]] = []
    for stretch in missing:
        if found and found[-1][1] == stretch and (apart_from is None or stretch < apart_from):
            found[-1] = (found[-1][0], stretch + 1)
        else:
            found.append((stretch, stretch + 1))
    return found


def read(folder: DataPlace, of: str) -> AggregateManifest:
    """An empty one when there is none, or one of other code."""
    try:
        found = msgspec.json.decode((folder / "_manifest.json").read(), type=AggregateManifest)
    except (FileNotFoundError, msgspec.DecodeError):
        return empty(of)
    return found if (found.schema, found.of) == (SCHEMA, of) else empty(of)


def write(folder: DataPlace, manifest: AggregateManifest) -> None:
    content = json.dumps(msgspec.to_builtins(manifest), allow_nan=False)
    (folder / "_manifest.json").write(content.encode() + b"\n")
