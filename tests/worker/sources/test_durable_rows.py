"""A live source hears which of its rows are on the disk, so that it can confirm them to whoever sent them."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from line_of_threads import line_of

from headgate.topology_runtime.api.logic import Exhausted, LiveSource
from headgate.topology_runtime.worker.process import source_thread

ROWS = 5


class Confirms(LiveSource[Any]):
    """Five rows a poll, one of them nothing that can be a row. told: what it heard."""

    arriving = False

    def __init__(self) -> None:
        self.polls, self.told = 0, list[int]()
        self.broken = 0  # so many more calls of `durable` fail

    def poll(self, limit: int) -> Sequence[Any]:
        self.polls += 1
        return [*range(ROWS - 1), object()]

    def durable(self, rows: int) -> None:
        if self.broken:
            self.broken -= 1
            raise ConnectionError("the broker is away")
        self.told.append(rows)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(source_thread, "RETRY_NS", 0)
    return line_of(tmp_path, dict.fromkeys(range(1, 5), 1e5), Confirms)["numbers"].work  # type: ignore[arg-type]


def source_of(work: Any) -> Confirms:
    logic = work.thread.logic
    assert isinstance(logic, Confirms)
    return logic


def test_it_hears_of_all_rows_that_it_gave_and_of_none_twice(work: Any) -> None:
    work.turn()
    source = source_of(work)
    assert source.polls and source.told == [n * ROWS for n in range(1, source.polls + 1)]


def test_of_rows_that_the_disk_does_not_take_it_hears_when_it_has(
    work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of(work)
    full = itertools.repeat(OSError(errno.ENOSPC, "full"))

    def refuse(*_: object) -> int:
        raise next(full)

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", refuse)
        for _ in range(3):
            work.turn()
        assert (source.polls, source.told) == (1, [])
    work.turn()
    assert source.told[0] == ROWS


def test_a_confirmation_that_fails_is_told_and_made_again(work: Any) -> None:
    source = source_of(work)
    source.broken = 2
    work.turn()
    assert "the broker is away" in work.unreadable
    for _ in range(3):
        work.turn()
    assert source.told[0] == ROWS and not work.unreadable


class Twice(Confirms):
    """As many polls as it has, in a form that fails when it is looked at. `durable` says that it is over."""

    def poll(self, limit: int) -> Any:
        self.polls += 1
        for row in range(ROWS):
            if self.polls == 1 and row == 2:
                raise ConnectionError("torn")
            yield row

    def durable(self, rows: int) -> None:
        self.told.append(rows)
        if len(self.told) == 1:
            raise Exhausted


def test_rows_that_were_never_had_are_not_confirmed_and_a_confirmation_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_thread, "RETRY_NS", 0)
    work = line_of(tmp_path, dict.fromkeys(range(1, 5), 1e5), Twice)["numbers"].work  # type: ignore[arg-type]
    work.turn()
    assert source_of(work).told == []
    for _ in range(3):
        work.turn()
    assert source_of(work).told[:3] == [ROWS, ROWS, 2 * ROWS] and not work.source.exhausted
