"""Roots, shares and acks over random topologies: done means done, and nothing is lost."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace as replaced

import pytest
from examples import searching
from hypothesis import given
from hypothesis import strategies as st
from plane_tasks import Spec
from worker_plane import Faults, Plane

from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.messages import RootKey, RootPart
from headgate.topology_runtime.topology import Edge, Grouping
from headgate.topology_runtime.worker.acks import AckSums, BufferedRow, Shares
from headgate.topology_runtime.worker.keyed_rows import KeyedRows
from headgate.topology_runtime.worker.outputs import Buffer, Outputs
from headgate.topology_runtime.worker.windows import WindowRows

KINDS = ("map", "flat_map", "filter", "batch", "keyed")
GROUPINGS: tuple[Grouping, ...] = ("shuffle", "fields", "all", "global", "direct", "local")
seeds = st.integers(0, 2**32)


def random_topology(seed: int, kinds: Sequence[str]) -> tuple[list[Spec], list[Edge]]:
    """One or two sources, one to four tasks in random order, sinks for whatever leads nowhere."""
    choose = random.Random(seed)
    sources = range(choose.randint(1, 2))
    specs = [Spec(f"s{i}", "source", choose.randint(1, 2), choose.randint(5, 25)) for i in sources]
    edges: list[Edge] = []
    for i in range(choose.randint(1, 4)):
        spec = Spec(f"t{i}", choose.choice(kinds), choose.randint(1, 3))
        for feeder in choose.sample(specs, min(len(specs), choose.randint(1, 2))):
            chosen = "fields" if spec.kind == "keyed" else grouping(choose, feeder)
            edges.append(Edge(feeder.name, spec.name, grouping=chosen))
        specs.append(spec)
    for spec in [s for s in specs if all(e.source != s.name for e in edges)]:
        sink = Spec(f"{spec.name}end", choose.choice(("sink", "batch")), choose.randint(1, 2))
        edges.append(Edge(spec.name, sink.name, grouping=grouping(choose, spec)))
        specs.append(sink)
    return specs, edges


def grouping(choose: random.Random, feeder: Spec) -> Grouping:
    """Only maps address rows; `all` makes rows many, so it is rare."""
    found = choose.choice(GROUPINGS)
    if found == "direct" and feeder.kind != "map":
        return "shuffle"
    return "shuffle" if found == "all" and choose.random() < 0.5 else found


def diamond(threads: int = 2, rows: int = 30) -> tuple[list[Spec], list[Edge]]:
    specs = [
        Spec("s", "source", 1, rows),
        Spec("a", "map", 2),
        Spec("b", "map", 2),
        Spec("join", "join", threads),
        Spec("end", "sink"),
    ]
    edges = [
        Edge("s", "a"),
        Edge("s", "b"),
        Edge("a", "join", grouping="fields", key=0),
        Edge("b", "join", grouping="fields", key=0),
        Edge("join", "end"),
    ]
    return specs, edges


# ── without faults ──────────────────────────────────────────────────────────────────────────────────


@searching(120)
@given(seeds)
def test_a_root_completes_when_all_its_rows_are_done_and_not_before(seed: int) -> None:
    plane = Plane(*random_topology(seed, KINDS), seed)
    plane.run()
    assert plane.arrived == plane.expected()
    assert not plane.net
    assert len(plane.completed) == len({(key.thread, key.sequence) for key in plane.completed})
    assert max(plane.emissions.values()) == 1


@searching(40)
@given(seeds)
def test_every_row_at_a_sink_has_an_identity_of_its_own(seed: int) -> None:
    plane = Plane(*random_topology(seed, ("map", "flat_map", "filter")), seed)
    plane.run()
    assert plane.identities.total() == plane.arrived.total() == len(plane.identities)


@searching(60)
@given(seeds, st.integers(1, 3))
def test_a_join_pairs_the_halves_of_every_row(seed: int, threads: int) -> None:
    plane = Plane(*diamond(threads), seed)
    plane.run()
    assert plane.arrived == plane.expected()


@searching(60)
@given(seeds, st.integers(0, 40), st.integers(0, 40))
def test_a_join_whose_keys_move_pairs_every_row_once(seed: int, first: int, second: int) -> None:
    """Kept halves go to the thread that keeps their key from now on, with their roots open."""
    plane = Plane(*diamond(3), seed)
    for events in (first, second):
        plane.begin(events)
        plane.move_ranges("join")
    plane.run()
    assert plane.arrived == plane.expected()


@searching(40)
@given(seeds, st.floats(0, 0.05))
def test_a_keyed_task_counts_each_row_once_unless_it_dies(seed: int, loss: float) -> None:
    specs, edges = diamond(2)
    specs = [replaced(spec, kind="keyed") if spec.name == "join" else spec for spec in specs]
    plane = Plane(specs, edges, seed, Faults(loss))
    plane.run(20_000)
    covers(plane)
    states = [
        (key, sorted(ways))
        for node in plane.nodes.values()
        if isinstance(node.rows, KeyedRows)
        for key_range in node.rows.states.filled
        for key, ways in node.rows.states.of(key_range).items()
    ]
    assert sorted(states) == [(key, ["a", "b"]) for key in range(30)]


# ── with faults ─────────────────────────────────────────────────────────────────────────────────────


@searching(60)
@given(seeds)
def test_nothing_is_lost_when_frames_and_acks_are(seed: int) -> None:
    plane = Plane(*random_topology(seed, KINDS), seed, Faults(loss=0.05))
    plane.run(20_000)
    covers(plane)


@searching(60)
@given(seeds)
def test_nothing_is_lost_when_workers_die(seed: int) -> None:
    plane = Plane(*random_topology(seed, KINDS), seed, Faults(crashes=3, source_crashes=1))
    plane.run(20_000)
    covers(plane)


@searching(100)
@given(seeds, st.floats(0, 0.1), st.integers(0, 3), st.integers(0, 2))
def test_a_join_never_mixes_replays_and_never_waits_for_ever(
    seed: int, loss: float, crashes: int, source_crashes: int
) -> None:
    """`Pairs` refuses a pair of two ids or of two left halves; `run` ends only when all is done."""
    plane = Plane(*diamond(2), seed, Faults(loss, crashes, source_crashes))
    plane.run(20_000)
    covers(plane)
    left = [kept for node in plane.nodes.values() for kept in plane.kept(node)]
    floors = {n.thread: (n.incarnation, n.ledger.floor) for n in plane.sources if n.ledger}
    for node in plane.nodes.values():
        if isinstance(node.rows, WindowRows):
            for thread, (incarnation, floor) in floors.items():
                node.rows.panes.see([last_word(thread, incarnation, floor)])
    assert not [kept for node in plane.nodes.values() for kept in plane.kept(node)], left


@searching(60)
@given(seeds, st.floats(0, 0.1))
def test_identities_at_a_sink_are_the_same_in_every_replay(seed: int, loss: float) -> None:
    """Rows that differ have names that differ; what came twice has one name; only replays come twice."""
    specs, edges = diamond(2, rows=20)
    plain, faulty = Plane(specs, edges, seed), Plane(specs, edges, seed + 1, Faults(loss, 2))
    plain.run()
    faulty.run(20_000)
    assert set(plain.identities) == set(faulty.identities)
    assert set(plain.identities.values()) == {1}
    for (_, (_, partition, position, _)), count in faulty.identities.items():
        assert partition == 0 and count <= faulty.emissions[1, position]


def covers(plane: Plane) -> None:
    """Everything arrived; what arrived twice was sent twice."""
    expected = plane.expected()
    assert set(plane.arrived) == set(expected), plane.standing()
    most = max(plane.emissions.values(), default=1)
    for what, count in plane.arrived.items():
        assert expected[what] <= count, what
        assert most > 1 or count == expected[what], what


def last_word(thread: int, incarnation: int, floor: int) -> RootPart:
    key = RootKey(thread, incarnation, floor, 0)
    return RootPart(key, Slot("vm", thread), 0, 0, 0, 0, floor, 0)


# ── planted bugs are caught ─────────────────────────────────────────────────────────────────────────


class OneIdPerBuffer(Outputs):
    """A1: input frames that add to one open buffer share the id that its root has there already."""

    def _share(self, buffer: Buffer, root: RootPart, given: Shares) -> int:
        known = buffer.roots.get(root.key)
        if known is None:
            return super()._share(buffer, root, given)
        given[root.key] = given.get(root.key, 0) ^ known[1].id
        return known[0]


class AcksAtOnce(WindowRows):
    """A2: kept rows hold nothing open."""

    def _keep(self, kept: BufferedRow, now_ns: int, acks: AckSums) -> None:
        kept.share = 0
        super()._keep(kept, now_ns, acks)


class NamedOnly(Outputs):
    """The output of a pane holds open the row it is named after, not the others it is made of."""

    def _take_along(
        self, buffer: Buffer, roots: Sequence[RootPart], numbers: dict[int, int], given: Shares
    ) -> None:
        return


def caught(planes: int, make: Callable[[int], None], first: int = 0) -> str:
    """What the first plane that notices says; "" when none of so many does."""
    for seed in range(first, planes):
        try:
            make(seed)
        except AssertionError as error:
            return str(error)
    return ""


def test_a1_ids_shared_between_input_frames_are_caught() -> None:
    def make(seed: int) -> None:
        specs = [Spec("s", "source", 1, 30), Spec("a", "map", 2), Spec("b", "map"), Spec("end", "sink")]
        edges = [Edge("s", "a", grouping="fields", key=0), Edge("a", "b"), Edge("b", "end")]
        Plane(specs, edges, seed, cap=20, outputs_of=OneIdPerBuffer).run()

    assert "completed although" in caught(100, make)


def test_a2_a_task_that_acks_what_it_keeps_is_caught() -> None:
    def make(seed: int) -> None:
        specs = [Spec("s", "source", 1, 30), Spec("batch", "batch"), Spec("end", "sink")]
        Plane(specs, [Edge("s", "batch"), Edge("batch", "end")], seed, windows_of=AcksAtOnce).run()

    assert 'completed although ["batch keeps' in caught(10, make)


def test_a2_a_crash_after_such_an_ack_loses_rows() -> None:
    """The checker at the end sees it too, without looking inside."""

    class Blind(Plane):
        def _complete(self, key: RootKey) -> None:
            return

    def make(seed: int) -> None:
        plane = Blind(*diamond(), seed, Faults(crashes=3), windows_of=AcksAtOnce)
        plane.run(20_000)
        covers(plane)

    assert "('end'" in caught(60, make)


def test_a2_a_refused_row_that_counts_as_done_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A2, second form: a row refused for a newer attempt counts as done in its own."""
    monkeypatch.setattr(AckSums, "refuse", lambda *_: None)

    def make(seed: int) -> None:
        plane = Plane(*diamond(), seed, Faults(0.08, 3))
        plane.run(20_000)
        covers(plane)

    assert caught(200, make, first=100)  # it is rare


def test_a_pane_whose_output_holds_one_root_only_is_caught() -> None:
    def make(seed: int) -> None:
        specs = [Spec("s", "source", 1, 30), Spec("batch", "batch"), Spec("a", "map"), Spec("end", "sink")]
        edges = [Edge("s", "batch"), Edge("batch", "a"), Edge("a", "end")]
        plane = Plane(specs, edges, seed, Faults(0.1), outputs_of=NamedOnly)
        plane.run(20_000)
        covers(plane)

    assert "ledgers" in caught(20, make)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_seed_gives_the_same_run(threads: int) -> None:
    first, second = (Plane(*diamond(threads), 7, Faults(0.05, 2, 1)) for _ in range(2))
    first.run(20_000)
    second.run(20_000)
    assert (first.now_ns, first.arrived, first.completed) == (second.now_ns, second.arrived, second.completed)
