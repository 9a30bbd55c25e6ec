"""Slots for measuring: real ones, of this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.topology_runtime import one_core
from headgate.topology_runtime.calibration.quota import RUN, Quotas
from headgate.topology_runtime.slots import affinity, cgroups
from headgate.topology_runtime.slots.cgroups import ControlGroup

pytestmark = pytest.mark.live


@pytest.fixture
def quotas() -> Iterator[Quotas]:
    made = Quotas()
    if not made.enforced:
        pytest.skip("no slot can be limited here")
    yield made
    made.remove()


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as sleeping:
        yield sleeping
        sleeping.kill()


def slot_of(pid: int, name: str) -> ControlGroup:
    """The group whose CPU is bounded, with the process in it."""
    places = [place / name for place in cgroups.parents_of(f"{RUN}{os.getpid()}")]
    bounds = ("cpu.cfs_quota_us", "cpu.max")
    (group,) = {place.resolve() for place in places if any((place / file).exists() for file in bounds)}
    assert ControlGroup(group).pids() == [pid]
    return ControlGroup(group)


@pytest.mark.parametrize(
    ("cores", "quota_us", "period_us"), [(0.12, 2400, 20_000), (0.02, 1000, 50_000), (1.0, 20_000, 20_000)]
)
def test_a_slot_gets_its_share_exactly(
    quotas: Quotas, process: subprocess.Popen[bytes], cores: float, quota_us: int, period_us: int
) -> None:
    quotas.bind(process.pid, "a", cores, 0)
    group = slot_of(process.pid, "a-0-0").path
    if quotas.binding == "cgroup2":
        assert (group / "cpu.max").read_text().split() == [str(quota_us), str(period_us)]
    else:
        assert int((group / "cpu.cfs_quota_us").read_text()) == quota_us
        assert int((group / "cpu.cfs_period_us").read_text()) == period_us


def test_nothing_is_left_and_what_is_still_inside_ends(
    quotas: Quotas, process: subprocess.Popen[bytes]
) -> None:
    quotas.bind(process.pid, "a", 0.5, None)
    quotas.remove()
    assert cgroups.parents_of(f"{RUN}{os.getpid()}") == []
    assert process.wait(5.0) < 0
    with pytest.raises(OSError):
        quotas.bind(4_999_999, "b", 0.5, None)  # no such process


def test_what_cannot_be_made_falls_back_to_affinity(process: subprocess.Popen[bytes]) -> None:
    none = Quotas((affinity.probe,))
    assert not none.enforced and none.binding in ("affinity", "none")
    none.bind(process.pid, "a", 0.2, 1)
    none.remove()


def test_what_a_killed_calibration_left_is_removed_and_that_of_a_living_one_is_not(quotas: Quotas) -> None:
    (parent, *_) = cgroups.parents_of(f"{RUN}{os.getpid()}")
    dead, living = (parent.with_name(f"headgate-{RUN}{pid}") for pid in (4_999_999, 1))
    for path in (dead, living):
        (path / "slot").mkdir(parents=True)
    try:
        Quotas().remove()
        assert not dead.exists() and (living / "slot").exists()
    finally:
        assert cgroups.remove_run(f"{RUN}1") == []


@pytest.mark.parametrize("core", [0, 1, 6])
def test_a_slot_is_kept_on_the_core_that_its_number_falls_to(
    quotas: Quotas, process: subprocess.Popen[bytes], core: int
) -> None:
    allowed = one_core.cores()
    quotas.bind(process.pid, "any", 0.1, None)
    assert sorted(os.sched_getaffinity(process.pid)) == allowed
    quotas.bind(process.pid, "a", 0.2, core)
    assert os.sched_getaffinity(process.pid) == {allowed[core % len(allowed)]}


def test_a_slot_that_is_used_again_is_empty_before(quotas: Quotas, tmp_path: Path) -> None:
    for _ in range(2):
        with subprocess.Popen(["sleep", "60"]) as one:
            quotas.bind(one.pid, "a", 0.2, 0)
            assert slot_of(one.pid, "a-0-0").pids() == [one.pid]
            one.kill()
