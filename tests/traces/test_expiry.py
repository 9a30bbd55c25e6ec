"""`headgate traces expire`: the oldest runs of each topology go, never one that records, and only when it is sure."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.dashboards import headgate_command as cli
from headgate.topology_runtime.traces.old_traces import DAY_S, recorded

RUN_BYTES = 1000


def trace(folder: Path, age_s: float) -> Path:
    (folder / "samples").mkdir(parents=True)
    head = b'{"schema": "headgate/trace/v1"}'
    (folder / "run.json").write_bytes(head)
    (folder / "samples" / "1.parquet").write_bytes(b"x" * (RUN_BYTES - len(head)))
    for name in ("run.json", "samples/1.parquet"):
        os.utime(folder / name, (time.time() - age_s,) * 2)
    return folder


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """Of two topologies: runs of one, two and three days ago each, one that records, and what is no trace."""
    for topology in ("one", "two"):
        for days in (1, 2, 3):
            trace(tmp_path / topology / f"run-{days}", days * DAY_S)
        trace(tmp_path / topology / "now", 0.0)
        (tmp_path / topology / "ledger.jsonl").write_text("")
        (tmp_path / topology / "analysis" / "run-3").mkdir(parents=True)
    return tmp_path


NO_TRACES = ["analysis", "ledger.jsonl"]


def left(traces: Path, topology: str) -> list[str]:
    names = sorted(path.name for path in (traces / topology).iterdir())
    assert names[:1] == ["analysis"] and "ledger.jsonl" in names
    return [name for name in names if name not in NO_TRACES]


EVERY = ["now", "run-1", "run-2", "run-3"]


@pytest.mark.parametrize(
    ("keep", "stays"),
    [
        ("days=1.5", ["now", "run-1"]),
        ("runs=3", ["now", "run-1", "run-2"]),
        ("runs=1", ["now"]),
        ("gb=0.000002", ["now", "run-1"]),
        ("runs=4,gb=1,days=9", EVERY),
        ("all", EVERY),
    ],
)
def test_of_each_topology_the_oldest_go(traces: Path, keep: str, stays: list[str]) -> None:
    assert cli.main(["traces", "expire", str(traces), "--keep", keep, "--yes"]) == 0
    assert left(traces, "one") == left(traces, "two") == stays


def test_one_topology_may_be_named_and_others_stay(traces: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["traces", "expire", str(traces / "one"), "--keep", "runs=2", "--yes", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "headgate/expire/v1"
    rows = [(row["run"], row["bytes"], row["removed"]) for row in told["runs"]]
    assert rows == [("one/run-3", RUN_BYTES, True), ("one/run-2", RUN_BYTES, True)]
    assert left(traces, "one") == ["now", "run-1"] and left(traces, "two") == EVERY


def test_unasked_it_only_lists_what_would_go(traces: Path) -> None:
    told = CliRunner().invoke(cli.load("traces expire"), [str(traces), "--keep", "runs=3"])
    assert told.exit_code == 0 and "one/run-3" in told.stdout and "two/run-3" in told.stdout
    assert told.stderr == "nothing is removed; --yes removes 2 runs, 0.0 MB\n"
    assert left(traces, "one") == left(traces, "two") == EVERY


def test_a_run_that_is_held_stays_however_old_its_files_are(
    traces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with recorded(traces / "one" / "run-2"):
        assert cli.main(["traces", "expire", str(traces / "one"), "--keep", "days=1.5", "--yes"]) == 0
    assert "one/run-2 still records: it stays" in capsys.readouterr().err
    assert left(traces, "one") == ["now", "run-1", "run-2"]


def test_a_removal_that_was_broken_off_is_finished(traces: Path) -> None:
    (traces / "one" / ".removed-run-4").mkdir()
    assert cli.main(["traces", "expire", str(traces), "--keep", "all", "--yes"]) == 0
    assert left(traces, "one") == EVERY


def test_what_cannot_be_removed_is_named_and_the_others_go(
    traces: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def refused(old: Path, new: Path) -> None:
        if old.name == "run-3" and old.parent.name == "one":
            raise OSError(30, "Read-only file system", str(old))
        rename(old, new)

    monkeypatch.setattr(os, "rename", refused)
    assert cli.main(["traces", "expire", str(traces), "--keep", "runs=2", "--yes"]) == 1
    told = capsys.readouterr().err
    assert "1 run could not be removed" in told and "one/run-3: [Errno 30] Read-only file system" in told
    assert left(traces, "one") == ["now", "run-1", "run-3"] and left(traces, "two") == ["now", "run-1"]


@pytest.mark.parametrize(
    ("where", "keep", "code", "said"),
    [
        ("nowhere", "runs=1", 3, "there is no such folder"),
        ("one/run-1", "runs=1", 3, "is one run"),
        ("one/analysis", "runs=1", 3, "no run is in it"),
        (".", "weeks=1", 2, "--keep: 'weeks=1' says nothing to keep by"),
    ],
)
def test_what_makes_no_sense_is_refused(
    traces: Path, where: str, keep: str, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["traces", "expire", str(traces / where), "--keep", keep, "--yes"]) == code
    assert said in capsys.readouterr().err and left(traces, "one") == EVERY
