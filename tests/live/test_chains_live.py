"""Threads run by the thread before them: who calls whom, that nothing is lost, doubled or out of order when chains come
and go, and whose CPU it is."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from line_rigs import HERE, started
from patience import timed

from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.worker.meters import meter as mt
from headgate.topology_runtime.worker.rig import Rig

pytestmark = pytest.mark.live
NAMES = ("first", "second", "last")


def rig_of(
    tmp_path: Path, runs: dict[str, str], chained: tuple[str, ...], slots: dict[str, int] | None = None
) -> Rig:
    """source → first → second → last, a thread each."""
    (tmp_path / "out").mkdir()
    params = {"folder": str(tmp_path / "out")}
    tasks = [Task("source", kind="source", run="rig_tasks:Ids", static=Static())]
    for name in NAMES:
        run = runs.get(name, "chain_tasks:Anywhere")
        tasks.append(Task(name, run=run, params=params if run[-6:] != "costly" else {}))
    line = ["source", *NAMES]
    topology = Topology("line", tuple(tasks), tuple(Edge(a, b) for a, b in itertools.pairwise(line)))
    places = {name: [(slots or {}).get(name, 0)] for name in line}
    return Rig(topology, places, str(tmp_path), (HERE,), chained=chained)


def noted(tmp_path: Path, task: str) -> list[tuple[int, int]]:
    """(id, thread) of every call that is wholly noted, in order."""
    texts = (path.read_text().rpartition("\n")[0] for path in (tmp_path / "out").glob(f"{task}-*.txt"))
    return [(int(row), int(thread)) for text in texts for row, thread in map(str.split, text.splitlines())]


def callers(tmp_path: Path, task: str) -> set[int]:
    return {thread for _, thread in noted(tmp_path, task)}


def test_who_is_chained_is_called_by_the_thread_before_it(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, {}, NAMES)
    with started(rig):
        rows = rig.emit(2000.0, 1.0)
    assert rows > 1000
    for name in NAMES:
        assert [row for row, _ in noted(tmp_path, name)] == list(range(rows))
    last = {name: noted(tmp_path, name)[-1][1] for name in NAMES}
    assert len(set(last.values())) == 1, "one thread runs all of them"


def test_without_chains_each_task_has_its_own_thread(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, {}, ())
    with started(rig):
        rig.emit(500.0, 0.5)
    seen = [callers(tmp_path, name) for name in NAMES]
    assert all(len(one) == 1 for one in seen) and len(set.union(*seen)) == 3


def test_what_belongs_to_a_thread_stays_in_it(tmp_path: Path) -> None:
    """sqlite3 refuses to be used by another thread than the one that made the connection."""
    rig = rig_of(tmp_path, {"second": "chain_tasks:Bound"}, NAMES)
    with started(rig):
        rows = rig.emit(1000.0, 1.0)
        letters = rig.letters()
    assert letters == [] and [row for row, _ in noted(tmp_path, "last")] == list(range(rows))
    assert len(callers(tmp_path, "second")) == 1
    assert noted(tmp_path, "second")[-1][1] == noted(tmp_path, "last")[-1][1], "it runs what comes after it"
    assert noted(tmp_path, "first")[-1][1] != noted(tmp_path, "second")[-1][1]


def test_a_chain_ends_where_the_worker_does(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, {}, NAMES, {"second": 1, "last": 1})
    with started(rig):
        rows = rig.emit(1000.0, 1.0)
    assert [row for row, _ in noted(tmp_path, "last")] == list(range(rows))
    assert noted(tmp_path, "second")[-1][1] == noted(tmp_path, "last")[-1][1]
    assert not callers(tmp_path, "first") & callers(tmp_path, "second")


def test_chains_that_come_and_go_under_load_lose_and_disorder_nothing(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, {}, ())
    with started(rig):
        rig.offer([(0.0, 20_000.0)])
        for turn in range(1200):
            rig.pump(0.15)
            rig.chained = (NAMES, (), ("second",), ("first", "last"))[turn % 4]
            rig.send("committed")
            if turn >= 11 and all(len(callers(tmp_path, name)) > 1 for name in NAMES):
                break
        rig.drain()
        rows = rig.count_emitted()
    for name in NAMES:
        assert [row for row, _ in noted(tmp_path, name)] == list(range(rows))
    assert all(len(callers(tmp_path, name)) > 1 for name in NAMES), "by its own thread, and by another"


def test_nothing_is_lost_when_a_chained_worker_is_killed(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, {}, NAMES)
    with started(rig):
        rig.offer([(0.0, 500.0)])
        for _ in range(2):
            rig.pump(0.6)
            rig.kill(0)
            rig.respawn(0)
        rig.pump(0.5)
        rig.drain()
        rows = max(source.emitted for source in rig.sources())
    assert {row for row, _ in noted(tmp_path, "last")} == set(range(rows))


@timed
def test_cpu_is_the_task_s_whoever_spends_it(timed: bool, tmp_path: Path) -> None:
    """What one thread borrows another lends; and by the kernel's own count the task's thread did next to nothing."""
    rig = rig_of(tmp_path, {"second": "chain_tasks:costly"}, NAMES)
    with started(rig):
        rows = rig.emit(500.0, 1.5)
        borrowed = {name: rig.count(name, mt.BORROWED_NS) for name in ("source", *NAMES)}
        own_ns = kernel_ns(rig.pid_of(0), rig.count("second", mt.TID))
    assert sum(borrowed.values()) == 0 and borrowed["source"] < 0
    assert borrowed["second"] > own_ns
    if timed:
        assert 1.5 * rows * 200_000 > borrowed["second"] > 0.8 * rows * 200_000 > own_ns


def kernel_ns(pid: int, tid: int) -> int:
    """CPU of one thread."""
    return int(Path(f"/proc/{pid}/task/{tid}/schedstat").read_text().split()[0])
