"""`kill -9` of any worker, any agent and the controller under load: what is lost, repeated and left behind.

faults  each role so many times, 20 s apart, on one run; then one worker four times within a minute
"""
# bench: faults – kill -9 of workers, agents and the controller under load: lost, repeated, left behind

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from watched_runs.trials import trial


def faults(times: int, apart_s: float, rate_tps: float, seed: int) -> dict[str, Any]:
    """One run; every role killed `times` times, a random process of it each time."""
    choose = random.Random(seed)
    kills = ["worker", "agent", "controller"] * times
    seconds = apart_s * (len(kills) + 1) + 20.0
    back_s: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with trial(folder, f"{rate_tps:g}", seconds, ["--vms", "4,4"]) as running:
            running.wait_for_tuples()
            everyone: set[int] = set()
            for i, role in enumerate(kills):
                time.sleep(apart_s)
                everyone |= set(running.everyone())
                pids = running.pids(role)
                running.kill(role, choose.randrange(len(pids)))
                back_s.append(running.wait_for_tuples(more_than=len(running.stored()) + int(rate_tps)))
                print(
                    f"{i + 1}/{len(kills)} {role}: a second's rows after {back_s[-1]:.2f} s", file=sys.stderr
                )
            everyone |= set(running.everyone())
            summary = running.finish()
            time.sleep(1.0)
            return {
                "benchmark": "faults",
                "kills": len(kills),
                "seed": seed,
                "missing_at_the_sink": len(running.missing(summary["tuples"]["emitted"])),
                "rows_repeated_at_the_sink": running.duplicates(),
                "longest_until_a_second_of_rows_s": max(back_s),
                "left_behind": running.leftovers(summary["run"], sorted(everyone)),
                "tuples": summary["tuples"],
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=["faults"])
    parser.add_argument("-n", "--repeats", type=int, default=5, help="kills of each role")
    parser.add_argument("--apart", type=float, default=20.0, help="seconds between kills")
    parser.add_argument("--rate", type=float, default=100.0, help="rows/s")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", choices=["json", "table"], default="table")
    options = parser.parse_args()
    result = faults(options.repeats, options.apart, options.rate, options.seed)
    if options.output == "json":
        print(json.dumps({"schema": "headgate/bench/v1", "results": [result]}, indent=2))
        return
    for key, value in result.items():
        print(f"{key}: {value}")


if __name__ == "__main__":
    main()
