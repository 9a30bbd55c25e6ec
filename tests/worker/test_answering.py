"""The thread that says what snapshots on its VM hold: the real one, over real files, without user code."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.disk import DiskTroubles
from headgate.topology_runtime.messages import ThreadSpec
from headgate.topology_runtime.state_moves import RangeCopy, StateAsked, StateMove
from headgate.topology_runtime.topology import KEY_RANGES, Edge, Static, Task, Topology
from headgate.topology_runtime.worker import meter as mt
from headgate.topology_runtime.worker.frames import AnsweringWork
from headgate.topology_runtime.worker.held_lease import HeldLease
from headgate.topology_runtime.worker.keyed_snapshots import KeyedSnapshot
from headgate.topology_runtime.worker.snapshots import SnapshotFiles
from headgate.topology_runtime.worker.switchboard import Switchboard
from headgate.topology_runtime.worker.threads import Host, TaskThread

SLOT = Slot("vm1", 0)
TOPOLOGY = Topology(
    "counting",
    (
        Task("source", kind="source", run="nowhere:Source", static=Static()),
        Task("tally", kind="keyed", state="keyed", run="nowhere:Tally"),
    ),
    (Edge("source", "tally", grouping="fields", key="nowhere:key"),),
)


@contextmanager
def answering(directory: Path) -> Iterator[Switchboard]:
    """A thread in the place of thread 5 of the task; thread 9 asks."""
    meter = mt.Meter(fd := mt.create())
    board = Switchboard(SLOT, 1)
    board.slot_of = {5: SLOT, 9: SLOT}
    host = Host(
        board, meter, str(directory), lambda _: None, lambda: None, lambda _: None, threading.Lock(),
        DiskTroubles(), HeldLease(), threading.Lock(), {},
    )  # fmt: skip
    desired = ThreadSpec(5, "tally", SLOT, leaving=True, answers=True)
    thread = TaskThread(desired, TOPOLOGY, host, meter.thread_record(), AnsweringWork)
    thread.start()
    yield board
    thread.stopping = True
    board.put(5, None)
    thread.join(10)
    os.close(fd)
    assert not thread.is_alive() and not thread.failed


def test_it_answers_for_a_thread_that_is_no_more(tmp_path: Path) -> None:
    SnapshotFiles(str(tmp_path), "tally", 5).save(KeyedSnapshot((RangeCopy(3, 2, b"state"),)))
    with answering(tmp_path) as board:
        board.put(5, StateAsked(9, 5, 4, "tally", 5))
        move = board.inbox(9).get(timeout=10)
    assert isinstance(move, StateMove) and (move.target, move.number, move.gone) == (9, 4, 5)
    assert len(move.copies) == KEY_RANGES
    assert [copy for copy in move.copies if copy.version >= 0] == [RangeCopy(3, 2, b"state")]


def test_it_reads_nothing_but_snapshots_of_tasks_that_there_are(tmp_path: Path) -> None:
    """What a peer names is part of a path."""
    with answering(tmp_path / "vm") as board:
        board.put(5, StateAsked(9, 5, 4, "../../elsewhere", 5))
        board.put(5, StateAsked(9, 5, 7, "tally", 5))
        move = board.inbox(9).get(timeout=10)
    assert move.number == 7, "the first question has no answer"
