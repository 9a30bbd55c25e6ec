"""One contract for every way to bound slots, with real processes: control groups v1, CPU affinity and
nothing, and what can be tried of v2 where its tree is mounted without controllers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs
from patience import PATIENCE_S, until

from headgate.topology_runtime.platform import cgroups, slot_binding, slot_size
from headgate.topology_runtime.platform import cgroups as cgroup1
from headgate.topology_runtime.platform import processes as proc
from headgate.topology_runtime.platform.cgroups import ControlGroup
from headgate.topology_runtime.platform.slot_binding import SlotBinding
from headgate.topology_runtime.platform.slot_size import SlotSize

pytestmark = pytest.mark.live
SPIN = "while True: pass"
CORES, MEMORY_BYTES = 0.2, 128 * 1024 * 1024


def size(count: int = 2) -> SlotSize:
    return SlotSize(f"test-{os.getpid()}", "vm1", count, CORES, MEMORY_BYTES)


def real(kind: str) -> SlotBinding:
    if kind == "none":
        return slot_binding.Unbound(size())
    probe = {"cgroup1": cgroup1.probe_cgroup1, "affinity": slot_binding.probe_affinity}[kind]
    binding, why = probe(size())
    if binding is None:
        pytest.skip(why)
    return binding


@pytest.fixture(params=["cgroup1", "affinity", "none"])
def binding(request: pytest.FixtureRequest) -> Iterator[SlotBinding]:
    binding = real(request.param)
    binding.prepare()
    yield binding
    assert binding.cleanup() == []


def start(binding: SlotBinding, slot: int, code: str) -> subprocess.Popen[bytes]:
    command = binding.command(slot, [sys.executable, "-S", "-E", "-c", code])
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    return process


# ── the contract ────────────────────────────────────────────────────────────────────────────────


def test_the_command_keeps_its_process_id_arguments_and_exit_code(binding: SlotBinding) -> None:
    code = "import os, sys; sys.exit(7 if sys.argv[1:] == ['a b', '$x'] and os.getppid() == %d else 1)"
    command = binding.command(1, [sys.executable, "-S", "-c", code % os.getpid(), "a b", "$x"])
    assert subprocess.run(command, check=False).returncode == 7


def test_cpu_and_memory_of_a_slot_are_counted(binding: SlotBinding) -> None:
    process = start(binding, 0, SPIN)
    try:
        binding.bind(0, process.pid)
        before_ns = binding.cpu_ns(0)
        until(lambda: binding.cpu_ns(0) >= before_ns + 20_000_000)
        assert binding.memory_bytes(0) > 1_000_000
        assert binding.oom_kills(0) == 0 and binding.throttled_ns(1) == 0
        assert binding.cpu_ns(1) == 0, "the other slot has no process"
    finally:
        process.kill()
        process.wait()


def test_cpu_time_does_not_fall_when_a_worker_is_replaced(binding: SlotBinding) -> None:
    for _ in range(2):
        process = start(binding, 0, SPIN)
        binding.bind(0, process.pid)
        before_ns = binding.cpu_ns(0)
        until(lambda: binding.cpu_ns(0) >= before_ns + 10_000_000)  # noqa: B023
        seen_ns = binding.cpu_ns(0)
        process.kill()
        process.wait()
        assert binding.cpu_ns(0) >= seen_ns


def test_kill_ends_the_worker_and_what_it_started(binding: SlotBinding) -> None:
    child = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-S', '-c', {SPIN!r}])\n{SPIN}"
    process = start(binding, 0, child)
    binding.bind(0, process.pid)
    until(lambda: len(session_of(process.pid)) == 2)
    members = session_of(process.pid)
    binding.kill(0)
    process.wait(PATIENCE_S)
    until(lambda: not [pid for pid in members if alive(pid)])


LEAVES = (  # its child leads a session of its own, and has no parent any more
    "import os, time\n"
    "if os.fork(): os._exit(0)\n"
    "os.setsid()\n"
    "if os.fork(): os._exit(0)\n"
    "open({!r}, 'w').write(str(os.getpid()))\n"
    "time.sleep(1000)"
)


def daemon_of(binding: SlotBinding, slot: int, file: Path) -> int:
    process = start(binding, slot, LEAVES.format(str(file)))
    binding.bind(slot, process.pid)
    assert process.wait(PATIENCE_S) == 0
    until(lambda: file.exists() and file.read_text() != "")
    return int(file.read_text())


def test_kill_ends_what_has_left_the_session_and_leaves_other_slots_alone(
    binding: SlotBinding, tmp_path: Path
) -> None:
    daemons = [daemon_of(binding, slot, tmp_path / f"{slot}") for slot in (0, 1)]
    assert all(alive(pid) for pid in daemons)
    binding.kill(0)
    until(lambda: not alive(daemons[0]))
    assert alive(daemons[1])
    assert binding.cleanup() == []
    until(lambda: not alive(daemons[1]))


def test_what_an_earlier_agent_left_is_ended_by_the_next(binding: SlotBinding, tmp_path: Path) -> None:
    daemon = daemon_of(binding, 1, tmp_path / "daemon")
    again = real(binding.name)
    again.prepare()
    until(lambda: not alive(daemon))


def test_killing_an_empty_slot_is_nothing(binding: SlotBinding) -> None:
    binding.kill(0)
    binding.kill(1)


def test_cleanup_ends_what_still_runs_and_may_be_repeated(binding: SlotBinding) -> None:
    process = start(binding, 1, SPIN)
    binding.bind(1, process.pid)
    until(lambda: binding.cpu_ns(1) > 0)
    assert binding.cleanup() == []
    assert process.wait(PATIENCE_S) == -9
    assert binding.cleanup() == []


def session_of(leader: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.getsid(int(name)) == leader and alive(int(name)):
                    found.append(int(name))
            except ProcessLookupError:
                continue
    return found


def alive(pid: int) -> bool:
    stat = proc.stat(pid)
    return stat is not None and stat.state != "Z"


# ── control groups v1 ───────────────────────────────────────────────────────────────────────────


@pytest.fixture
def v1() -> Iterator[cgroup1.Cgroup1]:
    binding = real("cgroup1")
    assert isinstance(binding, cgroup1.Cgroup1)
    binding.prepare()
    yield binding
    binding.cleanup()
    left = [path for root in cgroup1.find().values() for path in root.glob(f"headgate-test-{os.getpid()}*")]
    assert left == []


def group_of(controller: str, slot: int) -> ControlGroup:
    return ControlGroup(cgroup1.find()[controller] / f"headgate-test-{os.getpid()}" / f"vm1-{slot}")


def test_v1_a_worker_joins_before_exec_and_gets_its_quota_when_it_is_ready(v1: cgroup1.Cgroup1) -> None:
    process = start(v1, 0, SPIN)
    try:
        until(lambda: proc.stat(process.pid) is not None and group_of("memory", 0).pids())
        for controller in cgroup1.CONTROLLERS_1:
            until(lambda c=controller: group_of(c, 0).pids() == [process.pid])
        cpu = group_of("cpu", 0)
        assert (cpu.path / "cpu.cfs_quota_us").read_text().strip() == "-1"
        v1.bind(0, process.pid)
        assert cpu.number("cpu.cfs_quota_us") == 4000 and cpu.number("cpu.cfs_period_us") == 20_000
        assert cpu.number("cpu.shares") == 1024
        assert ControlGroup(cpu.path.parent).number("cpu.shares") == 8192
        assert group_of("memory", 0).number("memory.limit_in_bytes") == MEMORY_BYTES
    finally:
        v1.kill(0)
        process.wait()


def test_v1_a_bound_slot_is_throttled_to_its_share(v1: cgroup1.Cgroup1) -> None:
    process = start(v1, 0, SPIN)
    try:
        v1.bind(0, process.pid)
        until(lambda: v1.throttled_ns(0) > 0)
        begin_ns, cpu_ns = time.monotonic_ns(), v1.cpu_ns(0)
        time.sleep(0.4)
        share = (v1.cpu_ns(0) - cpu_ns) / (time.monotonic_ns() - begin_ns)
        assert share < 1.3 * CORES
    finally:
        v1.kill(0)
        process.wait()


FORKS = """
import os
for count in range(500):
    try:
        if not os.fork():
            break
    except OSError:
        open({!r}, 'w').write(str(count))
        break
