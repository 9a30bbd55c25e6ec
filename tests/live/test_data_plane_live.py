"""The real workers, without agent and controller: every row arrives, one by one and in batches, whatever dies."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest
from large_tasks import BAD
from line_rigs import JOIN, SOURCE, STORE, emitted, killed, line, rig_of, started, stored

from headgate.topology_runtime.api.topology import Edge, Grouping, Task, Topology
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.worker.meters import meter as mt

pytestmark = pytest.mark.live
BATCHED = ("mean", "fourfold", "named")


def batched(*names: str, grouping: Grouping = "shuffle") -> Topology:
    return line(*names, module="batch_tasks", source="batch_tasks:Vectors", grouping=grouping)


def test_threads_without_rows_sleep(tmp_path: Path) -> None:
    """They look round once a second: in a slot of a fifth of a core, ten times a second was a tenth of its CPU."""
    threads, seconds = 40, 2.0
    with started(rig_of(line("left"), {"source": [0], "left": [1] * threads, "store": [0]}, tmp_path)) as rig:
        rig.pump(0.5)
        before = wakes(rig.pid_of(1))
        rig.pump(seconds)
        woken = wakes(rig.pid_of(1)) - before
    assert 0 < woken < 4 * threads * seconds


def wakes(pid: int) -> int:
    """How often the threads of a process have given up the CPU to wait."""
    status = (Path(path, "status").read_text() for path in Path(f"/proc/{pid}/task").iterdir())
    return sum(int(text.split("\nvoluntary_ctxt_switches:")[1].split()[0]) for text in status)


# ── every row arrives once ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("topology", "places"),
    [
        (line("left", "right"), {"source": [0], "left": [1, 1], "right": [0, 1], "store": [0]}),
        (JOIN, {"source": [0], "left": [0, 1], "right": [1], "pair": [0, 1], "store": [1]}),
    ],
    ids=["line", "join"],
)
def test_every_row_arrives_once_over_two_workers(
    topology: Topology, places: dict[str, list[int]], tmp_path: Path
) -> None:
    rows = emitted(rig_of(topology, places, tmp_path), 1000.0, 1.0)
    assert rows > 500 and stored(tmp_path) == Counter(range(rows))


@pytest.mark.parametrize("strict", [False, True], ids=["", "strict"])
@pytest.mark.parametrize("grouping", ["shuffle", "fields"])
def test_columns_cross_two_workers_and_every_row_arrives_once(
    grouping: Grouping, strict: bool, tmp_path: Path
) -> None:
    places = {"source": [0], "mean": [1, 1], "fourfold": [0, 1], "named": [1], "store": [0]}
    rig = rig_of(batched(*BATCHED, grouping=grouping), places, tmp_path, m.DataPlaneSettings(strict=strict))
    rows = emitted(rig, 3000.0, 1.0)
    assert stored(tmp_path) == Counter(range(rows)) and not rig.letters()


def test_batched_tasks_may_be_chained(tmp_path: Path) -> None:
    places = {name: [0] for name in ("source", *BATCHED, "store")}
    rig = rig_of(batched(*BATCHED), places, tmp_path, m.DataPlaneSettings(), chained=BATCHED)
    rows = emitted(rig, 3000.0, 1.0)
    assert stored(tmp_path) == Counter(range(rows)) and not rig.letters()


@pytest.mark.parametrize(
    "topology", [line("twice", "even"), batched("even", "twice")], ids=["rows", "batches"]
)
def test_flat_map_and_filter_keep_count(topology: Topology, tmp_path: Path) -> None:
    rig = rig_of(topology, {"source": [0], "twice": [1], "even": [0], "store": [1]}, tmp_path)
    rows = emitted(rig, 1500.0, 0.6)
    assert stored(tmp_path) == Counter({n: 2 for n in range(0, rows, 2)})


# ── whatever dies ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("topology", "places"),
    [
        (line("left", "right"), {"source": [0], "left": [1], "right": [1], "store": [2]}),
        (batched(*BATCHED), {"source": [0], "mean": [1], "fourfold": [2], "named": [1], "store": [2]}),
    ],
    ids=["rows", "batches"],
)
def test_nothing_is_lost_when_workers_are_killed(
    topology: Topology, places: dict[str, list[int]], tmp_path: Path
) -> None:
    """`kill -9` of the middle, of the sink and of the source's worker; duplicates are allowed, losses not."""
    rig = rig_of(topology, places, tmp_path, m.DataPlaneSettings(strict=len(places) == 4))
    rows = killed(rig, 500.0, (1, 2, 0))
    found = stored(tmp_path)
    assert rows > 500 and sorted(found) == list(range(rows))
    assert found.total() < 3 * rows and not rig.letters()


def test_a_source_killed_while_the_run_drains_sends_again_what_was_open(tmp_path: Path) -> None:
    with started(rig_of(line("left"), {"source": [0], "left": [1], "store": [1]}, tmp_path)) as rig:
        rig.offer([(0.0, 2000.0)])
        rig.pump(0.7)
        rig.send("committed", draining=True)
        rig.kill(0)
        rig.respawn(0)
        rig.drain()
        rows = max(s.emitted for s in rig.sources())
    found = sorted(stored(tmp_path))
    assert rows > 500 and found[:rows] == list(range(rows))
    assert found == list(range(len(found))), (
        "what it had sent and not yet said when it was killed is at the end"
    )


