"""A trace shows what its controller published: bit for bit, sought, paused, ended; what is broken is left out."""

from __future__ import annotations

import gzip
import itertools
import json
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from trace_made import BEGAN_S, SECONDS, STEPS, recorded

from headgate.controller import viewers
from headgate.dashboards.web.feed_items import Change, Whole
from headgate.dashboards.web.trace_feed import RecordedViews, TraceFeed
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.wire.run_snapshot import Snapshot, advanced

FAST = 1e6  # the whole trace between two items
APART = ("history", "number", "boot", "origin", "replay")  # which a trace has of its own

Document = dict[str, Any]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Document]]:
    """A trace, and what the controller told whoever asked while it was made."""
    folder = tmp_path_factory.mktemp("trace")
    return folder, recorded(folder)


@pytest.fixture
def trace(told: tuple[Path, list[Document]]) -> Path:
    return told[0]


def whole_at(feed: TraceFeed, seconds: float) -> Document:
    feed.control(seconds, None, True)
    item = feed.next(1.0)
    assert isinstance(item, Whole)
    msgspec.json.decode(item.data, type=Snapshot)
    return json.loads(item.data)


def without(document: Document, keys: tuple[str, ...] = APART) -> Document:
    return {key: value for key, value in document.items() if key not in keys}


def seconds_of(document: Document) -> float:
    return datetime.fromisoformat(document["now"]).timestamp()


def test_at_every_second_it_shows_what_the_controller_told(told: tuple[Path, list[Document]]) -> None:
    folder, documents = told
    feed, views = TraceFeed(folder), RecordedViews(folder)
    assert len(documents) > SECONDS - 2
    for document in documents[2:]:
        at_s = seconds_of(document)
        assert without(views.at(at_s), ("history",)) == without(document, ("history",))
        shown = whole_at(feed, at_s - BEGAN_S)
        assert without(shown) == without(document)
        assert shown["origin"] == "trace" and shown["replay"]["at_s"] == pytest.approx(
            at_s - BEGAN_S, abs=0.06
        )


def test_the_past_is_what_was_offered_then_and_no_second_is_missing(
    told: tuple[Path, list[Document]],
) -> None:
    """The rates of the schedule, which is no part of the code that records."""
    folder, documents = told
    times = RecordedViews(folder).fresh(0.0, seconds_of(documents[-1]))["time"]
    assert len(times) >= len(documents) - 5
    assert max(b - a for a, b in itertools.pairwise(times)) < 1.5
    feed = TraceFeed(folder)
    history = whole_at(feed, SECONDS - 2)["history"]
    assert history["time"] == sorted(history["time"]) and len(set(history["time"])) == len(history["time"])
    assert history["time"][-1] - history["time"][0] > SECONDS - 10
    for at_s, offered in zip(history["time"], history["offered_tps"], strict=True):
        since = at_s - BEGAN_S
        if abs(since - STEPS[1][0]) > 15 and since > 5:
            assert offered == pytest.approx(STEPS[since > STEPS[1][0]][1], rel=0.02)


def test_changes_add_up_to_what_seeking_gives(trace: Path) -> None:
    feed, known, changes = TraceFeed(trace, speed=40.0), None, 0
    while changes < 3:
        item = feed.next(1.0)
        if isinstance(item, Whole):
            known = json.loads(item.data)
        elif isinstance(item, Change):
            known = advanced(known, json.loads(item.data))
            changes += 1
            assert known == json.loads(json.dumps(item.document))
    assert known is not None
    views = RecordedViews(trace)
    shown = without(known)
    assert shown == without(views.at(seconds_of(known)))
    times = known["history"]["time"]
    assert times == sorted(times) and len(set(times)) == len(times) and times[-1] <= seconds_of(known)


