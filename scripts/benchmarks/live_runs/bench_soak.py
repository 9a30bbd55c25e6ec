"""Hours of one run with a fault every 30 s and a re-plan every 10 s: is anything lost, and does anything grow?

soak  keyed state, held rows, kills and stops of every role, plans to and fro, rate changes. Every row is
      checked at the sinks as it comes (whose files are taken away), and what the run holds is sampled every
      10 s. Exit 1: rows lost, a state short, or in an hour or more something surely grows by 1 %/h or more

From half of the time on the controller is stopped but not killed, and the first agent is never killed: a leak
shows in a process that lives long.
"""
# bench: soak – hours under faults and re-plans: rows lost, and slopes of memory, fds, threads, files

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headgate.topology_runtime.errors import HeadgateError
from watched_runs.counted_run import CountedRun
from watched_runs.trials import Faults
from watched_runs.vitals import picture, sample, slopes

FAULT_S, PLAN_S, SAMPLE_S, DRAIN_S = 30.0, 10.0, 10.0, 1.0
END_S, STOP_S = 45.0, 80.0  # without faults before the run's end; `up` waits as long as rows get done
WARM_UP_S = 600.0
JUDGED_S = 3600.0  # of a shorter run slopes are told, but are no verdict: it is all warming up
FACTORS = (2.0, 1.0, 1.5, 2.4)  # of the offered rate, planned for in turn; every fifth time the rate changes
OFFERED = (1.3, 0.8, 1.0)
FAULTS = ("kill worker", "stop worker", "kill agent", "kill controller", "stop agent", "stop controller")
BY_DESIGN = ("trace",)  # the record of the run: it is meant to grow


