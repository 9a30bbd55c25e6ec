"""`scripts/bench steps`: what it tells of a row adds up, and nothing stays timed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks import benchmark_runner
from benchmarks.data_plane import bench_steps as steps
from headgate.topology_runtime.worker.process import garbage


@pytest.fixture(autouse=True)
def usual_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "begin", lambda: None)


def test_a_step_is_told_without_those_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]

    def spend(ns: int) -> None:
        now[0] += ns

    monkeypatch.setattr(steps.time, "perf_counter_ns", lambda: now[0])
    told = steps.Steps()
    inner = told.timed(lambda: spend(30), "inner")

    def outer() -> None:
        spend(5)
        inner()
        inner()
        spend(2)

    told.timed(outer, "outer")()
    with pytest.raises(ZeroDivisionError):
        told.timed(lambda: spend(4) or 1 // 0, "fails")()
    assert told.ns == {"inner": 60, "outer": 7, "fails": 4}


@pytest.mark.parametrize("chained", [True, False])
@pytest.mark.parametrize("name", steps.WORKS)
def test_steps_are_no_more_than_the_whole_and_end(name: str, chained: bool) -> None:
    before = [getattr(owner, of) for owner, of, _ in steps.STEPS]
    by_step, timed_us, bare_us = steps.stepped(name, chained, 0.05)
    assert [getattr(owner, of) for owner, of, _ in steps.STEPS] == before
    assert 0 < sum(by_step.values()) <= timed_us and bare_us > 0
    assert (steps.WIRE in by_step) == (name == "W2"), "rows leave their worker in W2 alone"
    assert ("states around the function" in by_step) == (name == "W4")


def test_a_work_that_it_does_not_know_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-P", benchmark_runner.__file__, "steps", "--of", "W9"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "W9" in done.stderr and "W4" in done.stderr
