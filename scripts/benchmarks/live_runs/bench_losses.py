"""Many rows, many kills, re-plans all the while, a busy machine: is a row lost, is a key's state short?

losses  a worker, an agent or the controller is killed in turn, a plan is made between kills, until there were
        so many rows and so many kills of each role; every row is checked at both sinks, every key's state
        at the end. --burn N keeps N cores busy beside it
"""
# bench: losses – a million rows under kills of every kind, re-plans and a busy machine: lost, repeated, states

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from headgate.topology_runtime.errors import HeadgateError
from watched_runs.counted_run import CountedRun
from watched_runs.trials import Faults

ROLES = ("worker", "agent", "controller")
FACTORS = (1.3, 2.0)
RECOVER_S = 60.0
CALM_S, END_S = 20.0, 60.0  # after the last kill; `up` itself gives up after 40 s
HOURS_MOST = 3.0


@contextlib.contextmanager
def burning(loops: int) -> Iterator[None]:
    """So many cores are busy meanwhile."""
    code = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(10**6))"
    busy = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


class Losses:
    """One run until it had enough of everything."""

    def __init__(self, running: CountedRun, options: argparse.Namespace) -> None:
        self.running, self.options = running, options
        self.faults = Faults(running, options.seed)
        self.planned: Counter[str] = Counter()
        self.back_s: list[float] = []
        self._turn = 0

    def run(self) -> dict[str, Any]:
        self.running.wait_for_rows()
        began = time.monotonic()
        while not self.enough() and self.running.process.poll() is None:
            if time.monotonic() - began > HOURS_MOST * 3600:
                raise TimeoutError(f"not enough rows in {HOURS_MOST:g} hours")
            self.replan()
            self.quiet(self.options.apart / 2)
            self.kill()
        self.quiet(CALM_S)
        self.running.end(END_S)
        summary = self.running.finish()
        return {
            "benchmark": "losses",
            "seconds": round(time.monotonic() - began, 1),
            "rate_tps": self.running.rate_tps,
            "burn": self.options.burn,
            "kills": dict(self.faults.done),
            "replans": dict(self.planned) | {"in force": sum(p["in_force"] for p in summary["plans"])},
            "longest_until_rows_came_again_s": round(max(self.back_s, default=0.0), 2),
            "rows": self.running.verdict(summary),
            "tuples": summary["tuples"],
        }

    def enough(self) -> bool:
        rows = min(sink.seen.count for sink in self.running.checker.sinks.values())
        kills = min(self.faults.done[f"kill {role}"] for role in ROLES)
        return rows >= self.options.rows and kills >= self.options.kills

    def quiet(self, seconds: float) -> None:
        """Nothing is done to it, but its sinks are read."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self.running.segments.drain()
            time.sleep(0.2)

    def kill(self) -> None:
        """Then rows must come again, before the next."""
        role = ROLES[self._turn % len(ROLES)]
        self._turn += 1
        if self.faults.done[f"kill {role}"] < self.options.kills:
            self.running.segments.drain()
            self.faults.inflict(f"kill {role}")
            self.back_s.append(self.running.wait_for_rows(RECOVER_S, int(self.running.rate_tps)))
        self.quiet(self.options.apart / 2)
        if self._turn % 15 == 0:
            seen = {name: sink.seen.count for name, sink in self.running.checker.sinks.items()}
            print(f"{sum(self.faults.done.values())} kills, {seen} rows", file=sys.stderr, flush=True)

    def replan(self) -> None:
        rate = self.running.rate_tps * FACTORS[self._turn % len(FACTORS)]
        try:
            plan = self.running.command("plan", rate_tps=rate, propose=True)
            self.running.command("apply", id=plan["id"])
            self.planned["applied"] += 1
        except HeadgateError:
            self.planned["refused, or nobody there"] += 1


def losses(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="headgate-losses-") as folder, burning(options.burn):
        running = CountedRun(Path(folder), options.rate, HOURS_MOST * 3600, slot_cores=options.slot_cores)
        try:
            return Losses(running, options).run()
        finally:
            running.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=["losses"])
    parser.add_argument("--rows", type=float, default=1e6, help="at least so many at each sink")
    parser.add_argument("--kills", type=int, default=50, help="at least so many of each role")
    parser.add_argument("--rate", type=float, default=1500.0, help="rows/s")
    parser.add_argument("--apart", type=float, default=4.0, help="seconds without a kill, at least")
    parser.add_argument("--burn", type=int, default=0, help="busy loops beside it")
    parser.add_argument("--slot-cores", type=float, default=0.25)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", choices=["json", "table"], default="table")
    options = parser.parse_args()
    result = losses(options)
    if options.output == "json":
        print(json.dumps({"schema": "headgate/bench/v1", "results": [result]}, indent=2))
    else:
        print("\n".join(f"{name}: {value}" for name, value in result.items()))
    sys.exit(0 if result["rows"]["whole"] else 1)


if __name__ == "__main__":
    main()
