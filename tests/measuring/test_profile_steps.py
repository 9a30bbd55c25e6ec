"""What a profile measures next, and the model it ends with: on tasks whose truth is known."""

from __future__ import annotations

import random

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from headgate.controller.models.model_data import model_of as read_model
from headgate.topology_runtime.measuring import profile_steps
from headgate.topology_runtime.measuring.calibrate import DERATE
from headgate.topology_runtime.measuring.profile_steps import (
    FIRST_PART,
    QUICK,
    ROWS_MOST,
    SURELY,
    Probe,
    ProfileChoice,
    Tried,
    call_rows,
    frame_rows,
    frames_that_hold,
    growth,
    steady_from,
)
from headgate.topology_runtime.measuring.task_profile import read_record
from headgate.topology_runtime.measuring.wake_cost import DispatchOverhead, share_of_wakes

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


def profiled(
    truth: Truth, wish: ProfileChoice = FULL_WISH, most: int = 200
) -> tuple[list[Probe], list[Tried]]:
    probes: list[Probe] = []
    trials: list[Tried] = []
    while (step := profile_steps.next_step(probes, trials, wish)) is not None:
        if step.what == "probe":
            probes.append(truth.probe(step.threads))
        else:
            trials.append(truth.trial(step.threads, step.rate_tps, step.what == "sparse trial"))
        assert len(probes) + len(trials) <= most
    return probes, trials


@pytest.mark.parametrize("waits", [False, True], ids=["computes", "waits"])
@pytest.mark.parametrize("stable", [0.80, 0.92, 0.96, 0.99])
def test_the_peak_stable_rate_is_found_within_the_bracket(waits, stable):
    truth = Truth(waits, stable)
    probes, trials = profiled(truth)
    model = profile_steps.model_of("t", probes, trials, SLOT, {})
    for point in model["points"]:
        assert point["rate_tps"] == pytest.approx(stable * truth.capacity(point["threads"]), rel=0.03)
        assert point["spread"]["rate_tps"] <= 0.03 * point["rate_tps"]
    assert read_model(model)[1] == []


def test_a_drifting_machine_gives_the_same_model_at_its_reference_speed():
    truth = Truth(False, noise=0.1)
    probes, trials = profiled(truth)
    model = profile_steps.model_of("t", probes, trials, SLOT, {})
    for point in model["points"]:
        at_speed = point["rate_tps"] / model["reference_speed"] * 1e6
        assert at_speed == pytest.approx(0.96 * 400, rel=0.06)


def test_counts_double_until_the_curve_is_flat():
    probes, _ = profiled(Truth(True))
    assert profile_steps.counted(probes) == [1, 2, 4, 8, 16, 32]
    probes, _ = profiled(Truth(False))
    assert profile_steps.counted(probes) == [1, 2, 4]


def test_the_counts_that_were_asked_for_are_all_measured_and_no_others():
    probes, _ = profiled(Truth(True), ProfileChoice(threads=(3, 5, 40)))
    assert profile_steps.counted(probes) == [3, 5, 40]


def test_capacities_come_first_then_the_best_count_is_bracketed():
    truth, probes, trials, order = Truth(True), [], [], []
    while (step := profile_steps.next_step(probes, trials, ProfileChoice())) is not None:
        order.append((step.what, step.threads))
        if step.what == "probe":
            probes.append(truth.probe(step.threads))
        else:
            trials.append(truth.trial(step.threads, step.rate_tps, step.what == "sparse trial"))
    assert order[:6] == [("probe", threads) for threads in (1, 2, 4, 8, 16, 32)]
    assert order[6] == ("trial", 16)
    assert {threads for what, threads in order if what == "trial"} == {1, 16, 32}
    assert all(
        len([p for p in probes if p.threads == threads]) == 3 for threads in profile_steps.counted(probes)
    )


def test_a_quick_profile_makes_one_probe_per_count_and_no_trial():
    probes, trials = profiled(Truth(False), ProfileChoice(repeats=1, brackets=0))
    assert [probe.threads for probe in probes] == [1, 2, 4]
    assert trials == []


def test_a_starved_probe_is_repeated_and_does_not_count():
    truth = Truth(False)
    starved = profile_steps.msgspec.structs.replace(truth.probe(1), rate_tps=200.0, cpu=0.5)
    assert profile_steps.next_step([starved], [], ProfileChoice(threads=(1,))) == profile_steps.Next(
        "probe", 1
    )
    probes = [starved, truth.probe(1)]
    assert profile_steps.capacity(probes, 1) == pytest.approx(400)
    assert (
        profile_steps.next_step([starved] * 3, [], ProfileChoice(threads=(1,), repeats=1, brackets=0)) is None
    )


