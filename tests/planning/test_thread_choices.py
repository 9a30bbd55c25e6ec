"""Of numbers of threads that a model's spread does not tell apart, mixes hold the fewest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.controller.knowledge.models import Model, ModelSlot, Point, Spread
from headgate.controller.plan.fewest_slots import choices_of


def model(*points: tuple[int, float, float, float | None]) -> Model:
    """(threads, tuples/s, CPU, half-width of the tuples/s)"""
    made = (
        Point(n, tps, cpu, 0.01, None if half is None else Spread(rate_tps=half))
        for n, tps, cpu, half in points
    )
    return Model("task", ModelSlot(), tuple(made))


def threads(of: Model) -> list[int]:
    return [choice.threads for choice in choices_of(of)]


def test_as_recorded_of_tasks_that_compute_and_that_wait() -> None:
    """Measured on one day: π takes no more with four threads, and as if 1.5 % less CPU; a look-up twice as much."""
    assert threads(model((1, 76.08, 0.9985, 8.3), (2, 75.56, 0.9984, 11.1), (4, 76.08, 0.9835, 5.0))) == [1]
    assert threads(model((1, 230.1, 1.0, 7.4), (2, 243.7, 0.9924, 11.1), (4, 243.7, 0.9597, 10.7))) == [1, 2]
    assert threads(model((1, 5.0, 0.02, 0.1), (2, 10.0, 0.027, 0.2), (4, 19.9, 0.032, 1.0))) == [1, 2, 4]


def test_what_says_nothing_of_its_spread_is_believed() -> None:
    assert threads(model((1, 100.0, 1.0, None), (2, 100.5, 1.0, None))) == [1, 2]


def test_fewer_threads_at_much_more_cpu_are_another_choice() -> None:
    """They take as much with the slot to themselves, and leave less of it to others."""
    assert threads(model((1, 100.0, 1.0, 1.0), (4, 100.0, 0.5, 1.0))) == [1, 4]


@given(
    st.lists(st.tuples(st.floats(1, 1e4), st.floats(0.01, 1.2), st.floats(0, 0.5)), min_size=1, max_size=6)
)
def test_for_each_that_is_left_out_there_is_one_as_good(found: list[tuple[float, float, float]]) -> None:
    of = model(*((2**n, tps, cpu, part * tps) for n, (tps, cpu, part) in enumerate(found)))
    kept = {choice.threads for choice in choices_of(of)}
    assert of.points[0].threads in kept
    for point in of.points:
        assert point.spread is not None and point.spread.rate_tps is not None
        least_tps = point.rate_tps - point.spread.rate_tps
        assert point.threads in kept or any(
            fewer.rate_tps >= least_tps
            and fewer.cpu / fewer.rate_tps <= point.cpu / max(least_tps, 1e-9) * (1 + 1e-9)
            for fewer in of.points
            if fewer.threads in kept and fewer.threads < point.threads
        )
