"""What a thread keeps of its calls, from which is told how much rows differ (row_spread.py)."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any

from test_snapshots_at_a_close import frame_of, thread_of

from headgate.topology_runtime.api.logic import Keyed
from headgate.topology_runtime.measuring.row_spread import Calls, row_spread
from headgate.topology_runtime.worker.meters import meter as mt
from headgate.topology_runtime.worker.process.task_thread import TaskThread

SHORT_S, LONG_S, CALLS = 0.0002, 0.003, 60


class Burns(Keyed):
    """So many ns of CPU as the row says."""

    def new(self, key: Hashable) -> int:
        return 0

    def process(self, key: Hashable, row: Any, state: int) -> tuple[int, Iterable[Any]]:
        until_ns = time.thread_time_ns() + row[1]
        while time.thread_time_ns() < until_ns:
            pass
        return state + 1, []


class Sleeps(Keyed):
    """As long as the row says."""

    def new(self, key: Hashable) -> int:
        return 0

    def process(self, key: Hashable, row: Any, state: int) -> tuple[int, Iterable[Any]]:
        time.sleep(row[1])
        return state + 1, []


def counts(thread: TaskThread) -> tuple[Calls, Calls]:
    """Of its calls so far, on the CPU and off it."""
    words, at = thread.host.meter.words, thread.at
    of = words[at + mt.TUPLES_IN], words[at + mt.CALLS]
    waited_ns = words[at + mt.WAIT_NS]
    ran = Calls(*of, (words[at + mt.BUSY_NS] - waited_ns) / 1000, words[at + mt.RAN_SQUARES])
    return ran, Calls(*of, waited_ns / 1000, words[at + mt.WAITED_SQUARES])


def worked(thread: TaskThread, rows: Sequence[float]) -> None:
    """Each in a frame of its own, once the one before is done."""
    words, at = thread.host.meter.words, thread.at
    for number, row in enumerate(rows):
        thread.inbox.put((0, frame_of(("a", row), position=number), 0))
        while words[at + mt.TUPLES_IN] <= number:
            thread.work.turn()


def test_a_thread_counts_its_calls_and_how_long_each_was_off_the_cpu(tmp_path: Path) -> None:
    thread = thread_of(tmp_path, f"{__name__}:Sleeps")
    seconds = [SHORT_S if number % 2 else LONG_S for number in range(CALLS)]
    worked(thread, seconds)
    ran, waited = counts(thread)
    assert waited.calls == waited.rows == CALLS
    assert waited.squares_us2 >= sum((each * 1e6) ** 2 for each in seconds) * 0.95
    assert row_spread([waited]) is not None and ran.time_us > 0


def test_calls_that_take_the_same_cpu_have_about_no_spread(tmp_path: Path) -> None:
    """Of CPU, whatever else the machine does meanwhile; what a thread did before a frame came is not the frame's."""
    thread = thread_of(tmp_path, f"{__name__}:Burns")
    worked(thread, [2_000_000] * CALLS)
    ran, _ = counts(thread)
    spread = row_spread([ran])
    assert spread is not None and spread < 0.3
