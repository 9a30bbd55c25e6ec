"""Which aggregates are there, what they were made of, and which stretches of which runs have to be made. Pure but for
reading and writing the manifest.

A run is cut at multiples of `SPAN_S`, which windows divide. What is in a stretch are the segments that lie in it or up
to a minute before it; while these are the same ones, what was made of them counts. So a run that goes on costs its last
two stretches. Parts of stretches that are closed are fused by tens and hundreds, of what was made of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b

import msgspec

from dashboards.analytics.data_places import DataPlace
from dashboards.analytics.judging import Segment
from dashboards.analytics.manifest import Manifest

SCHEMA = "headgate/aggregates/v1"
SPAN_S = 60
FUSED = (10, 100)  # stretches, whose parts become one
BEFORE_S = 60  # what rates look back
SPAN_US, BEFORE_US, DAY_US = SPAN_S * 1_000_000, BEFORE_S * 1_000_000, 86_400_000_000

Spans = dict[str, tuple[int, int]]  # digest of a segment → its first and last µs


class AggregatedPart(msgspec.Struct, frozen=True):
    """Rows of a run from stretch `begin` to before `end`; `number` is in every row, its tenths of a thousand name the
    pass that wrote them. made_of: digest of what is in it."""

    run: str
    number: int
    begin: int
    end: int
    made_of: str


class AggregateManifest(msgspec.Struct, frozen=True):
    """`of`: what all of it depends on (the code, the widths of windows). `spans`: run → of each of its segments."""

    schema: str
    of: str
    passes: int
    spans: dict[str, Spans]
    parts: list[AggregatedPart]


PARTS_MOST = 1000  # that one pass makes


def empty(of: str) -> AggregateManifest:
    return AggregateManifest(SCHEMA, of, 0, {}, [])


def pass_of(part: AggregatedPart) -> int:
    return part.number // PARTS_MOST


def spans_of(known: Spans, manifest: Manifest, segments: Iterable[Segment]) -> Spans:
    """Of every segment whose rows are curated; of one that is gone and was never seen here all the date."""
    found: Spans = {}
    seen = {s.digest: (s.begin_us, s.end_us) for s in segments}
    for part in manifest.parts:
        begin_us = round(datetime.fromisoformat(f"{part.date}T00:00:00+00:00").timestamp() * 1e6)
        for digest in part.segments:
            found[digest] = seen.get(digest) or known.get(digest) or (begin_us, begin_us + DAY_US - 1)
    return found


def stretches(spans: Spans) -> dict[int, str]:
    """Stretch → digest of the segments that are in it."""
    inside: dict[int, list[str]] = {}
    for digest, (begin_us, end_us) in sorted(spans.items()):
        for stretch in range(begin_us // SPAN_US, (end_us + BEFORE_US) // SPAN_US + 1):
            inside.setdefault(stretch, []).append(digest)
    return {stretch: _digest(digests) for stretch, digests in inside.items()}


def _digest(words: Iterable[str]) -> str:
    return blake2b("\n".join(words).encode(), digest_size=12).hexdigest()


def made_of(there: Mapping[int, str], begin: int, end: int) -> str:
    return _digest(f"{stretch} {there[stretch]}" for stretch in range(begin, end) if stretch in there)


def planned(
    known: AggregateManifest, spans: Mapping[str, Spans], apart: bool
) -> tuple[list[AggregatedPart], list[AggregatedPart]]:
    """(parts that still count, parts to be made). apart: the last two stretches of a run are parts of their own, for
    they will be made again; else a run that is begun anew is one part."""
    kept: list[AggregatedPart] = []
    fresh: list[AggregatedPart] = []
    whole = not apart
    for run, its in spans.items():
        there = stretches(its)
        mine = [p for p in known.parts if p.run == run and p.made_of == made_of(there, p.begin, p.end)]
        missing = sorted(set(there) - {stretch for p in mine for stretch in range(p.begin, p.end)})
        whole &= not (mine and missing)
        kept += mine
        ranges = (
            _neighbours(missing, max(there) - 1 if apart else None)
            if mine or apart
            else [(missing[0], missing[-1] + 1)]
            if missing
            else []
        )
        fresh += [AggregatedPart(run, 0, begin, end, made_of(there, begin, end)) for begin, end in ranges]
    if not whole and len(fresh) > PARTS_MOST:
        return planned(msgspec.structs.replace(known, parts=[]), spans, apart=False)
    first = (known.passes + 1) * PARTS_MOST
    numbers = [first if whole else first + n for n in range(len(fresh))]
    return kept, [msgspec.structs.replace(p, number=n) for p, n in zip(fresh, numbers, strict=True)]


@dataclass(frozen=True)
class FusedParts:
    """A part to be made of others, whose place it takes."""

    part: AggregatedPart
    of: tuple[AggregatedPart, ...]


def fusable(
    passes: int,
    spans: Mapping[str, Spans],
    kept: Iterable[AggregatedPart],
    fresh: Sequence[AggregatedPart],
) -> list[FusedParts]:
    """Of each run those of the kept parts that lie in the same hundred stretches, or the same ten, when all of these
    are closed and nothing in them has to be made again. `passes`: so many there are."""
    found: list[FusedParts] = []
    rest = sorted(kept, key=lambda part: (part.run, part.begin))
    for run, its in spans.items():
        there = stretches(its)
        for length in reversed(FUSED):
            blocks: dict[int, list[AggregatedPart]] = {}
            for part in rest:
                if part.run == run and part.begin // length == (part.end - 1) // length:
                    blocks.setdefault(part.begin // length, []).append(part)
            for block, parts in blocks.items():
                begin, end = parts[0].begin, parts[-1].end
                again = any(p.run == run and p.begin < end and begin < p.end for p in fresh)
                if len(parts) > 1 and not again and (block + 1) * length < max(there):
                    number = (passes + 1) * PARTS_MOST + len(found)
                    one = AggregatedPart(run, number, begin, end, made_of(there, begin, end))
                    found.append(FusedParts(one, tuple(parts)))
                    rest = [part for part in rest if part not in parts]
    return found


def is_cut(kept: Iterable[AggregatedPart], fresh: Sequence[AggregatedPart]) -> bool:
    """Do the fresh parts hold less than all rows of their runs, or have they several numbers?"""
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
