"""What a thread says of the size of its states: close to what they are, range by range."""

from __future__ import annotations

import pytest
from keyed_family import TOPOLOGY, Family, all_of

from headgate.controller.knowledge.held_states import range_sizes, sound, task_states
from headgate.topology_runtime.api.topology import KEY_RANGES
from headgate.topology_runtime.wire.messages import Route, ThreadStatus
from headgate.topology_runtime.wire.report_messages import HeldState
from headgate.topology_runtime.wire.state_moves import RangeCopy
from headgate.topology_runtime.worker.keyed_state.state_snapshots import (
    KeyedSnapshot,
    RangesMoved,
    SavedPart,
    StateChange,
    states_of,
)
from headgate.topology_runtime.worker.operators.state_sizes import StateSizes

ONE, TWO = 1, 2
HOMES = {ONE: "vm1", TWO: "vm2"}
ROUTES = (Route(0, ((ONE, 1.0),), ((ONE, KEY_RANGES),)),)


def snapshot(*sizes: int) -> KeyedSnapshot:
    return KeyedSnapshot(tuple(RangeCopy(place, 1, b"x" * size) for place, size in enumerate(sizes)))


def told(sizes: StateSizes, ranges: int, keys: int) -> HeldState:
    held = sizes.held(set(range(ranges)), keys)
    assert held is not None and sound(held)
    return held


def saw(sizes: StateSizes, *weights: int, keys: int) -> None:
    """A whole snapshot in which ranges weigh so much besides their states."""
    sizes.saw(SavedPart(begun=snapshot(*weights), ends=True), keys)


def test_nothing_is_said_of_no_state() -> None:
    sizes = StateSizes()
    saw(sizes, 0, 0, 0, keys=0)
    assert sizes.held({0, 1, 2}, 0) is None and sizes.held(set(), 5) is None


def test_a_whole_snapshot_says_what_each_range_weighs() -> None:
    sizes, weights = StateSizes(), (2_000_000, 300_000, 0, 50_000)
    saw(sizes, *weights, keys=100)
    held = told(sizes, 4, 100)
    assert held.saved_bytes == sum(weights)
    assert held.memory_bytes == sum(weights) + 100 * 200
    found = range_sizes({ONE: held}, ROUTES, TOPOLOGY)["tally"]
    assert sum(found) == pytest.approx(sum(weights), rel=1e-4)
    assert found[:4] == [pytest.approx(weight, rel=0.09) for weight in weights] and not any(found[4:])


def test_one_that_is_made_in_parts_counts_once_it_is_whole() -> None:
    sizes = StateSizes()
    sizes.saw(SavedPart(begun=snapshot(0, 0)), 4)
    sizes.saw(SavedPart(states=states_of([0, 0, 0], ["a", "b", "c"], ["x" * 100_000] * 3)), 4)
    assert sizes.held({0, 1}, 0) is None
    sizes.saw(SavedPart(states=states_of([1], ["d"], ["x" * 2_000_000]), ends=True), 4)
    held = told(sizes, 4, 4)
    assert held.saved_bytes == pytest.approx(2_300_000, rel=0.001)
    found = range_sizes({ONE: held}, ROUTES, TOPOLOGY)["tally"]
    assert found[:2] == [pytest.approx(300_000, rel=0.09), pytest.approx(2_000_000, rel=0.09)]


def test_ranges_that_came_weigh_what_they_had() -> None:
    sizes = StateSizes()
    saw(sizes, 5000, 0, keys=10)
    moved = RangesMoved((RangeCopy(1, 3, b"x" * 7000),), (), ())
    sizes.saw(SavedPart(StateChange(states_of([], [], []), b"", (), 0, moved=moved)), 10)
    assert told(sizes, 2, 10).saved_bytes == 12_000


def test_keys_that_came_since_are_as_large_as_those_that_changed_last() -> None:
    sizes = StateSizes()
    saw(sizes, 0, 0, keys=0)
    states = states_of([0, 1], ["a", "b"], ["x" * 1000, "y" * 3000])
    sizes.saw(SavedPart(StateChange(states, b"", (), 0)), 2)
    assert told(sizes, 2, 50).saved_bytes == pytest.approx(50 * 2000, rel=0.01)


def test_a_thread_says_it_with_its_status_once_its_snapshot_is_made() -> None:
    family = Family(HOMES)
    family.plan(all_of(ONE, TWO))
    family.settle()
    family.offer(400)
    family.all_done()
    family.run(3.0)
    said = {}
    for number, member in family.members.items():
        held = member.keyed.status(ThreadStatus(number)).held
        assert held is not None and sound(held) and not held.parts
        said[number] = held
    (state,) = task_states(said, {ONE: "tally", TWO: "tally"})
    assert 40 * 2 <= state.saved_bytes <= 40 * 12, "a key and a count each"
    assert state.memory_bytes >= 40 * 200


@pytest.mark.parametrize(
    "held",
    [
        HeldState(-1, 5),
        HeldState(5, -1),
        HeldState(1 << 60, 5),
        HeldState(5, 5, ((0, 2),), b"x"),
        HeldState(5, 5, ((1023, 2),), b"xx"),
        HeldState(5, 5, ((-1, 1),), b"x"),
        HeldState(5, 5, (), b"x"),
    ],
)
def test_what_cannot_be_is_not_believed(held: HeldState) -> None:
    assert not sound(held)


def test_what_is_even_is_told_by_its_sum_and_spread_over_the_ranges_of_its_thread() -> None:
    routes = (Route(0, ((ONE, 0.75), (TWO, 0.25)), ((ONE, 768), (TWO, 256))),)
    said = {ONE: HeldState(768_000, 1), TWO: HeldState(512_000, 1)}
    found = range_sizes(said, routes, TOPOLOGY)["tally"]
    assert found == [1000] * 768 + [2000] * 256
