"""The slowest and quickest sequence, and the slowest through each channel, against every sequence added up."""

from __future__ import annotations

from itertools import pairwise, product
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.topology_runtime.latency.sequences import Seen, judged

MS = st.floats(0.0, 1000.0)


@st.composite
def paths(
    draw: st.DrawFn,
) -> tuple[list[frozenset[int]], dict[tuple[int, int], Seen], dict[int, float]]:
    sizes = draw(st.lists(st.integers(1, 3), min_size=2, max_size=5))
    numbers = iter(range(100))
    steps = [frozenset(next(numbers) for _ in range(size)) for size in sizes]
    channels = {
        pair: Seen(draw(MS), draw(MS))
        for before, after in pairwise(steps)
        for pair in product(sorted(before), sorted(after))
        if draw(st.integers(0, 3))
    }
    threads = {thread: draw(MS) for step in steps[1:] for thread in step if draw(st.integers(0, 4))}
    return steps, channels, threads


@given(paths())
def test_as_if_each_had_been_added_up(
    case: tuple[list[frozenset[int]], dict[tuple[int, int], Seen], dict[int, float]],
) -> None:
    steps, channels, threads = case
    every: dict[tuple[int, ...], float] = {}
    fixed: dict[tuple[int, ...], float] = {}
    for one in product(*steps):
        pairs = list(pairwise(one))
        if all(pair in channels for pair in pairs):
            worked = sum(threads.get(thread, 0.0) for thread in one[1:])
            every[one] = worked + sum(channels[p].buffer_ms + channels[p].transport_ms for p in pairs)
            fixed[one] = worked + sum(channels[p].transport_ms for p in pairs)
    found = judged(steps, channels, threads)
    if not every:
        assert found is None
        return
    assert found is not None
    assert found.most_ms == pytest.approx(max(every.values()), abs=1e-6)
    assert found.least_ms == pytest.approx(min(every.values()), abs=1e-6)
    assert every[found.slowest] == pytest.approx(found.most_ms, abs=1e-6)
    used = {pair for one in every for pair in pairwise(one)}
    assert found.through.keys() == used
    for pair in used:
        over = [one for one in every if pair in set(pairwise(one))]
        assert found.through[pair] == pytest.approx(max(every[one] for one in over), abs=1e-6)
        assert found.fixed[pair] == pytest.approx(max(fixed[one] for one in over), abs=1e-6)
    expected = 0.0
    for before, after in pairwise(steps):
        here = [pair for pair in used if pair[0] in before and pair[1] in after]
        expected += mean(channels[pair].ms for pair in here)
        expected += mean(threads.get(thread, 0.0) for thread in {target for _, target in here})
    assert found.mean_ms == pytest.approx(expected, abs=1e-6)
