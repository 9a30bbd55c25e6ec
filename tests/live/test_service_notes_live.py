"""An agent and a controller tell systemd that they are ready and go round; one that stands still says nothing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S

from headgate.topology_runtime.keys.keyring import Keyring

pytestmark = pytest.mark.live
EVERY_US = 900_000
HEADGATE = [sys.executable, "-P", "-m", "headgate"]


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    """The end at which systemd would hear."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        yield heard


def words_of(kind: str, folder: Path) -> list[str]:
    if kind == "controller":
        return ["controller", "run", "--state-dir", str(folder / "state"), "--run", f"notes-{os.getpid()}"]
    key = Keyring.make(folder / "keys").add("agent", "vm1")
    own = ["--vm", "vm1", "--key", str(key), "--state-dir", str(folder / "vm1"), "--slots", "1"]
    return ["agent", "run", "--controller", "tcp://127.0.0.1:9", "--run", f"notes-{os.getpid()}", *own]


@pytest.mark.parametrize("kind", ["agent", "controller"])
def test_it_says_that_it_is_ready_then_that_it_lives_and_nothing_while_it_stands_still(
    kind: str, tmp_path: Path, systemd: socket.socket
) -> None:
    asked = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": str(EVERY_US)}
    process = subprocess.Popen(
        [*HEADGATE, *words_of(kind, tmp_path)], env={**os.environ, **asked}, cwd=tmp_path,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        systemd.settimeout(PATIENCE_S)
        assert systemd.recv(100) == b"READY=1"
        assert [systemd.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        process.send_signal(signal.SIGSTOP)
        systemd.settimeout(EVERY_US / 1e6)
        with pytest.raises(TimeoutError):
            for _ in range(1000):  # what it said just before is still to be read
                systemd.recv(100)
        process.send_signal(signal.SIGCONT)
        systemd.settimeout(PATIENCE_S)
        assert systemd.recv(100) == b"WATCHDOG=1"
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
