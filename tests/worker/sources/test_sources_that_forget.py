"""A source that does not give again what it gave, or raises: that is said, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from line_of_threads import INCARNATION, Numbers, line_of

from headgate.topology_runtime.api.logic import Exhausted
from headgate.topology_runtime.wire.messages import Ack, RootKey
from headgate.topology_runtime.worker.process import source_thread as source_reader
from headgate.topology_runtime.worker.process.task_thread import SAID_MOST, TaskThread
from headgate.topology_runtime.worker.sources.source_ledger import Ledger
from headgate.topology_runtime.worker.sources.source_task import SourceTask

ENDS = 300


class Forgets(Numbers):
    """So many rows; what was given once is given again only when it `remembers`."""

    remembers, raises = False, False

    def __init__(self) -> None:
        self.given = 0

    def read(self, position: int, limit: int) -> list[int]:
        if position < self.given and not self.remembers:
            if self.raises:
                raise Exhausted
            return []
        if position >= ENDS:
            raise Exhausted
        self.given = max(self.given, min(position + limit, ENDS))
        return super().read(position, min(limit, ENDS - position))


@pytest.fixture
def thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TaskThread:
    """Of such a source: it gave all its rows, a task further on keeps most of them, they were let go here, and all are
    to be sent again."""
    monkeypatch.setattr(source_reader, "LOOK_AGAIN_NS", 0)
    monkeypatch.setattr(source_reader, "RETRY_NS", 0)
    thread = line_of(tmp_path, dict.fromkeys(range(1, 5), 1e5), Forgets)["numbers"]
    thread.work.turn()
    thread.post.targets = frozenset()  # from here on its frames wait at the next thread
    ledger = ledger_of(thread)
    ledger.window_bytes = 1 << 30
    for _ in range(10):
        thread.work.turn()
    ledger.window_bytes = 1
    keys = [RootKey(1, INCARNATION, root.sequence, root.attempt) for root in ledger.open_roots()]
    thread.inbox.put([Ack(key, 0, 1) for key in keys])
    thread.work.turn()
    assert ledger.position == ENDS and open_positions(thread) == [100, 200]
    assert not any(root.rows for root in ledger.open_roots())
    ledger.fault()
    return thread


def ledger_of(thread: TaskThread) -> Ledger:
    source = thread.core.behaviour
    assert isinstance(source, SourceTask) and source.ledger is not None
    return source.ledger


def open_positions(thread: TaskThread) -> list[int]:
    return [root.position for root in ledger_of(thread).open_roots()]


def asked(thread: TaskThread) -> Forgets:
    assert isinstance(thread.logic, Forgets)
    return thread.logic


@pytest.mark.parametrize("raises", [False, True])
def test_rows_that_come_again_after_a_while_are_sent_again_and_nothing_is_said(
    thread: TaskThread, raises: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    asked(thread).raises = raises
    for _ in range(3):
        thread.work.turn()
    assert len(ledger_of(thread).again) == 2, "they are not sent again as no rows"
    asked(thread).remembers = True
    for _ in range(3):
        thread.work.turn()
    assert not ledger_of(thread).again
    assert [list(root.rows) for root in ledger_of(thread).open_roots()] == [
        list(range(100, 200)),
        list(range(200, 300)),
    ]
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("raises", [False, True])
def test_rows_that_do_not_come_again_stay_open_and_that_is_said_once(
    thread: TaskThread, raises: bool, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(thread).raises = raises
    monkeypatch.setattr(source_reader, "MISSING_NS", 0)
    for _ in range(5):
        thread.work.turn()
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 1 and "source numbers cannot be read: position 100 is to be sent again" in said[0]
    assert open_positions(thread) == [100, 200] and len(ledger_of(thread).again) == 2


class Raises(Numbers):
    broken = True

    def read(self, position: int, limit: int) -> list[int]:
        if self.broken:
            raise ValueError("no number" + "!" * 10_000)
        return super().read(position, limit)


def test_what_a_source_raises_is_reported_until_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_reader, "RETRY_NS", 0)
    thread = line_of(tmp_path, dict.fromkeys(range(1, 5), 1e5), Raises)["numbers"]
    thread.work.turn()
    assert thread.now().unreadable.startswith("cannot be read: ValueError: no number!")
    assert len(thread.now().unreadable) == SAID_MOST
    assert isinstance(thread.logic, Raises)
    thread.logic.broken = False
    thread.work.turn()
    assert thread.now().unreadable == "" and ledger_of(thread).position > 0


class Empty(Numbers):
    empty = True

    def read(self, position: int, limit: int) -> list[int]:
        return [] if self.empty else super().read(position, limit)


def test_a_source_that_has_no_rows_for_long_though_some_are_due_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_reader, "LOOK_AGAIN_NS", 0)
    thread = line_of(tmp_path, dict.fromkeys(range(1, 5), 1e5), Empty)["numbers"]
    thread.work.turn()
    assert thread.now().unreadable == "", "it may have some in a moment"
    monkeypatch.setattr(source_reader, "EMPTY_NS", 0)
    thread.work.turn()
    assert thread.now().unreadable.startswith("gives no rows: none for 10 s")
    assert isinstance(thread.logic, Empty)
    thread.logic.empty = False
    thread.work.turn()
    assert thread.now().unreadable == "" and ledger_of(thread).position > 0
