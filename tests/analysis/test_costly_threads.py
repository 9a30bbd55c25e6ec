"""The one thread that costs more than its siblings: named surely, and nothing else in its place."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Sequence

import pytest
from msgspec.structs import replace

from headgate.controller.analyze.costly_threads import (
    COSTLY,
    WINDOWS,
    CostlyThread,
    CostlyThreads,
    ThreadCost,
    comparable,
    costly_in,
)
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import Edge, Task, Topology

ROW_S = 0.001


def threads(*cpu_times: float, vms: int = 2, rows: float = 1000.0, task: str = "work") -> list[ThreadCost]:
    """One in each slot, on one VM after the other; each costs so many times what a row does."""
    return [
        ThreadCost(
            number, task, Slot(f"vm{number % vms}", number // vms), 1.0, rows, times * rows * ROW_S, 0.0
        )
        for number, times in enumerate(cpu_times)
    ]


def changed(window: list[ThreadCost], number: int, **values: float) -> list[ThreadCost]:
    return [one._replace(**values) if one.thread == number else one for one in window]


def named(windows: Sequence[Sequence[ThreadCost]]) -> list[CostlyThread]:
    watch = CostlyThreads()
    return [found for window in windows if (found := watch.add(window)) is not None]


@pytest.mark.parametrize("times", [1.2, 1.4, 2.0])
def test_a_thread_that_costs_more_in_every_window_is_named_after_a_minute(times: float) -> None:
    windows = [threads(1.0, 1.0, times + 0.001, 1.0, 1.0)] * WINDOWS
    (found,) = named(windows)
    assert (found.thread, found.slot) == (2, Slot("vm0", 1)) and found.times == pytest.approx(times, abs=0.01)
    assert named(windows[:-1]) == [], "one window less is too few"
    assert named([*windows[:3], threads(*[1.0] * 5), *windows[:-1]]) == [], "they are in a row"


@pytest.mark.parametrize("many", [4, 5, 6, 9, 20, 31])
def test_it_is_compared_with_the_median_of_all_others(many: int) -> None:
    chance = random.Random(many)
    for costly in range(many):
        costs = [chance.choice([1.0, 1.01, chance.uniform(0.98, 1.02)]) for _ in range(many)]
        costs[costly] = 1.5
        (found,) = costly_in(threads(*costs))
        usual = statistics.median(cost for number, cost in enumerate(costs) if number != costly)
        assert found.thread == costly and found.times == pytest.approx(1.5 / usual)


def test_less_than_a_fifth_more_is_nothing() -> None:
    assert costly_in(threads(1.0, 1.0, COSTLY - 0.01, 1.0, 1.0)) == ()


def test_few_rows_cost_more_each_and_tell_nothing() -> None:
    window = threads(1.0, 1.0, 1.5, 1.0, 1.0)
    assert [one.thread for one in costly_in(window)] == [2]
    for rows in (150.0, 600.0):
        assert costly_in(changed(window, 2, rows=rows, cpu_s=1.5 * rows * ROW_S)) == ()


def test_a_slot_that_is_throttled_is_slow_and_its_thread_is_not_costly() -> None:
    assert costly_in(changed(threads(1.0, 1.0, 1.5, 1.0, 1.0), 2, throttled=0.2)) == ()


def test_a_neighbour_on_a_vm_makes_no_thread_costly() -> None:
    """vm0 has threads 0, 2 and 4; one task after the other, and where the task has but one thread there."""
    assert costly_in(threads(1.5, 1.0, 1.5, 1.0, 1.5, 1.0)) == ()
    alone = threads(1.5, 1.0, 1.0, 1.0, 1.0, vms=1)
    alone = [one._replace(slot=Slot("vm0" if n == 0 else f"vm{n}", 0)) for n, one in enumerate(alone)]
    assert costly_in(alone) == (), "nobody says whether it is the thread or its VM"
    beside = [one._replace(thread=10 + one.thread, task="other", slot=Slot(one.slot.vm, 1)) for one in alone]
    assert costly_in([*alone, *beside]) == (), "the other task is costly there, too"
    well = [one._replace(cpu_s=one.rows * ROW_S) for one in beside]
    assert [one.thread for one in costly_in([*alone, *well])] == [0]


def test_vms_of_other_speeds_are_no_siblings() -> None:
    window = [one._replace(speed=0.5) if one.thread > 2 else one for one in threads(1, 1, 1, 1.5, 1.5, 1.5)]
    assert costly_in(window) == () and costly_in(changed(threads(1, 1.5, 1, 1), 1, speed=0.5)) == ()


def test_rows_by_key_and_sources_are_left_alone() -> None:
    tasks = (
        Task("in", kind="source"),
        Task("any"),
        Task("by"),
        Task("held", kind="keyed", state="keyed"),
        Task("to"),
    )
    edges = (
        Edge("in", "any"), Edge("any", "by", grouping="fields"), Edge("by", "held"), Edge("held", "to"),
        Edge("any", "to", grouping="fields"),
    )  # fmt: skip
    assert comparable(Topology("t", tasks, edges)) == {"any"}
    assert comparable(Topology("t", tasks, (*edges[:1], replace(edges[1], grouping="shuffle")))) >= {
        "any",
        "by",
    }


def noisy(chance: random.Random, noise: float, costly: int | None = None) -> Iterator[list[ThreadCost]]:
    """A minute and a half of ten threads: each window by itself, with a mood of each VM that lasts."""
    moods = {vm: chance.uniform(1 - noise, 1 + noise) for vm in ("vm0", "vm1", "vm2")}
    for _ in range(9):
        window = threads(*(chance.gauss(1.0, noise) for _ in range(10)), vms=3)
        for one in window:
            times = moods[one.slot.vm] * (1.5 if one.thread == costly else 1.0)
            rows = chance.uniform(800, 1000)
            window = changed(window, one.thread, rows=rows, cpu_s=one.cpu_s / one.rows * rows * times)
        yield window


def test_no_false_alarm_however_noisy_and_every_costly_one_is_found() -> None:
    for noise in (0.02, 0.05, 0.1, 0.2):
        assert [seed for seed in range(50) if named(list(noisy(random.Random(seed), noise)))] == [], noise
    found = [named(list(noisy(random.Random(seed), 0.015, seed % 10))) for seed in range(100)]
    assert [{one.thread for one in seen} for seen in found] == [{seed % 10} for seed in range(100)]
