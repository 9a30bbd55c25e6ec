"""A run that is followed while its segments come: interrupted, killed, with late and doubled ones; at its end the
analysis is that of the batch."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

import duckdb
import pytest
from followed import LIMIT_S, ROOT, Follow, bring, command, rows_in
from results_compared import differences, results

from made_traces.generate_trace import Wanted, generate

pytestmark = pytest.mark.live


def check_kept_stretches(out: Path) -> None:
    with duckdb.connect(str(out / "follow" / "sums.duckdb"), read_only=True) as kept:
        parts = kept.sql("select begin, until from parts order by begin").fetchall()
    there = [stretch for begin, until in parts for stretch in range(begin, until)]
    assert there == list(range(there[0], there[-1] + 1)) and len(there) >= 2, "each once, none is missing"


def check_batch(run: Path, out: Path, batch: Path) -> None:
    """The analysis of all of the run at once says the same."""
    again = subprocess.run(
        command(run, "--output", batch),
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=LIMIT_S,
    )
    assert again.returncode == 0, again.stderr
    assert list(differences(results(out), results(batch))) == []


def test_a_followed_run_ends_with_the_analysis_of_the_batch(tmp_path: Path) -> None:
    generate(tmp_path / "made", Wanted(30_000, threads=20, slots=8, segment_rows=2_000))
    whole, run, out = (
        tmp_path / "made" / "made" / "run-1",
        tmp_path / "made-run" / "made" / "run-1",
        tmp_path / "out",
    )
    names = sorted(str(file.relative_to(whole)) for file in whole.glob("*/*.parquet"))
    samples = [name for name in names if name.startswith("samples/")]
    late = samples[2]
    first = [name for name in names if name not in samples[8:] and name != late]
    for file in whole.iterdir():
        if file.is_file():
            bring(whole, run, file.name)
    bring(whole, run, *first)

    begun = Follow(run, out)
    begun.wait_for(f"{rows_in(run)} rows of samples in")
    assert json.loads((out / "analysis.json").read_text())["rows"] == rows_in(run)
    bring(whole, run, samples[8])
    begun.wait_for(f"{rows_in(run)} rows of samples in; lag 0 segments")
    begun.kill(signal.SIGINT)
    assert begun.ended() == (130, "")
    assert not (out / ".lock").exists() and not (out / "_draft").exists()

    bring(whole, run, samples[9])
    killed = Follow(run, out)
    killed.wait_for(f"{rows_in(run)} rows of samples in")
    bring(whole, run, samples[10])
    time.sleep(2.0)  # somewhere within its turn
    killed.kill(signal.SIGKILL)
    killed.ended()

    last = Follow(run, out)
    last.wait_for(f"{rows_in(run)} rows of samples in")
    bring(whole, run, late)
    last.wait_for("s late: it is in")
    doubled = run / "samples" / f"{Path(samples[0]).stem}9.parquet"
    shutil.copy(whole / samples[0], doubled)
    last.wait_for("duplicate")
    bring(whole, run, *samples[11:])
    (run / "views.jsonl").write_text('{"patch":{"stage":"over"}}\n')
    code, words = last.ended()
    assert code == 0, last.said
    assert json.loads(words)["rows"] == rows_in(whole)
    check_kept_stretches(out)
    check_batch(run, out, tmp_path / "batch")
    other = subprocess.run(
        command("--follow", whole, "--output", out), capture_output=True, text=True, cwd=ROOT, timeout=LIMIT_S
    )
    assert other.returncode == 6 and f"made/run-1 in {run}" in other.stderr
    once_more = Follow(run, out)
    assert once_more.ended()[0] == 0 and "is over, and all of it was analysed" in once_more.said[-1]
