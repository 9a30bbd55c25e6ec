"""What the controller itself told of a run, from `views.jsonl` and its older parts: what became of the tuples, and
what happened besides plans. Lines that cannot be read are passed over: the next snapshot says all of it again."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec

from dashboards.analytics.asked import AnalysisInput
from dashboards.analytics.data_places import DataPlace
from dashboards.analytics.results import RunNote, TuplesTold

VIEW_PARTS = re.compile(r"^views(-\d+)?\.jsonl(\.gz)?$")
COUNTED = ("offered", "emitted", "acked", "in_flight", "lost", "dead_lettered", "replayed", "duplicates")
OF_PLANS = {"submitted", "plan", "prepared", "switched", "probation", "committed"}
MOST = 500  # events of a run
OVER = "over"


class _ToldEvent(msgspec.Struct, frozen=True):
    time: str
    kind: str
    text: str
    epoch: int | None = None


class _ToldPart(msgspec.Struct):
    stage: str | None = None
    tuples: dict[str, int | float | None] | None = None
    events: dict[str, _ToldEvent | None] | None = None


class _RecordedView(_ToldPart):
    """A snapshot, or a delta with what has changed in `patch`."""

    now: str = ""
    patch: _ToldPart | None = None


_line = msgspec.json.Decoder(_RecordedView)


def told(asked: AnalysisInput) -> tuple[list[TuplesTold], list[RunNote]]:
    """(one row per run, the events of all)."""
    counted: list[TuplesTold] = []
    notes: list[RunNote] = []
    for key, run in asked.runs.items():
        begin_us = asked.begin_us.get(key, 0)
        its, its_notes = read(
            key, begin_us, (line for part in view_parts(run.place) for line in _lines(part))
        )
        counted.append(its)
        notes += its_notes
    return counted, notes


def read(run: str, begin_us: int, lines: Iterable[bytes]) -> tuple[TuplesTold, list[RunNote]]:
    """What the lines say, put together."""
    tuples: dict[str, int | float | None] = {}
    events: set[_ToldEvent] = set()
    stage, now = None, ""
    for raw in lines:
        if not any(word in raw for word in (b'"tuples"', b'"events"', b'"stage"')):
            continue
        try:
            line = _line.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        said = line.patch or line
        tuples |= said.tuples or {}
        events |= {event for event in (said.events or {}).values() if event is not None}
        stage, now = said.stage or stage, line.now or now
    counts = {name: _whole(tuples.get(name)) for name in COUNTED}
    over = stage == OVER if tuples else None
    found = [
        RunNote(run, at_s, event.epoch, event.kind, event.text)
        for event in events
        if event.kind not in OF_PLANS and (at_s := _at_s(event.time, begin_us)) is not None
    ]
    its = TuplesTold(run, _at_s(now, begin_us) if tuples else None, over, **counts)
    return its, sorted(found, key=lambda note: (note.at_s, note.kind, note.text))[:MOST]


def view_parts(run: DataPlace) -> list[DataPlace]:
    """Oldest first; of a part that is there twice (a kill while it was compressed) one."""
    names = sorted(
        name for child, folder in run.children() if not folder and VIEW_PARTS.match(name := child.name)
    )
    once = {name.removesuffix(".gz"): name for name in names}
    return [
        run / name
        for plain, name in sorted(once.items(), key=lambda part: (part[0] == "views.jsonl", part[0]))
    ]


def _lines(part: DataPlace) -> Iterator[bytes]:
    try:
        content = part.read()
        yield from (gzip.decompress(content) if part.name.endswith(".gz") else content).splitlines()
    except (OSError, EOFError):  # gone by now, or torn: what other parts say stands
        return


def _whole(value: int | float | None) -> int | None:
    return None if value is None else round(value)


def _at_s(text: str, begin_us: int) -> float | None:
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return round(at.timestamp() - begin_us / 1e6, 3)
