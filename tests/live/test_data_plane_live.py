"""The real workers, without agent and controller: every row arrives, whatever dies."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from large_tasks import BAD
from patience import PATIENCE_S

from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.keys.worker_keys import WorkerKeys
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.worker.rig import Rig

pytestmark = pytest.mark.live
HERE = str(Path(__file__).parent)


def line(*names: str) -> Topology:
    """source → … → store, each task running the function of its name in rig_tasks."""
    tasks = [Task("source", kind="source", run="rig_tasks:Ids", static=Static())]
    tasks += [Task(name, run=f"rig_tasks:{name}") for name in names]
    chain = ["source", *names, "store"]
    return Topology(
        "line", (*tasks, Task("store", kind="hold")), tuple(Edge(a, b) for a, b in itertools.pairwise(chain))
    )


def with_store(topology: Topology, folder: Path) -> Topology:
    tasks = tuple(
        Task("store", kind="hold", run="rig_tasks:Lines", params={"folder": str(folder)})
        if t.name == "store"
        else t
        for t in topology.tasks
    )
    return Topology(topology.name, tasks, topology.edges)


def rig_of(
    topology: Topology, places: Mapping[str, Sequence[int]], tmp_path: Path, keys: WorkerKeys | None = None
) -> Rig:
    (tmp_path / "out").mkdir()
    topology = with_store(topology, tmp_path / "out")
    strict, keys = m.DataPlaneSettings(strict=True), keys or WorkerKeys()
    return Rig(topology, places, str(tmp_path), (HERE,), strict, keys=keys)


def stored(tmp_path: Path) -> Counter[int]:
    lines = [int(text) for path in (tmp_path / "out").iterdir() for text in path.read_text().split()]
    return Counter(lines)


def test_every_row_arrives_once_over_two_workers(tmp_path: Path) -> None:
    rig = rig_of(
        line("left", "right"), {"source": [0], "left": [1, 1], "right": [0, 1], "store": [0]}, tmp_path
    )
    try:
        rig.start()
        emitted = rig.emit(2000.0, 1.0)
    finally:
        rig.stop()
    assert emitted > 1000
    assert stored(tmp_path) == Counter(range(emitted))


def test_threads_without_rows_sleep(tmp_path: Path) -> None:
    """They look round once a second: in a slot of a fifth of a core, ten times a second was a tenth of its CPU."""
    threads = 40
    rig = rig_of(line("left"), {"source": [0], "left": [1] * threads, "store": [0]}, tmp_path)
    try:
        rig.start()
        rig.pump(0.5)
        before, began_s = wakes(rig.pid_of(1)), time.monotonic()
        rig.pump(2.0)
        woken, seconds = wakes(rig.pid_of(1)) - before, time.monotonic() - began_s
    finally:
        rig.stop()
    assert 0 < woken < 4 * threads * seconds


def wakes(pid: int) -> int:
    """How often the threads of a process have given up the CPU to wait."""
    status = (Path(path, "status").read_text() for path in Path(f"/proc/{pid}/task").iterdir())
    return sum(int(text.split("\nvoluntary_ctxt_switches:")[1].split()[0]) for text in status)


def test_a_join_of_two_branches_pairs_every_row(tmp_path: Path) -> None:
    topology = Topology(
        "join",
        (
            Task("source", kind="source", run="rig_tasks:Ids", static=Static()),
            Task("left", run="rig_tasks:left"),
            Task("right", run="rig_tasks:right"),
            Task("pair", kind="hold", run="rig_tasks:Pair"),
            Task("store", kind="hold"),
        ),
        (
            Edge("source", "left"),
            Edge("source", "right"),
            Edge("left", "pair", grouping="fields", key="id"),
            Edge("right", "pair", grouping="fields", key="id"),
            Edge("pair", "store"),
        ),
    )
    places = {"source": [0], "left": [0, 1], "right": [1], "pair": [0, 1], "store": [1]}
    rig = rig_of(topology, places, tmp_path)
    try:
        rig.start()
        emitted = rig.emit(1000.0, 1.0)
    finally:
        rig.stop()
    assert stored(tmp_path) == Counter(range(emitted))


def test_nothing_is_lost_when_workers_are_killed(tmp_path: Path) -> None:
    """`kill -9` of the middle, of the sink and of the source's worker; duplicates are allowed, losses not."""
    rig = rig_of(line("left", "right"), {"source": [0], "left": [1], "right": [1], "store": [2]}, tmp_path)
    try:
        rig.start()
        rig.offer([(0.0, 500.0)])
        for slot in (1, 2, 0):
            rig.pump(0.7)
            rig.kill(slot)
            rig.respawn(slot)
        rig.wait(lambda: rig.count_emitted() > 500, PATIENCE_S, "rows")
        rig.drain()
        emitted = max(s.emitted for s in rig.sources())
    finally:
        rig.stop()
    found = stored(tmp_path)
    assert sorted(found) == list(range(emitted))
    assert found.total() < 3 * emitted


