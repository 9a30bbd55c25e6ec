"""What goes wrong in a user's files and code, in one run that ends by itself: said, counted, nothing else lost."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from watched_runs.trials import CGROUP_ROOTS

pytestmark = pytest.mark.live

FLOW = """
from headgate import Exhausted, Keyed, Source, topology
from headgate.tasks import CollectToFile, FilesSource

class Unplugged(Source):
    tries = 0

    def read(self, position, limit):
        if position >= 100 and self.tries < 2:
            self.tries += 1
            raise ValueError("the meter is unplugged")
        if position >= 200:
            raise Exhausted
        return [f"m{n}" for n in range(position, min(position + limit, 200 if self.tries else 100))]

class Count(Keyed):
    def new(self, key):
        return 0

    def process(self, key, row, state):
        return state + 1, []

    def finish(self, key, state):
        if key == "b":
            raise RuntimeError("no answer")
        return [[key, state]]

class Misnamed:
    def open(self, context):
        context.metrics.counter("rows per second!")

    def __call__(self, row):
        return row

def first(line):
    return line[0]

flow = topology("bad")
kinds = flow.task("kinds", first)
for name in ("cut.gz", "long.txt"):
    flow.source(name.split(".")[0], FilesSource, path=name, format="text") >> kinds
flow.source("meter", Unplugged) >> kinds
kinds >> flow.task("count", Count).by(0) >> flow.task("store", CollectToFile, path="counts.jsonl")

misnamed = topology("misnamed")
misnamed.source("meter", Unplugged) >> misnamed.task("count", Misnamed) >> misnamed.task("store", CollectToFile)
"""
LINES, LONG_BYTES = 60_000, 20_000_000


def up(folder: Path, flow: str) -> subprocess.CompletedProcess[str]:
    (folder / "flow.py").write_text(
        FLOW.replace('path="', f'path="{folder}/').replace("path=name", f"path='{folder}/' + name")
    )
    command = [
        sys.executable,
        "-P",
        "-m",
        "headgate",
        "up",
        f"flow.py:{flow}",
        "--rates",
        "5000",
        "-o",
        "json",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    for root in CGROUP_ROOTS:
        assert not list(root.glob("headgate-*flow*"))
    return done


def test_files_that_are_cut_or_odd_a_source_that_raises_and_a_finish_that_raises(tmp_path: Path) -> None:
    whole = gzip.compress("".join(f"a{n * 7919}\n" for n in range(LINES)).encode())
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "long.txt").write_text("b\n" + "x" * LONG_BYTES + "\nb\nc\n")
    done = up(tmp_path, "flow")
    assert done.returncode == 0, done.stderr[-3000:]
    summary = json.loads(done.stdout)
    tuples = summary["tuples"]
    assert summary["ended"] == "every source has ended"
    assert (tuples["lost"], tuples["left"], tuples["dead_lettered"], summary["letters"]["keys"]) == (
        0,
        0,
        2,
        1,
    )
    assert tuples["acked"] == tuples["emitted"] - 2
    counts = dict(json.loads(line) for line in (tmp_path / "counts.jsonl").read_text().splitlines())
    assert counts.keys() == {"a", "c", "m"} and (counts["c"], counts["m"]) == (1, 200)
    assert 100 < counts["a"] < LINES and counts["a"] + 200 + 1 + 2 == tuples["acked"]
    for told in (
        "cut.gz ends in the middle of its compressed data",
        f"a line of {LONG_BYTES:,} bytes",
        "source meter cannot be read: ValueError: the meter is unplugged (",
        "finish of key 'b' became a dead letter: RuntimeError: no answer",
        "dead letters of 2 rows and 1 call of `on_timer` or `finish`: headgate deadletter list",
    ):
        assert told in done.stderr, told
    assert not (tmp_path / ".headgate").exists() or not list((tmp_path / ".headgate").iterdir())


def test_an_invalid_metric_name_ends_it_with_its_cause(tmp_path: Path) -> None:
    done = up(tmp_path, "misnamed")
    assert done.returncode == 7, done.stderr[-3000:]
    assert "InvalidInput: invalid metric name 'rows per second!': names are a letter" in done.stderr