def test_a_machine_that_disturbs_nearly_every_probe_does_not_hold_the_profile_up_for_ever():
    truth, probes, trials = Truth(False), [], []
    while (step := profile_steps.next_step(probes, trials, ProfileChoice(threads=(1, 2)))) is not None:
        if step.what != "probe":
            trials.append(truth.trial(step.threads, step.rate_tps, step.what == "sparse trial"))
            continue
        first = all(other.threads != step.threads for other in probes)
        probe = truth.probe(step.threads)
        probes.append(probe if first else profile_steps.msgspec.structs.replace(probe, cpu=0.5))
        assert len(probes) < 20
    assert profile_steps.capacity(probes, 1) == pytest.approx(400)


def test_a_task_of_short_rows_that_never_fills_its_slot_is_not_disturbed():
    truth = Truth(False)
    almost = [profile_steps.msgspec.structs.replace(truth.probe(1), cpu=cpu) for cpu in (0.92, 0.94, 0.957)]
    assert profile_steps.of(almost, 1) == almost
    starved = profile_steps.msgspec.structs.replace(truth.probe(1), rate_tps=300.0, cpu=0.85)
    assert profile_steps.of([*almost, starved], 1) == almost


def test_a_starved_trial_says_nothing():
    truth = Truth(False)
    probes = [truth.probe(1)] * 3
    starved = Tried(1, 300.0, False, 0.99, 8.0, 1e6, cpu=0.6)
    low, high = profile_steps.bracket(probes, [starved], 1)
    assert (low, high) == (0.0, float("inf"))
    assert profile_steps.next_step(probes, [starved], ProfileChoice(threads=(1,))) == profile_steps.Next(
        "trial", 1, 0.97 * 400
    )
    assert (
        profile_steps.bracket(probes, [profile_steps.msgspec.structs.replace(starved, cpu=0.97)], 1)[1]
        == 0.75
    )


def test_a_task_that_is_never_stable_still_ends():
    probes, trials = profiled(Truth(False, stable=0.0))
    best = [trial for trial in trials if trial.threads == 1 and not trial.sparse]
    assert len(best) == profile_steps.TRIALS_MOST
    model = profile_steps.model_of("t", probes, trials, SLOT, {})
    assert 0 < model["points"][0]["rate_tps"] < 0.7 * 400


def test_what_is_held_before_any_thread_works_is_told_from_the_points():
    probes, trials = profiled(Truth(True))
    model = profile_steps.model_of("t", probes, trials, SLOT, {})
    assert model["base_memory"] * SLOT["memory_bytes"] == pytest.approx(8 << 20, rel=0.01)


def test_steps_left_shrink_to_nothing():
    truth, probes, trials = Truth(True), [], []
    left = []
    while (step := profile_steps.next_step(probes, trials, ProfileChoice())) is not None:
        left.append(sum(profile_steps.steps_left(probes, trials, ProfileChoice())))
        if step.what == "probe":
            probes.append(truth.probe(step.threads))
        else:
            trials.append(truth.trial(step.threads, step.rate_tps, step.what == "sparse trial"))
    assert left[-1] <= 3
    assert sum(profile_steps.steps_left(probes, trials, ProfileChoice())) == 0


# ── warm-up and leaks ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("slow", [0, 1, 3, 5])
def test_the_warm_up_is_cut_where_it_ends(slow):
    wobble = random.Random(3)
    bins = [50.0 + 10 * n for n in range(slow)] + [200 + wobble.uniform(-4, 4) for _ in range(16)]
    assert steady_from(bins) == slow


def test_a_short_measurement_is_taken_whole():
    assert steady_from([1.0, 100.0, 100.0]) == 0


def test_memory_that_grows_with_the_rows_is_a_leak_and_memory_that_settles_is_none():
    rows = list(range(0, 1200, 100))
    assert growth(rows, [50_000_000 + 512 * row for row in rows]) == pytest.approx(512)
    assert growth(rows, [50_000_000 + 512 * min(row, 500) for row in rows]) == 0.0


# ── the record ──────────────────────────────────────────────────────────────────────────────────


def test_a_record_is_read_up_to_the_line_that_was_torn():
    truth, head = Truth(False), {"digest": "d"}
    encode = profile_steps.msgspec.json.encode
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
    without, dear = (
        profile_steps.model_of("t", *profiled(Truth(False, wake=wake)), SLOT, {}) for wake in (0.0, 0.004)
    )
    assert without["wake_cpu"] == 0.0 and dear["wake_cpu"] == pytest.approx(0.004, rel=0.02)
    assert without["points"] == dear["points"]


