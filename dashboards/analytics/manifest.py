"""What has been curated of a run: its parts and the segments in each. A part that no manifest names does not count."""

from __future__ import annotations

import json
from urllib.parse import quote

import msgspec

from headgate.dashboards.analytics.data_places import DataPlace
from headgate.dashboards.analytics.results import LeftOut
from headgate.dashboards.analytics.trace_runs import TraceRun

SCHEMA = "headgate/curated/v1"


class TracePart(msgspec.Struct, frozen=True):
    """One file of a curated table: its rows of this date, and the segments they come from (digest → name)."""

    table: str
    date: str
    file: str
    rows: int
    size_bytes: int
    segments: dict[str, str]


class Manifest(msgspec.Struct, frozen=True):
    """`unreadable`: digests of segments whose pages cannot be read, or those of the part that held them after
    they were deleted, and how they are listed."""

    schema: str
    started_us: int | None
    parts: list[TracePart]
    unreadable: dict[str, LeftOut]

    def has(self, table: str, date: str) -> set[str]:
        """Digests that need not be read again."""
        inside = (p.segments for p in self.parts if p.table == table and p.date == date)
        return {digest for segments in inside for digest in segments} | set(self.unreadable)

    def names(self) -> dict[tuple[str, str], str]:
        """(table, name of a segment) → its digest."""
        return {(part.table, name): digest for part in self.parts for digest, name in part.segments.items()}


def empty(run: TraceRun) -> Manifest:
    return Manifest(SCHEMA, run.started_us, [], {})


def file_of(curated: DataPlace, run: TraceRun) -> DataPlace:
    return curated / "_manifests" / quote(run.topology, safe="") / f"{quote(run.name, safe='')}.json"


def read(curated: DataPlace, run: TraceRun) -> Manifest:
    """An empty one when there is none, or one that is not ours or of another run of that name."""
    try:
        found = msgspec.json.decode(file_of(curated, run).read(), type=Manifest)
    except (FileNotFoundError, msgspec.DecodeError):
        return empty(run)
    return found if found.schema == SCHEMA and found.started_us == run.started_us else empty(run)


def write(curated: DataPlace, run: TraceRun, manifest: Manifest) -> None:
    content = json.dumps(msgspec.to_builtins(manifest), indent=1, allow_nan=False)
    file_of(curated, run).write(content.encode() + b"\n")


def folder_of(curated: DataPlace, table: str, run: TraceRun) -> DataPlace:
    """Of all dates."""
    topology, name = quote(run.topology, safe=""), quote(run.name, safe="")
    return curated / table / f"topology={topology}" / f"run={name}"
