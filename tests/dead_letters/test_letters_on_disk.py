"""Dead letters of a worker that is killed: those that it had not told yet are read from its VM's disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from headgate.topology_runtime import letters_kept
from headgate.topology_runtime.disk import DiskTroubles
from headgate.topology_runtime.letters_kept import FOLDER, RUN_NOTE, LettersKept, forget, left_before, left_by
from headgate.topology_runtime.messages import DeadLetter


def letter(position: int) -> DeadLetter:
    return DeadLetter("work", 1, "source", 0, position, "row\n", "ValueError: no", "trace\nback")


def test_what_was_not_told_is_left_until_it_is_forgotten(tmp_path: Path) -> None:
    kept = LettersKept(str(tmp_path), 2, 7, DiskTroubles())
    for position in range(5):
        kept.put(letter(position))
    assert kept.take(3) == tuple(letter(p) for p in range(3)) and not kept.empty
    other = LettersKept(str(tmp_path), 3, 7, DiskTroubles())
    other.put(letter(9))
    assert (
        left_by(str(tmp_path), 2, 7, told=3) == (letter(3), letter(4)) == left_by(str(tmp_path), 2, 7, told=3)
    )
    forget(str(tmp_path), {(3, 7)})
    assert left_by(str(tmp_path), 2, 7, told=3) == ()
    assert left_by(str(tmp_path), 3, 7, told=0) == (letter(9),), "it lives"


def test_an_agent_finds_what_its_earlier_life_had_not_told(tmp_path: Path) -> None:
    assert left_before(str(tmp_path), "run") == ()
    LettersKept(str(tmp_path), 2, 7, DiskTroubles()).put(letter(2))
    LettersKept(str(tmp_path), 0, 8, DiskTroubles()).put(letter(3))
    assert left_before(str(tmp_path), "run") == (letter(3), letter(2)) == left_before(str(tmp_path), "run")
    assert left_before(str(tmp_path), "another run") == ()
    assert os.listdir(tmp_path / FOLDER) == [RUN_NOTE]


def test_a_disk_that_cannot_be_read_ends_no_agent(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("no folder")
    assert left_before(str(tmp_path), "run") == ()


def test_a_torn_line_is_none(tmp_path: Path) -> None:
    LettersKept(str(tmp_path), 2, 7, DiskTroubles()).put(letter(2))
    with open(tmp_path / FOLDER / "2-7-0", "ab") as file:
        file.write(b'["work"')
    assert left_by(str(tmp_path), 2, 7, told=0) == (letter(2),)
    assert left_by(str(tmp_path / "never"), 2, 7, told=0) == ()


def test_a_flood_takes_bounded_disk_and_the_newest_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letters_kept, "PART_BYTES", 1000)
    monkeypatch.setattr(letters_kept, "WHOLE_MOST", 3)
    kept = LettersKept(str(tmp_path), 0, 1, DiskTroubles())
    for position in range(200):
        kept.put(letter(position))
        if position < 190:
            kept.take(1)
    assert len(os.listdir(tmp_path / FOLDER)) == 2
    left = left_by(str(tmp_path), 0, 1, told=190)
    bare = [replace(letter(p), row="", traceback="") for p in range(193, 200)]
    assert left == (letter(190), letter(191), letter(192), *bare)


def test_a_disk_that_takes_nothing_stops_no_row(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("no folder")
    disk = DiskTroubles()
    kept = LettersKept(str(tmp_path), 0, 1, disk)
    kept.put(letter(1))
    assert kept.take(9) == (letter(1),) and disk.has("dead letters")