@pytest.mark.parametrize("waits", [False, True])
def test_sparse_trials_are_made_between_repeated_probes(waits: bool) -> None:
    """Both drift with the machine; one after the other they drift alike."""
    truth, probes, trials, made = Truth(waits), list[Probe](), list[Tried](), list[bool]()
    while (step := profile_steps.next_step(probes, trials, ProfileChoice())) is not None:
        sparse = step.what == "sparse trial"
        if step.what == "probe":
            probes.append(truth.probe(step.threads))
        else:
            trials.append(truth.trial(step.threads, step.rate_tps, sparse))
        if sparse or (step.what == "probe" and step.threads == profile_steps.best_count(probes)):
            made.append(sparse)
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


def test_a_quick_profile_makes_no_sparse_trial() -> None:
    _, trials = profiled(Truth(False), ProfileChoice(repeats=1, brackets=0))
    assert trials == []


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
    model = profile_steps.model_of("t", points, [], QUICK_SLOT, {})
    assert [p["closed_loop_tps"] for p in model["points"]] == [31.0, 39.0, 35.0]


def test_a_real_fall_at_full_cpu_stays() -> None:
    assert profile_steps.pooled([point(1, 100.0, 1.0), point(2, 50.0, 1.0)]) == {1: 100.0, 2: 50.0}


def test_points_that_were_repeated_are_not_pooled() -> None:
    probes = [point(1, 31.0, 1.0, 0.0), point(1, 31.0, 1.0, 0.0), point(2, 39.0, 1.0, 0.0)]
    assert profile_steps.pooled(probes) == {1: 31.0, 2: 39.0}


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

GAP_S = 0.001


@pytest.mark.parametrize(("tps", "rows"), [(0.0, 1), (900.0, 1), (5_000.0, 5), (1e9, 64)])
def test_frames_hold_what_comes_in_a_gap(tps: float, rows: int) -> None:
    assert frame_rows(tps, 0.001) == rows


def test_calls_of_a_batched_task_are_as_large_as_a_run_makes_them() -> None:
    """A tenth of a second of rows, up to 256; a task of rows has what comes in a gap."""
    assert [call_rows(tps) for tps in (1.0, 50.0, 500.0, 2_000.0, 1e6)] == [1, 5, 50, 200, 256]
    assert [frame_rows(tps, 0.001) for tps in (500.0, 1e6)] == [1, 64]


class Cost:
    """A thread of so many cores, whose frames and rows cost so many seconds; what was asked of it."""

    def __init__(self, cores: float, frame_s: float, row_s: float) -> None:
        self.cores, self.frame_s, self.row_s = cores, frame_s, row_s
        self.asked: list[int] = []

    def __call__(self, rows: int) -> float:
        self.asked.append(rows)
        return rows * self.cores / (self.frame_s + rows * self.row_s)

    @property
    def most_tps(self) -> float:
        """What it takes of one sender, which sends it a frame in each gap: the frames of a second leave it so much."""
        return (self.cores - self.frame_s / GAP_S) / self.row_s


@pytest.mark.parametrize(
    ("cores", "frame_s", "row_s", "rows"),
    [
        (0.4, 150e-6, 2e-6, 64),  # a quick one, which takes 125,000 rows/s; with single rows 2,600
        (0.4, 80e-6, 50e-6, 5),  # 6,400 rows/s, six in a gap
        (0.4, 200e-6, 50e-6, 1),  # 4,000, four in a gap, and hardly more frames than come
        (0.2, 70e-6, 20e-6, 5),
        (0.12, 200e-6, 2e-6, 1),  # not even its frames fit into the slot
        (1.0, 100e-6, 2e-3, 1),  # a slow one
    ],
)
def test_a_task_is_measured_with_the_frames_that_it_gets_at_its_rate(cores, frame_s, row_s, rows):
    cost = Cost(cores, frame_s, row_s)
    assert frames_that_hold(cost, GAP_S) == rows


def test_a_slow_task_is_looked_at_once():
    cost = Cost(1.0, 100e-6, 2e-3)
    frames_that_hold(cost, GAP_S)
    assert cost.asked == [1]


@examples(400)
@given(st.floats(0.05, 1.0), st.floats(20e-6, 500e-6), st.floats(1e-7, 5e-3))
def test_it_is_promised_what_its_frames_allow_and_not_a_small_part_of_it(cores, frame_s, row_s):
    cost = Cost(cores, frame_s, row_s)
    promised_tps, single_tps = cost(frames_that_hold(cost, GAP_S)), cost(1)
    assert single_tps <= promised_tps <= max(cost.most_tps, single_tps) * 1.000001
    surely = Cost(cores / SURELY, frame_s, row_s)
    assert promised_tps >= 0.25 * min(surely.most_tps, ROWS_MOST / GAP_S)
