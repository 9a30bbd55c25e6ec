"""What a slot takes beyond its bounds is told in words, once, and only while it grows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headgate.agent.process.agent_config import AgentConfig, checked, default_disk, faults
from headgate.agent.process.worker_user import GROUPS_EACH, RANGES, hand_over, slot_group
from headgate.agent.slots.slot_bounds import LOOK_EVERY_NS, SlotBounds, by_group
from headgate.topology_runtime.errors import UsageError
from headgate.topology_runtime.platform.cgroups import Cgroup2, ControlGroup
from headgate.topology_runtime.platform.containment import WorkerUser
from headgate.topology_runtime.platform.slot_binding import Unbound
from headgate.topology_runtime.platform.slot_size import SlotSize

MB = 1 << 20
UID = RANGES[0][7]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


def test_each_slot_of_each_user_has_a_group_that_nobody_else_has() -> None:
    first, last = RANGES[0][0], RANGES[0][-1]
    groups = {
        slot_group(WorkerUser(uid, uid, "/"), slot) for uid in (first, UID, last) for slot in (0, 1, 255)
    }
    assert len(groups) == 9 and max(groups) < 2**31
    assert not groups & {*RANGES[0]} and not groups & {*RANGES[1]}
    assert slot_group(WorkerUser(1000, 1000, "/"), 1) == 0, "a user that was named may have others' files"


@pytest.fixture
def vm(tmp_path: Path) -> tuple[AgentConfig, WorkerUser]:
    config = AgentConfig(
        "", "vm1", 2, 0.5, 0, str(tmp_path), workers_as="own", slot_disk_bytes=2 * MB, slot_processes=100
    )
    os.makedirs(config.work)
    return config, WorkerUser(UID, UID, config.work)


def written(vm: tuple[AgentConfig, WorkerUser], slot: int, name: str, size: int) -> None:
    """A file that a task of this slot wrote, on disk."""
    config, user = vm
    path = Path(config.work, name)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(os.urandom(size))
    os.chown(path, UID, slot_group(user, slot))


@needs_root
def test_a_slot_that_fills_the_folder_is_named_and_the_other_is_not(
    vm: tuple[AgentConfig, WorkerUser],
) -> None:
    config, user = vm
    bounds, now_ns = SlotBounds(config, Unbound(SlotSize("r", "vm1", 2, 0.5, 0)), user), 1
    bounds.look(now_ns)
    written(vm, 1, "deep/er", 3 * MB)
    written(vm, 0, "small", MB)
    assert bounds.beyond(1, 0) == "", "it is looked now and then"
    bounds.look(now_ns := now_ns + 3600 * LOOK_EVERY_NS)
    assert bounds.beyond(0, 0) == ""
    assert (
        bounds.beyond(1, 0) == f"too much on disk, its slot has 0.003 GB of at most 0.002 GB in {config.work}"
    )
    assert bounds.beyond(1, 0) == "", "the next worker is not ended for what is there already"
    written(vm, 1, "more", MB // 16)
    bounds.look(now_ns := now_ns + 3600 * LOOK_EVERY_NS)
    assert bounds.beyond(1, 0) == "", "what any worker writes"
    written(vm, 1, "much", MB)
    bounds.look(now_ns + 3600 * LOOK_EVERY_NS)
    assert bounds.beyond(1, 0).startswith("too much on disk")


@needs_root
def test_what_an_earlier_agent_left_ends_nobody_but_room_that_was_made_counts_again(
    vm: tuple[AgentConfig, WorkerUser],
) -> None:
    config, user = vm
    written(vm, 1, "old", 5 * MB)
    bounds = SlotBounds(config, Unbound(SlotSize("r", "vm1", 2, 0.5, 0)), user)
    now_ns = 1
    bounds.look(now_ns)
    assert bounds.beyond(1, 0) == ""
    Path(config.work, "old").unlink()
    bounds.look(now_ns := now_ns + 3600 * LOOK_EVERY_NS)
    written(vm, 1, "new", 3 * MB)
    bounds.look(now_ns + 3600 * LOOK_EVERY_NS)
    assert bounds.beyond(1, 0).startswith("too much on disk")


@needs_root
def test_another_life_of_the_agent_still_knows_whose_files_are(vm: tuple[AgentConfig, WorkerUser]) -> None:
    config, user = vm
    written(vm, 1, "mine", MB)
    Path(config.work, "roots").write_bytes(b"x")
    hand_over(config.directory, user)
    assert os.stat(f"{config.work}/mine").st_gid == slot_group(user, 1)
    assert os.stat(f"{config.work}/roots").st_gid == user.gid
    assert by_group(config.work)[slot_group(user, 1)] >= MB
    assert os.stat(config.work).st_gid == user.gid < slot_group(user, 0) < slot_group(user, GROUPS_EACH)


def test_processes_that_the_kernel_refused_are_told(
    vm: tuple[AgentConfig, WorkerUser], tmp_path: Path
) -> None:
    config, user = vm
    binding = Cgroup2(SlotSize("r", "vm1", 1, 0.5, 0, processes=100), tmp_path)
    binding.groups[0] = ControlGroup(tmp_path)
    (tmp_path / "pids.events").write_text("max 3\n")
    bounds = SlotBounds(config, binding, user)
    assert bounds.beyond(0, bounds.refused(0)) == "", "it counts from the worker's start"
    (tmp_path / "pids.events").write_text("max 4\n")
    assert bounds.beyond(0, 3) == "too many processes, its slot may have 100"


def test_a_bound_that_cannot_be_is_refused(tmp_path: Path) -> None:
    config = AgentConfig(
        "tcp://127.0.0.1:1", "vm1", 2, 0.5, 1 << 30, str(tmp_path), key="k", slot_disk_bytes=5
    )
    assert any("--set slot-disk" in fault for fault in faults(config))
    with pytest.raises(UsageError):
        checked(config)
    assert 0 < default_disk(str(tmp_path / "not" / "there"), 2) <= 2 * default_disk(str(tmp_path), 4)