def test_a_row_that_was_told_late_is_not_shown_before_it_was_told(tmp_path: Path) -> None:
    """A loaded publisher skips a view; the row of that second travels with the next one."""
    second = "2026-01-01T00:00:{:06.3f}+00:00".format
    begins = seconds_of({"now": second(0)})
    lines = [
        {"schema": "headgate/snapshot/v1", "number": 1, "boot": 1, "now": second(10), "history": {}},
        {"schema": "headgate/delta/v1", "number": 2, "boot": 1, "now": second(12.4), "patch": {},
         "history": {"time": [begins + 11.0, begins + 12.0], "offered_tps": [1, 2]}},
    ]  # fmt: skip
    (tmp_path / "run.json").write_text(json.dumps({"schema": "headgate/trace/v1"}))
    (tmp_path / "views.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    views = RecordedViews(tmp_path)
    for at_s in (10.0, 11.0, 11.9, 12.3):
        assert not views.past(begins + at_s)["time"], "nobody had told of it"
        assert views.fresh(begins, begins + at_s) == {}
    assert views.past(begins + 12.5)["offered_tps"] == [1, 2]
    assert views.fresh(begins + 12.3, begins + 12.5)["offered_tps"] == [1, 2]


def test_it_is_paused_sought_back_and_forth_and_ends_with_the_trace(trace: Path) -> None:
    feed = TraceFeed(trace, speed=FAST)
    first = whole_at(feed, 40.0)
    item = feed.next(1.0)
    assert isinstance(item, Change) and item.delta["patch"] == {} == item.delta["history"]
    assert first["replay"]["paused"] and "ended" not in first["replay"] and not feed.ended
    for leap in (1e9, float("inf")):
        at_end = whole_at(feed, leap)["replay"]
        assert at_end["at_s"] == feed.length_s and at_end["ended"] and feed.ended
    assert whole_at(feed, -5.0)["replay"]["at_s"] == 1.0
    assert {**first, "number": 0} == {**whole_at(feed, 40.0), "number": 0} and not feed.ended
    feed.control(None, None, False)
    while not feed.ended:
        feed.next(1.0)
    assert feed.document is not None and feed.document["replay"]["at_s"] > SECONDS - 2


def test_a_controller_that_came_again_begins_its_record_anew(tmp_path: Path) -> None:
    documents = recorded(tmp_path, lives=2)
    views = RecordedViews(tmp_path)
    for document in documents[2:]:
        assert without(views.at(seconds_of(document)), ("history",)) == without(document, ("history",))


def lines_of(folder: Path) -> list[bytes]:
    return (folder / "views.jsonl").read_bytes().splitlines(keepends=True)


def test_lines_that_are_missing_or_torn_cost_no_more_than_until_the_next_snapshot(
    told: tuple[Path, list[Document]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, documents = told
    copy = shutil.copytree(folder, tmp_path / "copy")
    lines = lines_of(copy)
    del lines[3]
    lines[-5] = lines[-5][:40] + b"\n"
    (copy / "views.jsonl").write_bytes(b"".join(lines) + b'{"schema": "headgate/delta/v1", "num')
    feed = TraceFeed(copy)
    said = capsys.readouterr().err
    assert said.count("views.jsonl, byte") == 2 and "lines are missing" in said
    known = {document["now"]: without(document) for document in documents}
    same = wrong = 0
    for half in range(2, 2 * int(SECONDS)):
        shown = whole_at(feed, half / 2)
        if (document := known.get(shown["now"])) is not None:
            same, wrong = same + (document == without(shown)), wrong + (document != without(shown))
    assert wrong == 0 and same > 60


def test_what_lost_its_oldest_part_begins_with_the_next_snapshot(
    told: tuple[Path, list[Document]], tmp_path: Path
) -> None:
    folder, documents = told
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "views-000001.jsonl.gz").unlink()
    feed = TraceFeed(copy)
    assert SECONDS / 2 - 62 < feed.length_s < SECONDS / 2 + 2
    last = documents[-1]
    assert without(RecordedViews(copy).at(seconds_of(last)), ("history",)) == without(last, ("history",))


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    for text in (None, b"{", b"[]", b'{"schema": "headgate/trace/v9"}'):
        if text is not None:
            (tmp_path / "run.json").write_bytes(text)
        with pytest.raises(InvalidInput):
            TraceFeed(tmp_path)


def test_a_trace_without_views_is_refused_with_what_reads_it(trace: Path, tmp_path: Path) -> None:
    shutil.copy(trace / "run.json", tmp_path)
    with pytest.raises(InvalidInput, match="no recorded views") as refused:
        TraceFeed(tmp_path)
    assert "headgate analyze" in str(refused.value.hint)
    (tmp_path / "views-000001.jsonl.gz").write_bytes(gzip.compress(b"{}\n")[:-4])
    with pytest.raises(InvalidInput, match="no recorded views") as refused:
        TraceFeed(tmp_path)
    assert "views-000001" in str(refused.value.faults)


def test_a_picture_that_is_dear_to_make_is_never_silent_for_as_long_as_viewers_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each delta takes ten seconds by the clock: it rests, but viewers call two seconds of silence stale."""
    monkeypatch.setattr(viewers, "monotonic_ns", itertools.count(0, 5_000_000_000).__next__)
    recorded(tmp_path, asked=False)
    lines = b"".join(gzip.decompress(part.read_bytes()) for part in tmp_path.glob("*.gz")).splitlines()
    times = [seconds_of(json.loads(line)) for line in [*lines, *lines_of(tmp_path)]]
    waits = [after - before for before, after in itertools.pairwise(times)]
    assert max(waits) < 2.0 and sum(wait > 0.75 for wait in waits) > len(waits) / 2
