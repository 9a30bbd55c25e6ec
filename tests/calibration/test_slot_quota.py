"""Where slots may be made, read from the system's own texts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from topology_runtime import one_core
from topology_runtime.calibration import quota
from topology_runtime.calibration.quota import PREFIX, Quotas, candidates

NOBODY = 5_000_000  # no process has this id


def v2(root: Path, controllers: str = "cpu memory") -> str:
    root.mkdir(parents=True, exist_ok=True)
    (root / "cgroup.controllers").write_text(controllers)
    return f"cgroup2 {root} cgroup2 rw 0 0\n"


def test_v1_is_taken_where_v2_has_no_cpu(tmp_path: Path) -> None:
    mounts = v2(tmp_path / "unified", "hugetlb") + f"cgroup {tmp_path}/cpu cgroup rw,cpu,cpuacct 0 0\n"
    own = "3:cpu,cpuacct:/docker/7\n2:cpuset:/\n0::/init\n"
    assert list(candidates(mounts, own)) == [("cgroup1", tmp_path / "cpu" / "docker" / "7")]


def test_v2_comes_first_beside_us_then_below_us(tmp_path: Path) -> None:
    mounts = v2(tmp_path / "u") + f"cgroup {tmp_path}/cpu cgroup rw,cpu 0 0\n"
    assert list(candidates(mounts, "1:cpu:/\n0::/user/a.scope\n")) == [
        ("cgroup2", tmp_path / "u" / "user"),
        ("cgroup2", tmp_path / "u" / "user" / "a.scope"),
        ("cgroup1", tmp_path / "cpu"),
    ]


def test_cpuset_is_not_cpu(tmp_path: Path) -> None:
    assert list(candidates(f"cgroup {tmp_path} cgroup rw,cpuset 0 0\n", "1:cpuset:/\n")) == []


@pytest.fixture
def texts(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "own").write_text("1:cpu:/\n")
    (tmp_path / "mounts").write_text(f"cgroup {tmp_path}/cpu cgroup rw,cpu 0 0\n")
    (tmp_path / "cpu").mkdir()
    return tmp_path / "mounts", tmp_path / "own"


def test_slots_get_their_share_exactly(texts: tuple[Path, Path], tmp_path: Path) -> None:
    quotas = Quotas(*texts)
    assert quotas.binding == "cgroup1" and quotas.enforced
    for cores, period_us, quota_us in ((0.12, 20_000, 2400), (0.02, 50_000, 1000), (1.0, 20_000, 20_000)):
        quotas.bind(NOBODY, "a", cores, 0)
        slot = next((tmp_path / "cpu").glob(f"{PREFIX}*")) / "a"
        assert (slot / "cpu.cfs_period_us").read_text() == str(period_us)
        assert (slot / "cpu.cfs_quota_us").read_text() == str(quota_us)
        assert (slot / "cgroup.procs").read_text() == str(NOBODY)


def test_what_cannot_be_made_falls_back_to_affinity(tmp_path: Path) -> None:
    (tmp_path / "mounts").write_text(f"cgroup {tmp_path}/nowhere cgroup rw,cpu 0 0\n")
    (tmp_path / "own").write_text("1:cpu:/\n")
    quotas = Quotas(tmp_path / "mounts", tmp_path / "own")
    assert quotas.binding == "affinity" and not quotas.enforced
    quotas.remove()


def test_what_a_killed_calibration_left_is_removed(texts: tuple[Path, Path], tmp_path: Path) -> None:
    dead = tmp_path / "cpu" / f"{PREFIX}4999999"  # above the highest process number there is
    (dead / "slot").mkdir(parents=True)
    living = tmp_path / "cpu" / f"{PREFIX}1"
    living.mkdir()
    Quotas(*texts)
    assert not dead.exists() and living.exists()


def test_removing_waits_for_a_dying_process_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota, "EMPTYING_S", 0.02)
    (tmp_path / "parent" / "slot" / "busy").mkdir(parents=True)
    quota.remove_group(tmp_path / "parent")
    assert (tmp_path / "parent").exists()


@pytest.mark.parametrize("core", [0, 1, 6])
def test_a_slot_is_kept_on_the_core_that_its_number_falls_to(texts: tuple[Path, Path], core: int) -> None:
    allowed = one_core.cores()
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            quotas = Quotas(*texts)
            quotas.bind(process.pid, "any", 0.1, None)
            assert sorted(os.sched_getaffinity(process.pid)) == allowed
            quotas.bind(process.pid, "a", 0.2, core)
            assert os.sched_getaffinity(process.pid) == {allowed[core % len(allowed)]}
        finally:
            process.kill()
