"""What the controller of a made-up run publishes of its tuples: a snapshot, and deltas that say what has changed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from made_runs import Run
from made_tables import counted

EVERY_S, LINES_MOST = 10, 2_000
LOST, REPLAYED, DUPLICATED = 1e-4, 2e-3, 5e-4  # of what was emitted, where that is planted


def views(run: Run) -> Iterator[str]:
    """The lines of `views.jsonl`. They end while the run goes on, as those of a controller that was killed do."""
    step = max(EVERY_S, run.wanted.windows // LINES_MOST)
    before: dict[str, int] = {}
    for window, now in counts(run, [*range(0, run.wanted.windows, step), run.wanted.windows]):
        changed = {name: value for name, value in now.items() if before.get(name) != value}
        if not before:
            said: dict[str, Any] = {"schema": "headgate/snapshot/v1", "stage": "running", "tuples": now}
        else:
            said = {"schema": "headgate/delta/v1", "patch": {"tuples": changed}}
        before = now
        yield json.dumps(said | {"now": iso(run, window)}, separators=(",", ":"))


def counts(run: Run, windows: Sequence[int]) -> Iterator[tuple[int, dict[str, int]]]:
    """What became of the tuples of so many seconds."""
    emitted_by, acked_by = (np.concatenate([[0], np.cumsum(counted(of))]) for of in (run.offered, run.acked))
    for window in windows:
        emitted = int(emitted_by[window])
        lost = planted(run, LOST, emitted)
        acked = min(int(acked_by[window]), emitted - lost)
        yield (
            window,
            {
                "offered": emitted,
                "emitted": emitted,
                "acked": acked,
                "in_flight": emitted - acked - lost,
                "lost": lost,
                "dead_lettered": 0,
                "replayed": planted(run, REPLAYED, emitted),
                "duplicates": planted(run, DUPLICATED, emitted),
            },
        )


def planted(run: Run, share: float, emitted: int) -> int:
    return int(share * emitted) if "faults" in run.wanted.planted else 0


def iso(run: Run, window: float) -> str:
    at = datetime.fromtimestamp(run.at_us(window) / 1e6, UTC)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")
