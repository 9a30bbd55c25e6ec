"""What is found in series and cells that are made for it, without Spark."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headgate.dashboards.analytics.analyses.episodes import Stretch, stretches
from headgate.dashboards.analytics.analyses.leaks import leak_of, longest_life
from headgate.dashboards.analytics.analyses.seasons import full_bins, period_of, refined
from headgate.dashboards.analytics.analyses.speeds import fitted

SEED = 11
Values = np.ndarray[Any, Any]


def noise(size: int, spread: float = 0.05) -> Values:
    return 1 + spread * np.random.default_rng(SEED).standard_normal(size)


# ── episodes ────────────────────────────────────────────────────────────────────────────────────────────


def seconds_of(high_s: Values) -> list[Stretch]:
    return stretches(np.arange(float(len(high_s))), high_s, 1.0)


def test_latency_that_only_scatters_is_no_episode() -> None:
    assert seconds_of(0.3 * noise(600, 0.15)) == []
    assert seconds_of(np.full(600, 0.3)) == []
    assert seconds_of(np.full(3, 9.0)) == [], "of three seconds nobody knows what is usual"


def test_a_rise_and_fall_is_told_from_when_to_when() -> None:
    high_s = 0.3 * noise(600)
    high_s[200:300] += np.minimum(np.arange(100), np.arange(100)[::-1]) * 0.12
    [found] = seconds_of(high_s)
    assert found.from_s == pytest.approx(200, abs=2) and found.to_s == pytest.approx(300, abs=2)
    assert found.usual_s == pytest.approx(0.3, rel=0.1)


def test_a_run_that_is_slow_for_most_of_its_life_has_one_all_the_same() -> None:
    high_s = 0.3 * noise(600)
    high_s[100:] += 0.1 * np.arange(500)
    [found] = seconds_of(high_s)
    assert found.from_s == pytest.approx(100, abs=3) and found.to_s == 600


def test_a_stretch_without_rows_is_as_old_as_the_row_that_ends_it() -> None:
    at_s = np.array([*range(100), *range(130, 200)], float)
    high_s = 0.3 * noise(len(at_s))
    high_s[100:106] = [30.3, 24.0, 18.0, 12.0, 6.0, 2.0]
    [found] = stretches(at_s, high_s, 1.0)
    assert found.from_s == pytest.approx(100, abs=2) and found.to_s == pytest.approx(136, abs=1)


def test_a_hiccup_is_not_told_and_two_near_ones_are_one() -> None:
    high_s = 0.3 * noise(600)
    high_s[50:52] = 3.0
    for begin in (200, 207):
        high_s[begin : begin + 4] = 3.0
    [found] = seconds_of(high_s)
    assert (found.from_s, found.to_s) == (200, 211)
    high_s[211:219], high_s[219:224] = 0.5, 3.0  # not slow, but not quiet either
    assert [(each.from_s, each.to_s) for each in seconds_of(high_s)] == [(200, 224)]


# ── leaks ───────────────────────────────────────────────────────────────────────────────────────────────


def points(memory: Values, each_s: float = 10.0) -> list[tuple[float, float]]:
    return [(n * each_s, float(value)) for n, value in enumerate(memory)]


def test_memory_that_grows_steadily_is_a_leak_with_its_pace() -> None:
    found = leak_of(points(0.05 * noise(48, 0.01) + 0.0002 * np.arange(48)))
    assert found is not None and found.value == pytest.approx(0.00002, rel=0.1)
    assert found.low <= 0.00002 <= found.high


@pytest.mark.parametrize(
    "memory",
    [
        0.05 * noise(48, 0.03),
        0.05 + 0.02 * (1 - np.exp(-np.arange(48) / 4)),  # it warms up
        0.05 + 0.0006 * np.minimum(np.arange(48), 30) * noise(48, 0.01),  # it warms up slowly
        0.05 + 0.02 * (np.arange(48) > 20),  # a step
        0.05 + 0.004 * np.sin(np.arange(48) / 8),  # with the rate
        0.05 + 0.0002 * np.arange(8),  # too few
    ],
)
def test_memory_that_grows_otherwise_is_none(memory: Values) -> None:
    assert leak_of(points(memory)) is None


def test_a_process_that_is_begun_anew_is_another_life() -> None:
    memory = points(np.concatenate([0.05 + 0.001 * np.arange(20), 0.05 + 0.001 * np.arange(28)]))
    assert longest_life(memory) == memory[20:]


# ── slots and pairs ─────────────────────────────────────────────────────────────────────────────────────


def cells(speed: dict[int, float], pair: float, slope: float = 0.0) -> list[dict[str, Any]]:
    """Two tasks in four slots, alone and together, at several rates, with noise of a hundredth."""
    chance, found = np.random.default_rng(SEED), []
    for epoch in range(4):
        for slot in range(4):
            for task, cost in (("a", 1e-3), ("b", 4e-3)):
                beside = ["b" if task == "a" else "a"] if (slot + epoch) % 2 else []
                rate = 50.0 * (1 + epoch)
                log = np.log(cost) - np.log(speed.get(slot, 1.0)) + slope * np.log(rate / 50)
                log += np.log(pair) * bool(beside) * (task == "a") + 0.01 * chance.standard_normal()
                found.append({
                    "run": "r", "task": task, "place": ("vm1", slot), "beside": beside, "cost": log,
                    "rate": np.log(rate), "scatter": 0.05, "windows": 20,
                })  # fmt: skip
    return found


def test_a_slow_slot_and_a_pair_are_told_apart() -> None:
    slots, pairs = fitted("r", cells({2: 0.7}, 1.4))
    assert [slot.slot for slot in slots if slot.slow] == [2]
    assert slots[0].speed == pytest.approx(0.7, abs=0.03) and slots[0].low < slots[0].speed < slots[0].high
    assert [(pair.task, pair.beside) for pair in pairs if pair.disturbs] == [("a", "b")]
    assert pairs[0].factor == pytest.approx(1.4, rel=0.03)


def test_nothing_is_slow_or_disturbed_where_rows_only_cost_more_at_low_rates() -> None:
    slots, pairs = fitted("r", cells({}, 1.0, slope=-0.3))
    assert len(slots) == 4 and not any(slot.slow for slot in slots)
    assert len(pairs) == 2 and not any(pair.disturbs for pair in pairs)


def test_what_a_run_cannot_tell_apart_has_no_row() -> None:
    """b is only where a is, always the same slot: is it the slot, or a?"""
    known = [cell for cell in cells({}, 1.0) if cell["task"] == "a"]
    lone = [
        {**cell, "task": "b", "place": ("vm1", 9), "beside": ["a"]} for cell in known if cell["place"][1] == 1
    ]
    slots, pairs = fitted("r", [*known, *lone])
    assert {slot.slot for slot in slots} == {0, 1, 2, 3}
    assert {(pair.task, pair.beside) for pair in pairs} == {("a", "b")}


# ── seasons ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("period", [12.5, 37.3, 60.0])
def test_a_period_between_two_bins_is_found(period: float) -> None:
    at = np.arange(400)
    values = 100 + 20 * np.sin(2 * np.pi * at / period) + 5 * np.sin(4 * np.pi * at / period + 1) + noise(400)
    bins, _ = period_of(values)
    assert bins is not None and refined(values, bins) == pytest.approx(period, rel=0.01)


@pytest.mark.parametrize(
    ("seconds", "kept"), [([2, 5, 5, 1], [5, 5]), ([5, 5, 4, 5], [5, 5, 4, 5]), ([], [])]
)
def test_what_the_ends_of_a_run_cut_short_is_no_rate(seconds: list[int], kept: list[int]) -> None:
    assert [each["n"] for each in full_bins([{"n": n} for n in seconds])] == kept
