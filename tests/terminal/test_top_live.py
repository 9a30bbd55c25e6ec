"""`headgate top` on a terminal of its own, beside a real run that ends under its eyes."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from patience import PATIENCE_S, within

from watched_runs.trials import trial

pytestmark = pytest.mark.live

ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|.)")


class Screen:
    """A terminal of 140 × 40 and what was written on it."""

    def __init__(self, *words: str) -> None:
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        self.written = b""
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "headgate", *words],
            stdin=theirs, stdout=theirs, stderr=theirs, env=os.environ | {"TERM": "xterm-256color"},
            process_group=0,
        )  # fmt: skip

    def shows(self, text: str, within_s: float = PATIENCE_S) -> float:
        """Wait for a text to be written from now on; how long it took."""
        self.written, began_s = b"", time.monotonic()
        while text not in ESCAPES.sub("", self.written.decode("utf-8", "replace")):
            left_s = began_s + within_s - time.monotonic()
            assert left_s > 0, f"{text!r} did not come: {self.written[-2000:]!r}"
            if select.select([self.ours], [], [], left_s)[0]:
                self.written += os.read(self.ours, 65536)
        return time.monotonic() - began_s

    def press(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def ended(self) -> int:
        """Its exit code; what it still writes is read, lest it waits for that."""
        deadline_s = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline_s, "it does not end"
            if select.select([self.ours], [], [], 0.1)[0]:
                self.written += os.read(self.ours, 65536)
        return self.process.returncode


@contextmanager
def screen(*words: str) -> Iterator[Screen]:
    opened = Screen(*words)
    try:
        yield opened
    finally:
        if opened.process.poll() is None:
            opened.process.kill()
        opened.process.wait()
        os.close(opened.ours)
        os.close(opened.theirs)


@within(10.0)
def test_top_shows_a_run_tells_its_end_and_gives_the_terminal_back(tmp_path: Path, within_s: float) -> None:
    with trial(tmp_path, "40", 600.0, ["--vms", "4"]) as run:
        run.wait_for_tuples()
        with screen("top", "--controller", str(tmp_path / "state")) as top:
            top.shows("plan #1")
            top.press("5")
            top.shows("vm1 joined with 4 slots")
            run.process.kill()
            top.shows("STALE: the controller has not answered", within_s)
            top.press("q")
            assert top.ended() == 0
            assert b"Traceback" not in top.written
            assert termios.tcgetattr(top.theirs) == top.before
