"""`kill -9` of any worker, any agent and the controller under load: what is lost, repeated and left behind.

faults  each role so many times, 20 s apart, on one run; then one worker four times within a minute
"""
# bench: faults – kill -9 of workers, agents and the controller under load: lost, repeated, left behind

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from watched_runs.trials import trial


def faults(repeats: int = 5, apart: float = 20.0, rate: float = 100.0, seed: int = 1) -> dict[str, Any]:
    """One run; every role killed so often, `apart` seconds apart, a random process of it each time."""
    choose = random.Random(seed)
    kills = ["worker", "agent", "controller"] * repeats
    seconds = apart * (len(kills) + 1) + 20.0
    back_s: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with trial(folder, f"{rate:g}", seconds, ["--vms", "4,4"]) as running:
            running.wait_for_tuples()
            everyone: set[int] = set()
            for i, role in enumerate(kills):
                time.sleep(apart)
                everyone |= set(running.everyone())
                pids = running.pids(role)
                running.kill(role, choose.randrange(len(pids)))
                back_s.append(running.wait_for_tuples(more_than=len(running.stored()) + int(rate)))
                print(
                    f"{i + 1}/{len(kills)} {role}: a second's rows after {back_s[-1]:.2f} s", file=sys.stderr
                )
            everyone |= set(running.everyone())
            summary = running.finish()
            time.sleep(1.0)
            return {
                "kills": len(kills),
                "seed": seed,
                "missing_at_the_sink": len(running.missing(summary["tuples"]["emitted"])),
                "rows_repeated_at_the_sink": running.duplicates(),
                "longest_until_a_second_of_rows_s": max(back_s),
                "left_behind": running.leftovers(summary["run"], sorted(everyone)),
                "tuples": summary["tuples"],
            }


BENCHMARKS = {"faults": faults}
