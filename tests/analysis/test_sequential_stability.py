"""Trials that end as soon as they are sure: queues in virtual time at known loads, and what must always hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
import pytest
from examples import count_of, examples
from hypothesis import given
from hypothesis import strategies as st
from queues_made import BIN_S, Queue

from headgate.topology_runtime.stability.evidence import (
    UNSTABLE_SLOPE,
    Bin,
    Evidence,
    evidence,
    papers_verdict,
    verdict_of,
    warm_up,
)
from headgate.topology_runtime.stability.slopes import theil_sen, trend
from headgate.topology_runtime.stability.trial import ERROR, Finding, Looks, Trial, looks_for

N = count_of(40)  # trials of each kind and load
TRIALS = count_of(120)  # on the limit itself
checked = examples(60)


@dataclass
class Count:
    """Findings of many trials."""

    found: list[Finding] = field(default_factory=list)

    def wrong(self, expected: str) -> list[str]:
        return [f"seed {n}: {f.text}" for n, f in enumerate(self.found) if f.verdict != expected]

    def surely_wrong(self, expected: str) -> list[str]:
        return [text for text, f in zip(self.wrong(expected), self.found, strict=False) if not f.forced]

    def text(self, name: str, load: float, expected: str) -> str:
        seconds = sorted(f.seconds for f in self.found)
        forced = sum(f.forced for f in self.found)
        paper = sum(papers_verdict(f.evidence) != expected for f in self.found)
        return (
            f"{name} at {load:g}: {len(self.wrong(expected))} wrong of {len(self.found)}, {forced} forced, "
            f"least squares {paper} wrong; {np.median(seconds):.1f} s median, {seconds[-1]:.1f} s most"
        )


def drawn(seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, 3])


def pauses(seed: int, count: int, low_s: float, high_s: float) -> list[tuple[float, float]]:
    chance = drawn(seed)
    return [(float(chance.uniform(0, 9)), float(chance.uniform(low_s, high_s))) for _ in range(count)]


# name → (load, seed) → the queue; and whether the task waits for a service
KINDS: dict[str, tuple[Callable[[float, int], Queue], bool]] = {
    "D/D/1": (lambda load, s: Queue(load, drawn(s).uniform(5, 300)), False),
    "M/D/1": (lambda load, s: Queue(load, 300.0, poisson=True, seed=s), False),
    "frames": (lambda load, s: Queue(load, drawn(s).uniform(40, 300), frame=8), False),
    "waves": (lambda load, s: Queue(load, drawn(s).uniform(90, 300), servers=32, waves=True), False),
    "fights for the interpreter": (
        lambda load, s: Queue(load, 300.0, servers=4, spread=0.7, seed=s),
        False,
    ),
    "slow start": (lambda load, s: Queue(load, servers=2, start_s=drawn(s).uniform(0.2, 1.5)), False),
    "pauses of 100 ms": (lambda load, s: Queue(load, pauses=pauses(s, 2, 0.1, 0.1)), False),
    "a long pause": (lambda load, s: Queue(load, pauses=pauses(s, 1, 0.3, 1.0)), False),
    "throttled": (
        lambda load, s: Queue(load, reserve_s=drawn(s).uniform(0.2, 1.0), spread=0.3, seed=s),
        True,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("load", "expected"), [(0.9, "stable"), (1.1, "unstable")])
def test_ten_percent_from_capacity_the_verdict_is_right(kind: str, load: float, expected: str) -> None:
    made, waits = KINDS[kind]
    count = Count([made(load, seed).finding(waits=waits) for seed in range(N)])
    print(count.text(kind, load, expected))
    assert count.wrong(expected) == []
    assert all(f.seconds <= (20.0 if waits else 10.0) for f in count.found)


@pytest.mark.parametrize("kind", ["D/D/1", "frames", "slow start", "pauses of 100 ms"])
@pytest.mark.parametrize(("load", "expected"), [(1.0, "stable"), (1.05, "unstable")])
def test_close_to_capacity_too_where_rows_come_and_go_evenly(kind: str, load: float, expected: str) -> None:
    made, waits = KINDS[kind]
    count = Count([made(load, seed).finding(waits=waits) for seed in range(N)])
    print(count.text(kind, load, expected))
    assert len(count.wrong(expected)) <= N // 20


def noisy(slope: float, alike: float, deviation_s: float, seed: int) -> list[Bin]:
    """Ten seconds of latency and queue / rate that grow by `slope` and err by `deviation_s`, each error
    like the one before by `alike`."""
    chance, rate = np.random.default_rng([seed, 11]), 100.0
    errors = chance.normal(0, 1, (40, 2))
    for n in range(1, 40):
        errors[n] = alike * errors[n - 1] + math.sqrt(1 - alike**2) * errors[n]
    wait_s = 0.5 + slope * BIN_S * np.arange(1, 41)[:, None] + deviation_s * errors
    rows = rate * BIN_S
    return [
        Bin(BIN_S * (n + 1), float(late), max(0.0, rate * float(queue)), rows, rows * (1 - slope))
        for n, (late, queue) in enumerate(wait_s)
    ]


def found_in(bins: list[Bin], looks: Looks | None = None) -> Finding | None:
    trial = Trial(looks or Looks())
    return next((found for each in bins if (found := trial.add(each)) is not None), None)


@pytest.mark.parametrize("alike", [0.0, 0.5])
def test_it_is_surely_wrong_no_more_often_than_it_may_be(alike: float) -> None:
    """On the limit itself either sure verdict is wrong: each may be in 0.5 % of the trials."""
    found = [found_in(noisy(UNSTABLE_SLOPE, alike, 0.02, seed)) for seed in range(TRIALS)]
    sure = [f.verdict for f in found if f is not None and not f.forced]
    print(
        f"alike {alike}: {sure.count('stable')} surely stable, {sure.count('unstable')} surely not, of {TRIALS}"
    )
    most = TRIALS * ERROR + 3 * math.sqrt(TRIALS * ERROR)
    assert sure.count("stable") <= most and sure.count("unstable") <= most


def test_the_error_is_spent_over_the_looks_and_no_more_of_it_than_there_is() -> None:
    looks = Looks()
    spent = [looks.spent(s) for s in range(0, 11)]
    assert spent[0] == 0.0 and spent[-1] == ERROR
    parts = np.diff(spent)
    assert (parts > 0).all() and (np.diff(parts) > 0).all()  # most of it when most is known
    assert looks.spent(100.0) == ERROR


def test_it_ends_as_soon_as_it_is_sure_and_else_when_time_is_up() -> None:
    clear, hard = (found_in(noisy(s, 0.0, 0.02, 1)) for s in (0.5, UNSTABLE_SLOPE))
    assert clear is not None and clear.seconds == 5.0 and not clear.forced
    assert hard is not None and hard.seconds == 10.0 and hard.forced
    assert clear.confidence > 0.999 > hard.confidence >= 0.5
    assert found_in(noisy(UNSTABLE_SLOPE, 0.0, 0.02, 1)[:39]) is None
    assert "sure after 5.0 s" in clear.text and "forced after 10.0 s" in hard.text


def test_more_noise_takes_longer() -> None:
    def seconds(deviation_s: float) -> float:
        found = [found_in(noisy(0.0, 0.0, deviation_s, seed)) for seed in range(20)]
        return float(np.median([f.seconds for f in found if f is not None]))

    assert seconds(0.005) < seconds(0.05) <= seconds(0.2) == 10.0


def test_a_throttled_service_is_not_called_stable_while_it_may_live_on_its_reserve() -> None:
    hidden = Queue(1.1, reserve_s=0.8, spread=0.2)
    assert found_in(hidden.bins(10.0), looks_for(waits=False)).verdict == "stable"  # type: ignore[union-attr]
    found = hidden.finding(waits=True)
    assert found.verdict == "unstable" and found.seconds > 8.0
    assert Queue(0.9, reserve_s=0.8).finding(waits=True).seconds >= 15.0


def test_threads_that_work_in_waves_have_done_several_before_it_is_looked_at() -> None:
    assert looks_for(False).first_s == 5.0
    assert looks_for(False, wave_s=2.0).first_s == 8.0
    assert looks_for(False, wave_s=20.0).first_s == 10.0 == looks_for(False, wave_s=20.0).longest_s


def test_the_warm_up_is_found_not_guessed() -> None:
    rate = 100.0
    assert warm_up(Queue(0.8).bins(10.0), rate) == 0
    started = warm_up(Queue(0.8, servers=2, start_s=1.0).bins(10.0), rate)
    assert 1.0 <= started * BIN_S <= 7.0  # the queue of the start is worked off at 25 %
    for reserve_s in (0.2, 0.5):
        late = warm_up(Queue(1.1, reserve_s=reserve_s).bins(20.0), rate)
        assert late * BIN_S == pytest.approx(11 * reserve_s, abs=1.5)
    assert warm_up(Queue(0.8).bins(1.5), rate) == 1  # too few to tell: a quarter


def test_either_series_tells_if_the_other_does_not_deny_it() -> None:
    grows, flat = noisy(0.1, 0.0, 0.01, 1), noisy(0.0, 0.0, 0.01, 2)
    only_queue = [msgspec.structs.replace(b, latency_s=None) for b in grows]
    assert verdict(only_queue) == "unstable"
    assert verdict([msgspec.structs.replace(b, latency_s=None) for b in flat]) == "stable"
    part = [msgspec.structs.replace(b, queue=0.0) for b in grows]  # the service keeps the rows
    assert verdict(part) == "unsure"
    found = found_in(part)
    assert found is not None and found.verdict == "unstable" and found.forced


def verdict(bins: list[Bin]) -> str:
    return verdict_of(evidence(bins), ERROR, ERROR)


def test_slope_and_out_in_are_what_the_load_says() -> None:
    found = evidence(Queue(1.25).bins(10.0))
    assert found.queue.value == pytest.approx(0.2, abs=0.005)
    assert found.latency.value == pytest.approx(0.2, abs=0.005)
    assert found.raw.value == pytest.approx(0.2, abs=0.005)
    assert found.out_in == pytest.approx(0.8, abs=0.01)
    assert found.rate_tps == pytest.approx(100.0)


def test_nothing_offered_is_no_verdict_and_nothing_done_is_unstable() -> None:
    idle = [Bin(BIN_S * n, None, 0.0, 0.0, 0.0) for n in range(1, 41)]
    found = found_in(idle)
    assert found is not None and found.verdict == "unsure" and found.forced and found.confidence == 0.0
    stuck = [Bin(BIN_S * n, None, 25.0 * n, 25.0, 0.0) for n in range(1, 41)]
    found = found_in(stuck)
    assert found is not None and found.verdict == "unstable" and found.seconds == 5.0
    assert found.evidence.queue.value == pytest.approx(1.0)


def test_the_bootstrap_interval_holds_the_truth_where_points_err_alike() -> None:
    x, inside, sens = np.arange(20.0), 0, 0
    for seed in range(200):
        errors = np.random.default_rng(seed).normal(0, 1, 20)
        for n in range(1, 20):
            errors[n] = 0.6 * errors[n - 1] + 0.8 * errors[n]
        found, quick = trend(x, 0.5 * x + errors), theil_sen(x, 0.5 * x + errors)
        inside += found.low <= 0.5 <= found.high
        sens += quick.low <= 0.5 <= quick.high
    print(f"alike 0.6: bootstrap {inside}, Sen {sens} of 200")
    assert inside >= 170 > sens + 10
    independent = [trend(x, np.random.default_rng(s).normal(0, 1, 20)) for s in range(200)]
    assert 184 <= sum(f.low <= 0.0 <= f.high for f in independent) <= 200


# ── what must always hold ───────────────────────────────────────────────────────────────────────

loads, seeds = st.floats(0.5, 2.0), st.integers(0, 1000)


def numbers(found: object) -> Iterator[float]:
    for value in msgspec.structs.asdict(found).values():  # type: ignore[arg-type]
        if isinstance(value, float):
            yield value
        elif isinstance(value, msgspec.Struct):
            yield from numbers(value)


@checked
@given(loads, seeds, st.floats(-1e6, 1e6))
def test_when_it_happens_does_not_matter(load: float, seed: int, shift_s: float) -> None:
    bins = Queue(load, spread=0.5, seed=seed).bins(6.0)
    shift_s = round(shift_s / BIN_S) * BIN_S
    moved = [msgspec.structs.replace(b, t_s=b.t_s + shift_s) for b in bins]
    here, there = evidence(bins), evidence(moved)
    assert there.queue.value == pytest.approx(here.queue.value, abs=1e-6)
    assert there.latency.error == pytest.approx(here.latency.error, abs=1e-6)
    assert there.from_s - shift_s == here.from_s


@checked
@given(loads, seeds, st.sampled_from([0.5, 2.0, 10.0]))
def test_seconds_or_minutes_give_the_same_slopes(load: float, seed: int, unit: float) -> None:
    """A slope has no unit: time and latency in another one change nothing."""
    bins = Queue(load, spread=0.5, seed=seed).bins(6.0)
    other = [
        msgspec.structs.replace(b, t_s=b.t_s * unit, latency_s=b.latency_s and b.latency_s * unit)
        for b in bins
    ]
    here, there = evidence(bins), evidence(other)
    for name in ("latency", "queue", "raw"):
        assert getattr(there, name).value == pytest.approx(getattr(here, name).value, abs=1e-9)
        assert getattr(there, name).error == pytest.approx(getattr(here, name).error, abs=1e-9)


RANK = {"stable": 0, "unsure": 1, "unstable": 2}


@checked
@given(st.floats(-0.1, 0.2), st.floats(0.001, 0.3), st.floats(0.0, 0.9), seeds)
def test_more_overload_is_never_less_unstable(slope: float, more: float, alike: float, seed: int) -> None:
    """The same noise on a steeper line: the queue's verdict never goes back."""

    def told(extra: float) -> Evidence:
        bins = noisy(slope, alike, 0.02, seed)
        return evidence(
            [replace_queue(b, b.queue + 100.0 * (5.0 + extra * b.t_s)) for b in bins]  # never empty
        )

    before, after = told(0.0), told(more)
    assert after.queue.value == pytest.approx(before.queue.value + more, abs=1e-9)
    assert RANK[verdict_of(after, ERROR, ERROR)] >= RANK[verdict_of(before, ERROR, ERROR)]


def replace_queue(bin_: Bin, queue: float) -> Bin:
    return msgspec.structs.replace(bin_, queue=queue, latency_s=None)


@checked
@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.floats(0, 1e3)),
            st.integers(0, 10**6),
            st.integers(0, 10**5),
            st.integers(0, 10**5),
        ),
        min_size=1,
        max_size=50,
    )
)
def test_whatever_is_told_every_number_is_finite_and_the_trial_ends(
    told: list[tuple[float | None, int, int, int]],
) -> None:
    bins = [Bin(BIN_S * n, late, *(float(x) for x in rest)) for n, (late, *rest) in enumerate(told, 1)]
    assert all(math.isfinite(x) for x in numbers(evidence(bins)))
    found = found_in(bins)
    assert (found is not None) or len(bins) < 40
    if found is not None:
        assert 0.0 <= found.confidence <= 1.0 and all(math.isfinite(x) for x in numbers(found.evidence))


def test_the_same_bins_always_give_the_same_finding() -> None:
    queue = Queue(1.02, 300.0, poisson=True, seed=5)
    assert queue.finding() == replace(queue).finding()
