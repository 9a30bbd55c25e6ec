"""A process dies at each of 36 points of an enactment: is the plan the old or the new one ten seconds later?

failpoints  all of them (or every third: --third 0, 1 or 2), 12 on one run; rows checked at the sinks
"""
# bench: failpoints – a process dies at each of 36 points of an enactment: OLD or NEW, how soon, rows lost

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from watched_runs.failpoint_runs import POINTS, Enactments, Outcome, Point, as_data, share_of, told


def failpoints(points: tuple[Point, ...]) -> tuple[list[Outcome], dict[str, Any]]:
    """All of these in one run."""
    with tempfile.TemporaryDirectory() as name:
        enactments = Enactments(Path(name), 40.0 * len(points) + 60)
        try:
            enactments.begin()
            outcomes = []
            for point in points:
                outcomes.append(enactments.die_at(point))
                print(told(outcomes[-1:]), file=sys.stderr, flush=True)
            return outcomes, enactments.finish()
        finally:
            enactments.running.end()


def all_failpoints(third: int | None = None) -> dict[str, Any]:
    """third: 0, 1 or 2, of the points, instead of all."""
    thirds = range(3) if third is None else [third]
    runs = [failpoints(share_of(one, 3)) for one in thirds]
    outcomes = [outcome for found, _ in runs for outcome in found]
    good = sum(one.good for one in outcomes)
    return {
        "points": len(outcomes),
        "of": len(POINTS),
        "good": good,
        "slowest_s": max(one.seconds for one in outcomes),
        "rows": [rows for _, rows in runs],
        "outcomes": [as_data(one) for one in outcomes],
        "whole": good == len(outcomes) and all(rows["whole"] and not rows["left_behind"] for _, rows in runs),
    }


BENCHMARKS = {"failpoints": all_failpoints}
