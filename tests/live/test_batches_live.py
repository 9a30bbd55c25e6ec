"""Batched tasks in real workers: every row arrives, as columns between processes too, whatever dies."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from patience import PATIENCE_S

from headgate.topology_runtime.api.topology import Edge, Grouping, Static, Task, Topology
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.worker.meters import meter as mt
from headgate.topology_runtime.worker.rig import Rig

pytestmark = pytest.mark.live
HERE = str(Path(__file__).parent)
KINDS = {"even": "filter", "twice": "flat_map"}


def line(*names: str, source: str = "batch_tasks:Vectors", grouping: Grouping = "shuffle") -> Topology:
    """source → … → store, each task running the function of its name in batch_tasks."""
    tasks = [Task("source", kind="source", run=source, static=Static())]
    tasks += [Task(name, kind=KINDS.get(name, "map"), run=f"batch_tasks:{name}") for name in names]  # type: ignore[arg-type]
    key = "id" if grouping == "fields" else None
    edges = [
        Edge(a, b, grouping=grouping, key=key) for a, b in itertools.pairwise(["source", *names, "store"])
    ]
    return Topology("line", (*tasks, Task("store", kind="hold", run="rig_tasks:Lines")), tuple(edges))


def rig_of(
    topology: Topology,
    places: Mapping[str, Sequence[int]],
    tmp_path: Path,
    strict: bool = False,
    chained: tuple[str, ...] = (),
) -> Rig:
    (tmp_path / "out").mkdir()
    tasks = tuple(
        Task("store", kind="hold", run="rig_tasks:Lines", params={"folder": str(tmp_path / "out")})
        if task.name == "store"
        else task
        for task in topology.tasks
    )
    topology = Topology(topology.name, tasks, topology.edges)
    return Rig(topology, places, str(tmp_path), (HERE,), m.DataPlaneSettings(strict=strict), chained=chained)


def stored(tmp_path: Path) -> Counter[int]:
    return Counter(int(text) for path in (tmp_path / "out").iterdir() for text in path.read_text().split())


def run(rig: Rig, rate_tps: float, seconds: float) -> int:
    """Offer a rate for so long, drain; how many rows the source emitted."""
    try:
        rig.start()
        emitted = rig.emit(rate_tps, seconds)
        rig.pump(0.3)
    finally:
        rig.stop()
    return emitted


@pytest.mark.parametrize("strict", [False, True], ids=["", "strict"])
@pytest.mark.parametrize("grouping", ["shuffle", "fields"])
def test_columns_cross_two_workers_and_every_row_arrives_once(
    grouping: Grouping, strict: bool, tmp_path: Path
) -> None:
    places = {"source": [0], "mean": [1, 1], "fourfold": [0, 1], "named": [1], "store": [0]}
    rig = rig_of(line("mean", "fourfold", "named", grouping=grouping), places, tmp_path, strict)
    emitted = run(rig, 3000.0, 1.0)
    assert stored(tmp_path) == Counter(range(emitted)) and not rig.letters()


def test_batched_tasks_may_be_chained(tmp_path: Path) -> None:
    names = ("mean", "fourfold", "named")
    places = {name: [0] for name in ("source", *names, "store")}
    rig = rig_of(line(*names), places, tmp_path, chained=names)
    emitted = run(rig, 3000.0, 1.0)
    assert stored(tmp_path) == Counter(range(emitted)) and not rig.letters()


def test_batched_filters_and_flat_maps_keep_count(tmp_path: Path) -> None:
    rig = rig_of(line("even", "twice"), {"source": [0], "even": [1], "twice": [0], "store": [1]}, tmp_path)
    emitted = run(rig, 2000.0, 0.7)
    assert stored(tmp_path) == Counter({n: 2 for n in range(0, emitted, 2)})


def test_nothing_is_lost_when_workers_are_killed_between_columns(tmp_path: Path) -> None:
    """`kill -9` of each worker in turn, also of the one that reads the columns."""
    places = {"source": [0], "mean": [1], "fourfold": [2], "named": [1], "store": [2]}
    rig = rig_of(line("mean", "fourfold", "named"), places, tmp_path)
    try:
        rig.start()
        rig.offer([(0.0, 600.0)])
        for slot in (1, 2, 0):
            rig.pump(0.7)
            rig.kill(slot)
            rig.respawn(slot)
        rig.wait(lambda: rig.count_emitted() > 600, PATIENCE_S, "rows")
        rig.drain()
        emitted = max(source.emitted for source in rig.sources())
    finally:
        rig.stop()
    found = stored(tmp_path)
    assert sorted(found) == list(range(emitted))
    assert found.total() < 3 * emitted and not rig.letters()


@pytest.mark.parametrize(
    ("task", "row", "error"),
    [
        ("fails_at_seven", 7, "ValueError: seven is not to be had"),
        ("fails_at_nine", 9, "ValueError: nine is not to be had"),
        ("strange_at_five", 5, "BadRow: a row holds a builtins.type"),
    ],
)
@pytest.mark.parametrize("slot", [0, 1], ids=["here", "elsewhere"])
def test_only_the_guilty_row_is_a_dead_letter(
    task: str, row: int, error: str, slot: int, tmp_path: Path
) -> None:
    rig = rig_of(line(task), {"source": [0], task: [0], "store": [slot]}, tmp_path, strict=slot == 0)
    emitted = run(rig, 1000.0, 0.6)
    assert stored(tmp_path) == Counter(n for n in range(emitted) if n != row)
    (letter,) = rig.letters()
    assert (letter.task, letter.position) == (task, row) and letter.error.startswith(error)


def test_a_wrong_number_of_results_costs_the_rows_of_that_call(tmp_path: Path) -> None:
    places = {"source": [0], "forgets_at_five": [1], "store": [0]}
    rig = rig_of(line("forgets_at_five", source="rig_tasks:Ids"), places, tmp_path)
    emitted = run(rig, 1000.0, 0.6)
    letters = rig.letters()
    dead = {letter.position for letter in letters}
    assert 5 in dead and dead == set(range(min(dead), max(dead) + 1)) and len(dead) < emitted
    assert stored(tmp_path) == Counter(n for n in range(emitted) if n not in dead)
    assert all(f"{len(dead) - 1} results for {len(dead)} rows" in letter.error for letter in letters)


@pytest.mark.parametrize("slot", [0, 1], ids=["here", "elsewhere"])
def test_a_call_takes_what_waits_for_it(slot: int, tmp_path: Path) -> None:
    """Fifty calls a second for a thousand rows, which come one by one: without gathering a hundred get through."""
    rig = rig_of(
        line("slow", source="rig_tasks:Ids"), {"source": [0], "slow": [slot], "store": [0]}, tmp_path
    )
    try:
        rig.start()
        rig.offer([(0.0, 1000.0)])
        rig.pump(2.0)
        done = rig.count("slow")
        rig.drain()
        emitted = rig.count("source", mt.SOURCE_EMITTED)
        rig.pump(0.3)
    finally:
        rig.stop()
    assert done > 200
    assert stored(tmp_path) == Counter(range(emitted))
