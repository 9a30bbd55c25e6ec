"""Which traces of earlier runs stay when a new one begins."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from headgate.controller.recording.recorder import Recorder
from headgate.controller.recording.retention import BUSY_S, DAY_S, remove_old, shorten, words_of
from headgate.dashboards import cli
from headgate.topology_runtime.errors import UsageError
from headgate.topology_runtime.line_parts import parts_of
from headgate.topology_runtime.trace_keep import DEFAULT, Keep, parse_keep

NOW_S = 1_900_000_000.0


def trace(folder: Path, age_s: float, size_bytes: int = 0) -> Path:
    """A trace whose newest file is so old and that is about so large."""
    (folder / "samples").mkdir(parents=True)
    head = json.dumps({"schema": "headgate/trace/v1"}).encode()
    for name, data in (("run.json", head), ("samples/1.parquet", b"x" * (size_bytes - len(head)))):
        (folder / name).write_bytes(data)
        os.utime(folder / name, (NOW_S - age_s, NOW_S - age_s))
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Ten traces of 1,000 bytes, run-1 an hour old … run-10 ten days, and the one that begins."""
    for number in range(1, 11):
        trace(tmp_path / f"run-{number}", DAY_S * number, 1000)
    return trace(tmp_path / "now", 0.0)


def left(current: Path) -> list[str]:
    return sorted(path.name for path in current.parent.iterdir())


def test_the_oldest_go_until_as_many_are_left_as_shall_be(runs: Path) -> None:
    removed = remove_old(runs, Keep(runs=3), NOW_S)
    assert left(runs) == ["now", "run-1", "run-2"]
    assert [old.folder.name for old in removed] == [f"run-{n}" for n in range(10, 2, -1)]


def test_the_oldest_go_until_the_rest_is_small_enough(runs: Path) -> None:
    remove_old(runs, Keep(total_bytes=4500), NOW_S)
    assert left(runs) == ["now", "run-1", "run-2", "run-3", "run-4"]


def test_what_the_run_itself_has_written_counts(runs: Path) -> None:
    (runs / "samples" / "2.parquet").write_bytes(b"x" * 2000)
    remove_old(runs, Keep(total_bytes=4500), NOW_S)
    assert left(runs) == ["now", "run-1", "run-2"]


def test_a_run_that_is_too_large_by_itself_loses_its_oldest_inputs(runs: Path) -> None:
    for name in ("inputs-000001.jsonl.gz", "inputs-000002.jsonl.gz", "inputs-000003.jsonl", "inputs.jsonl"):
        (runs / name).write_bytes(b"x" * 1000)
    assert shorten(runs, Keep()) == shorten(runs, Keep(total_bytes=5000)) == 0
    assert shorten(runs, Keep(total_bytes=2500)) == 2
    assert [path.name for path in parts_of(runs / "inputs.jsonl")] == ["inputs-000003.jsonl", "inputs.jsonl"]
    assert shorten(runs, Keep(total_bytes=1)) == 1 and (runs / "inputs.jsonl").exists()
    assert (runs / "samples" / "1.parquet").exists()


def test_a_run_that_is_too_large_by_itself_loses_inputs_and_views_as_they_grew_old(runs: Path) -> None:
    names = ("inputs-000001.jsonl.gz", "views-000001.jsonl.gz", "inputs-000002.jsonl.gz", "views.jsonl")
    for age, name in enumerate(names):
        (runs / name).write_bytes(b"x" * 1000)
        os.utime(runs / name, (1e9 + age, 1e9 + age))
    assert shorten(runs, Keep(total_bytes=2500)) == 2
    assert sorted(path.name for path in runs.glob("*.jsonl*")) == ["inputs-000002.jsonl.gz", "views.jsonl"]


def test_what_is_too_old_goes(runs: Path) -> None:
    remove_old(runs, Keep(days=2.5), NOW_S)
    assert left(runs) == ["now", "run-1", "run-2"]


def test_the_run_that_begins_stays_whatever_is_asked(runs: Path) -> None:
    remove_old(runs, Keep(runs=1, total_bytes=1, days=1e-9), NOW_S)
    assert left(runs) == ["now"]


def test_a_trace_that_is_still_written_to_stays(runs: Path) -> None:
    trace(runs.parent / "other", BUSY_S / 2)
    remove_old(runs, Keep(runs=1), NOW_S)
    assert left(runs) == ["now", "other"]


def test_what_is_no_trace_is_never_touched(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    mine = runs.parent / "my-notes"
    mine.mkdir()
    (mine / "run.json").write_text('{"schema": "something/else"}')
    (runs.parent / "readme.txt").write_text("mine")
    elsewhere = trace(tmp_path_factory.mktemp("elsewhere") / "kept", 99 * DAY_S)
    (runs.parent / "link").symlink_to(elsewhere)
    remove_old(runs, Keep(runs=1), NOW_S)
    assert left(runs) == ["link", "my-notes", "now", "readme.txt"]
    assert (elsewhere / "run.json").exists()


def test_a_removal_that_was_broken_off_is_finished(runs: Path) -> None:
    (runs.parent / ".removed-run-11").mkdir()
    assert remove_old(runs, Keep(), NOW_S) == ()
    assert ".removed-run-11" not in left(runs) and len(left(runs)) == 11


def test_the_recorder_removes_and_says_so(tmp_path: Path) -> None:
    trace(tmp_path / "old", 0.0, 2_500_000)
    for name in ("run.json", "samples/1.parquet"):
        os.utime(tmp_path / "old" / name, (1e9, 1e9))
    said: list[str] = []
    run = {"schema": "headgate/trace/v1"}
    Recorder(tmp_path / "new", run, keep=Keep(runs=1), tell=said.append).close()
    assert said == ["removed 1 old trace, 2.5 MB (old): --trace-keep"]
    assert left(tmp_path / "new") == ["new"]


def test_many_are_said_in_few_words(runs: Path) -> None:
    words = words_of(remove_old(runs, Keep(runs=1), NOW_S))
    assert words == "removed 10 old traces, 0.0 MB (run-10, run-9, run-8, run-7, run-6, …): --trace-keep"


@pytest.mark.parametrize(
    ("text", "keep"),
    [
        ("all", Keep()),
        ("runs=5", Keep(runs=5)),
        ("gb=0.5, days=7", Keep(total_bytes=500_000_000, days=7.0)),
        (DEFAULT, Keep(runs=100, total_bytes=20 * 10**9)),
    ],
)
def test_limits_are_read(text: str, keep: Keep) -> None:
    assert parse_keep(text) == keep


@pytest.mark.parametrize("words", [["up"], ["controller", "run"]])
def test_wrong_limits_are_refused_before_anything_starts(
    words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main([*words, "--trace-keep", "weeks=2"]) == 2
    assert "'weeks=2': not one of runs=N, gb=N, days=N" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_every_fault_of_the_limits_is_said() -> None:
    with pytest.raises(UsageError) as caught:
        parse_keep("runs=1.5,gb=nan,gb=1,gb=2,weeks=3,days=-1,")
    assert len(caught.value.faults) == 6
