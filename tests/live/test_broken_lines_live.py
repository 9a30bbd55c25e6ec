"""Lines between real workers break in every way; each row is paired and stored, soon after they are whole."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from broken_line import BrokenLine, Mode, reset
from line_rigs import JOIN, rig_of, stored

from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.worker.meters import meter as mt
from headgate.topology_runtime.worker.rig import Rig

pytestmark = [pytest.mark.live, pytest.mark.alone]
RATE_TPS = 500.0
RESUME_S, CAUGHT_UP_S = 3.0, 6.0  # a machine with nothing else to do needs less than 1 s

PLACES = {"source": [0], "left": [1], "right": [2], "pair": [1, 2], "store": [2]}


@contextmanager
def joined(tmp_path: Path) -> Iterator[tuple[Rig, dict[int, BrokenLine]]]:
    """A join over three workers, each reached by a line that can break."""
    lines: dict[int, BrokenLine] = {}

    def through(slot: int, endpoint: str) -> str:
        lines[slot] = BrokenLine(endpoint)
        return lines[slot].endpoint

    settings = m.DataPlaneSettings(window_s=10.0)
    rig = rig_of(JOIN, PLACES, tmp_path, settings, modelled_tps={"source": RATE_TPS}, through=through)
    try:
        rig.start()
        yield rig, lines
    finally:
        rig.stop()
        for line in lines.values():
            line.close()


def resumes_in_s(rig: Rig) -> tuple[float, float]:
    """Until the first of what is open is acked, and until all that was emitted by now is."""
    began, emitted = time.monotonic(), rig.count("source", mt.SOURCE_EMITTED)
    acked = rig.count("source", mt.SOURCE_ACKED)
    rig.wait(lambda: rig.count("source", mt.SOURCE_ACKED) > acked, 15.0, "the first rows to get through")
    first_s = time.monotonic() - began
    rig.wait(lambda: rig.count("source", mt.SOURCE_ACKED) >= emitted, 15.0, "all rows to get through")
    return first_s, time.monotonic() - began


ALL = (0, 1, 2)
Case = tuple[tuple[int, ...], Mode, float]  # lines that break, how, for how many seconds
TOGETHER: tuple[tuple[Case, Case], ...] = (
    ((ALL, "silent", 5.0), (ALL, "deaf", 5.0)),
    ((ALL, "refusing", 2.0), (ALL, "silent", 0.8)),
    (((0,), "silent", 5.0), ((2,), "deaf", 5.0)),
    (((0,), "refusing", 2.0), ((2,), "silent", 0.8)),
)
ONLY_FULL: tuple[tuple[Case, Case], ...] = (
    (((0,), "deaf", 5.0), ((2,), "silent", 5.0)),
    (((0,), "silent", 0.8), ((2,), "refusing", 2.0)),
)  # every way on all lines at once and on one line; the others are for the full run


@pytest.mark.parametrize(
    "cases", [*TOGETHER, *(pytest.param(two, marks=pytest.mark.full) for two in ONLY_FULL)], ids=str
)
def test_a_line_that_breaks_loses_nothing(cases: tuple[Case, Case], tmp_path: Path) -> None:
    """Two rigs at once: each mostly waits."""
    with ThreadPoolExecutor(len(cases)) as pool:
        each = [pool.submit(broken, case, tmp_path / str(n)) for n, case in enumerate(cases)]
        for one in each:
            one.result()


def test_a_relay_resets_what_both_ends_have_closed_already() -> None:
    async def closed_twice() -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.close()
        await writer.wait_closed()
        reset(writer)
        server.close()

    with ThreadPoolExecutor(1) as other:  # this one has a loop already where tests with a browser ran before
        other.submit(asyncio.run, closed_twice()).result(10)


def broken(case: Case, folder: Path) -> None:
    slots, mode, seconds = case
    folder.mkdir()
    with joined(folder) as (rig, lines):
        rig.offer([(0.0, RATE_TPS)])
        rig.pump(1.5)
        for slot in slots:
            lines[slot].become(mode)
        rig.pump(seconds)
        for slot in slots:
            lines[slot].become("open")
        first_s, all_s = resumes_in_s(rig)
        rig.drain()
        emitted = rig.count("source", mt.SOURCE_EMITTED)
    found = stored(folder)
    twice = found.total() - emitted
    print(f"{mode} {seconds} s at {slots}: {first_s:.2f} s, all {all_s:.2f} s, {twice} of {emitted} twice")
    assert sorted(found) == list(range(emitted)) and emitted > RATE_TPS, case
    assert first_s <= RESUME_S and all_s <= CAUGHT_UP_S, case


def test_a_worker_that_stops_for_four_seconds_is_not_dead_and_loses_nothing(tmp_path: Path) -> None:
    with joined(tmp_path) as (rig, _):
        rig.offer([(0.0, RATE_TPS)])
        rig.pump(1.0)
        os.kill(rig.pid_of(1), signal.SIGSTOP)
        rig.pump(4.0)
        os.kill(rig.pid_of(1), signal.SIGCONT)
        first_s, all_s = resumes_in_s(rig)
        rig.drain()
        emitted, sent_again = (rig.count("source", what) for what in (mt.SOURCE_EMITTED, mt.SOURCE_REPLAYED))
    print(f"{first_s:.2f} s, all {all_s:.2f} s, {sent_again} of {emitted} sent again")
    assert sorted(stored(tmp_path)) == list(range(emitted))
    assert sent_again <= 3 * RATE_TPS * 5
    assert Counter(stored(tmp_path)).total() < 2 * emitted


@pytest.mark.parametrize("stopped", [(1,), (0, 1, 2)], ids=["one worker", "all workers"])
def test_workers_that_stand_still_for_three_seconds_cost_no_row_a_second_time(
    stopped: tuple[int, ...], tmp_path: Path
) -> None:
    """Their kernel takes what comes meanwhile: no link breaks, so nothing is lost on its way."""
    with joined(tmp_path) as (rig, _):
        rig.offer([(0.0, RATE_TPS)])
        rig.pump(1.0)
        for slot in stopped:
            os.kill(rig.pid_of(slot), signal.SIGSTOP)
        rig.pump(3.0)
        for slot in stopped:
            os.kill(rig.pid_of(slot), signal.SIGCONT)
        resumes_in_s(rig)
        rig.drain()
        emitted, sent_again = (rig.count("source", what) for what in (mt.SOURCE_EMITTED, mt.SOURCE_REPLAYED))
    assert sent_again == 0 and stored(tmp_path) == Counter(range(emitted))
