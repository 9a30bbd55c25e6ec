"""Processes end with the process that owns them, however that one dies (promise P9)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with(owner: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Get the signal `number` when our parent `owner` dies; exit at once if it is dead already.

    The signal comes when the *thread* that started us ends, and does not pass on to our own children.
    Where there is no prctl, look at `orphaned` from time to time."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, number) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if orphaned(owner):
        sys.exit(0)


def orphaned(owner: int) -> bool:
    """Is our parent no longer `owner`?"""
    return os.getppid() != owner
