"""A disk that fills in mid-run: tuples go on at full rate, nothing is lost, alarms come and go."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_disk import Run, SmallDisk, project

pytestmark = pytest.mark.live

SIZE_BYTES, FILES = 24 << 20, 600
FULL_S = 12.0
RATE_TPS = 200


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    try:
        made = SmallDisk(tmp_path / "disk", SIZE_BYTES, FILES)
    except OSError as error:
        pytest.skip(f"no file system may be mounted here: {error}")
    yield made
    made.close()


@pytest.fixture
def run(tmp_path: Path, disk: SmallDisk) -> Iterator[Run]:
    project(tmp_path)
    one = Run(tmp_path, disk.path, "--rates", str(RATE_TPS))
    yield one
    one.close()


def ended_whole(run: Run) -> tuple[dict[str, Any], set[int]]:
    """The run's counts and its dead rows; every other one is at the sink."""
    tuples: dict[str, Any] = run.end()["tuples"]
    assert tuples["lost"] == 0 and tuples["in_flight"] == 0, tuples
    rows = Counter(json.loads(line) for line in run.rows.read_text().splitlines())
    dead = {n for n in range(tuples["emitted"]) if n % 500 == 13}
    assert set(rows) == set(range(tuples["emitted"])) - dead
    return tuples, dead


@pytest.mark.parametrize("what", ["bytes", pytest.param("files", marks=pytest.mark.full)])
def test_a_disk_that_is_full_for_a_while_costs_no_tuple(disk: SmallDisk, run: Run, what: str) -> None:
    run.until(lambda: run.count() > 200)
    pid = run.asked("status")["pid"]
    (disk.fill if what == "bytes" else disk.use_up_files)()
    before = run.count()
    run.until(lambda: run.count() - before > RATE_TPS * FULL_S)
    run.until(lambda: bool(run.alarms()))
    told = run.asked("status")
    assert told["pid"] == pid and "HG-" not in run.says()
    alarms = {alarm["what"]: alarm["text"] for alarm in told["alarms"]}
    assert any(str(disk.path) in text for text in alarms.values()), (alarms, run.says()[-2000:])
    disk.free()
    run.until(lambda: not run.alarms())
    again = run.count()
    run.until(lambda: run.count() - again > 2 * RATE_TPS)
    assert run.asked("status")["pid"] == pid
    tuples, dead = ended_whole(run)
    assert tuples["dead_lettered"] == len(dead)
    missing = not tuples["duplicates_exact"]
    assert missing == (what == "bytes"), "a log that is there grows, files or no files"
    assert missing == (tuples["finished_dropped"] > 0)


def test_a_run_ends_in_order_while_the_disk_is_full(disk: SmallDisk, run: Run) -> None:
    run.until(lambda: run.count() > 200)
    disk.fill()
    run.until(lambda: bool(run.alarms()))
    ended_whole(run)
