"""The machine is kept awake by processes that run only when nothing else does, and end with their parent."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from topology_runtime.calibration.awake import Awake

pytestmark = pytest.mark.live


def test_a_core_each_at_the_lowest_priority_and_none_is_left() -> None:
    with Awake():
        spinners = eventually(lambda: [p for p in psutil.Process().children() if idle_class(p)])
        assert len(spinners) == len(os.sched_getaffinity(0))
    assert not any(p.is_running() for p in spinners)


def test_spinners_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    code = (
        "from topology_runtime.calibration.awake import Awake\nimport time\n"
        "with Awake():\n    print('up', flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None and parent.stdout.readline() == b"up\n"
        children = psutil.Process(parent.pid).children()
        parent.kill()
    assert children
    psutil.wait_procs(children, 5)
    assert not any(child.is_running() for child in children)


def idle_class(process: psutil.Process) -> bool:
    return os.sched_getscheduler(process.pid) == os.SCHED_IDLE


def eventually(found, seconds: float = 5.0):  # type: ignore[no-untyped-def]
    end_s = time.monotonic() + seconds
    while not (result := found()) or len(result) < len(os.sched_getaffinity(0)):
        assert time.monotonic() < end_s
        time.sleep(0.01)
    return result
