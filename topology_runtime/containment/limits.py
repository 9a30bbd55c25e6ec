"""What every worker gives up before it imports user code, whoever it runs as.

No new privileges: what it starts (sudo, say) gets no rights that it has not. No core dumps: its memory holds a key.
Open files: more than a slot's threads need, and far from all that the machine has."""

from __future__ import annotations

import ctypes
import os
import resource
import sys

FILES_MOST = 8192
NOT_CONTAINED = 71  # a worker's exit code: it could not be contained, and has imported nothing
PR_SET_NO_NEW_PRIVS = 38


class NotContained(Exception):
    """Why, in one line for its agent."""


def give_up() -> None:
    """Raises NotContained."""
    try:
        if sys.platform == "linux":
            prctl(PR_SET_NO_NEW_PRIVS, 1)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = FILES_MOST if hard == resource.RLIM_INFINITY else min(hard, FILES_MOST)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (OSError, ValueError) as error:
        raise NotContained(f"it cannot be limited: {error}") from error


def prctl(what: int, value: int) -> int:
    """Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    answer: int = libc.prctl(
        what, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)
    )
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl({what}): {os.strerror(code)}")
    return answer
