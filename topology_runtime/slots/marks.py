"""Processes of a slot, known by what they inherited: a word in their environment."""

from __future__ import annotations

import os
import signal
from pathlib import Path

MARK = "HEADGATE_SLOT"
ROUNDS_MOST = 5  # a process that was being made while one looked is found in the next round


def marking(mark: str, command: list[str]) -> list[str]:
    """A command line that becomes `command` under the same process id, with the mark."""
    return ["/bin/sh", "-c", f'export {MARK}="$1" && shift && exec "$@"', "headgate-slot", mark, *command]


def end(mark: str) -> None:
    """Kill every process whose mark begins so, as far as this user may."""
    for _ in range(ROUNDS_MOST):
        if not _round(f"{MARK}={mark}".encode()):
            return


def _round(word: bytes) -> bool:
    """Was there any?"""
    found = False
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            found = _end(int(name), word) or found
    return found


def _end(pid: int, word: bytes) -> bool:
    """By its descriptor: never another process that got the same number meanwhile."""
    try:
        held = os.pidfd_open(pid)
    except OSError:
        return False  # it has ended
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if not any(one.startswith(word) for one in words):
            return False
        signal.pidfd_send_signal(held, signal.SIGKILL)
        return True
    except OSError:
        return False  # another user's, or it has ended
    finally:
        os.close(held)