# ── rows that fail ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("topology", "task", "row", "error"),
    [
        (line("fails_at_seven"), "fails_at_seven", 7, "ValueError: seven is not to be had"),
        (line("not_plain"), "not_plain", 5, "BadRow"),
        (batched("fails_at_seven"), "fails_at_seven", 7, "ValueError: seven is not to be had"),
        (batched("fails_at_nine"), "fails_at_nine", 9, "ValueError: nine is not to be had"),
        (batched("strange_at_five"), "strange_at_five", 5, "BadRow: a row holds a builtins.type"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
@pytest.mark.parametrize("slot", [0, 1], ids=["here", "elsewhere"])
def test_only_the_guilty_row_is_a_dead_letter(
    topology: Topology, task: str, row: int, error: str, slot: int, tmp_path: Path
) -> None:
    places = {"source": [0], task: [0], "store": [slot]}
    rig = rig_of(topology, places, tmp_path, m.DataPlaneSettings(strict=slot == 0))
    rows = emitted(rig, 1000.0, 0.6)
    assert stored(tmp_path) == Counter(n for n in range(rows) if n != row)
    (letter,) = rig.letters()
    assert (letter.task, letter.position) == (task, row)
    remedy = "try: " if error.startswith("BadRow") else "Traceback"  # ours has no place in the user's code
    assert letter.error.startswith(error) and remedy in letter.traceback


def test_a_wrong_number_of_results_costs_the_rows_of_that_call(tmp_path: Path) -> None:
    places = {"source": [0], "forgets_at_five": [1], "store": [0]}
    rig = rig_of(line("forgets_at_five", module="batch_tasks"), places, tmp_path, m.DataPlaneSettings())
    rows = emitted(rig, 1000.0, 0.6)
    letters = rig.letters()
    dead = {letter.position for letter in letters}
    assert 5 in dead and dead == set(range(min(dead), max(dead) + 1)) and len(dead) < rows
    assert stored(tmp_path) == Counter(n for n in range(rows) if n not in dead)
    assert all(f"{len(dead) - 1} results for {len(dead)} rows" in letter.error for letter in letters)


@pytest.mark.parametrize("slot", [0, 1], ids=["here", "elsewhere"])
def test_a_call_takes_what_waits_for_it(slot: int, tmp_path: Path) -> None:
    """Fifty calls a second for a thousand rows, which come one by one: without gathering a twentieth gets through."""
    places = {"source": [0], "slow": [slot], "store": [0]}
    with started(rig_of(line("slow", module="batch_tasks"), places, tmp_path, m.DataPlaneSettings())) as rig:
        rig.offer([(0.0, 1000.0)])
        rig.pump(2.0)
        done = rig.count("slow")
        rig.drain()
        rows = rig.count("source", mt.SOURCE_EMITTED)
        rig.pump(0.3)
    assert done > 1200 and stored(tmp_path) == Counter(range(rows))


def test_large_rows_arrive_and_one_that_is_too_large_is_a_dead_letter(tmp_path: Path) -> None:
    """Rows of a hundred kilobytes go in as many frames as they need; one that no frame holds dies once."""
    tasks = (SOURCE, Task("swell", run="large_tasks:swell"), Task("shrink", run="large_tasks:shrink"), STORE)
    edges = tuple(Edge(a.name, b.name) for a, b in itertools.pairwise(tasks))
    places = {"source": [0], "swell": [0], "shrink": [1], "store": [1]}
    settings = m.DataPlaneSettings(gap_s=0.2, frame_rows=256)  # frames of more than ZeroMQ lets in
    with started(rig_of(Topology("large", tasks, edges), places, tmp_path, settings)) as rig:
        rows = rig.emit(1500.0, 0.8)
        letters = rig.letters()
    assert rows > 300
    assert [(letter.task, letter.position) for letter in letters] == [("swell", BAD)]
    assert "768 KiB" in letters[0].error
    assert stored(tmp_path) == Counter(set(range(rows)) - {BAD})


# ── keyed state ─────────────────────────────────────────────────────────────────────────────────

TALLY = Topology(
    "tally",
    (
        SOURCE,
        Task("group", run="rig_tasks:group"),
        Task("tally", kind="keyed", state="keyed", run="rig_tasks:Tally"),
        STORE,
    ),
    (Edge("source", "group"), Edge("group", "tally", grouping="fields", key="group"), Edge("tally", "store")),
)


def counted_once(folder: Path, rows: int) -> None:
    """Every group's counts are 1, 2, 3 … without a gap."""
    groups: dict[int, list[int]] = {}
    for value in sorted(stored(folder)):
        groups.setdefault(value // 1_000_000, []).append(value % 1_000_000)
    assert groups == {g: list(range(1, len(range(g, rows, 7)) + 1)) for g in range(7)}


def test_keyed_state_counts_every_row_once(tmp_path: Path) -> None:
    rig = rig_of(TALLY, {"source": [0], "group": [0], "tally": [0, 1], "store": [1]}, tmp_path)
    counted_once(tmp_path, emitted(rig, 700.0, 1.5))


def test_keyed_state_survives_its_killed_worker(tmp_path: Path) -> None:
    """Rows that no snapshot covers come again: nothing is missing, nothing is counted from zero."""
    places = {"source": [0], "group": [0], "tally": [1], "store": [2]}
    with started(rig_of(TALLY, places, tmp_path)) as rig:
        rig.offer([(0.0, 300.0)])
        rig.pump(2.5)
        rig.kill(1)
        rig.respawn(1)
        rig.pump(1.0)
        rig.drain()
        rows = max(s.emitted for s in rig.sources())
    counted_once(tmp_path, rows)
