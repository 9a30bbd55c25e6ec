"""Which rows died: counted exactly, kept as far as there is room, appended once, known again in the next life."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from headgate.controller.files import run_state_files as letter_file
from headgate.controller.files.run_state_files import DeadLetterFile
from headgate.controller.knowledge import dead_letters as letters
from headgate.controller.knowledge.dead_letters import (
    Dead,
    DeadLetterQueue,
    DeadLetterRecord,
    Dropped,
    KeptDeadLetter,
)
from headgate.topology_runtime.wire.messages import DeadLetter


def letter(position: int, task: str = "work", partition: int = 0, row: str = "row") -> DeadLetter:
    return DeadLetter(task, 1, "source", partition, position, row, "ValueError: no", "trace")


def told(found: DeadLetterQueue) -> object:
    return found.count, found.counts(), found.dropped, {n: one.key for n, one in found.kept.items()}


def test_a_position_counts_once_however_many_tasks_and_tries_fail_on_it() -> None:
    found = DeadLetterQueue()
    assert found.add(letter(4), 9) and not found.add(letter(4), 10) and not found.add(letter(4, "score"), 11)
    assert found.add(letter(4, partition=1), 12) and found.add(letter(5), 13)
    assert (found.count, found.counts()) == (3, {"score": 1, "work": 3})
    assert [one.number for one in found.of()] == [1, 2, 3, 4] and found.times == {1: 2}
    assert [(one.task, one.wall_ns) for one in found.of("score")] == [("score", 11)]
    assert [one.number for one in found.newest(2)] == [3, 4]


def test_only_the_first_letters_of_a_task_are_kept_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters, "LETTERS_MOST", 3)
    found = DeadLetterQueue()
    for position in range(10):
        found.add(letter(position), 0)
    found.add(letter(0, "score"), 0)
    assert found.counts() == {"score": 1, "work": 10} and found.count == 10
    assert [one.position for one in found.of("work")] == [0, 1, 2]
    assert not found.keeps("work") and found.keeps("score")
    assert found.drop(2) and not found.drop(2)
    assert found.keeps("work") and found.count == 10, "a dropped one stays counted"
    found.add(letter(1), 0)
    assert [one.position for one in found.of("work")] == [0, 2], "and does not come back"
    found.add(letter(99), 0)
    assert [one.position for one in found.of("work")] == [0, 2, 99]


def test_letters_of_a_task_are_bounded_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters, "BYTES_MOST", 100)
    found = DeadLetterQueue()
    for position in range(10):
        found.add(letter(position, row="x" * 60), 0)
    assert len(found.of()) == 2 and found.count == 10


def test_news_are_told_once_and_positions_as_intervals() -> None:
    found = DeadLetterQueue()
    for position in (3, 1, 2, 7):
        found.add(letter(position), 5)
    dead, whole = found.news()[:2], found.news()
    assert dead == (Dead("work", "source", 0, 1, 4), Dead("work", "source", 0, 7, 8)) and whole == ()
    found.add(letter(2), 6)
    assert found.news() == (), "a row that dies again is nothing new"
    found.drop(1)
    assert found.news() == (Dropped(1),)


@pytest.mark.parametrize("seed", range(20))
def test_the_next_life_knows_the_same_from_any_history(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the file, written anew now and then; beside a plain set."""
    monkeypatch.setattr(letter_file, "SHORTEN_BYTES", 2000)
    monkeypatch.setattr(letters, "LETTERS_MOST", 20)
    chance, rows = random.Random(seed), set[tuple[int, int]]()
    found, file = DeadLetterQueue(), DeadLetterFile(tmp_path / "letters")
    for _ in range(200):
        partition, position = chance.randrange(2), chance.randrange(300)
        rows.add((partition, position))
        found.add(letter(position, chance.choice(("work", "score")), partition), 1)
        if found.kept and chance.random() < 0.1:
            found.drop(chance.choice(list(found.kept)))
        if chance.random() < 0.2:
            file.append(found.news())
        if chance.random() < 0.05:
            file.append(found.news())
            before, (found, file) = told(found), (DeadLetterQueue(), DeadLetterFile(tmp_path / "letters"))
            found.recall(file.read())
            assert told(found) == (*before[:2], found.dropped, before[3])  # type: ignore[index]
    assert found.count == len(rows)
    file.append(found.news())
    again = DeadLetterQueue()
    again.recall(DeadLetterFile(tmp_path / "letters").read())
    assert again.count == len(rows) and again.counts() == found.counts()
    assert again.next_number == found.next_number, "a number is never used twice"


def records(*positions: int) -> list[DeadLetterRecord]:
    return [Dead("work", "source", 0, position, position + 1) for position in positions]


def test_a_torn_line_is_cut_off_and_written_over(tmp_path: Path) -> None:
    file = DeadLetterFile(tmp_path / "letters")
    file.append(records(1, 2))
    with (tmp_path / "letters").open("ab") as torn:
        torn.write(b'{"record":"dead","task":"wo')
    again = DeadLetterFile(tmp_path / "letters")
    assert list(again.read()) == records(1, 2)
    again.append(records(9))
    assert list(DeadLetterFile(tmp_path / "letters").read()) == records(1, 2, 9)


def test_what_a_full_disk_does_not_take_waits_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = DeadLetterFile(tmp_path / "letters")
    file.append(records(1))
    real = os.pwrite

    def full(fd: int, data: memoryview, at: int) -> int:
        if len(data) > 9:
            return real(fd, data[:9], at)
        raise OSError(28, "full")

    with monkeypatch.context() as broken:
        broken.setattr(os, "pwrite", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(OSError, match="full"):
            file.append(records(2))
        broken.setattr(
            os, "pwrite", lambda fd, data, at: real(fd, data[:9], at) if at < 50 else full(fd, data, at)
        )
        with pytest.raises(OSError, match="full"):
            file.append(records(3))
    file.append(())
    assert list(DeadLetterFile(tmp_path / "letters").read()) == records(1, 2, 3)


def test_what_is_appended_is_as_much_as_is_new(tmp_path: Path) -> None:
    """Many letters that are there already cost nothing."""
    found, file = DeadLetterQueue(), DeadLetterFile(tmp_path / "letters")
    for position in range(0, 20_000, 2):
        found.add(letter(position), 0)
    file.append(found.news())
    before = (tmp_path / "letters").stat().st_size
    found.add(letter(20_000), 0)
    file.append(found.news())
    assert 0 < (tmp_path / "letters").stat().st_size - before < 500
    file.append(found.news())
    assert isinstance(found.of()[0], KeptDeadLetter)
