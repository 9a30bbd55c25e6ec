"""A chain of real threads that were never started: the source's turns one after the other, in the test's thread."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from line_of_threads import NAMES, ROWS, held, line_of

from headgate.topology_runtime.worker import frames
from headgate.topology_runtime.worker import meter as mt
from headgate.topology_runtime.worker.threads import TaskThread

TURNS = 5


@pytest.fixture
def line(tmp_path: Path) -> dict[str, TaskThread]:
    return line_of(tmp_path, {})


def test_a_root_is_no_larger_than_the_frames_of_its_receivers(tmp_path: Path) -> None:
    """Or each would be cut in two: a frame that is full, and one of what is left."""
    line = line_of(tmp_path, {2: 600.0})
    for _ in range(TURNS):
        line["numbers"].work.turn()
    words, at = line["pairs"].host.meter.words, line["pairs"].at
    assert (words[at + mt.FRAMES_IN], words[at + mt.TUPLES_IN]) == (TURNS, TURNS * 60)


def test_the_acks_of_a_chain_come_as_one_for_each_root_and_open_nothing(line: dict[str, TaskThread]) -> None:
    source = line["numbers"]
    told = []
    for _ in range(TURNS):
        source.work.turn()
        told.append(source.inbox.get_nowait())
        assert source.inbox.empty()
        source.inbox.put(told[-1])
    assert [[ack.key.sequence for ack in acks] for acks in told] == [[n] for n in range(TURNS)]
    ledger = source.core.behaviour.ledger  # type: ignore[attr-defined]
    assert ledger.acked == (TURNS - 1) * ROWS and list(ledger.open) == [TURNS - 1]
    assert line["sink"].host.meter.words[line["sink"].at + mt.TUPLES_IN] == TURNS * ROWS


def test_the_rows_of_a_frame_are_let_go_before_the_rest_of_the_chain_has_what_came_of_them(
    line: dict[str, TaskThread],
) -> None:
    for _ in range(TURNS):
        line["numbers"].work.turn()
    assert held == [2] * TURNS, "the test's own list and the call that counts, nobody else"


def test_what_threads_of_a_chain_borrow_from_each_other_adds_up_to_nothing(
    line: dict[str, TaskThread],
) -> None:
    for _ in range(TURNS):
        line["numbers"].work.turn()
    words = line["numbers"].host.meter.words
    borrowed = {name: words[thread.at + mt.BORROWED_NS] for name, thread in line.items()}
    assert sum(borrowed.values()) == 0
    assert borrowed["numbers"] < 0 and all(borrowed[name] > 0 for name in NAMES[1:])


def queued(tmp_path: Path) -> dict[str, TaskThread]:
    """Some frames wait at `pairs`, which was not chained for a while and is now."""
    line = line_of(tmp_path, dict.fromkeys(range(1, 5), 1e5))  # a window of many frames
    line["numbers"].work.turn()  # looks at its orders
    targets, line["numbers"].post.targets = line["numbers"].post.targets, frozenset()
    for _ in range(TURNS):
        line["numbers"].work.turn()
    line["numbers"].post.targets = targets
    return line


def test_a_chain_is_entered_under_load_once_the_queue_before_it_is_drained(tmp_path: Path) -> None:
    line = queued(tmp_path)
    borrowed_ns = line["pairs"].borrowed_ns

    def drain() -> None:
        for _ in range(TURNS):
            time.sleep(0.003)
            line["pairs"].work.turn()

    pairs = threading.Thread(target=drain)
    pairs.start()
    line["numbers"].work.turn()
    pairs.join()
    words, at = line["pairs"].host.meter.words, line["pairs"].at
    assert line["pairs"].borrowed_ns > borrowed_ns, "the source ran it"
    assert words[at + mt.FRAMES_IN] == TURNS + 2 and line["pairs"].inbox.empty()


def test_a_receiver_that_does_not_drain_is_not_waited_for_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "DRAIN_S", 0.01)
    line = queued(tmp_path)
    line["numbers"].work.turn()
    for _ in range(TURNS + 1):
        line["pairs"].work.turn()
    words, at = line["pairs"].host.meter.words, line["pairs"].at
    assert words[at + mt.FRAMES_IN] == TURNS + 2 and line["pairs"].inbox.empty(), "in the order they came"
