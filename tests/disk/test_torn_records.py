"""A disk that was full for a while leaves no record torn: each one that was taken is readable."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from small_disk import SmallDisk

from headgate.topology_runtime.api.logic import Context
from headgate.topology_runtime.platform.disk import DiskTroubles
from headgate.topology_runtime.tasks.sinks import CollectToFile
from headgate.topology_runtime.wire.dead_letter_messages import DeadLetter
from headgate.topology_runtime.wire.dead_letter_spool import LettersKept, left_by

SIZE_BYTES, FILES = 64 << 10, 64


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    try:
        made = SmallDisk(tmp_path / "disk", SIZE_BYTES, FILES)
    except OSError as error:
        pytest.skip(f"no file system may be mounted here: {error}")
    yield made
    made.close()


def written(disk: SmallDisk, put: Callable[[int], object]) -> list[int]:
    """Rows that were taken, of 9,000: the disk is full from a third of them on, until two thirds."""
    acked = []
    for row in range(9000):
        if row % 3000 == 0:
            (disk.fill if row == 3000 else disk.free)()
        with suppress(OSError):
            put(row)
            acked.append(row)
    assert 0 < len(acked) < 9000
    return acked


@pytest.mark.parametrize("path", [None, "rows"], ids=["own", "shared"])
def test_lines_of_a_file_sink(disk: SmallDisk, path: str | None) -> None:
    file = disk.path / (path or "rows-task-7.jsonl")
    tasks = [CollectToFile(str(file) if path else None) for _ in range(2 if path else 1)]
    for task in tasks:
        task.open(Context("task", 7, 0, 1, str(disk.path)))
    acked = written(disk, lambda row: tasks[row % len(tasks)]({"row": row}))
    for task in tasks:
        task.close()
    assert [json.loads(line)["row"] for line in file.read_text().splitlines()] == acked


def test_dead_letters_of_a_worker(disk: SmallDisk) -> None:
    kept = LettersKept(str(disk.path), 2, 7, DiskTroubles())

    def put(row: int) -> None:
        kept.put(DeadLetter("work", 1, "source", 0, row, "row", "ValueError: no", "trace"))

    for row in range(300):
        put(row)
    disk.fill()
    for row in range(300, 400):
        put(row)
    disk.free()
    for row in range(400, 500):
        put(row)
    found = [letter.position for letter in left_by(str(disk.path), 2, 7, told=0)]
    assert found[:300] == list(range(300)) and found[-100:] == list(range(400, 500))