def test_a_source_killed_while_the_run_drains_sends_again_what_was_open(tmp_path: Path) -> None:
    rig = rig_of(line("left"), {"source": [0], "left": [1], "store": [1]}, tmp_path)
    try:
        rig.start()
        rig.offer([(0.0, 2000.0)])
        rig.wait(lambda: rig.count_emitted() > 500, PATIENCE_S, "rows")
        rig.send("committed", draining=True)
        rig.kill(0)
        rig.respawn(0)
        rig.drain()
        emitted = max(s.emitted for s in rig.sources())
    finally:
        rig.stop()
    assert sorted(stored(tmp_path)) == list(range(emitted))


def test_flat_map_and_filter_keep_count(tmp_path: Path) -> None:
    rig = rig_of(line("twice", "even"), {"source": [0], "twice": [1], "even": [0], "store": [1]}, tmp_path)
    try:
        rig.start()
        emitted = rig.emit(1000.0, 0.5)
    finally:
        rig.stop()
    assert stored(tmp_path) == Counter({n: 2 for n in range(0, emitted, 2)})


@pytest.mark.parametrize(
    ("task", "row", "error"), [("fails_at_seven", 7, "ValueError"), ("not_plain", 5, "BadRow")]
)
def test_a_row_that_fails_is_a_dead_letter_and_the_rest_goes_on(
    task: str, row: int, error: str, tmp_path: Path
) -> None:
    rig = rig_of(line(task), {"source": [0], task: [0], "store": [1]}, tmp_path)
    try:
        rig.start()
        emitted = rig.emit(500.0, 0.5)
        rig.pump(0.2)
    finally:
        rig.stop()
    assert stored(tmp_path) == Counter(n for n in range(emitted) if n != row)
    (letter,) = rig.letters()
    assert (letter.task, letter.position) == (task, row)
    assert error in letter.error and "Traceback" in letter.traceback


def tally() -> Topology:
    return Topology(
        "tally",
        (
            Task("source", kind="source", run="rig_tasks:Ids", static=Static()),
            Task("group", run="rig_tasks:group"),
            Task("tally", kind="keyed", state="keyed", run="rig_tasks:Tally"),
            Task("store", kind="hold"),
        ),
        (
            Edge("source", "group"),
            Edge("group", "tally", grouping="fields", key="group"),
            Edge("tally", "store"),
        ),
    )


def counts_of(found: Counter[int]) -> dict[int, list[int]]:
    """group → counts that were stored."""
    groups: dict[int, list[int]] = {}
    for value in sorted(found):
        groups.setdefault(value // 1_000_000, []).append(value % 1_000_000)
    return groups


def test_keyed_state_counts_every_row_once(tmp_path: Path) -> None:
    rig = rig_of(tally(), {"source": [0], "group": [0], "tally": [0, 1], "store": [1]}, tmp_path)
    try:
        rig.start()
        emitted = rig.emit(700.0, 1.5)
    finally:
        rig.stop()
    for group, counts in counts_of(stored(tmp_path)).items():
        assert counts == list(range(1, len(range(group, emitted, 7)) + 1))


def test_keyed_state_survives_its_killed_worker(tmp_path: Path) -> None:
    """Rows that no snapshot covers come again: nothing is missing, nothing is counted from zero."""
    rig = rig_of(tally(), {"source": [0], "group": [0], "tally": [1], "store": [2]}, tmp_path)
    try:
        rig.start()
        rig.offer([(0.0, 300.0)])
        rig.pump(2.5)
        rig.kill(1)
        rig.respawn(1)
        rig.pump(1.0)
        rig.drain()
        emitted = max(s.emitted for s in rig.sources())
    finally:
        rig.stop()
    groups = counts_of(stored(tmp_path))
    assert sorted(groups) == list(range(7))
    for group, counts in groups.items():
        assert counts == list(range(1, len(range(group, emitted, 7)) + 1))


# ── Rows of a hundred kilobytes go in as many frames as they need; one that no frame holds is a dead
# letter, once


def test_large_rows_arrive_and_one_that_is_too_large_is_a_dead_letter(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    tasks = (
        Task("source", kind="source", run="rig_tasks:Ids", static=Static()),
        Task("swell", run="large_tasks:swell"),
        Task("shrink", run="large_tasks:shrink"),
        Task("store", kind="hold"),
    )
    edges = tuple(Edge(a.name, b.name) for a, b in itertools.pairwise(tasks))
    topology = with_store(Topology("large", tasks, edges), tmp_path / "out")
    places = {"source": [0], "swell": [0], "shrink": [1], "store": [1]}
    settings = m.DataPlaneSettings(gap_s=0.2, frame_rows=256)  # frames of more than ZeroMQ lets in
    rig = Rig(topology, places, str(tmp_path), (HERE,), settings)
    try:
        rig.start()
        emitted = rig.emit(1500.0, 0.8)
        letters = rig.letters()
    finally:
        rig.stop()
    assert emitted > 300
    assert [(letter.task, letter.position) for letter in letters] == [("swell", BAD)]
    assert "768 KiB" in letters[0].error
    assert stored(tmp_path) == Counter(set(range(emitted)) - {BAD})
