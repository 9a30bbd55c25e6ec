"""Ends processes that a test or a trial has started."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any


def end(children: Sequence[subprocess.Popen[Any]], seconds: float = 20.0) -> None:
    """The last one first, all at once, each in this time; what has not ended then is killed."""
    for child in reversed(children):
        child.terminate()
    for child in children:
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
