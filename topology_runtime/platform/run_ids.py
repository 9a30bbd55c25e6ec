"""What tells one run from every other: a UUID of version 7 (RFC 9562), so that ids sort by when runs began."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from uuid import UUID

from headgate.topology_runtime.platform.disk import write_whole

RUN_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
FILE = "run"  # in a run's state directory


def new_run_id() -> str:
    random = int.from_bytes(os.urandom(10), "big")
    return str(
        UUID(int=(time.time_ns() // 1_000_000 << 80 | random) & ~(0xF << 76 | 3 << 62) | 7 << 76 | 2 << 62)
    )


def is_run_id(name: str) -> bool:
    return RUN_ID.fullmatch(name) is not None


def run_of(state: Path, name: str) -> str:
    """The id of the run in this state directory, made and kept with it; `name` where that is one. A run that began
    under a version without ids keeps its name. Raises OSError."""
    file, given = state / FILE, is_run_id(name)
    if file.exists():
        return name if given else file.read_text("ascii").strip()
    if not given and (state / "controller").exists():
        return name
    state.mkdir(parents=True, exist_ok=True)
    made = name if given else new_run_id()
    write_whole(file, made.encode() + b"\n")
    return made
