"""Latency predicted from models against the same plan's run.

    .venv/bin/python -P -m headgate.lab.experiments.latency_of_plans --seconds 25

Flows of tasks that compute and tasks that wait, for so many ms a row. A first run of each learns its models; then runs
at parts of what the plan carries, `--mode advise`, so that one plan is in force. The prediction is of that plan, by
those models, at the run's rate; measured is the sinks' own latency by the trace, without the first 8 s. A JSON line for
each run; the last line says in how many p50 was within 20 % and p99 within 35 %.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FLOWS = {
    "one": (("burn", 4),),
    "two": (("burn", 4), ("burn", 2)),
    "call": (("wait", 20), ("burn", 1)),
    "mixed": (("burn", 1), ("wait", 60), ("burn", 3)),
    "long": (("burn", 25),),
}
PARTS = (0.3, 0.5, 0.7, 0.9)  # of what the plan carries
WARM_S, FIRST_TPS, FIRST_S = 8.0, 20.0, 40.0
P50_WITHIN, P99_WITHIN = 0.20, 0.35
TASKS = """
import time

from headgate import Sink, Source, topology


class Count(Source):
    def read(self, position, limit):
        return range(position, position + limit)


def burn(row, ms):
    end = time.thread_time_ns() + int(ms * 1e6)
    while time.thread_time_ns() < end:
        pass
    return row


def wait(row, ms):
    time.sleep(ms / 1000)
    return row


class Out(Sink):
    def write(self, rows, ids):
        pass


flow = topology({name!r})
last = flow.source("count", Count)
for number, (kind, ms) in enumerate({steps!r}):
    last = last >> flow.task(f"step{{number}}", {{"burn": burn, "wait": wait}}[kind], ms=ms)
last >> flow.task("out", Out)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=25.0)
    parser.add_argument("--flows", default=",".join(FLOWS))
    asked = parser.parse_args()
    close: list[tuple[bool, bool]] = []
    with tempfile.TemporaryDirectory(prefix="headgate-latency-") as folder:
        for name in asked.flows.split(","):
            here = Path(folder) / name
            here.mkdir()
            (here / "cells.py").write_text(TASKS.format(name=name, steps=FLOWS[name]))
            run(here, FIRST_TPS, FIRST_S, "auto")
            for part in PARTS:
                close.append(cell(here, name, part, asked.seconds))
    p50, p99 = (sum(pair[at] for pair in close) for at in (0, 1))
    say({"runs": len(close), "p50 within 20 %": p50, "p99 within 35 %": p99, "load": os.getloadavg()})


def cell(here: Path, name: str, part: float, seconds: float) -> tuple[bool, bool]:
    """One run at this part of what its plan carries: was p50 as predicted, and p99?"""
    carries = json.loads(command(here, "plan", "cells.py:flow", "--rate", "5", "--slots", "4", "-o", "json"))
    rate_tps = part * carries["prediction"]["rate_tps"]
    trace = run(here, rate_tps, seconds, "advise")
    plan = json.loads((trace / "plans.jsonl").read_text().splitlines()[-1])["plan"]
    (here / "plan.json").write_text(json.dumps(plan))
    words = ["--placement", "plan.json", "--rate", str(rate_tps), "-o", "json"]
    predicted = json.loads(command(here, "plan", "cells.py:flow", *words)).get("latency")
    measured = sinks(trace)
    said = {"flow": name, "part": part, "rate_tps": round(rate_tps, 1), "slots": plan["slots"]["used"]}
    if predicted is None:
        say({**said, "measured_ms": measured, "predicted_ms": None})
        return False, False
    told = [round(predicted[at], 2) for at in ("p50_ms", "p95_ms", "p99_ms")]
    say({**said, "measured_ms": measured, "predicted_ms": told, "load": os.getloadavg()[0]})
    return (
        abs(told[0] / measured[0] - 1) <= P50_WITHIN,
        abs(told[2] / measured[2] - 1) <= P99_WITHIN,
    )


def sinks(trace: Path) -> list[float]:
    """p50, p95, p99 in ms, each row from when it was due."""
    query = (
        f"select latency_s, sum(tuples) as rows from latency where time > (select min(time) from latency) + interval "
        f"{WARM_S} second group by 1 order by 1"
    )
    rows = json.loads(command(trace, "sql", str(trace), query, "-o", "json"))
    total, found = sum(row["rows"] for row in rows), []
    for share in (0.5, 0.95, 0.99):
        done = 0.0
        for row in rows:
            done += row["rows"]
            if done >= share * total:
                found.append(round(row["latency_s"] * 1000, 2))
                break
    return found


def run(here: Path, rate_tps: float, seconds: float, mode: str) -> Path:
    """Its trace."""
    before = set((here / "traces").glob("*/*/run.json"))
    words = ["--rates", str(rate_tps), "--seconds", str(seconds), "--mode", mode, "--vms", "4"]
    command(here, "up", "cells.py:flow", *words, "--trace-dir", "traces")
    new = set((here / "traces").glob("*/*/run.json")) - before
    return next(path.parent for path in new if not path.parent.is_symlink())


def command(here: Path, *words: str) -> str:
    where = {**os.environ, "XDG_CACHE_HOME": str(here / "cache")}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "headgate", *words],
        cwd=here, env=where, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    if done.returncode not in (0, 8):
        raise SystemExit(f"{' '.join(words)}: {done.stderr[-3000:]}")
    return done.stdout


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main()