while True:  # all of them: whoever ends makes room for another
    try:
        if os.fork(): os._exit(0)
    except OSError:
        pass
"""


def test_v1_processes_are_bounded_and_those_that_fork_without_end_are_ended(tmp_path: Path) -> None:
    if not any(cgroup1.PIDS in options for _, options in cgroups.mounted("cgroup")):
        pytest.skip("no controller of pids is mounted")
    binding = cgroup1.Cgroup1(structs.replace(size(), processes=40), cgroup1.find())
    binding.reserve()
    binding.prepare()
    try:
        process = start(binding, 0, FORKS.format(str(tmp_path / "count")))
        until(lambda: (tmp_path / "count").exists() and (tmp_path / "count").read_text() != "")
        assert int((tmp_path / "count").read_text()) <= 40
        binding.kill(0)
        assert process.wait(PATIENCE_S) in (0, -9)
        until(lambda: group_of("pids", 0).number("pids.current") == 0)
        again = start(binding, 0, "import os\nif not os.fork(): os._exit(0)\nos.wait()")
        assert again.wait(PATIENCE_S) == 0, "the next worker may fork again"
    finally:
        assert binding.cleanup() == []


def test_v1_too_much_memory_is_counted_as_an_oom_kill(v1: cgroup1.Cgroup1) -> None:
    process = start(v1, 0, f"b = bytearray({2 * MEMORY_BYTES})\nfor i in range(0, len(b), 4096): b[i] = 1")
    assert process.wait(PATIENCE_S) == -9
    assert v1.oom_kills(0) == 1


def test_v1_leftovers_of_this_vm_are_killed_and_removed_and_others_are_left(v1: cgroup1.Cgroup1) -> None:
    parent = group_of("memory", 0).path.parent
    process = start(v1, 1, SPIN)
    until(lambda: group_of("memory", 1).pids() == [process.pid])
    other = parent / "vm1-x-0"
    other.mkdir()
    try:
        again = cgroup1.Cgroup1(size(count=1), cgroup1.find())
        again.prepare()
        assert process.wait(PATIENCE_S) == -9
        assert sorted(path.name for path in parent.iterdir() if path.is_dir()) == ["vm1-0", "vm1-x-0"]
    finally:
        other.rmdir()


# ── one by one ──────────────────────────────────────────────────────────────────────────────────


def test_v2_kill_and_removal_for_real_where_a_v2_tree_is_mounted() -> None:
    points = cgroups.mounted("cgroup2")
    if not points or not os.access(points[0][0], os.W_OK):
        pytest.skip("no cgroup v2 tree that may be written to")
    group = cgroups.make(points[0][0] / f"headgate-test-{os.getpid()}", "vm1-0")
    try:
        process = subprocess.Popen([sys.executable, "-S", "-c", SPIN])
        group.write("cgroup.procs", process.pid)
        assert group.pids() == [process.pid]
        assert group.remove() and process.wait(PATIENCE_S) == -9
        assert not group.path.exists() and group.pids() == [] and group.number("cpu.stat", "usage_usec") == 0
    finally:
        cgroups.remove_if_empty(group.path.parent)


@pytest.mark.parametrize("kind", ["cgroup1", "affinity"])
def test_every_thread_of_a_worker_stays_on_the_core_of_its_slot(kind: str) -> None:
    binding = real(kind)
    binding.prepare()
    code = "import threading\nfor _ in range(3): threading.Thread(target=threading.Event().wait).start()"
    process = start(binding, 1, code)
    try:
        until(lambda: len(proc.threads(process.pid)) == 4)
        binding.bind(1, process.pid)
        want = slot_size.core_of(binding.size.vm, 1, slot_size.cores())
        for tid in proc.threads(process.pid):
            assert os.sched_getaffinity(tid) == {want}
    finally:
        process.kill()
        process.wait()
        binding.cleanup()
