"""A call that is under way at the end of the lease is ended with its process, by the kernel."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from patience import PATIENCE_S, within

pytestmark = pytest.mark.live

LEASE_S = 0.8
PROGRAM = f"""
import sys, time
from headgate.topology_runtime.platform.clock import monotonic_ns
from headgate.topology_runtime.worker.process.task_thread import HeldLease
lease = HeldLease()
lease.renew(monotonic_ns() + int({LEASE_S} * 1e9), monotonic_ns())
print("leased", flush=True)
working = sys.argv[1] != "idle"
if sys.argv[1] == "call":
    sum(range(10**11))  # never lets go of the interpreter
end_s = time.monotonic() + 2 * {LEASE_S}
while time.monotonic() < end_s:
    lease.look(working, monotonic_ns())
    time.sleep(0.05)
"""


@contextmanager
def begun(how: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", PROGRAM, how], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"leased\n"
        yield process


@within(LEASE_S + 0.5)
@pytest.mark.parametrize("how", ["call", "busy"])
def test_what_outlasts_the_lease_is_ended(how: str, within_s: float) -> None:
    with begun(how) as process:
        began_s = time.monotonic()
        assert process.wait(PATIENCE_S) == -signal.SIGALRM
        assert time.monotonic() - began_s < within_s


def test_what_is_idle_lives_on() -> None:
    with begun("idle") as process:
        assert process.wait(PATIENCE_S) == 0


def test_what_was_stopped_takes_no_step_after_its_lease() -> None:
    with begun("busy") as process:
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(2 * LEASE_S)
        assert process.poll() is None
        os.kill(process.pid, signal.SIGCONT)
        assert process.wait(PATIENCE_S) == -signal.SIGALRM
