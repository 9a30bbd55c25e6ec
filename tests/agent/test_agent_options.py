"""The agent's command line, its start-up and the doctor's checks of what it needs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from headgate.agent.agent_cli import run
from headgate.agent.process import agent_config as c
from headgate.agent.process import agent_doctor, agent_startup
from headgate.topology_runtime.api.cluster import parse_bytes
from headgate.topology_runtime.errors import Conflict, HeadgateError, UsageError
from headgate.topology_runtime.platform.disk import DiskTroubles
from headgate.topology_runtime.platform.process_logs import KEPT_BYTES, open_log

GOOD = c.AgentConfig("tcp://127.0.0.1:5000", "vm1", 4, 0.2, 512 << 20, "state", key="vm1.key")


def test_good_options_are_taken_and_the_folder_is_absolute() -> None:
    assert c.checked(GOOD).directory == os.path.abspath("state")


def test_every_fault_is_listed() -> None:
    bad = c.AgentConfig("localhost:5000", "../vm", 0, 1.5, 1000, "state", run="a b")
    with pytest.raises(UsageError) as caught:
        c.checked(bad)
    options = [fault.split(":")[0] for fault in caught.value.faults]
    assert options == ["--controller", "--key", "--vm", "--run", "--slots", "--slot-cores", "--slot-memory"]
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(
            ("controller", end)
            for end in ("tcp://h:0", "tcp://h:65536", "tcp://:5", "ipc:///tmp/x", "tcp://h:5:6")
        ),
        *(("slot_cores", cores) for cores in (float("nan"), float("inf"), 0.0, -1.0)),
    ],
)
def test_an_endpoint_is_host_and_port_and_cores_are_a_share_of_one(option: str, value: object) -> None:
    (fault,) = c.faults(replace(GOOD, **{option: value}))
    assert fault.startswith(f"--{option.replace('_', '-')}: ")


@pytest.mark.parametrize(
    ("text", "want"),
    [("1500000", 1_500_000), ("512M", 512 << 20), ("1.5g", 3 << 29), ("64 KiB", 65_536), ("2T", 2 << 40)],
)
def test_amounts_of_memory(text: str, want: int) -> None:
    assert parse_bytes(text) == want


@pytest.mark.parametrize("text", ["", "lots", "-5M", "5X", "1e9", "0x10"])
def test_what_is_no_amount_of_memory_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_bytes(text)


def test_the_command_refuses_before_it_starts_anything(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        run, ["--controller", "nowhere", "--vm", "vm1", "--state-dir", str(tmp_path / "new")]
    )
    assert isinstance(result.exception, UsageError) and "--controller" in result.exception.faults[0]
    assert not (tmp_path / "new").exists()


# ── life ────────────────────────────────────────────────────────────────────────────────────────


def test_boot_numbers_rise_even_when_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = agent_startup.next_boot(str(tmp_path), DiskTroubles())
    monkeypatch.setattr(agent_startup, "wall_ns", lambda: 5)
    assert agent_startup.next_boot(str(tmp_path), DiskTroubles()) == first + 1
    (tmp_path / "boot").write_text("torn")
    assert agent_startup.next_boot(str(tmp_path), DiskTroubles()) == 5


def test_one_agent_a_folder(tmp_path: Path) -> None:
    fd = agent_startup.lock(str(tmp_path / "vm1"), "vm1")
    with pytest.raises(Conflict) as caught:
        agent_startup.lock(str(tmp_path / "vm1"), "vm1", patience_s=0.0)
    assert caught.value.exit_code == 6 and "another agent of vm1 is running" in caught.value.what
    os.close(fd)
    os.close(agent_startup.lock(str(tmp_path / "vm1"), "vm1"))


def test_one_that_ends_is_waited_for(tmp_path: Path) -> None:
    held = agent_startup.lock(str(tmp_path), "vm1")
    ending = threading.Timer(0.1, os.close, (held,))
    ending.start()
    os.close(agent_startup.lock(str(tmp_path), "vm1", patience_s=30.0))
    ending.join()


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HeadgateError, match="cannot be used"):
        agent_startup.lock(str(tmp_path / "file" / "vm1"), "vm1")


def test_a_process_that_is_not_our_parent_does_not_own_us() -> None:
    code = "import os; from headgate.agent.process.agent_startup import end_with; "
    code += "end_with(1 if os.getppid() != 1 else 2)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "is not the owner of this agent" in done.stderr


def test_the_limit_of_open_files_is_raised_as_far_as_allowed() -> None:
    assert agent_startup.raise_file_limit() >= agent_startup.FILES_LEAST


def test_a_long_log_makes_room_for_a_new_one(tmp_path: Path) -> None:
    path = str(tmp_path / "logs" / "worker-0.log")
    os.close(open_log(path))
    Path(path).write_bytes(b"x" * (KEPT_BYTES + 1))
    fd = open_log(path)
    os.write(fd, b"new")
    os.close(fd)
    assert Path(path).read_bytes() == b"new"
    assert Path(f"{path}.1").stat().st_size == KEPT_BYTES + 1
    os.close(open_log(path))
    assert Path(path).read_bytes() == b"new"


# ── start-up and doctor ─────────────────────────────────────────────────────────────────────────


def test_the_agent_imports_nothing_heavy() -> None:
    code = "import headgate.agent.agent_process, headgate.agent.agent_cli, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    loaded = {name.split(".")[0] for name in modules}
    assert not loaded & {"numpy", "pyarrow", "scipy", "rich", "networkx", "psutil", "structlog", "controller"}
    assert "importlib.metadata" not in modules


@pytest.mark.parametrize(
    "module", ["headgate.agent.agent_process", "headgate.topology_runtime.worker.process.worker_process"]
)
def test_what_every_start_waits_for_imports_no_event_loop(module: str) -> None:
    code = f"import {module}, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"asyncio", "ssl", "concurrent.futures"}


def test_the_doctor_names_what_there_is_and_leaves_nothing_behind() -> None:
    checks = {check.name: check for check in agent_doctor.checks()}
    assert {"slot binding", "cgroup2", "cgroup1", "affinity", "open files", "shared memory"} <= set(checks)
    assert re.match("slots are (not )?bound by", checks["slot binding"].text)
    assert checks["shared memory"].ok and checks["ends of processes"].ok
    assert all(check.text for check in checks.values())
    left = [path for path in Path("/sys/fs/cgroup").glob("*/headgate-doctor-*")]
    assert left == []
