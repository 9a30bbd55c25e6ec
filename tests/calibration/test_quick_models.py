"""Models of first use: which thread counts are probed, once each, and what the model says of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.topology_runtime.calibration import profile_steps
from headgate.topology_runtime.calibration.first_use import DERATE
from headgate.topology_runtime.calibration.profile_steps import FIRST_PART, QUICK, Probe

SLOT = {"cores": 0.12, "memory_bytes": 100_000_000, "machine": "m"}
SAID = DERATE * FIRST_PART  # of what a probe measured


def point(threads: int, rate_tps: float, cpu: float = 0.1, blocked: float = 0.9) -> Probe:
    return Probe(threads, rate_tps, cpu, 1_000_000, blocked, 2.0, 0.0, int(2 * rate_tps), 1, 1e6)


def searched(rate: dict[int, float], cpu: dict[int, float]) -> list[int]:
    """Thread counts measured for a task with these rates and CPU shares."""
    points: list[Probe] = []
    while (step := profile_steps.next_step(points, [], QUICK)) is not None:
        n = step.threads
        points.append(point(n, rate.get(n, max(rate.values())), cpu.get(n, 1.0)))
    return [p.threads for p in points]


def said(points: list[Probe]) -> list[float]:
    model = profile_steps.model_of("t", points, [], SLOT, {}, DERATE)
    return [p["rate_tps"] for p in model["points"]]


def test_computing_tasks_take_three_points() -> None:
    assert searched({1: 100.0, 2: 99.0, 4: 98.0}, {}) == [1, 2, 4]


def test_waiting_tasks_go_on_to_their_limit() -> None:
    rates = {1: 30.0, 2: 60.0, 4: 120.0, 8: 240.0, 16: 250.0}
    cpu = dict.fromkeys((1, 2, 4, 8, 16), 0.2)
    assert searched(rates, cpu) == [1, 2, 4, 8, 16]


def test_a_slot_without_cpu_left_ends_the_search() -> None:
    rates = {1: 30.0, 2: 60.0, 4: 120.0, 8: 200.0, 16: 400.0}
    assert searched(rates, {1: 0.2, 2: 0.4, 4: 0.6, 8: 0.96}) == [1, 2, 4, 8]


def test_the_search_ends_at_its_most() -> None:
    cpu = {2**k: 0.0 for k in range(8)}
    assert searched({2**k: 10.0 * 2**k for k in range(8)}, cpu) == [1, 2, 4, 8, 16, 32, 64]


def test_points_at_full_cpu_are_one_capacity() -> None:
    points = [point(1, 31.0, 1.0, 0.0), point(2, 39.0, 0.97, 0.0), point(4, 35.0, 1.0, 0.0)]
    assert said(points) == pytest.approx([SAID * 35.0] * 3, rel=1e-3)
    model = profile_steps.model_of("t", points, [], SLOT, {})
    assert [p["closed_loop_tps"] for p in model["points"]] == [31.0, 39.0, 35.0]


def test_a_real_fall_at_full_cpu_stays() -> None:
    assert profile_steps.pooled([point(1, 100.0, 1.0), point(2, 50.0, 1.0)]) == {1: 100.0, 2: 50.0}


def test_points_that_were_repeated_are_not_pooled() -> None:
    probes = [point(1, 31.0, 1.0, 0.0), point(1, 31.0, 1.0, 0.0), point(2, 39.0, 1.0, 0.0)]
    assert profile_steps.pooled(probes) == {1: 31.0, 2: 39.0}


def test_a_gain_within_noise_is_no_reason_for_threads() -> None:
    points = [point(1, 100.0), point(2, 102.0), point(4, 150.0)]
    assert said(points) == pytest.approx([SAID * 100.0, SAID * 100.0, SAID * 150.0], rel=1e-3)
    model = profile_steps.model_of("t", points, [], SLOT, {"more": 1})
    assert model["more"] == 1 and model["waiting"] is True


@given(
    st.lists(
        st.tuples(st.floats(0.1, 1e5), st.floats(0.01, 1.3), st.floats(0.0, 1.0), st.integers(-1000, 10**9)),
        min_size=1,
        max_size=7,
    )
)
def test_models_are_what_the_format_asks(values: list[tuple[float, float, float, int]]) -> None:
    points = [
        Probe(2**k, r, c, m, b, 1.0, 0.0, max(1, int(r)), 1, 1e6) for k, (r, c, b, m) in enumerate(values)
    ]
    model = profile_steps.model_of("t", points, [], SLOT, {}, DERATE)
    assert model["schema"] == "headgate/model/v1" and model["derate"] == DERATE
    for before, after in zip(model["points"], model["points"][1:], strict=False):
        assert before["threads"] < after["threads"]
    assert all(p["rate_tps"] > 0 and 0 <= p["cpu"] <= 1 and p["memory"] >= 0 for p in model["points"])


def test_an_unlimited_point_is_brought_down_to_the_slot() -> None:
    full = profile_steps.within_slot(point(1, 400.0, cpu=8.0))
    assert full.rate_tps == 50.0 and full.cpu == 1.0
    light = point(1, 400.0, cpu=0.5)
    assert profile_steps.within_slot(light) == light
