"""Timers of a thread: when they fire, when what they give is sent, and what is left of it after a restart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from silent_post import SilentPost

from headgate import Exhausted, Source, Time, Timed
from headgate.topology_runtime.api.timed import END_US, IDLE_US
from headgate.topology_runtime.api.topology import KEY_RANGES, Edge, Task, Timestamps, Topology
from headgate.topology_runtime.wire.dead_letter_messages import END_PARTITION, TIMED_PARTITION
from headgate.topology_runtime.wire.messages import Ack, EndOfInput, Frame, RootKey, RootPart, ThreadSpec
from headgate.topology_runtime.wire.state_moves import RangeWatermarks, Watermark
from headgate.topology_runtime.worker.calls.router import range_of
from headgate.topology_runtime.worker.keyed_state.kept_states import Overflow
from headgate.topology_runtime.worker.keyed_state.key_ranges import Layer, Standing
from headgate.topology_runtime.worker.keyed_state.state_store import SqliteStates
from headgate.topology_runtime.worker.operators.behaviours import behaviour_of
from headgate.topology_runtime.worker.operators.thread_core import ThreadCore
from headgate.topology_runtime.worker.operators.timed_task import (
    FIRE_MOST,
    FIRE_NS,
    SNAPSHOT_TIMED_NS,
    UNSENT_MOST,
    TimedTask,
)
from headgate.topology_runtime.worker.operators.watermarks import UNHEARD, InputTimes
from headgate.topology_runtime.worker.orders.thread_orders import Orders, orders_of
from headgate.topology_runtime.worker.process.called_thread import SLOT, orders_for
from headgate.topology_runtime.worker.rows import row_runs

S, US = 1_000_000_000, 1_000_000
HERE = "test_timers"


class Events(Source):
    def read(self, position: int, limit: int) -> Sequence[Any]:
        raise Exhausted


class Ten(Timed):
    """Gives the count of a key ten seconds after its row, and forgets it; a late row at once."""

    at = 1

    def new(self, key: Any) -> int:
        return 0

    def process(self, key: Any, row: Any, state: int, time: Time) -> tuple[int, Iterable[Any]]:
        time.set(time.at_us + 10 * US)
        return state + 1, [("late", key)] if time.late else []

    def on_timer(self, key: Any, at: int, state: int, time: Time) -> tuple[None, Iterable[Any]]:
        return None, [(key, at // US, state)]


class Last(Ten):
    """Keeps its state until the input ends."""

    def on_timer(self, key: Any, at: int, state: int, time: Time) -> tuple[int, Iterable[Any]]:
        return state, [(key, at // US, state)]

    def finish(self, key: Any, state: int) -> Iterable[Any]:
        return [("last", key)]


SOURCE, TENS, AFTER = 1, 2, 3
TENS_NUMBER = 1  # in the topology
FLOW = Topology(
    "timers",
    (
        Task("source", kind="source", run=f"{HERE}:Events", timestamps=Timestamps(1)),
        Task("tens", kind="keyed", state="keyed", run=f"{HERE}:Ten", timed=True),
        Task("after", kind="keyed", state="keyed", run=f"{HERE}:Ten", timed=True),
    ),
    (Edge("source", "tens", grouping="fields", key=0), Edge("tens", "after", grouping="fields", key=0)),
)


class Bench(SilentPost):
    """One thread of `tens`; its snapshots are in a folder."""

    slot = SLOT

    def __init__(
        self, folder: Path, incarnation: int = 1, logic: type[Timed] = Ten, exactly_once: bool = False
    ) -> None:
        self.incarnation, self.now_ns = incarnation, 1000 * S
        self.frames: list[Frame] = []
        self.words: list[Any] = []
        self.core = ThreadCore(ThreadSpec(TENS, "tens", SLOT), FLOW, self.ports(folder, exactly_once))
        self.core.behaviour = behaviour_of(self.core, logic(), lambda _: None)
        self.core.obey(self.orders(), self.now_ns)
        self.look(0.0)

    def orders(self) -> Orders:
        return orders_for(FLOW)

    def wall_ns(self) -> int:
        return self.now_ns

    def deliver(self, frames: Iterable[Frame]) -> None:
        self.frames += frames

    def send_word(self, word: Any) -> None:
        self.words.append(word)

    def give(self, position: int, *rows: Any) -> None:
        part = RootPart(RootKey(SOURCE, 1, position, 0), SLOT, 0, 0, position, 0, 0, 7)
        frame = Frame(0, SOURCE, SLOT, 1, TENS, [part], [(0, 0, len(rows), 0)], list(rows), 0, 0)
        self.core.take(frame, self.now_ns)

    def hear(self, word: Any) -> None:
        self.core.hear(word, self.now_ns)

    def drain(self) -> None:
        desired = self.core.orders.desired  # type: ignore[union-attr]
        self.core.obey(orders_of(replace(desired, draining=True), SLOT, self.incarnation), self.now_ns)

    def look(self, seconds: float) -> None:
        self.now_ns += int(seconds * S)
        self.core.on_time(self.now_ns)
        self.core.flush(self.now_ns, everything=True)

    def sent(self) -> list[tuple[int, int, Any]]:
        """(partition, position, row) since this was asked last."""
        found = [
            (frame.roots[number].partition, frame.roots[number].position + offset, row)
            for frame in self.frames
            for row, (number, offset, _) in zip(frame.rows, row_runs.single(frame.runs), strict=True)
        ]
        self.sent_frames, self.frames = self.frames, []
        return found

    def acked(self) -> None:
        """All that it sent is done."""
        acks = [Ack(root.key, root.id) for frame in self.sent_frames for root in frame.roots]
        self.core.hear(acks, self.now_ns)

    def told_us(self) -> set[int]:
        """What it says of its ranges."""
        self.words.clear()
        self.look(1.0)
        return {run[3] for word in self.words if isinstance(word, RangeWatermarks) for run in word.ranges}

    def kept(self) -> dict[int, int]:
        """Below which number of a range nothing comes any more, by what it says."""
        self.words.clear()
        self.look(1.0)
        return dict(one for word in self.words if isinstance(word, RangeWatermarks) for one in word.kept)


def test_what_a_timer_gives_is_sent_once_a_snapshot_has_it_and_holds_the_watermark_until_it_is_done(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    bench.give(0, ("a", 5))
    bench.hear(Watermark(SOURCE, TENS, 14 * US))
    bench.look(5.0)
    assert bench.sent() == [] and bench.told_us() == {14 * US}
    bench.give(1, ("b", 90))
    bench.look(0.3)  # that is in a snapshot, and the next one is not due yet
    bench.hear(Watermark(SOURCE, TENS, 20 * US))
    bench.look(0.0)
    assert bench.sent() == [], "the state that changed is in no snapshot"
    bench.look(0.3)
    ((partition, position, row),) = bench.sent()
    assert row == ("a", 15, 1) and partition >= TIMED_PARTITION and position == 1 << 32
    assert bench.told_us() == {20 * US, 15 * US - 1}
    bench.acked()
    assert bench.told_us() == {20 * US}
    bench.look(60.0)
    assert bench.sent() == []


def test_what_timers_gave_is_forgotten_below_once_it_is_done_and_a_snapshot_says_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path, exactly_once=True)
    bench.give(0, ("a", 5), ("b", 6))
    bench.hear(Watermark(SOURCE, TENS, 20 * US))
    bench.look(1.0)
    bench.look(1.0)
    sent = bench.sent()
    assert len(sent) == 2
    assert set(bench.kept().values()) <= {number for _, number, _ in sent}, "they may come again"
    bench.acked()
    last = bench.kept()
    assert {(TIMED_PARTITION + TENS_NUMBER * KEY_RANGES + r, n - 1) for r, n in last.items()} == {
        (partition, number) for partition, number, _ in sent
    }
    again = Bench(tmp_path, incarnation=2, exactly_once=True)
    again.look(1.0)
    assert again.sent() == [] and again.kept() == last


def test_a_table_below_lets_go_of_what_comes_no_more(tmp_path: Path) -> None:
    bench = Bench(tmp_path, exactly_once=True)
    applied = bench.core.behaviour.rows.applied
    for number in range(30_000):
        part = RootPart(RootKey(7, 1, number, 0), SLOT, 0, TIMED_PARTITION + 5, number, 0, 0, 7)
        bench.core.take(
            Frame(0, 7, SLOT, 1, TENS, [part], [(0, 0, 1, 0)], [("a", number)], 0, 0), bench.now_ns
        )
    assert applied.rows == 30_000
    bench.hear(RangeWatermarks(7, TENS, 0, (), ((5, 30_000), (KEY_RANGES, 3), (-1, 3))))
    assert applied.rows < 10_000


def test_what_is_pending_is_sent_again_after_a_restart_under_the_same_name(tmp_path: Path) -> None:
    first = Bench(tmp_path)
    first.give(0, ("a", 5), ("b", 5), ("a", 6))
    first.hear(Watermark(SOURCE, TENS, 15 * US))
    first.look(0.3)
    sent = first.sent()
    assert sorted(row for _, _, row in sent) == [("a", 15, 2), ("b", 15, 1)]
    again = Bench(tmp_path, 2)
    assert sorted(again.sent()) == sorted(sent)
    again.acked()
    again.look(1.0)
    last = Bench(tmp_path, 3)
    last.look(1.0)
    assert last.sent() == []


def test_a_range_that_is_taken_up_with_an_older_copy_uses_no_name_again(tmp_path: Path) -> None:
    """Its last owner went with its VM, and had sent other rows by those numbers: seed 914047."""
    before, bench = Bench(tmp_path / "before", logic=Last), Bench(tmp_path / "now", logic=Last)
    key_range = range_of("a")
    before.give(0, ("a", 5), ("a", 95))
    before.hear(Watermark(SOURCE, TENS, 15 * US))
    before.look(0.3)
    assert [number for _, number, _ in before.sent()] == [1 << 32]
    older, rows = before.core.behaviour.rows.copy(key_range), bench.core.behaviour.rows
    layers = (Layer(2, [9] * KEY_RANGES), Layer(3, [8] * KEY_RANGES, sure=True))
    rows.ranges.stand(Standing(4, [TENS] * KEY_RANGES, layers, frozenset({TENS})))
    rows.offered(9, [replace(older, version=2)])
    bench.look(0.0)
    assert rows.ranges.lost >= {key_range} and not rows.ranges.missing
    bench.hear(Watermark(SOURCE, TENS, 200 * US))
    bench.look(0.3)
    numbers = [number for _, number, _ in bench.sent()]
    assert numbers == [1 << 32, 4 << 32], (
        "what was on its way comes again, and what is new has a name of its own"
    )


@pytest.mark.parametrize("routes", [4, 217_000_000])
def test_two_runs_from_one_checkpoint_give_no_two_rows_one_name(tmp_path: Path, routes: int) -> None:
    """One had gone on after the checkpoint, and timers of another kind came in another order: a sink took what the
    second gave for what it had."""
    saved, bench, key_range = Bench(tmp_path / "saved", logic=Last), Bench(tmp_path / "now"), range_of("a")
    saved.give(0, ("a", 5), ("a", 95))
    copy, rows = saved.core.behaviour.rows.copy(key_range), bench.core.behaviour.rows
    saved.hear(Watermark(SOURCE, TENS, 200 * US))
    saved.look(0.3)
    used = {number for _, number, _ in saved.sent()}
    layers = (Layer(2, [9] * KEY_RANGES, sure=True),)
    homes = {9: SLOT.vm}
    rows.ranges.stand(Standing(routes, [TENS] * KEY_RANGES, layers, frozenset({TENS}), homes))
    rows.offered(9, [replace(copy, version=2)])
    rows.ranges.hear(9, range(KEY_RANGES))
    bench.look(0.0)
    assert not rows.ranges.lost and not rows.ranges.missing
    bench.hear(Watermark(SOURCE, TENS, 200 * US))
    bench.look(0.3)
    again = {number for _, number, _ in bench.sent()}
    assert used and again and min(again) == routes << 32 > max(used)


def test_a_timer_that_fired_and_was_in_no_snapshot_fires_again(tmp_path: Path) -> None:
    first = Bench(tmp_path)
    first.give(0, ("a", 5))
    first.look(0.3)
    first.hear(Watermark(SOURCE, TENS, 15 * US))  # it fires, and the thread is killed
    again = Bench(tmp_path, 2)
    again.hear(Watermark(SOURCE, TENS, 15 * US))
    again.look(0.3)
    assert [row for _, _, row in again.sent()] == [("a", 15, 1)]


def test_the_watermark_is_kept_with_the_state(tmp_path: Path) -> None:
    first = Bench(tmp_path)
    first.give(0, ("a", 5))
    first.hear(Watermark(SOURCE, TENS, 15 * US))
    first.look(0.3)
    first.sent()
    first.acked()
    again = Bench(tmp_path, 2)
    again.give(1, ("a", 14))
    again.look(0.0)
    assert [row for _, _, row in again.sent() if row[0] == "late"] == [("late", "a")]


def test_timers_of_states_that_are_beyond_memory_fire_once(tmp_path: Path) -> None:
    benches = Bench(tmp_path / "all", logic=Last), Bench(tmp_path / "few", logic=Last)
    store = SqliteStates(str(tmp_path), "tens", TENS)
    states = [bench.core.behaviour.rows.states for bench in benches]  # type: ignore[attr-defined]
    states[1].overflow = Overflow(store, most_bytes=0)
    came = []
    for bench, kept in zip(benches, states, strict=True):
        for position in range(60):
            bench.give(position, (f"k{position % 20}", position))
            if position % 7 == 0:
                bench.look(0.3)
        bench.hear(Watermark(SOURCE, TENS, 55 * US))
        bench.look(0.3)
        bench.give(60, ("k1", 56), ("k2", 30))
        bench.hear(Watermark(SOURCE, TENS, 90 * US))
        bench.look(0.3)
        bench.look(0.3)
        came.append(sorted(row for _, _, row in bench.sent()))
        assert len(kept.filled) > 10 and (kept is states[0] or kept.stored)
    assert came[0] == came[1] and len(came[0]) > 20


def test_a_key_that_is_forgotten_stays_so(tmp_path: Path) -> None:
    first = Bench(tmp_path)
    first.give(0, ("a", 5), ("b", 50))
    first.look(0.3)
    first.hear(Watermark(SOURCE, TENS, 15 * US))
    first.look(0.3)
    again = Bench(tmp_path, 2)
    behaviour = again.core.behaviour
    assert isinstance(behaviour, TimedTask)
    states = behaviour.rows.states
    assert [key for key_range in states.filled for key in states.of(key_range)] == ["b"]


def test_timers_that_are_due_and_have_not_fired_yet_hold_the_watermark_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.give(0, *((f"k{n}", 5 + n % 2) for n in range(5000)))
    bench.words.clear()
    bench.look(2.0)
    bench.hear(Watermark(SOURCE, TENS, 100 * US))
    told = {run[3] for word in bench.words if isinstance(word, RangeWatermarks) for run in word.ranges}
    assert told and max(told) < 16 * US
    assert bench.core.behaviour.soon
    found: list[Any] = []
    while len(found) < 5000:
        bench.look(0.3)
        found += bench.sent()
        bench.acked()
    assert len({name[:2] for name in found}) == 5000 and not bench.core.behaviour.soon


def test_a_timer_of_a_range_that_was_away_and_is_back_holds_the_watermark_back(tmp_path: Path) -> None:
    """It came back after timers had fired in that turn: what it gave a moment later was late below (seed 913379)."""
    bench = Bench(tmp_path)
    bench.give(0, ("a", 5), ("b", 50))
    behaviour = bench.core.behaviour
    assert isinstance(behaviour, TimedTask)
    rows, key_range = behaviour.rows, range_of("a")
    rows.ranges.owned.discard(key_range)
    bench.hear(Watermark(SOURCE, TENS, 30 * US))
    assert {at_us for _, _, at_us in rows.told(False)} == {30 * US} and rows.unfired_us is None
    rows.ranges.owned.add(key_range)
    assert {at_us for _, _, at_us in rows.told(False)} == {15 * US - 1}
    assert rows.unfired_us == 15 * US, "so the end of the input waits for it, too"


def test_timers_that_fired_are_not_taken_for_cancelled_ones(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.give(0, *((f"k{n}", 5 if n < 2000 else 90) for n in range(2100)))
    bench.hear(Watermark(SOURCE, TENS, 20 * US))
    behaviour = bench.core.behaviour
    assert isinstance(behaviour, TimedTask)
    assert behaviour.rows.pending_rows == 2000 and not behaviour.rows.logic.events.crowded


def test_no_more_timers_fire_than_can_be_sent_soon(tmp_path: Path) -> None:
    bench, keys = Bench(tmp_path), 3 * UNSENT_MOST
    bench.give(0, *((f"k{n}", 5) for n in range(keys)))
    bench.hear(Watermark(SOURCE, TENS, 100 * US))
    behaviour = bench.core.behaviour
    assert isinstance(behaviour, TimedTask)
    for _ in range(4 * keys // FIRE_MOST):
        bench.look(0.3)  # nobody says that anything is done
    assert not behaviour.soon and behaviour.snapshot_every_ns == SNAPSHOT_TIMED_NS, "no more will be due"
    in_flight = len(bench.sent())
    assert in_flight
    assert behaviour.rows.pending_rows <= in_flight + UNSENT_MOST + FIRE_MOST < keys
    assert max(bench.told_us()) < 15 * US, "those that are due hold the watermark back"
    found = in_flight
    while found < keys:
        bench.acked()
        bench.look(0.3)
        found += len(bench.sent())
    bench.acked()
    bench.look(0.3)
    assert found == keys and bench.told_us() == {100 * US} and behaviour.empty


def test_what_timers_give_between_two_snapshots_is_sent_together(tmp_path: Path) -> None:
    bench = Bench(tmp_path, logic=Last)
    bench.give(0, ("a", 5), ("a", 6), ("a", 7), ("a", 50))
    bench.hear(Watermark(SOURCE, TENS, 17 * US))
    bench.look(0.3)
    assert bench.told_us() == {17 * US, 15 * US - 1}, "the earliest of them holds the watermark back"
    assert [row for _, _, row in bench.sent()] == [("a", 15, 4), ("a", 16, 4), ("a", 17, 4)]
    assert len({root.key for frame in bench.sent_frames for root in frame.roots}) == 1
    bench.acked()
    assert bench.told_us() == {17 * US}


def test_what_is_in_a_snapshot_is_written_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.give(0, ("a", 5), ("a", 6))
    bench.hear(Watermark(SOURCE, TENS, 17 * US))
    bench.look(0.3)
    behaviour = bench.core.behaviour
    assert isinstance(behaviour, TimedTask)
    ((key_range, given),) = behaviour.rows.given.items()
    (entry,) = given.pending
    assert entry.packed is not None and not entry.takes(given.next)
    before = entry.packed
    behaviour.rows.copy(key_range)
    assert entry.packed is before


def test_what_many_timers_give_leaves_in_frames_of_the_usual_size(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.give(0, *((f"k{n}", 5) for n in range(1500)))
    bench.hear(Watermark(SOURCE, TENS, 20 * US))
    found, sizes = set[tuple[int, int]](), list[int]()
    while len(found) < 1500:
        bench.look(1.0)
        found |= {(partition, position) for partition, position, _ in bench.sent()}
        sizes += [len(frame.rows) for frame in bench.sent_frames]
        bench.acked()
    assert sum(sizes) == 1500 and max(sizes) <= 256 and len(sizes) <= 12


class Slow(Ten):
    """A call takes 20 ms of this bench's clock."""

    bench: Bench

    def on_timer(self, key: Any, at: int, state: int, time: Time) -> tuple[None, Iterable[Any]]:
        self.bench.now_ns += S // 50
        return None, [(key, at // US, state)]


def test_slow_calls_of_timers_let_others_come_between(tmp_path: Path) -> None:
    bench = Slow.bench = Bench(tmp_path, logic=Slow)
    bench.give(0, *((f"k{n}", 5) for n in range(100)))
    bench.hear(Watermark(SOURCE, TENS, 20 * US))
    behaviour = bench.core.behaviour
    assert isinstance(behaviour, TimedTask)
    assert 1 <= behaviour.rows.pending_rows <= FIRE_NS * 50 // S + 1 and behaviour.soon
    while behaviour.soon:
        bench.look(0.0)
    bench.look(0.3)
    assert len(bench.sent()) == 100


def test_a_snapshot_waits_for_timers_that_are_due_but_not_long(tmp_path: Path) -> None:
    bench = Slow.bench = Bench(tmp_path, logic=Slow)
    bench.give(0, *((f"k{n}", 5) for n in range(200)))
    bench.look(1.0)  # they are in a snapshot
    begun_ns = bench.now_ns
    bench.hear(Watermark(SOURCE, TENS, 20 * US))
    while not (sent := bench.sent()):
        bench.look(0.0)
    assert 0.9 * S <= bench.now_ns - begun_ns <= 1.1 * S
    assert 40 <= len(sent) < 60


def test_timers_of_a_range_that_is_on_its_way_wait_apart_until_it_is_owned_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.give(0, ("a", 5), ("b", 5))
    behaviour = bench.core.behaviour
    assert isinstance(behaviour, TimedTask)
    rows, key_range = behaviour.rows, range_of("a")
    rows.ranges.owned.discard(key_range)
    bench.hear(Watermark(SOURCE, TENS, 20 * US))
    set_so_far = rows.logic.events.added
    bench.look(0.3)
    bench.look(0.3)
    assert [row[0] for _, _, row in bench.sent()] == ["b"]
    assert rows.logic.events.added == set_so_far and not behaviour.soon
    rows.ranges.owned.add(key_range)
    bench.look(0.3)
    assert [row[0] for _, _, row in bench.sent()] == ["a"]


def test_states_need_not_be_ordered_by_range_again_for_each_timer(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.give(0, ("a", 5), ("b", 5), ("c", 90))
    behaviour = bench.core.behaviour
    assert isinstance(behaviour, TimedTask)
    states = behaviour.rows.states
    before = {key_range: states.of(key_range) for key_range in states.filled}
    bench.hear(Watermark(SOURCE, TENS, 20 * US))
    assert behaviour.rows.pending_rows == 2
    assert [key for key_range in states.filled for key in states.of(key_range)] == ["c"]
    assert all(states.of(key_range) is before[key_range] for key_range in states.filled)


def test_a_lost_root_is_sent_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.give(0, ("a", 5))
    bench.hear(Watermark(SOURCE, TENS, 15 * US))
    bench.look(0.3)
    sent = bench.sent()
    bench.core.behaviour.on_faults(1, bench.now_ns)
    bench.look(0.2)
    assert bench.sent() == sent
    bench.acked()
    bench.look(0.3)
    assert bench.core.behaviour.empty


def test_keys_are_finished_when_all_timers_have_fired_and_what_they_gave_is_done(tmp_path: Path) -> None:
    bench = Bench(tmp_path, logic=Last)
    bench.give(0, ("a", 5), ("b", 99))
    bench.look(0.3)
    desired = orders_for(FLOW).desired
    end = EndOfInput(4, "finish", "tens", whole=True, finish=("tens",))
    bench.core.obey(orders_of(msgspec.structs.replace(desired, end=end), SLOT, 1), bench.now_ns)
    for key_range in range(KEY_RANGES):
        key = RootKey(SOURCE, 1, (1 << 62) + key_range, 0)
        part = RootPart(key, SLOT, 0, END_PARTITION + 1, key_range, 0, 0, 7)
        frame = Frame(0, SOURCE, SLOT, 1, TENS, [part], [(0, 0, 1, 0)], [key_range], 0, 0)
        bench.core.take(frame, bench.now_ns)
    bench.look(0.3)
    assert sorted(row for _, _, row in bench.sent()) == [("a", 15, 1), ("b", 109, 1)]
    bench.look(0.3)
    assert bench.frames == [] and bench.core.now(idle=True).rests == 0
    bench.acked()
    bench.look(0.3)
    assert sorted(row for _, _, row in bench.sent()) == [("last", "a"), ("last", "b")]
    assert bench.core.now(idle=True).rests == 4


@pytest.fixture
def inputs() -> InputTimes:
    times = InputTimes(FLOW, "after")
    times.obey(orders_for(FLOW))
    return times


def ranges(version: int, at_us: int, first: int = 0, count: int = KEY_RANGES) -> RangeWatermarks:
    return RangeWatermarks(TENS, AFTER, 1, ((first, count, version, at_us),))


def test_the_watermark_is_the_lowest_of_all_input(inputs: InputTimes) -> None:
    assert inputs.lowest_us == UNHEARD
    inputs.hear(Watermark(SOURCE, AFTER, 20))
    assert inputs.lowest_us == UNHEARD, "of no range was anything heard"
    inputs.hear(ranges(1, 30, count=KEY_RANGES - 1))
    assert inputs.lowest_us == UNHEARD
    inputs.hear(ranges(1, 15, KEY_RANGES - 1, 1))
    assert inputs.lowest_us == 15 and inputs.held_by == -1
    inputs.hear(ranges(1, 40))
    assert inputs.lowest_us == 20 and inputs.held_by == SOURCE
    inputs.hear(Watermark(SOURCE, AFTER, IDLE_US))
    assert inputs.lowest_us == 40
    inputs.hear(ranges(1, IDLE_US))
    assert inputs.lowest_us == IDLE_US


def test_a_range_that_is_idle_counts_as_it_was_while_another_of_its_task_is_not(inputs: InputTimes) -> None:
    """All threads of a task have the same input: this one will hear of rows, too, and its timers fire then."""
    inputs.hear(Watermark(SOURCE, AFTER, IDLE_US))
    inputs.hear(ranges(1, 30))
    inputs.hear(ranges(1, IDLE_US))
    inputs.hear(ranges(1, END_US, count=1))
    assert inputs.lowest_us == 30
    inputs.hear(ranges(2, IDLE_US, 5, 1))
    assert inputs.lowest_us == 30, "what was true where the range was"
    inputs.hear(ranges(2, END_US))
    assert inputs.lowest_us == END_US


def test_a_task_that_is_idle_counts_as_it_was_while_a_source_before_it_is_not(inputs: InputTimes) -> None:
    """It has not heard of the source yet: what its timers give then would be late (seed 914445)."""
    inputs.hear(Watermark(SOURCE, AFTER, 20))
    inputs.hear(ranges(1, 15))
    inputs.hear(Watermark(SOURCE, AFTER, 60))
    inputs.hear(ranges(1, IDLE_US))
    assert inputs.lowest_us == 15
    inputs.hear(Watermark(SOURCE, AFTER, IDLE_US))
    assert inputs.lowest_us == IDLE_US
    inputs.hear(Watermark(SOURCE, AFTER, 70))
    assert inputs.lowest_us == 15


def test_an_idle_range_of_which_nothing_else_was_heard_holds_the_watermark_while_another_is_not(
    inputs: InputTimes,
) -> None:
    inputs.hear(Watermark(SOURCE, AFTER, IDLE_US))
    inputs.hear(ranges(1, IDLE_US))
    assert inputs.lowest_us == IDLE_US
    inputs.hear(ranges(1, 40, count=1))
    assert inputs.lowest_us == UNHEARD


def test_of_a_range_the_highest_version_counts(inputs: InputTimes) -> None:
    inputs.hear(Watermark(SOURCE, AFTER, IDLE_US))
    inputs.hear(ranges(2, 30))
    inputs.hear(ranges(1, 50, 3, 1))
    assert inputs.lowest_us == 30
    inputs.hear(ranges(2, 50))
    inputs.hear(ranges(1, 10))
    assert inputs.lowest_us == 50
    inputs.hear(ranges(3, 45, 7, 1))
    assert inputs.lowest_us == 45, "a new owner has something pending"
    inputs.hear(RangeWatermarks(TENS, AFTER, 77, ((0, 1, 1, 1),)))
    inputs.hear(ranges(9, 1, -5, 5))
    inputs.hear(ranges(9, 1, KEY_RANGES, 50))
    assert inputs.lowest_us == 45, "of what is not there nothing is taken"


class Milliseconds(Ten):
    unit = "ms"


class Idle(Ten):
    """A state without timers, that gives nothing at the end."""

    def process(self, key: Any, row: Any, state: int, time: Time) -> tuple[int, Iterable[Any]]:
        return 1, ()


class Open(Idle):
    """As a window of its own that ends with the input."""

    def finish(self, key: Any, state: int) -> Iterable[Any]:
        return [key]


class ByClock(Idle):
    def process(self, key: Any, row: Any, state: int, time: Time) -> tuple[int, Iterable[Any]]:
        time.set_clock(time.clock_us + 1000 * US)
        return 1, ()


@pytest.mark.parametrize(("logic", "keys"), [(Ten, 2), (Idle, 0), (Open, 2), (ByClock, 2)])
def test_a_run_that_is_to_end_is_told_how_many_keys_are_open(
    tmp_path: Path, logic: type[Timed], keys: int
) -> None:
    bench = Bench(tmp_path, logic=logic)
    bench.give(0, ("a", 5), ("b", 90), ("a", 6))
    bench.look(1.0)
    assert bench.core.now(True).open_keys == -1, "they are not counted while the run goes on"
    bench.drain()
    bench.look(1.0)
    assert bench.core.now(True).open_keys == keys
    bench.hear(Watermark(SOURCE, TENS, 50 * US))
    bench.look(1.0)
    bench.look(1.0)
    assert bench.core.now(True).open_keys == (1 if logic is Ten else keys), "what fired meanwhile is over"


def test_a_task_whose_times_look_like_another_unit_says_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path, logic=Milliseconds)
    assert bench.core.now(True).times_wrong == ""
    bench.give(0, ("a", 1_790_000_000), ("b", 1_790_000_001))
    assert 'try unit="s"' in bench.core.now(True).times_wrong
    right = Bench(tmp_path / "right")
    right.give(0, *(("a", 1_790_000_000 + n) for n in range(300)))
    assert right.core.now(True).times_wrong == ""
