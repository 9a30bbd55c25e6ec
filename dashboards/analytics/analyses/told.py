"""What the controller itself told of a run: what became of the tuples, and what happened besides plans."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from headgate.dashboards.analytics.asked import AnalysisInput
from headgate.dashboards.analytics.published import (
    COUNTED,
    PublishedEvent,
    PublishedView,
    PublishedViews,
    lines_of,
)
from headgate.dashboards.analytics.results import RunNote, TuplesTold

OF_PLANS = {"submitted", "plan", "prepared", "switched", "probation", "committed"}
MOST = 500  # events of a run
OVER = "over"


def told(asked: AnalysisInput) -> tuple[list[TuplesTold], list[RunNote]]:
    """(one row per run, the events of all)."""
    counted: list[TuplesTold] = []
    notes: list[RunNote] = []
    for key, run in asked.runs.items():
        its, its_notes = read(key, asked.begin_us.get(key, 0), lines_of(run.place))
        counted.append(its)
        notes += its_notes
    return counted, notes


def read(run: str, begin_us: int, lines: Iterable[bytes]) -> tuple[TuplesTold, list[RunNote]]:
    """What the lines say, put together."""
    last: PublishedView | None = None
    events: set[PublishedEvent] = set()
    for last in PublishedViews(lines):
        events |= set(last.events)
    tuples = (last.tuples if last else None) or {}
    counts = {name: _whole(tuples.get(name)) for name in COUNTED}
    known = last if tuples else None
    found = [
        RunNote(run, at_s, event.epoch, event.kind, event.text)
        for event in events
        if event.kind not in OF_PLANS and (at_s := _at_s(event.time, begin_us)) is not None
    ]
    its = TuplesTold(
        run, _at_s(known.now, begin_us) if known else None, known.stage == OVER if known else None, **counts
    )
    return its, sorted(found, key=lambda note: (note.at_s, note.kind, note.text))[:MOST]


def _whole(value: int | float | None) -> int | None:
    return None if value is None else round(value)


def _at_s(text: str, begin_us: int) -> float | None:
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return round(at.timestamp() - begin_us / 1e6, 3)
