"""What the controller told of a run is read from its record whatever else is in it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from headgate.dashboards.analytics.analyses import told
from headgate.dashboards.analytics.data_places import place
from headgate.dashboards.analytics.published import PublishedViews, lines_of, view_parts
from headgate.dashboards.analytics.results import RunNote

BEGIN_US = 1_800_000_000_000_000
COUNTS = {"offered": 9, "emitted": 8, "acked": 5, "in_flight": 3, "lost": 0, "dead_lettered": 0, "replayed": 1,
          "duplicates": 2}  # fmt: skip


def line(seconds: int, whole: bool = False, **said: Any) -> bytes:
    now = f"2027-01-15T08:00:{seconds:02}Z"
    return json.dumps({"now": now} | (said if whole else {"patch": said})).encode()


def event(seconds: int, kind: str, text: str = "words") -> dict[str, Any]:
    return {"time": f"2027-01-15T08:00:{seconds:02}Z", "kind": kind, "text": text, "epoch": 1}


def test_counts_are_those_that_were_told_last_and_a_delta_changes_only_what_it_names() -> None:
    lines = [
        line(0, whole=True, stage="running", tuples=COUNTS),
        line(1, tuples={"acked": 7, "in_flight": 1}),
        line(2, stage="over", tuples={"acked": 8, "in_flight": 0}),
    ]
    its, notes = told.read("demo/r", BEGIN_US, lines)
    assert (its.offered, its.emitted, its.acked, its.in_flight, its.replayed, its.duplicates) == (
        9,
        8,
        8,
        0,
        1,
        2,
    )
    assert (its.at_s, its.over, notes) == (2.0, True, [])
    assert told.read("demo/r", BEGIN_US, lines[:2])[0].over is False


def test_of_a_run_without_a_record_nothing_is_known(tmp_path: Path) -> None:
    its, notes = told.read("demo/r", BEGIN_US, [])
    assert notes == [] and {getattr(its, name) for name in its.__struct_fields__} == {"demo/r", None}
    assert view_parts(place(tmp_path)) == []


def test_events_are_told_once_in_order_and_steps_of_plans_are_left_to_the_plans() -> None:
    lost, steps = event(5, "vm_lost"), {"1": event(1, "plan"), "2": event(2, "committed")}
    lines = [
        line(6, events={"4": lost, **steps}),
        line(9, whole=True, events={"3": event(3, "advice"), "4": lost, "5": None}),
        b'{"now": "torn", "events": {',
    ]
    _, notes = told.read("demo/r", BEGIN_US, lines)
    assert notes == [
        RunNote("demo/r", 3.0, 1, "advice", "words"),
        RunNote("demo/r", 5.0, 1, "vm_lost", "words"),
    ]


def test_older_parts_come_first_and_one_of_two_of_the_same(tmp_path: Path) -> None:
    for name in (
        "views.jsonl",
        "views-000002.jsonl",
        "views-000010.jsonl",
        "views-000001.jsonl.gz",
        "other.jsonl",
    ):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "views-000002.jsonl.gz").write_bytes(gzip.compress(b""))
    names = [part.name for part in view_parts(place(tmp_path))]
    assert names == ["views-000001.jsonl.gz", "views-000002.jsonl.gz", "views-000010.jsonl", "views.jsonl"]


def test_a_snapshot_says_everything_and_torn_lines_are_counted() -> None:
    views = PublishedViews([
        line(0, whole=True, stage="running", tuples=COUNTS), b'{"now": "torn', line(1, stage="ending"),
        line(2, tuples={"lost": 4}), line(3, whole=True, stage="over", tuples={"lost": 1}), line(4, whole=True),
    ])  # fmt: skip
    found = [(view.stage, view.counts, view.tuples) for view in views]
    assert found == [
        ("running", True, COUNTS),
        ("ending", False, COUNTS),
        ("ending", True, COUNTS | {"lost": 4}),
        ("over", True, {"lost": 1}),
        ("over", True, None),
    ]
    assert views.torn == 1


def test_what_is_older_is_read_though_it_is_compressed(tmp_path: Path) -> None:
    older = [line(0, whole=True, stage="running", tuples=COUNTS), line(1, events={"4": event(1, "vm_lost")})]
    (tmp_path / "views-000001.jsonl.gz").write_bytes(gzip.compress(b"\n".join(older)))
    (tmp_path / "views.jsonl").write_bytes(line(2, tuples={"acked": 7}))
    its, notes = told.read("demo/r", BEGIN_US, lines_of(place(tmp_path)))
    assert (its.emitted, its.acked, [note.kind for note in notes]) == (8, 7, ["vm_lost"])


def test_a_part_that_is_torn_costs_no_more_than_itself(tmp_path: Path) -> None:
    torn = gzip.compress(line(0, whole=True, tuples={"lost": 9}))[:-20]
    (tmp_path / "views-000001.jsonl.gz").write_bytes(torn)
    (tmp_path / "views.jsonl").write_bytes(line(2, whole=True, tuples=COUNTS))
    assert told.read("demo/r", BEGIN_US, lines_of(place(tmp_path)))[0].lost == 0
