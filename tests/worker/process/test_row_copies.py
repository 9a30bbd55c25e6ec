"""Rows copied for a profile (row_copies.py): as they were, few, once, and nothing at all when nobody asks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.wire.messages import ThreadSpec
from headgate.topology_runtime.wire.report_messages import ProfileSpec
from headgate.topology_runtime.worker.meters import sample_rows
from headgate.topology_runtime.worker.meters.row_copies import (
    FOLDER,
    PATIENCE_NS,
    ROWS,
    SIZE_BYTES,
    Copies,
    Mirror,
    mirrored,
)

HERE = Slot("vm1", 2)
PROFILE = ProfileSpec("work", Slot("vm1", 3), 7, 60.0)


@dataclass
class Thread:
    """What the mirror sees of a task thread."""

    desired: ThreadSpec = field(default_factory=lambda: ThreadSpec(1, "work", HERE))
    copies: Copies | None = None


def mirror(directory: Path, *threads: Thread, profile: ProfileSpec | None = PROFILE) -> Mirror:
    (directory / FOLDER).mkdir(exist_ok=True)
    made = Mirror(HERE, str(directory))
    made.obey(profile, threads, 0)
    return made


def read(directory: Path, number: int = 7) -> list[sample_rows.Sample]:
    (file,) = mirrored(str(directory), number)
    return sample_rows.read(file)


# ── copies ──────────────────────────────────────────────────────────────────────────────────────


def test_a_copy_is_what_came_in_whatever_the_task_does_with_it() -> None:
    row: dict[str, Any] = {"id": 1, "parts": [1, (2, 3)]}
    copies = Copies()
    copies.add("before", [row])
    row["parts"].append("changed")
    assert copies.samples() == [("before", {"id": 1, "parts": [1, (2, 3)]})]


def test_no_more_rows_are_copied_than_asked_for() -> None:
    copies = Copies(rows=5)
    for first in range(0, 12, 3):
        copies.add("before", list(range(first, first + 3)))
    assert copies.full
    assert [row for _, row in copies.samples()] == [0, 1, 2, 3, 4]


def test_no_more_bytes_are_copied_than_asked_for() -> None:
    copies = Copies(rows=100, size_bytes=1000)
    copies.add("before", [bytes(300)] * 8)
    assert copies.full
    assert sum(len(row) for _, row in copies.samples()) == 600


@pytest.mark.parametrize("row", [bytes(2000), 1 << 70])
def test_a_row_that_does_not_fit_ends_it_and_hurts_nobody(row: object) -> None:
    copies = Copies(rows=100, size_bytes=1000)
    copies.add("before", [row])
    assert copies.full and copies.samples() == []


# ── the mirror ──────────────────────────────────────────────────────────────────────────────────


def test_threads_of_other_tasks_and_other_vms_copy_nothing(tmp_path: Path) -> None:
    other = Thread(ThreadSpec(2, "store", HERE))
    mirror(tmp_path, other)
    assert other.copies is None
    elsewhere, mine = ProfileSpec("work", Slot("vm2", 0), 7, 60.0), Thread()
    mirror(tmp_path, mine, profile=elsewhere)
    assert mine.copies is None
    mirror(tmp_path, mine, profile=None)
    assert mine.copies is None


def test_rows_are_written_once_there_are_enough_and_then_nothing_is_copied(tmp_path: Path) -> None:
    thread = Thread()
    made = mirror(tmp_path, thread)
    assert thread.copies is not None
    thread.copies.add("source", list(range(2 * ROWS)))
    made.look(1)
    assert read(tmp_path) == [("source", n) for n in range(ROWS)]
    assert thread.copies is None
    made.obey(PROFILE, [thread], 2)  # the same desired state again
    assert thread.copies is None


def test_few_rows_are_waited_for_a_while_and_none_for_as_long_as_it_takes(tmp_path: Path) -> None:
    thread = Thread()
    made = mirror(tmp_path, thread)
    made.look(PATIENCE_NS)
    assert thread.copies is not None and mirrored(str(tmp_path), 7) == []
    thread.copies.add("source", ["late"])
    made.look(PATIENCE_NS + 1)
    assert read(tmp_path) == [("source", "late")]


def test_threads_share_what_may_be_copied(tmp_path: Path) -> None:
    threads = [Thread() for _ in range(3)]
    made = mirror(tmp_path, *threads)
    for number, thread in enumerate(threads):
        assert thread.copies is not None
        thread.copies.add("source", [number] * ROWS)
        assert not thread.copies.full or thread.copies.samples()
    made.look(1)
    rows = [row for _, row in read(tmp_path)]
    assert ROWS <= len(rows) < ROWS + len(threads) and set(rows) == {0, 1, 2}
    assert sum(path.stat().st_size for path in mirrored(str(tmp_path), 7)) < SIZE_BYTES


def test_another_profile_ends_the_one_before(tmp_path: Path) -> None:
    thread = Thread()
    made = mirror(tmp_path, thread)
    before = thread.copies
    made.obey(ProfileSpec("work", Slot("vm1", 3), 8, 60.0), [thread], 1)
    assert thread.copies is not None and thread.copies is not before
    made.obey(None, [thread], 2)
    assert thread.copies is None


def test_a_profile_that_is_over_gets_no_file(tmp_path: Path) -> None:
    thread = Thread()
    made = mirror(tmp_path, thread)
    (tmp_path / FOLDER).rmdir()
    assert thread.copies is not None
    thread.copies.add("source", [1] * ROWS)
    made.look(1)
    assert thread.copies is None and not (tmp_path / FOLDER).exists()
