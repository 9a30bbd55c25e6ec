"""Starts a cluster's controller for one run after the other: `controller_runs HOME WORD…` becomes `headgate WORD…`.

A run has folders of its own, HOME/state/ID and HOME/traces/ID. One that has ended has its summary; the controller then
waits for the next topology in new ones. One that has not ended is taken over.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from headgate.topology_runtime.platform.run_ids import is_run_id, new_run_id

SUMMARY = "summary.json"


def folder_of_run(states: Path) -> str:
    """Of the run that goes on, or of the next. Runs of before they had ids have numbers."""
    runs = [path.name for path in states.glob("*") if path.name.isdigit() or is_run_id(path.name)]
    newest = max(runs, key=lambda name: (not name.isdigit(), len(name), name), default="")
    return newest if newest and not (states / newest / SUMMARY).exists() else new_run_id()


def main() -> None:
    home, words = Path(sys.argv[1]), sys.argv[2:]
    run = folder_of_run(home / "state")
    own = ["--state-dir", str(home / "state" / run), "--trace-dir", str(home / "traces" / run)]
    own += ["--run", run] if is_run_id(run) else []
    command = [sys.executable, "-P", "-m", "headgate", *words, *own]
    os.execv(sys.executable, command)


if __name__ == "__main__":
    main()
