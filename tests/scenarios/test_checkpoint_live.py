"""A checkpoint of a run under load, and another run, on other VMs, that begins from it: every row is counted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pytest
from patience import PATIENCE_S
from test_keyed_state_live import RATE_TPS, settled

from watched_runs.counted_run import CountedRun, Segments
from watched_runs.counted_tasks import KEYS

pytestmark = pytest.mark.live


def headgate(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "headgate", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


NEWER = """

class TallyOfNow(Tally):
    state_version = 2

    def snapshot(self, state: list[Any]) -> Any:
        return {"again": state[0], "spans": state[1].flat()}

    def restore(self, saved: Any) -> list[Any]:
        return [saved["again"], Spans(saved["spans"])]

    def migrate(self, old: Any, version: int) -> Any:
        again, spans = old
        return {"again": again, "spans": spans}
"""
TROUBLED = NEWER.replace("again, spans = old", "again, spans = old[:1]")


class ChangedRun(CountedRun):
    """With more code in its file; a `Tally` of it takes the place of the one there."""

    def __init__(self, folder: Path, code: str, more: Sequence[str]) -> None:
        self.code = code
        super().__init__(folder, RATE_TPS, 600, vms="3,3", more=more)

    def _write_topology(self) -> None:
        super()._write_topology()
        with open(self.folder / "counted_tasks.py", "a") as file:
            file.write(f"{self.code}\n\nTally = TallyOfNow\n" if self.code else "")


def refused(folder: Path, code: str, more: Sequence[str], words: Sequence[str]) -> None:
    run = ChangedRun(folder, code, more)
    try:
        assert run.process.wait(PATIENCE_S) == 3, run.log()
    finally:
        run.end()
    assert all(word in run.log() for word in words), run.log()
    assert not (run.folder / "state" / "controller").exists()


def refuses_to_migrate(folder: Path, more: Sequence[str]) -> None:
    """What cannot be migrated is refused before anything starts."""
    without = NEWER[: NEWER.index("    def migrate")]
    told = [
        "states of task tally are of version 1, and its code is of version 2",
        "TallyOfNow has no migrate",
    ]
    refused(folder / "without", without, more, [*told, "try: "])
    told = ["of task tally cannot be migrated from version 1 to 2", "ValueError", "counted_tasks.py:"]
    refused(folder / "troubled", TROUBLED, more, [*told, "in migrate)", "try: mend migrate"])


def exported(far: str, file: Path) -> dict[int, tuple[int, int]]:
    """Key → (different rows that its state has had, rows it has had again), as DuckDB reads it."""
    headgate("checkpoint", "export", "before", str(file), "--state", far, "--task", "tally")
    had = "list_sum(list_transform(range(1, len(spans) + 1), lambda i: spans[i] * (if(i % 2 = 0, 1, -1))))"
    read = f"select key, cast(state->'$[1]' as bigint[]) as spans, cast(state->'$[0]' as bigint) as again from '{file}'"
    rows = duckdb.sql(f"select key, {had}, again from ({read})").fetchall()
    assert len(rows) == KEYS
    return {key: (applied, again) for key, applied, again in rows}


@pytest.mark.parametrize(("exactly", "stopped"), [(False, False), (True, False), (True, True)])
def test_a_run_from_a_checkpoint_goes_on_where_that_was_made(
    tmp_path: Path, exactly: bool, stopped: bool
) -> None:
    far, options = str(tmp_path / "far"), ["--exactly-once"] * exactly
    first = CountedRun(tmp_path / "first", RATE_TPS, 600, more=[*options, "--state-to", far])
    try:
        first.wait_for_rows(more=300)
        settled(first)
        make = ["checkpoint", "create", "before", "--state", far, "--state-dir", str(first.folder / "state")]
        if stopped:
            first.end()
            headgate(*make)
        else:
            headgate(*make)
            first.wait_for_rows(more=200)  # it goes on, and what it does now is done again
            os.killpg(first.process.pid, signal.SIGKILL)
        first.segments.drain()
    finally:
        first.end()
    found = exported(far, tmp_path / "tally.parquet")
    counted = first.checker
    for key, (applied, again) in found.items():
        assert 0 < applied <= counted.applied[key] and again <= counted.again[key]
        assert not stopped or (applied, again) == (counted.applied[key], counted.again[key])
    assert "whole" in headgate("checkpoint", "inspect", "before", "--state", far)
    more = [*options, "--from-checkpoint", f"{far}/before"]
    if stopped:
        refuses_to_migrate(tmp_path, more)
    second = ChangedRun(tmp_path / "second", NEWER if stopped else "", more)
    second.checker = first.checker
    second.segments = Segments(second.folder / "rows", first.checker)
    try:
        second.wait_for_rows(more=600)
        settled(second)
        second.end()
        summary = second.finish()
        found = second.verdict(summary)
    finally:
        second.end()
    assert found["whole"], found
    assert summary["state"]["lost_ranges"] == 0
    counts = summary["tuples"]
    assert 0 < counts["before"] < counts["acked"], "what the first run did is not this one's work"
    own = summary["offered_tps"] * summary["seconds"]
    assert own == pytest.approx(counts["offered"] - counts["before"], rel=1e-3)
    assert found["applied_again"] == summary["state"]["applied_again_at_most"] == 0, found


def test_what_cannot_be_begun_with_is_refused_before_anything_starts(tmp_path: Path) -> None:
    far = tmp_path / "far"
    (far / "checkpoints" / "half" / "state").mkdir(parents=True)
    (far / "checkpoints" / "half" / "positions").write_text("[]")
    for name, what in (("half", "checkpoint half is damaged"), ("none", "there is no checkpoint none")):
        run = CountedRun(tmp_path / name, RATE_TPS, 60, more=["--from-checkpoint", f"{far}/{name}"])
        try:
            assert run.process.wait(PATIENCE_S) == 3
        finally:
            run.end()
        assert f"error[HG-INVALID]: {what}" in run.log() and "try: " in run.log()
        assert not (run.folder / "state" / "controller").exists()
