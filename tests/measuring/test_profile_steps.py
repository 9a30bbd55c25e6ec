"""What a profile measures next, and the model it ends with: on tasks whose truth is known."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headgate.controller.models.model_data import model_of as read_model
from headgate.topology_runtime.measuring import profile_steps
from headgate.topology_runtime.measuring.calibrate import DERATE
from headgate.topology_runtime.measuring.profile_steps import (
    FIRST_PART,
    QUICK,
    QUICK_S,
    Glance,
    Next,
    Probe,
    ProfileChoice,
    Tried,
    call_rows,
    frame_rows,
    frames_when_full,
    growth,
    row_and_frame,
    steady_from,
)
from headgate.topology_runtime.measuring.task_profile import read_record
from headgate.topology_runtime.measuring.wake_cost import DispatchOverhead, share_of_wakes
from headgate.topology_runtime.wire.run_options import FRAME_ROWS

SLOT = {"cores": 0.2, "memory_bytes": 1 << 28, "machine": "test"}


FULL_WISH = ProfileChoice()


class Truth:
    """A task whose capacity is known; `stable`: the part of it that it keeps up with; `wake`: CPU of the slot for
    one row/s that a row alone costs besides."""

    def __init__(
        self, waits: bool, stable: float = 0.96, noise: float = 0.0, seed: int = 1, wake: float = 0.0
    ) -> None:
        self.waits, self.stable, self.noise, self.wake = waits, stable, noise, wake
        self.random = random.Random(seed)

    def capacity(self, threads: int) -> float:
        return min(25.0 * threads, 320.0) if self.waits else 400.0

    def cpu(self, threads: int) -> float:
        return 0.1 * self.capacity(threads) / 320.0 if self.waits else 1.0

    def factor(self) -> float:
        return 1.0 + self.noise * self.random.uniform(-1, 1)

    def probe(self, threads: int) -> Probe:
        speed = 1e6 * self.factor()
        drift = 1.0 if self.waits else speed / 1e6
        blocked = 0.9 if self.waits else 0.0
        rate_tps = self.capacity(threads) * drift * (1 + 0.2 * (self.factor() - 1))
        memory = (8 << 20) + threads * 20_000
        return Probe(threads, rate_tps, self.cpu(threads), memory, blocked, 3.0, 0.25, 100, 1, speed)

    def trial(self, threads: int, rate_tps: float, sparse: bool = False) -> Tried:
        speed = 1e6 * self.factor()
        at_speed = 1.0 if self.waits else speed / 1e6
        stable = rate_tps <= self.stable * self.capacity(threads) * at_speed
        each = self.cpu(threads) / self.capacity(threads) - DispatchOverhead(self.wake, self.waits).at_peak(
            self.capacity(threads)
        )
        each += self.wake * share_of_wakes(rate_tps, full=not self.waits and not sparse)
        cpu = each * rate_tps * (1.0 if self.waits else 1e6 / speed) if stable else 1.0
        return Tried(threads, rate_tps, stable, 0.99, 8.0, speed, cpu, sparse=sparse)


Disturb = Callable[[Probe, list[Probe]], Probe]


def walked(
    truth: Truth,
    wish: ProfileChoice = FULL_WISH,
    disturb: Disturb = lambda probe, _: probe,
) -> Iterator[tuple[Next, list[Probe], list[Tried]]]:
    """Each step of a profile, with all that is measured before it; at the end without one."""
    probes: list[Probe] = []
    trials: list[Tried] = []
    while (step := profile_steps.next_step(probes, trials, wish)) is not None:
        yield step, list(probes), list(trials)
        if step.what == "probe":
            probes.append(disturb(truth.probe(step.threads), probes))
        else:
            trials.append(truth.trial(step.threads, step.rate_tps, step.what == "sparse trial"))
        assert len(probes) + len(trials) <= 200
    yield Next("probe", 0), probes, trials


def profiled(truth: Truth, wish: ProfileChoice = FULL_WISH) -> tuple[list[Probe], list[Tried]]:
    *_, (_, probes, trials) = walked(truth, wish)
    return probes, trials


def modelled(truth: Truth) -> dict[str, Any]:
    return profile_steps.model_of("t", *profiled(truth), SLOT, {})


@pytest.mark.parametrize("waits", [False, True], ids=["computes", "waits"])
@pytest.mark.parametrize("stable", [0.80, 0.92, 0.96, 0.99])
def test_the_peak_stable_rate_is_found_within_the_bracket(waits, stable):
    truth = Truth(waits, stable)
    model = modelled(truth)
    for point in model["points"]:
        assert point["rate_tps"] == pytest.approx(stable * truth.capacity(point["threads"]), rel=0.03)
        assert point["spread"]["rate_tps"] <= 0.03 * point["rate_tps"]
    assert read_model(model)[1] == []


def test_a_drifting_machine_gives_the_same_model_at_its_reference_speed():
    model = modelled(Truth(False, noise=0.1))
    for point in model["points"]:
        at_speed = point["rate_tps"] / model["reference_speed"] * 1e6
        assert at_speed == pytest.approx(0.96 * 400, rel=0.06)


@pytest.mark.parametrize(
    ("waits", "wish", "counts"),
    [
        (True, FULL_WISH, [1, 2, 4, 8, 16, 32]),
        (False, FULL_WISH, [1, 2, 4]),
        (True, ProfileChoice(threads=(3, 5, 40)), [3, 5, 40]),
    ],
)
def test_counts_double_until_the_curve_is_flat_unless_others_are_asked_for(waits, wish, counts):
    assert profile_steps.counted(profiled(Truth(waits), wish)[0]) == counts


def test_capacities_come_first_then_the_best_count_is_bracketed_and_what_is_left_shrinks():
    steps = list(walked(Truth(True)))
    order = [(step.what, step.threads) for step, _, _ in steps[:-1]]
    assert order[:6] == [("probe", threads) for threads in (1, 2, 4, 8, 16, 32)]
    assert order[6] == ("trial", 16)
    assert {threads for what, threads in order if what == "trial"} == {1, 16, 32}
    assert {order.count(("probe", threads)) for threads in (1, 2, 4, 8, 16, 32)} == {3}
    left = [sum(profile_steps.steps_left(probes, trials, FULL_WISH)) for _, probes, trials in steps]
    assert left[-2] <= 3 and left[-1] == 0


def test_a_quick_profile_makes_one_probe_per_count_and_no_trial():
    probes, trials = profiled(Truth(False), ProfileChoice(repeats=1, brackets=0))
    assert [probe.threads for probe in probes] == [1, 2, 4]
    assert trials == []


def test_a_starved_probe_is_repeated_and_does_not_count():
    truth, wish = Truth(False), ProfileChoice(threads=(1,))
    starved = replace(truth.probe(1), rate_tps=200.0, cpu=0.5)
    assert profile_steps.next_step([starved], [], wish) == Next("probe", 1)
    assert profile_steps.capacity([starved, truth.probe(1)], 1) == pytest.approx(400)
    assert profile_steps.next_step([starved] * 3, [], replace(wish, repeats=1, brackets=0)) is None


def test_a_machine_that_disturbs_nearly_every_probe_does_not_hold_the_profile_up_for_ever():
    def disturb(probe: Probe, before: list[Probe]) -> Probe:
        first = all(other.threads != probe.threads for other in before)
        return probe if first else replace(probe, cpu=0.5)

    *_, (_, probes, _) = walked(Truth(False), ProfileChoice(threads=(1, 2)), disturb)
    assert len(probes) < 20 and profile_steps.capacity(probes, 1) == pytest.approx(400)


def test_a_task_of_short_rows_that_never_fills_its_slot_is_not_disturbed():
    truth = Truth(False)
    almost = [replace(truth.probe(1), cpu=cpu) for cpu in (0.92, 0.94, 0.957)]
    assert profile_steps.of(almost, 1) == almost
    starved = replace(truth.probe(1), rate_tps=300.0, cpu=0.85)
    assert profile_steps.of([*almost, starved], 1) == almost


def test_a_starved_trial_says_nothing():
    probes = [Truth(False).probe(1)] * 3
    starved = Tried(1, 300.0, False, 0.99, 8.0, 1e6, cpu=0.6)
    assert profile_steps.bracket(probes, [starved], 1) == (0.0, float("inf"))
    step = profile_steps.next_step(probes, [starved], ProfileChoice(threads=(1,)))
    assert step == Next("trial", 1, 0.97 * 400)
    assert profile_steps.bracket(probes, [replace(starved, cpu=0.97)], 1)[1] == 0.75


def test_a_task_that_waits_is_measured_without_the_time_that_others_kept_it_from_the_cpu():
    truth, wish = Truth(True), ProfileChoice(threads=(1,))
    kept = replace(truth.probe(1), rate_tps=10.0, delayed=0.6)
    assert profile_steps.next_step([kept], [], wish) == Next("probe", 1), "it is tried again"
    assert profile_steps.capacity([kept, truth.probe(1)], 1) == pytest.approx(25.0), "a sound one counts"
    assert profile_steps.capacity([kept] * 3, 1) == pytest.approx(25.0)
    assert profile_steps.delay_taken_off([kept] * 3) == 0.6
    assert profile_steps.delay_taken_off([kept, truth.probe(1)]) == 0.0
    near_its_bound = replace(kept, cpu=0.8)
    assert profile_steps.capacity([near_its_bound], 1) == 10.0, "its own slot paused it"
    little = replace(kept, delayed=0.05)
    assert profile_steps.capacity([little], 1) == 10.0


def test_a_trial_in_which_others_had_the_cpu_of_a_task_that_waits_says_nothing():
    probes = [Truth(True).probe(1)] * 3
    kept = Tried(1, 20.0, False, 0.99, 8.0, 1e6, cpu=0.1, delayed=0.4)
    assert profile_steps.bracket(probes, [kept], 1) == (0.0, float("inf"))
    assert profile_steps.bracket(probes, [replace(kept, delayed=0.0)], 1)[1] == pytest.approx(20 / 25)
    assert profile_steps.bracket(probes, [replace(kept, stable=True)], 1)[0] == pytest.approx(20 / 25)


def test_a_task_that_is_never_stable_still_ends():
    probes, trials = profiled(Truth(False, stable=0.0))
    best = [trial for trial in trials if trial.threads == 1 and not trial.sparse]
    assert len(best) == profile_steps.TRIALS_MOST
    model = profile_steps.model_of("t", probes, trials, SLOT, {})
    assert 0 < model["points"][0]["rate_tps"] < 0.7 * 400


def test_what_is_held_before_any_thread_works_is_told_from_the_points():
    model = modelled(Truth(True))
    assert model["base_memory"] * SLOT["memory_bytes"] == pytest.approx(8 << 20, rel=0.01)


# ── warm-up and leaks ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("slow", [0, 1, 3, 5])
def test_the_warm_up_is_cut_where_it_ends(slow):
    wobble = random.Random(3)
    bins = [50.0 + 10 * n for n in range(slow)] + [200 + wobble.uniform(-4, 4) for _ in range(16)]
    assert steady_from(bins) == slow
    assert steady_from([1.0, 100.0, 100.0]) == 0, "a short one is taken whole"


def test_memory_that_grows_with_the_rows_is_a_leak_and_memory_that_settles_is_none():
    rows = list(range(0, 1200, 100))
    assert growth(rows, [50_000_000 + 512 * row for row in rows]) == pytest.approx(512)
    assert growth(rows, [50_000_000 + 512 * min(row, 500) for row in rows]) == 0.0


# ── the record ──────────────────────────────────────────────────────────────────────────────────


def test_a_record_is_read_up_to_the_line_that_was_torn():
    truth, head = Truth(False), {"digest": "d"}
    encode = msgspec.json.encode
    lines = [encode(head), encode(truth.probe(1)), encode(truth.trial(1, 380.0))]
    found = read_record([*lines, lines[1][:20]], head)
    assert [type(entry) for entry in found] == [Probe, Tried]
    assert read_record(lines, {"digest": "other"}) == []
    assert read_record([], head) == []


@pytest.mark.parametrize("waits", [False, True])
def test_what_a_wake_costs_is_found(waits: bool) -> None:
    truth = Truth(waits, wake=0.0004)
    probes, trials = profiled(truth)
    assert sum(trial.sparse for trial in trials) == ProfileChoice().sparse * (
        1 if waits else profile_steps.SPARSE_OF_COMPUTING
    )
    assert profile_steps.wake_cpu(probes, trials) == pytest.approx(0.0004, rel=0.05)


def test_the_peak_is_that_of_rows_that_always_wait() -> None:
    """However dear it is to be woken: rows that a full slot keeps waiting find it awake."""
    without, dear = (modelled(Truth(False, wake=wake)) for wake in (0.0, 0.004))
    assert without["wake_cpu"] == 0.0 and dear["wake_cpu"] == pytest.approx(0.004, rel=0.02)
    assert without["points"] == dear["points"]


@pytest.mark.parametrize("waits", [False, True])
def test_sparse_trials_are_made_between_repeated_probes(waits: bool) -> None:
    """Both drift with the machine; one after the other they drift alike."""
    steps = list(walked(Truth(waits)))
    best = profile_steps.best_count(steps[-1][1])
    made = [
        step.what == "sparse trial"
        for step, _, _ in steps[:-1]
        if step.threads == best and step.what != "trial"
    ]
    each = 1 if waits else profile_steps.SPARSE_OF_COMPUTING
    assert made[-3 * (1 + each) :] == [False, *[True] * each] * 3


@pytest.mark.parametrize("waits", [False, True])
def test_a_profile_of_more_repeats_than_are_asked_for_is_complete(waits: bool) -> None:
    """As when it goes on with fewer repeats, or when probes that were sound no longer are."""
    probes, trials = profiled(Truth(waits), ProfileChoice(repeats=5))
    assert profile_steps.next_step(probes, trials, ProfileChoice(repeats=2)) is None


def test_sparse_trials_tell_nothing_of_the_peak() -> None:
    probes, trials = profiled(Truth(False))
    dense = [trial for trial in trials if not trial.sparse]
    assert profile_steps.bracket(probes, trials, 1) == profile_steps.bracket(probes, dense, 1)


def test_a_task_too_slow_for_sparse_trials_is_complete_without_them() -> None:
    """A few rows in as many seconds tell nothing; no time is said to be left for them either."""
    truth = Truth(False)
    truth.capacity = lambda threads: 6.0  # type: ignore[method-assign]
    probes, trials = profiled(truth)
    assert not any(trial.sparse for trial in trials)
    assert sum(profile_steps.steps_left(probes, trials, ProfileChoice())) == 0


# ── Models of first use: which thread counts are probed, once each, and what the model says of them ─────

QUICK_SLOT = {"cores": 0.12, "memory_bytes": 100_000_000, "machine": "m"}
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
    model = profile_steps.model_of("t", points, [], QUICK_SLOT, {}, DERATE)
    return [p["rate_tps"] for p in model["points"]]


@pytest.mark.parametrize(
    ("rates", "cpu", "measured"),
    [
        ([100.0, 99.0, 98.0], [], 3),  # it computes
        ([30.0, 60.0, 120.0, 240.0, 250.0], [0.2] * 5, 5),  # it waits, to its limit
        ([30.0, 60.0, 120.0, 200.0, 400.0], [0.2, 0.4, 0.6, 0.96], 4),  # no CPU is left
        ([10.0 * 2**k for k in range(8)], [0.0] * 8, 7),  # the most threads
    ],
)
def test_the_search_ends_where_more_threads_give_nothing(
    rates: list[float], cpu: list[float], measured: int
) -> None:
    counts = [2**k for k in range(8)]
    known = (dict(zip(counts, values, strict=False)) for values in (rates, cpu))
    assert searched(*known) == counts[:measured]


def test_points_at_full_cpu_are_one_capacity_unless_they_fall_or_are_repeated() -> None:
    points = [point(1, 31.0, 1.0, 0.0), point(2, 39.0, 0.97, 0.0), point(4, 35.0, 1.0, 0.0)]
    assert said(points) == pytest.approx([SAID * 35.0] * 3, rel=1e-3)
    model = profile_steps.model_of("t", points, [], QUICK_SLOT, {})
    assert [p["closed_loop_tps"] for p in model["points"]] == [31.0, 39.0, 35.0]
    assert profile_steps.pooled([point(1, 100.0, 1.0), point(2, 50.0, 1.0)]) == {1: 100.0, 2: 50.0}
    assert profile_steps.pooled([points[0], points[0], point(2, 39.0, 1.0, 0.0)]) == {1: 31.0, 2: 39.0}


def test_a_gain_within_noise_is_no_reason_for_threads() -> None:
    points = [point(1, 100.0), point(2, 102.0), point(4, 150.0)]
    assert said(points) == pytest.approx([SAID * 100.0, SAID * 100.0, SAID * 150.0], rel=1e-3)
    model = profile_steps.model_of("t", points, [], QUICK_SLOT, {"more": 1})
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
    model = profile_steps.model_of("t", points, [], QUICK_SLOT, {}, DERATE)
    assert model["schema"] == "headgate/model/v1" and model["derate"] == DERATE
    for before, after in zip(model["points"], model["points"][1:], strict=False):
        assert before["threads"] < after["threads"]
    assert all(p["rate_tps"] > 0 and 0 <= p["cpu"] <= 1 and p["memory"] >= 0 for p in model["points"])


def test_an_unlimited_point_is_brought_down_to_the_slot() -> None:
    full = profile_steps.within_slot(point(1, 400.0, cpu=8.0))
    assert full.rate_tps == 50.0 and full.cpu == 1.0
    light = point(1, 400.0, cpu=0.5)
    assert profile_steps.within_slot(light) == light


# ── How many rows a frame has while a task is measured ──────────────────────────────────────────────────


def test_frames_hold_what_comes_in_a_gap_and_calls_of_a_batched_task_what_a_run_gives_them() -> None:
    """A tenth of a second of rows, up to 256; a task of rows has what comes in a gap."""
    assert [frame_rows(tps, 0.001) for tps in (0.0, 500.0, 900.0, 5_000.0, 1e9)] == [1, 1, 1, 5, 64]
    assert [call_rows(tps) for tps in (1.0, 50.0, 500.0, 2_000.0, 1e6)] == [1, 5, 50, 200, 256]


class Cost:
    """A thread of so many cores, whose frames and rows cost so many seconds; what was asked of it."""

    def __init__(self, cores: float, frame_s: float, row_s: float) -> None:
        self.cores, self.frame_s, self.row_s = cores, frame_s, row_s
        self.asked: list[int] = []

    def __call__(self, rows: int) -> float:
        self.asked.append(rows)
        return rows * self.cores / (self.frame_s + rows * self.row_s)


@pytest.mark.parametrize(
    ("cores", "frame_s", "row_s", "asked"),
    [
        (0.4, 150e-6, 2e-6, [1, 263, 2048]),  # a tenth of a second of rows, as many as they are then
        (0.12, 200e-6, 2e-6, [1, 59, 2048]),  # not even a frame in each gap would fit into this slot
        (0.4, 200e-6, 100e-6, [1, 133, 394]),
        (0.12, 200e-6, 700e-6, [1, 13]),  # 133 rows/s, and 16 in a tenth of a second
        (1.0, 100e-6, 2e-3, [1]),
    ],
)
def test_a_quick_task_is_measured_with_the_frames_that_a_full_slot_has(cores, frame_s, row_s, asked):
    cost = Cost(cores, frame_s, row_s)
    assert frames_when_full(cost, cores) == asked[-1] and cost.asked == asked


@examples(400)
@given(st.floats(0.05, 1.0), st.floats(20e-6, 500e-6), st.floats(1e-7, 5e-3))
def test_it_has_about_as_many_rows_in_a_frame_as_it_takes_in_a_tenth_of_a_second(cores, frame_s, row_s):
    cost = Cost(cores, frame_s, row_s)
    rows = frames_when_full(cost, cores)
    if frame_s + row_s > QUICK_S:
        assert rows == 1 and cost.asked == [1], "a slow one is looked at once"
    else:
        assert rows <= min(FRAME_ROWS, max(1, int(0.1 * cost(rows)))) < 2 * rows
    assert len(cost.asked) < 12


@examples(200)
@given(st.floats(0.1, 1.0), st.floats(20e-6, 500e-6), st.floats(1e-7, 2e-3), st.integers(2, 2048))
def test_what_a_row_and_what_a_frame_costs_is_found_from_two_sizes(cores, frame_s, row_s, rows):
    cost = Cost(cores, frame_s, row_s)
    found = row_and_frame([Glance(size, cost(size), 1.0) for size in (1, max(1, rows // 2), rows)])
    assert found == (pytest.approx(row_s / cores, rel=1e-3), pytest.approx(frame_s / cores, rel=1e-3))
    assert row_and_frame([Glance(1, 100.0, 1.0)]) is None
