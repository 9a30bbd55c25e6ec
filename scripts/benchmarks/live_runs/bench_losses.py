"""Many rows, many kills, re-plans all the while, a busy machine: is a row lost, is a key's state short?

losses  a worker, an agent or the controller is killed in turn, a plan is made between kills, until there were
        so many rows and so many kills of each role; every row is checked at both sinks, every key's state
        at the end. --burn N keeps N cores busy beside it
"""
# bench: losses – a million rows under kills of every kind, re-plans and a busy machine: lost, repeated, states

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from headgate.topology_runtime.errors import HeadgateError
from watched_runs.counted_run import CountedRun
from watched_runs.trials import Faults

ROLES = ("worker", "agent", "controller")
FACTORS = (1.3, 2.0)
RECOVER_S = 60.0
CALM_S, END_S = 20.0, 60.0  # after the last kill
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


class Asked(NamedTuple):
    rows: float
    kills: int
    apart: float
    burn: int
    seed: int


class Losses:
    """One run until it had enough of everything."""

    def __init__(self, running: CountedRun, options: Asked) -> None:
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
            "seconds": round(time.monotonic() - began, 1),
            "rate_tps": self.running.rate_tps,
            "burn": self.options.burn,
            "kills": dict(self.faults.done),
            "replans": dict(self.planned) | {"in force": sum(p["in_force"] for p in summary["plans"])},
            "longest_until_rows_came_again_s": round(max(self.back_s, default=0.0), 2),
            "rows": (rows := self.running.verdict(summary)),
            "whole": rows["whole"],
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


def losses(
    rows: float = 1e6,
    kills: int = 50,
    rate: float = 1500.0,
    apart: float = 4.0,
    burn: int = 0,
    slot_cores: float = 0.25,
    seed: int = 1,
) -> dict[str, Any]:
    """At least so many rows at each sink and kills of each role; apart: seconds without a kill, at least."""
    options = Asked(rows, kills, apart, burn, seed)
    with tempfile.TemporaryDirectory(prefix="headgate-losses-") as folder, burning(burn):
        running = CountedRun(Path(folder), rate, HOURS_MOST * 3600, slot_cores=slot_cores)
        try:
            return Losses(running, options).run()
        finally:
            running.end()


BENCHMARKS = {"losses": losses}
