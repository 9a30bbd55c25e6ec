"""What every peer of `scripts/bench nexmark` is told, and what it leaves: `begun` once rows may come, rows as JSON
lines in files of `out/`. Called as PEER QUERY FOLDER, with SETTINGS as JSON in the environment.

Input: files `in/KIND/*.csv` (with a header) or `*.parquet`, or the generator itself."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

QUERY, FOLDER = sys.argv[1], Path(sys.argv[2])
SETTINGS: dict[str, Any] = json.loads(
    os.environ["SETTINGS"]
)  # lateness_ms, kept (state is to outlive a kill), …
GENERATOR: dict[str, Any] = SETTINGS["generator"]
IN, OUT, STATE = FOLDER / "in", FOLDER / "out", FOLDER / "state"
SIDE_ROWS = 10_000


def begun() -> None:
    """Rows may come from now on."""
    (FOLDER / "begun").touch()


def tell(version: str) -> None:
    """At the end."""
    (FOLDER / "version").write_text(version)
