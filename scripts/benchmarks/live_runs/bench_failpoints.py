"""A process dies at each of 36 points of an enactment: is the plan the old or the new one ten seconds later?

failpoints  all of them (or every third: --third 0, 1 or 2), 12 on one run; rows checked at the sinks
"""
# bench: failpoints – a process dies at each of 36 points of an enactment: OLD or NEW, how soon, rows lost

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=["failpoints"])
    parser.add_argument("--third", type=int, choices=range(3), help="of the points, instead of all")
    parser.add_argument("-o", "--output", choices=["json", "table"], default="table")
    options = parser.parse_args()
    thirds = range(3) if options.third is None else [options.third]
    runs = [failpoints(share_of(third, 3)) for third in thirds]
    outcomes = [outcome for found, _ in runs for outcome in found]
    result = {
        "benchmark": "failpoints",
        "points": len(outcomes),
        "of": len(POINTS),
        "good": sum(one.good for one in outcomes),
        "slowest_s": max(one.seconds for one in outcomes),
        "rows": [rows for _, rows in runs],
        "outcomes": [as_data(one) for one in outcomes],
    }
    if options.output == "json":
        print(json.dumps({"schema": "headgate/bench/v1", "results": [result]}, indent=2))
    else:
        print(told(outcomes))
        print("\n".join(f"{name}: {value}" for name, value in result.items() if name != "outcomes"))
    whole = all(rows["whole"] and not rows["left_behind"] for _, rows in runs)
    sys.exit(0 if whole and result["good"] == result["points"] else 1)


if __name__ == "__main__":
    main()