class Soak:
    """One run and what is done to it. `prefix`: where samples, report and picture go (None: nowhere)."""

    def __init__(self, running: CountedRun, seconds: float, seed: int, prefix: Path | None) -> None:
        self.running, self.seconds, self.prefix = running, seconds, prefix
        self.faults = Faults(running, seed, spare_first_agent=True)
        self.samples: list[dict[str, float]] = []
        self.planned: Counter[str] = Counter()
        self.began = time.monotonic()
        self.interrupted = False
        self._turns = 0
        self._faults_left: list[str] = []

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.began

    def run(self) -> dict[str, Any]:
        """Until its time is over or Ctrl-C; the run's summary."""
        signal.signal(signal.SIGINT, self._interrupt)
        signal.signal(signal.SIGTERM, self._interrupt)
        self.running.wait_for_rows()
        due: dict[Callable[[], None], tuple[float, float]] = {
            self.running.segments.drain: (0.0, DRAIN_S),
            self.sample: (0.0, SAMPLE_S),
            self.replan: (5.0, PLAN_S),
            self.fault: (15.0, FAULT_S),
        }
        while not self.interrupted and self.age_s < self.seconds and self.running.process.poll() is None:
            self.faults.heal(time.monotonic())
            for work, (at_s, every_s) in due.items():
                if self.age_s >= at_s:
                    due[work] = (max(at_s + every_s, self.age_s), every_s)
                    work()
            time.sleep(0.1)
        self.faults.heal()
        self.running.end(STOP_S)
        return self.running.finish()

    def _interrupt(self, *_: object) -> None:
        self.interrupted = True

    # ── what is done to it ──────────────────────────────────────────────────────────────────────

    def fault(self) -> None:
        """Each kind once in every round, in an order by the seed."""
        if self.age_s > self.seconds - END_S:
            return
        if not self._faults_left:
            self._faults_left = list(FAULTS)
        fault = self.faults.any_of(self._faults_left)
        self._faults_left.remove(fault)
        if fault == "kill controller" and self.age_s > self.seconds / 2:
            fault = "stop controller"
        pid = self.faults.inflict(fault)
        self.say(f"{fault} {pid or '(none is there)'}")

    def replan(self) -> None:
        """A plan by an operator, or another offered rate."""
        if self.age_s > self.seconds - END_S:
            return
        self._turns += 1
        rate = self.running.rate_tps
        try:
            if self._turns % 5:
                plan = self.running.command(
                    "plan", rate_tps=rate * FACTORS[self._turns % len(FACTORS)], propose=True
                )
                self.running.command("apply", id=plan["id"])
                self.planned["applied"] += 1
            else:
                self.running.command("rate_set", rate_tps=rate * OFFERED[self._turns // 5 % len(OFFERED)])
                self.planned["rate changed"] += 1
        except HeadgateError as error:
            self.planned[f"refused: {reason(error)}"] += 1

    # ── what it holds ───────────────────────────────────────────────────────────────────────────

    def sample(self) -> None:
        (run,) = {path.name for path in (self.running.folder / "traces" / "counted").iterdir()}
        one = {"seconds": round(self.age_s, 1)} | sample(self.running, run)
        self.samples.append(one)
        if self.prefix is not None:
            with open(f"{self.prefix}.samples.jsonl", "a") as file:
                file.write(json.dumps(one) + "\n")
        if len(self.samples) % 30 == 0:
            checker = self.running.checker
            seen = {name: sink.seen.count for name, sink in checker.sinks.items()}
            self.say(f"{seen} different rows at the sinks, {len(checker.sinks['counts'].seen.starts)} spans")

    def say(self, text: str) -> None:
        print(f"{self.age_s:7.1f} s  {text}", file=sys.stderr, flush=True)

    # ── the report ──────────────────────────────────────────────────────────────────────────────

    def report(self, summary: dict[str, Any]) -> dict[str, Any]:
        warm_up_s = min(WARM_UP_S, self.seconds / 4)
        fitted = slopes(self.samples, warm_up_s)
        growing = [n for n, s in fitted.items() if not s.flat and not n.startswith(BY_DESIGN)]
        plans = summary["plans"]
        return {
            "hours": round(self.age_s / 3600, 4),
            "rate_tps": self.running.rate_tps,
            "faults": dict(self.faults.done),
            "replans": dict(self.planned) | {"in force": sum(p["in_force"] for p in plans)},
            "rolled_back": sum(p["rolled_back"] for p in plans),
            "rows": (rows := self.running.verdict(summary)),
            "tuples": summary["tuples"],
            "warm_up_s": warm_up_s,
            "samples": len(self.samples),
            "not_flat": growing,
            "surely_growing": (surely := [name for name in growing if fitted[name].grows]),
            "whole": rows["whole"] and not (surely and self.age_s >= JUDGED_S),
            "slopes": {name: asdict(s) | {"flat": s.flat} for name, s in fitted.items()},
        }


def reason(error: HeadgateError) -> str:
    """The words of a refusal without what differs each time."""
    return " ".join(word for word in error.what.split() if not any(c.isdigit() for c in word))[:60]


def table(result: dict[str, Any]) -> str:
    lines = [f"{name}: {value}" for name, value in result.items() if name != "slopes"]
    lines.append(f"{'':28} {'mean':>10} {'%/h':>9} {'95 % interval':>21}")
    for name, one in result["slopes"].items():
        interval = f"{one['low_pct']:9.2f} … {one['high_pct']:9.2f}"
        said = "" if one["flat"] else "by design" if name.startswith(BY_DESIGN) else "NOT FLAT"
        lines.append(f"{name:28} {one['mean']:10.2f} {one['per_h_pct']:9.2f} {interval:>21} {said}")
    return "\n".join(lines)


def soak(
    hours: float = 2.0,
    minutes: float | None = None,
    rate: float = 60.0,
    seed: int = 1,
    report: Path | None = None,
) -> dict[str, Any]:
    """minutes: instead of hours; report: PREFIX.json .txt .svg .samples.jsonl .log are written."""
    seconds = minutes * 60 if minutes else hours * 3600
    with tempfile.TemporaryDirectory(prefix="headgate-soak-") as folder:
        running = CountedRun(Path(folder), rate, seconds + 600)
        soaked = Soak(running, seconds, seed, report)
        try:
            result = soaked.report(soaked.run())
        finally:
            soaked.faults.heal()
            running.end()
            if report is not None:
                Path(f"{report}.log").write_text(running.log())
        if report is not None:
            Path(f"{report}.json").write_text(json.dumps(result, indent=2) + "\n")
            Path(f"{report}.txt").write_text(table(result) + "\n")
            picture(soaked.samples, Path(f"{report}.svg"))
        return result


BENCHMARKS = {"soak": soak}
