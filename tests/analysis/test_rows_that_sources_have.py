"""What is offered by sources that end: what they have, not what their schedule would like."""

from __future__ import annotations

import pytest

from headgate.controller.knowledge.offered_load import SourceLoad
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.rates.schedule import Schedule

S = 1_000_000_000
RATE = Schedule(0, ((0.0, 100.0),))


def load(partitions: int = 1, **had: int) -> SourceLoad:
    """Sources a and b at 100 rows/s each; had: `a0=30`: of partition 0 of a, which has ended."""
    sources = tuple(
        Task(name, "source", "m:x", static=Static(threads=partitions, cpu=0.1, memory=0.1)) for name in "ab"
    )
    topology = Topology("t", (*sources, Task("c", run="m:y")), (Edge("a", "c"), Edge("b", "c")))
    return SourceLoad(topology, RATE, (), {(name[0], int(name[1:])): rows for name, rows in had.items()})


@pytest.mark.parametrize(
    ("partitions", "had", "offered", "rate_tps"),
    [
        (1, {}, 2000, 100),
        (1, {"a0": 30}, 1030, 100),
        (1, {"a0": 30, "b0": 50}, 80, 0),
        (1, {"a0": 1000}, 2000, 100),
        (2, {"a0": 30}, 1530, 100),
        (2, {"a0": 30, "a1": 29}, 1059, 100),
        (2, {"a0": 30, "a1": 29, "b0": 7, "b1": 7}, 73, 0),
    ],
)
def test_a_source_that_has_ended_offers_what_it_had(
    partitions: int, had: dict[str, int], offered: int, rate_tps: float
) -> None:
    now = load(partitions, **had)
    assert now.positions_at(10 * S) == now.positions_at(10 * S, whole=True) == offered
    assert now.rate_at(10 * S) == rate_tps


def test_the_rate_to_plan_for_is_that_of_the_sources_that_go_on() -> None:
    """The end of one neither halves it nor makes a step in what was offered."""
    before, after = load().progress(10 * S, 1800, 1600), load(a0=800).progress(10 * S, 1800, 1600)
    assert before == (1000, 900, 800)
    assert after[0] == 1000, "no step"
    assert load(a0=800).progress(11 * S, 1900, 1700)[0] - after[0] == 100, "nor another rate"
    assert (after[0] - after[1], after[0] - after[2]) == (0, 200), "what is undone is that of all sources"
    done = load(a0=800, b0=1000).progress(99 * S, 1800, 1800)
    assert done[0] == done[1] == done[2] == 900


def test_a_source_that_had_300_rows_is_owed_nothing_more() -> None:
    short = load(a0=300, b0=300)
    for at_s in (10, 100):
        offered, emitted, done = short.progress(at_s * S, 600, 0)
        assert (offered, emitted, done) == (300, 300, 0)
