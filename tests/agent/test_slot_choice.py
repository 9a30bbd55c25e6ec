"""Which way to bound slots is chosen and why; control groups v2 at the level of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.topology_runtime.platform import cgroups, slot_binding, slot_size
from headgate.topology_runtime.platform import cgroups as cgroup2
from headgate.topology_runtime.platform.cgroups import ControlGroup
from headgate.topology_runtime.platform.slot_binding import choose
from headgate.topology_runtime.platform.slot_size import SlotSize

CORES, MEMORY_BYTES = 0.2, 128 * 1024 * 1024


def size(count: int = 2) -> SlotSize:
    return SlotSize("test", "vm1", count, CORES, MEMORY_BYTES)


# ── control groups v2, at the level of files ────────────────────────────────────────────────────


def tree(root: Path, *groups: str) -> Path:
    """A directory tree with the files that the kernel would make; it enforces nothing."""
    parent = f"headgate-{size().run}"
    for group in ("", parent, *(f"{parent}/{name}" for name in groups)):
        path = root / group
        path.mkdir(parents=True, exist_ok=True)
        for file in ("cgroup.procs", "cgroup.subtree_control", "cpu.weight", "cpu.max", "memory.max"):
            (path / file).touch()
        (path / "cgroup.controllers").write_text("cpu memory pids")
    return root / parent


def test_v2_writes_the_limits_and_reads_the_figures(tmp_path: Path) -> None:
    parent = tree(tmp_path, "vm1-0")
    binding, why = cgroup2.binding_under(size(count=1), tmp_path)
    assert binding is not None and "bounds CPU, memory and processes" in why
    group = parent / "vm1-0"
    for path in (tmp_path, parent):
        assert (path / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    assert (parent / "cpu.weight").read_text() == "800"
    binding.groups[0] = ControlGroup(group)
    assert binding.command(0, ["worker", "x"])[-3:] == [str(group / "cgroup.procs"), "worker", "x"]
    assert (group / "cpu.max").read_text() == "max"
    binding.bind(0, 5_000_000)  # no process has this id
    assert (group / "cpu.max").read_text() == "4000 20000"
    (group / "cpu.stat").write_text("usage_usec 12\nuser_usec 5\nnr_throttled 1\nthrottled_usec 34\n")
    (group / "memory.current").write_text("4096\n")
    (group / "memory.stat").write_text("anon 1024\ninactive_file 1000\nactive_file 2072\n")
    (group / "memory.events").write_text("low 0\noom 2\noom_kill 1\n")
    assert (binding.cpu_ns(0), binding.throttled_ns(0)) == (12_000, 34_000)
    assert (binding.memory_bytes(0), binding.oom_kills(0)) == (3096, 1), (
        "without pages of files that go before anybody is killed"
    )


def test_v2_without_a_pids_controller_bounds_the_rest(tmp_path: Path) -> None:
    tree(tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    binding, why = cgroup2.binding_under(size(), tmp_path)
    assert binding is not None and "not the number of processes" in why
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu +memory"


def test_v2_nothing_forks_while_a_slot_is_killed(tmp_path: Path) -> None:
    parent = tree(tmp_path)
    written: list[tuple[str, str]] = []

    class Group(ControlGroup):
        def write(self, file: str, value: object) -> None:
            written.append((file, str(value)))

    binding, _ = cgroup2.binding_under(size(count=1), tmp_path)
    assert binding is not None
    binding.groups[0] = Group(parent / "vm1-0")
    binding.kill(0)
    assert written == [("pids.max", "0"), ("cgroup.kill", "1"), ("pids.max", "2048")]


def test_v2_without_a_cpu_controller_says_so(tmp_path: Path) -> None:
    tree(tmp_path)
    (tmp_path / "cgroup.controllers").write_text("hugetlb memory")
    assert cgroup2.binding_under(size(), tmp_path) == (None, f"cgroup v2 at {tmp_path} has no cpu controller")


def test_v2_that_may_not_be_written_says_so(tmp_path: Path) -> None:
    tree(tmp_path)
    (tmp_path / "cgroup.subtree_control").unlink()
    binding, why = cgroup2.binding_under(size(), tmp_path)
    assert binding is None and "cannot be used" in why and "cgroup.subtree_control" in why


# ── the choice ──────────────────────────────────────────────────────────────────────────────────


def test_the_first_binding_that_works_is_chosen_and_the_others_are_explained() -> None:
    never = slot_binding.Unbound(size())
    binding, why = choose(
        size(),
        (lambda s: (None, "v2 is not there"), lambda s: (never, "it works"), lambda s: (None, "unasked")),
    )
    assert binding is never
    assert why == "slots are bound by none: it works; v2 is not there"


def test_without_any_binding_slots_are_not_bound_and_that_is_said() -> None:
    binding, why = choose(size(), (lambda s: (None, "v1 is read-only"),))
    assert binding.name == "none" and why == "slots are not bound by anything; v1 is read-only"


@pytest.mark.parametrize(
    ("cores", "want"),
    [(0.2, (4000, 20_000)), (1.0, (20_000, 20_000)), (0.05, (1000, 20_000)), (0.01, (1000, 100_000))],
)
def test_quota_and_period_of_a_share(cores: float, want: tuple[int, int]) -> None:
    assert cgroups.quota(cores) == want


def test_mount_points_are_found_by_kind_and_option(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n"
        "cgroup2 /sys/fs/cgroup/uni\\040fied cgroup2 rw 0 0\n"
    )
    assert cgroups.mounted("cgroup", mounts)[0] == (
        Path("/sys/fs/cgroup/cpu,cpuacct"), frozenset({"rw", "relatime", "cpu", "cpuacct"}),
    )  # fmt: skip
    assert cgroups.mounted("cgroup2", mounts)[0][0] == Path("/sys/fs/cgroup/uni fied")


@pytest.mark.parametrize(
    ("vm", "want"),
    [("vm1", [5, 4, 5, 4]), ("vm2", [4, 5, 4, 5]), ("spare", [4, 5, 4, 5]), ("vm13", [5, 4, 5, 4])],
)
def test_slots_take_cores_in_turn_and_vms_begin_apart(vm: str, want: list[int]) -> None:
    assert [slot_size.core_of(vm, slot, [4, 5]) for slot in range(4)] == want
