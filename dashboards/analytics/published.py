"""What the controller published of a run, line by line, from `views.jsonl` and its older parts: one reader for the
analysis and for the tables. A snapshot says everything, a delta what has changed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from headgate.dashboards.analytics.data_places import DataPlace

VIEW_PARTS = re.compile(r"^views(-\d+)?\.jsonl(\.gz)?$")
COUNTED = ("offered", "emitted", "acked", "in_flight", "lost", "dead_lettered", "replayed", "duplicates")

Counts = dict[str, Any]  # by the names in COUNTED


class PublishedEvent(msgspec.Struct, frozen=True):
    time: str
    kind: str
    text: str
    epoch: int | None = None


class PublishedView(msgspec.Struct, frozen=True):
    """What is known by a line: the stage, and what became of the tuples (None: nothing was said of them). counts: it
    says something of tuples. events: that it tells."""

    now: str
    stage: str | None
    tuples: Counts | None
    counts: bool
    events: tuple[PublishedEvent, ...]


class _PublishedPart(msgspec.Struct):
    stage: str | None = None
    tuples: dict[str, Any] | None = None
    events: dict[str, PublishedEvent | None] | None = None


class _PublishedLine(_PublishedPart):
    """A snapshot, or a delta with what has changed in `patch`."""

    now: str = ""
    patch: _PublishedPart | None = None


_line = msgspec.json.Decoder(_PublishedLine)


class PublishedViews:
    """The views of these lines. torn: lines that cannot be read and were passed over; the next snapshot says it all."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines, self.torn = lines, 0

    def __iter__(self) -> Iterator[PublishedView]:
        stage: str | None = None
        tuples: Counts | None = None
        for raw in self._lines:
            try:
                line = _line.decode(raw)
            except (msgspec.DecodeError, UnicodeDecodeError):
                self.torn += 1
                continue
            said = line.patch or line
            if line.patch is None:
                tuples = said.tuples
            elif said.tuples:
                tuples = (tuples or {}) | said.tuples
            stage = said.stage or stage
            told = tuple(event for event in (said.events or {}).values() if event is not None)
            yield PublishedView(line.now, stage, tuples, line.patch is None or bool(said.tuples), told)


def view_parts(run: DataPlace) -> list[DataPlace]:
    """Oldest first; of a part that is there twice (a kill while it was compressed) one."""
    names = sorted(
        name for child, folder in run.children() if not folder and VIEW_PARTS.match(name := child.name)
    )
    once = {name.removesuffix(".gz"): name for name in names}
    ordered = sorted(once.items(), key=lambda part: (part[0] == "views.jsonl", part[0]))
    return [run / name for _, name in ordered]


def lines_of(run: DataPlace) -> Iterator[bytes]:
    """Of all parts; one that is gone by now, or torn, ends where it does: what the others say stands."""
    for part in view_parts(run):
        try:
            yield from part.read().splitlines()
        except OSError:
            continue
