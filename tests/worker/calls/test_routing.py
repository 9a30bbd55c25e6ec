"""Which thread gets which rows, in which frames, under whose names."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from examples import searching
from hypothesis import given
from hypothesis import strategies as st

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.logic import To
from headgate.topology_runtime.api.topology import KEY_RANGES, Edge, Grouping
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.latency.latency_messages import Pace
from headgate.topology_runtime.wire.messages import Frame, RootKey, RootPart, Route
from headgate.topology_runtime.wire.report_messages import KEY_TEXT_MOST, KeysSeen
from headgate.topology_runtime.worker.calls.output_buffers import Outputs
from headgate.topology_runtime.worker.calls.router import KEPT, TOLD_MOST, KeyWatch, Router, owners, range_of
from headgate.topology_runtime.worker.rows import row_runs as r
from headgate.topology_runtime.worker.rows.acks import BufferedRow

S, MS = 1_000_000_000, 1_000_000
HOME = Slot("vm", 0)


def router(
    grouping: Grouping,
    weights: dict[int, float],
    cap: int = 10,
    local: frozenset[int] = frozenset(),
    key: Callable[[Any], Any] | None = None,
    sender: int = 0,
) -> Router:
    route = Route(0, tuple(weights.items()), ranges_of(weights) if grouping == "fields" else ())
    return Router(Edge("a", "b", grouping=grouping), route, local, key, lambda _: cap, sender)


def ranges_of(weights: dict[int, float]) -> tuple[tuple[int, int], ...]:
    size, rest = divmod(KEY_RANGES, len(weights))
    return tuple((thread, size + (n < rest)) for n, thread in enumerate(weights))


def shares(split: Router, frames: Sequence[int]) -> Counter[int]:
    """Rows that each thread got of frames of these sizes."""
    got: Counter[int] = Counter()
    for size in frames:
        for thread, places in split.split(range(size)):
            got[thread] += len(places)
    return got


def places(split: Router, rows: Sequence[Any]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for thread, some in split.split(rows):
        found.setdefault(thread, []).extend(some)
    return found


# ── routers ─────────────────────────────────────────────────────────────────────────────────────────


@searching(200)
@given(
    st.lists(st.floats(0.01, 1), min_size=1, max_size=8),
    st.lists(st.integers(1, 40), min_size=1, max_size=80),
    st.integers(1, 12),
    st.integers(0, 500),
)
def test_weights_are_kept_to_a_few_frames(
    weights: list[float], frames: list[int], cap: int, sender: int
) -> None:
    """Whatever the frames. A thread is due between v, when the next one is, and one frame of its own later, and
    began within its first row: so it got between v w − 1 and v w + cap rows, and all n got v − n to v + n cap."""
    split = router("shuffle", dict(enumerate(weights)), cap, sender=sender)
    got, total, among = Counter[int](), 0, len(weights)
    for size in frames:
        got += shares(split, [size])
        total += size
        for thread, weight in enumerate(weights):
            part = weight / sum(weights)
            ahead = got[thread] - total * part
            assert -1 - among * cap * part - 1e-6 <= ahead <= cap + among * part + 1e-6
    assert got.total() == total


@pytest.mark.parametrize("receivers", [2, 5, 16])
def test_senders_do_not_choose_the_same_receiver_in_step(receivers: int) -> None:
    """64 senders in turn: no receiver is ever many rows ahead of its share. From one beginning for all, each
    turn would go to one receiver: 64 rows."""
    weights = dict.fromkeys(range(receivers), 1.0)
    senders = [router("shuffle", weights, cap=1, sender=number) for number in range(100, 164)]
    got = Counter[int]()
    for turn in range(20):
        for number, sender in enumerate(senders, 1):
            got += shares(sender, [1])
            share = (turn * 64 + number) / receivers
            assert all(abs(got[thread] - share) <= 5 for thread in weights)


@pytest.mark.parametrize("sender", [0, 1, 7])
def test_rows_come_to_slot_after_slot_in_short_turns(sender: int) -> None:
    """Threads of a slot have numbers that follow each other. 20 rows in a row to one slot would overload it for as long
    as they take, while two others rest."""
    split = router("shuffle", dict.fromkeys(range(60), 1.0), cap=1, sender=sender)
    slots = [thread // 20 for _ in range(240) for thread in shares(split, [1])]
    for first in range(len(slots) - 9):
        assert all(1 <= slots[first : first + 9].count(slot) <= 5 for slot in range(3))


@pytest.mark.parametrize("grouping", ["shuffle", "local"])
def test_a_thread_of_weight_zero_gets_nothing(grouping: Grouping) -> None:
    got = shares(router(grouping, {1: 0.0, 2: 0.6, 3: 0.4}), [7, 1, 30] * 50)
    assert got[1] == 0 and got[2] > got[3] > 0


def test_weights_that_are_all_zero_are_equal_ones() -> None:
    got = shares(router("shuffle", {1: 0.0, 2: 0.0}), [1] * 100)
    assert got == {1: 50, 2: 50}


def test_local_rows_stay_here_where_they_can() -> None:
    weights = {1: 0.5, 2: 0.25, 3: 0.25}
    assert set(shares(router("local", weights, local=frozenset({2, 3})), [30] * 20)) == {2, 3}
    assert set(shares(router("local", weights, local=frozenset({9})), [30] * 20)) == {1, 2, 3}


def test_all_and_global() -> None:
    everyone = places(router("all", {5: 0.5, 3: 0.5}), range(25))
    assert everyone == {3: list(range(25)), 5: list(range(25))}
    assert places(router("global", {5: 1.0, 3: 0.0}), range(25)) == {3: list(range(25))}


def test_direct_rows_go_where_they_say() -> None:
    rows = [To(0, "a"), To(1, "b"), To(5, "c"), To(-1, "d"), "unaddressed"]
    assert places(router("direct", {7: 0.5, 9: 0.5}), rows) == {7: [0, 4], 9: [1, 2, 3]}


def test_an_address_that_is_no_number_is_told_and_the_rest_goes_on() -> None:
    split = router("direct", {7: 1.0})
    assert places(split, [To("x", 1), To(0, 2)]) == {7: [1]}  # type: ignore[arg-type]
    assert [(place, type(error)) for place, error in split.unroutable] == [(0, TypeError)]


@searching(100)
@given(st.lists(st.text(max_size=4), max_size=60), st.integers(1, 5), st.integers(1, 7))
def test_one_key_goes_to_one_thread_in_order(keys: list[str], threads: int, cap: int) -> None:
    split = router("fields", dict.fromkeys(range(threads), 1.0), cap, key=lambda row: row)
    found: dict[str, set[int]] = {}
    seen: list[int] = []
    for thread, some in split.split(keys):
        assert 0 < len(some) <= cap and list(some) == sorted(some)
        seen += some
        for place in some:
            found.setdefault(keys[place], set()).add(thread)
    assert sorted(seen) == list(range(len(keys)))
    assert all(len(threads_of) == 1 for threads_of in found.values())


def test_a_row_without_a_usable_key_is_told_and_the_rest_goes_on() -> None:
    split = router("fields", {1: 1.0}, key=lambda row: row["k"])
    assert places(split, [{"k": 1}, {}, {"k": object()}, {"k": 2}]) == {1: [0, 3]}
    assert [place for place, _ in split.unroutable] == [1, 2]
    assert split.unroutable[0][1].__context__ is None  # the error alone, not twice


def test_a_route_that_leaves_keys_without_an_owner_is_refused() -> None:
    route = Route(3, ((1, 1.0),), ((1, KEY_RANGES - 1),))
    with pytest.raises(InvalidInput, match=r"edge 3 \(a → b\) gives 1023 of 1024"):
        Router(Edge("a", "b", grouping="fields"), route, frozenset(), str, lambda _: 1, 0)


def test_without_receivers_nothing_is_dropped_silently() -> None:
    split = Router(Edge("a", "b"), Route(0, ()), frozenset(), None, lambda _: 1, 0)
    with pytest.raises(LookupError):
        list(split.split([1]))


# ── frames ──────────────────────────────────────────────────────────────────────────────────────────


def root(sequence: int, along: Sequence[int] = ()) -> RootPart:
    return RootPart(RootKey(1, 1, sequence, 0), HOME, 0, 0, 100 * sequence, 5, 2, 0, list(along))


def outputs(routers: Sequence[Router], cap: int = 10, gap_ns: int = 0, seed: int = 1) -> Outputs:
    made = Outputs(9, HOME, 77, lambda: made_random.getrandbits(64), gap_ns)
    made_random = random.Random(seed)
    made.cap_of = lambda _: cap
    made.route_by(list(enumerate(routers)))
    return made


def xor(values: Sequence[int]) -> int:
    out = 0
    for value in values:
        out ^= value
    return out


def ids(frames: Sequence[Frame]) -> dict[RootKey, int]:
    found: dict[RootKey, int] = {}
    for part in itertools.chain.from_iterable(frame.roots for frame in frames):
        found[part.key] = found.get(part.key, 0) ^ part.id
    return found


@searching(200)
@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(1, 4))
def test_frames_hold_what_was_put_never_above_the_cap(seed: int, cap: int, threads: int) -> None:
    """Any splits, any puts, flushes between them: rows keep their names and order, ids add up."""
    choose = random.Random(seed)
    weights = dict.fromkeys(range(1, threads + 1), 1.0)
    out = outputs([router("shuffle", weights, cap), router("fields", weights, cap, key=lambda row: row)], cap)
    given_all: dict[RootKey, int] = {}
    frames: list[Frame] = []
    put: list[tuple[int, int, int]] = []
    for sequence in range(choose.randint(1, 8)):
        size = choose.randint(1, 25)
        rows = [sequence * 100 + n for n in range(size)]
        cut = choose.randrange(size)
        runs = [(1, 0, cut, 3), (0, 0, size - cut, 4)] if cut else [(0, 0, size, 4)]
        roots = [root(2 * sequence), root(2 * sequence + 1)]
        for key, value in out.put(rows, runs, roots, S + sequence).items():
            given_all[key] = given_all.get(key, 0) ^ value
        put += [(roots[number].key.sequence, offset, way) for number, offset, way in r.single(runs)]
        if choose.random() < 0.5:
            frames += out.flush(S + sequence)
    frames += out.flush(2 * S, everything=True)
    assert out.empty and out.flush(3 * S) == []
    assert ids(frames) == given_all
    for edge in (0, 1):
        got = []
        for frame in frames:
            assert 0 < len(frame.rows) <= cap and r.fits(frame)
            assert len({part.key for part in frame.roots}) == len(frame.roots)
            if frame.edge == edge:
                got += [
                    (frame.roots[number].key.sequence, offset, variant, frame.target, row)
                    for row, (number, offset, variant) in zip(frame.rows, r.single(frame.runs), strict=True)
                ]
        assert sorted((s, o, v) for s, o, v, _, _ in got) == sorted(
            (s, o, r.over_edge(way, edge)) for s, o, way in put
        )
        if edge == 1:
            table = owners(Route(0, (), ranges_of(weights)))
            assert all(table[range_of(row)] == target for *_, target, row in got)


def test_each_input_frame_gives_ids_of_its_own() -> None:
    """A1: two input frames into one open buffer; neither's share alone is the frame's id."""
    out = outputs([router("global", {1: 1.0})])
    first = out.put([1], [(0, 0, 1, 0)], [root(0)], S)
    second = out.put([2], [(0, 1, 1, 0)], [root(0)], S)
    (frame,) = out.flush(S)
    (part,) = frame.roots
    one, two = first[part.key], second[part.key]
    assert one != two and part.id == one ^ two and part.id not in (one, two)


def test_roots_that_go_along_get_ids_and_are_named() -> None:
    out = outputs([router("all", {1: 0.5, 2: 0.5})])
    given = out.put(["sum"], [(1, 0, 1, 0)], [root(0), root(1, along=[2, 0]), root(2), root(3)], S)
    frames = out.flush(S)
    assert [frame.target for frame in frames] == [1, 2] and ids(frames) == given
    assert {key.sequence for key in given} == {0, 1, 2}
    for frame in frames:
        named = frame.roots[frame.runs[0][0]]
        assert named.key.sequence == 1
        assert {frame.roots[n].key.sequence for n in named.along} == {0, 2}


def test_roots_that_go_along_are_gathered_in_one_buffer() -> None:
    out = outputs([router("global", {1: 1.0})])
    out.put(["x"], [(0, 0, 1, 0)], [root(0, along=[1]), root(1)], S)
    out.put(["y"], [(0, 0, 1, 9)], [root(0, along=[1, 2]), root(1), root(2)], S)
    out.put(["z"], [(0, 0, 1, 0)], [root(1)], S)
    (frame,) = out.flush(S)
    named = {part.key.sequence: {frame.roots[n].key.sequence for n in part.along} for part in frame.roots}
    assert named == {0: {1, 2}, 1: set(), 2: set()} and len(frame.rows) == 3


def test_copies_by_an_edge_to_all_have_names_of_their_own() -> None:
    out = outputs([router("all", {4: 0.5, 2: 0.5, 3: 0.0})])
    out.put(["a"], [(0, 0, 1, 6)], [root(0)], S)
    frames = out.flush(S)
    assert len({frame.runs[0][3] for frame in frames}) == 3


def test_rows_on_the_way_to_one_thread_are_bare() -> None:
    """A task with a direct edge and others: addresses reach no key function and no receiver."""
    direct, keyed = router("direct", {1: 0.5, 2: 0.5}), router("fields", {3: 1.0}, key=lambda row: row[0])
    out = outputs([direct, keyed])
    out.put([To(1, ("a", 1)), To(0, ("b", 2))], [(0, 0, 2, 0)], [root(0)], S)
    frames = {frame.target: frame.rows for frame in out.flush(S)}
    assert frames == {2: [("a", 1)], 1: [("b", 2)], 3: [("a", 1), ("b", 2)]}
    assert out.unroutable() == []


def test_a_forwarded_row_keeps_its_name() -> None:
    out = outputs([])
    given = out.forward(BufferedRow("row", 6, root(3, along=[1]), 7, 55, 0, (root(5),)), 4, S)
    (frame,) = out.flush(S)
    assert (frame.edge, frame.target, frame.rows, frame.runs) == (6, 4, ["row"], [(0, 7, 1, 55)])
    assert ids([frame]) == given and len(given) == 2


def test_a_frame_says_when_it_was_filled_and_flushed() -> None:
    out = outputs([router("global", {1: 1.0})], gap_ns=MS)
    out.put([1], [(0, 0, 1, 0)], [root(0)], S)
    out.flush(S)
    out.put([2], [(0, 0, 1, 0)], [root(1)], S + 1)
    (frame,) = out.flush(S + MS)
    assert (frame.filled_ns, frame.flushed_ns) == (S + 1, S + MS)
    assert (frame.sender, frame.slot, frame.incarnation) == (9, HOME, 77)


# ── the gap ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_quiet_edge_flushes_at_once_a_busy_one_once_a_gap() -> None:
    out = outputs([router("global", {1: 1.0})], cap=100, gap_ns=5 * MS)
    flushed = []
    for ms in range(20):
        now_ns = S + ms * MS
        out.put([ms], [(0, 0, 1, 0)], [root(ms)], now_ns)
        due_ns = out.next_flush_ns()
        frames = out.flush(now_ns)
        assert bool(frames) == (due_ns is not None and due_ns <= now_ns), (
            "it says when it has something to do"
        )
        flushed += [(ms, len(frame.rows)) for frame in frames]
    assert flushed == [(0, 1), (5, 5), (10, 5), (15, 5)]


def test_a_full_buffer_does_not_wait_for_the_gap() -> None:
    out = outputs([router("global", {1: 1.0}, cap=4)], cap=4, gap_ns=S)
    out.put([1], [(0, 0, 1, 0)], [root(0)], S)
    out.flush(S)
    out.put([1, 2, 3], [(0, 0, 3, 0)], [root(1)], S)
    assert out.next_flush_ns() == 2 * S and out.flush(S) == []
    out.put([4, 5, 6], [(0, 0, 3, 0)], [root(2)], S)
    assert out.next_flush_ns() == 0
    assert [frame.rows for frame in out.flush(S)] == [[1, 2, 3]]
    assert [frame.rows for frame in out.flush(2 * S)] == [[4, 5, 6]]
    assert out.next_flush_ns() is None


def test_new_routes_flush_at_once() -> None:
    out = outputs([router("global", {1: 1.0})], gap_ns=S)
    out.put([1], [(0, 0, 1, 0)], [root(0)], S)
    out.flush(S)
    out.route_by([(0, router("all", {1: 0.5, 2: 0.5}))])
    out.put([2], [(0, 0, 1, 0)], [root(1)], S + 1)
    assert [frame.target for frame in out.flush(S + 1)] == [1, 2]


# ── runs ────────────────────────────────────────────────────────────────────────────────────────────

runs_of = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(1, 5), st.integers(0, 3)), max_size=6
)


@searching(200)
@given(runs_of, st.integers(0, 30), st.integers(0, 30))
def test_a_part_of_runs_is_the_part_of_their_rows(runs: list[r.Run], start: int, stop: int) -> None:
    rows = list(r.single(runs))
    assert list(r.single(r.part(runs, start, stop))) == rows[start:stop]
    assert list(r.single(r.joined(rows))) == rows and len(r.joined(rows)) <= len(runs)


def test_names_tell_ways_apart() -> None:
    """Edges, copies and flat-map indexes in every combination of a deep topology: no two ways share a name."""
    seen: dict[int, tuple[Any, ...]] = {}
    for edges in itertools.product(range(6), repeat=3):
        for copy, index in itertools.product(range(4), range(12)):
            variant = 0
            for edge in edges:
                variant = r.over_index(r.over_edge(variant, edge, copy), index)
            way = (edges, copy, index)
            assert variant not in seen, (way, seen[variant])
            seen[variant] = way
    assert all(0 <= variant <= r.VARIANT_MASK for variant in seen)


def test_what_a_pane_gives_is_named_after_its_rows() -> None:
    one, two = (0, 0, 5, 9), (0, 1, 7, 9)
    assert r.over_pane([one]) == 9, "a row alone keeps its name"
    names = {
        r.over_pane(rows) for rows in ([one, two], [two, one], [one], [one, two, two], [one, (0, 1, 8, 9)])
    }
    assert len(names) == 5


@pytest.mark.parametrize(
    "runs",
    [
        [(0, 0, 1, 0)],
        [(0, 0, 3, 0)],
        [(2, 0, 2, 0)],
        [(-1, 0, 2, 0)],
        [(0, 0, 3, 0), (0, 0, -1, 0)],
        [(0, 0, 2, 0), (0, 0, 0, 0)],
        [(0, -1, 2, 0)],
        [(0, 0, 2, -1)],
        [(0, 1 << 40, 2, 0)],
        [(0, 0, 2, 1 << 40)],
        [],
    ],
    ids=str,
)
def test_runs_that_do_not_fit_their_frame_are_seen(runs: list[r.Run]) -> None:
    frame = Frame(0, 1, HOME, 1, 2, [root(0), root(1)], [(1, 0, 2, 0)], [1, 2], 0, 0)
    assert r.fits(frame)
    frame.runs = runs
    assert not r.fits(frame)


@pytest.mark.parametrize("along", [[2], [-1]])
def test_roots_along_that_are_not_there_are_seen(along: list[int]) -> None:
    assert not r.fits(Frame(0, 1, HOME, 1, 2, [root(0, along), root(1)], [(1, 0, 2, 0)], [1, 2], 0, 0))


# ── A buffer leaves as it was asked to, until later routes come ─────────────────────────────────────────


def put(out, number: int, now_ns: int) -> int:  # type: ignore[no-untyped-def]
    """A row; how many rows leave then."""
    out.put([number], [(0, 0, 1, 0)], [root(number)], now_ns)
    return sum(len(frame.rows) for frame in out.flush(now_ns))


def test_a_gap_of_its_own() -> None:
    out = outputs([router("global", {1: 1.0})], gap_ns=S)
    out.pace(Pace(1, 0, 0, 1, 5 * MS, 256))
    left = [put(out, ms, S + ms * MS) for ms in range(20)]
    assert [ms for ms, rows in enumerate(left) if rows] == [0, 5, 10, 15] and left[5] == 5


def test_a_size_of_its_own() -> None:
    out = outputs([router("global", {1: 1.0})], gap_ns=S)
    put(out, 0, S)
    out.pace(Pace(1, 0, 0, 1, S, 3))
    left = [put(out, n, S + n) for n in range(1, 10)]
    assert left == [0, 0, 3] * 3, "it leaves when it has three rows"


def test_later_routes_let_it_go_and_earlier_ones_do_not() -> None:
    out = outputs([router("global", {1: 1.0})], cap=256, gap_ns=S)
    out.pace(Pace(2, 0, 0, 1, 5 * MS, 256))
    out.route_by([(0, router("global", {1: 1.0}))], 2)
    assert [put(out, ms, S + ms * MS) for ms in range(6)] == [1, 0, 0, 0, 0, 5], (
        "it was asked for by these routes"
    )
    out.route_by([(0, router("global", {1: 1.0}))], 3)
    assert sum(put(out, ms, 2 * S + ms * MS) for ms in range(1, 50)) == 1


# ── Which keys most rows have: what a thread tells, beside what a count of all rows finds ───────────────


def split(rows: Sequence[Any], frame: int) -> KeysSeen | None:
    """What a router tells after rows that are their own keys went through it in frames of this size."""
    route = Route(0, ((1, 0.5), (2, 0.5)), ((1, KEY_RANGES // 2), (2, KEY_RANGES // 2)))
    router = Router(
        Edge("a", "b", grouping="fields", key="k"), route, frozenset(), lambda x: x, lambda _: 256, 0
    )
    for at in range(0, len(rows), frame):
        taken = sum(len(places) for _, places in router.split(rows[at : at + frame]))
        assert taken + len(router.unroutable) == len(rows[at : at + frame])
    assert router.keys is not None
    return router.keys.told(7, 3, range_of, hidden=False)


def skewed(share: float, keys: int, rows: int, seed: int) -> list[str]:
    random_ = random.Random(seed)
    return ["hot" if random_.random() < share else f"cold {random_.randrange(keys)}" for _ in range(rows)]


@pytest.mark.parametrize("frame", [1, 32])
def test_of_small_frames_every_row_is_counted(frame: int) -> None:
    rows = skewed(0.8, 5, 2_000, 1)
    exact = Counter(rows)
    seen = split(rows, frame)
    assert seen is not None and (seen.edge, seen.thread) == (7, 3)
    assert seen.rows == seen.looked_at == 2_000
    assert [(top.key, top.rows) for top in seen.top] == [("'hot'", exact["hot"])]
    assert seen.top[0].key_range == range_of("hot")


@pytest.mark.parametrize("share", [0.3, 0.5, 0.8])
def test_of_large_frames_a_part_tells_the_share(share: float) -> None:
    rows = skewed(share, 100_000, 200_000, 2)
    exact = Counter(rows)["hot"] / len(rows)
    seen = split(rows, 256)
    assert seen is not None and seen.rows == len(rows)
    assert len(rows) / 16 < seen.looked_at < len(rows) / 6, "about every eighth frame"
    assert seen.top[0].key == "'hot'"
    assert seen.top[0].rows / seen.looked_at == pytest.approx(exact, abs=0.02)


def test_a_rhythm_of_the_rows_is_not_met() -> None:
    rows = [key for _ in range(500) for key in ["a"] * 256 + ["b"] * 256 * 7]
    seen = split(rows, 256)
    assert seen is not None
    told = {top.key: top.rows / seen.looked_at for top in seen.top}
    assert told["'b'"] == pytest.approx(7 / 8, abs=0.05)


def test_with_many_keys_a_count_is_short_by_a_hundredth_at_most() -> None:
    random_ = random.Random(3)
    rows = [int(random_.paretovariate(0.35)) for _ in range(60_000)]
    exact, watch = Counter(rows), KeyWatch()
    assert len(exact) > 20 * KEPT
    for at in range(0, len(rows), 30):
        watch.add(rows[at : at + 30])
    seen = watch.told(0, 0, range_of, hidden=False)
    assert seen is not None and seen.looked_at == len(rows) and len(seen.top) >= 2
    for top in seen.top:
        assert exact[int(top.key)] - len(rows) / KEPT <= top.rows <= exact[int(top.key)]


def test_only_what_is_left_since_is_told_and_few_keys() -> None:
    watch = KeyWatch()
    assert watch.told(0, 0, range_of, hidden=False) is None
    assert watch.wants(10)
    watch.add([*range(9), 0])
    seen = watch.told(0, 0, range_of, hidden=False)
    assert seen is not None and len(seen.top) == TOLD_MOST
    assert watch.told(0, 0, range_of, hidden=False) is None


def test_of_hidden_keys_only_the_range_is_told_and_of_long_ones_the_begin() -> None:
    watch = KeyWatch()
    for hidden in (True, False):
        watch.wants(1)
        watch.add(["someone@example.org, whose name is long"])
        seen = watch.told(0, 0, range_of, hidden)
        assert seen is not None
        assert seen.top[0].key == ("" if hidden else "'someone@example.org, whos")[:KEY_TEXT_MOST]
        assert seen.top[0].key_range == range_of("someone@example.org, whose name is long")


def test_keys_that_cannot_be_hashed_go_their_way_and_are_not_counted() -> None:
    assert split([["a"], ["b"]], 2) is None


# ── Rows that follow their pane to another thread keep their identity ───────────────────────────────────
