"""How a test waits for what other processes do: until it is so. The limit is for what hangs; it measures nothing."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

PATIENCE_S = 120.0  # more than tenfold of what a quiet machine takes for the longest that is waited for


def until(
    true: Callable[[], Any],
    said: Callable[[], str] = str,
    *processes: subprocess.Popen[Any],
    every_s: float = 0.02,
) -> Any:
    """The first answer that is true. Fails with what was `said` when none comes, or when one of the processes, without
    which none will, has ended."""
    end_s = time.monotonic() + PATIENCE_S
    while not (found := true()):
        assert time.monotonic() < end_s and all(one.poll() is None for one in processes), said()[-6000:]
        time.sleep(every_s)
    return found


def within(seconds: float) -> pytest.MarkDecorator:
    """`within_s` for a test of what must come soon: how soon is asserted by `scripts/test full` alone."""
    quiet = pytest.param(seconds, marks=[pytest.mark.full, pytest.mark.alone])
    return pytest.mark.parametrize("within_s", [PATIENCE_S, quiet])


# For a test that measures time or CPU besides: the gate asserts the rest, `scripts/test full` that too.
timed = pytest.mark.parametrize(
    "timed", [False, pytest.param(True, marks=[pytest.mark.full, pytest.mark.alone])]
)
