"""Starts a cluster's controller for one run after the other: `controller_runs HOME WORD…` becomes `headgate WORD…`.

A run has folders of its own, HOME/state/NUMBER and HOME/traces/NUMBER. One that has ended has its summary; the
controller then waits for the next topology in new ones. One that has not ended is taken over.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

SUMMARY = "summary.json"


def number_of_run(states: Path) -> int:
    """Of the run that goes on, or of the next."""
    numbers = [int(path.name) for path in states.glob("*") if path.name.isdigit()]
    newest = max(numbers, default=1)
    return newest + 1 if (states / str(newest) / SUMMARY).exists() else newest


def main() -> None:
    home, words = Path(sys.argv[1]), sys.argv[2:]
    number = number_of_run(home / "state")
    own = [
        "--state-dir",
        str(home / "state" / str(number)),
        "--trace-dir",
        str(home / "traces" / str(number)),
    ]
    command = [sys.executable, "-P", "-m", "headgate.dashboards.cli", *words, *own]
    os.execv(sys.executable, command)


if __name__ == "__main__":
    main()
