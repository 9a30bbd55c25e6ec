"""Latency predicted from models against the same plan's run.

    .venv/bin/python -P -m headgate.lab.experiments.latency_of_plans --seconds 25

Flows of tasks that compute and tasks that wait, for so many ms a row. A first run of each learns its models; then runs
at parts of what the plan carries, `--mode advise`, so that one plan is in force. The prediction is of that plan, by
those models, at the run's rate; measured is the sinks' own latency by the trace, without the first 8 s, of `--rows`
rows or more: the p99 of few rows is chance. A JSON line for each run; the last line says in how many p50 was within
20 % and p99 within 35 %.

`--chance`: no runs. How often would that be so if the prediction knew each task's times, of `ROOTS` frames, and each
task were a thread with a core of its own?

`--limits 1.5,3`: runs that plan for a p95 of so many times what a row alone takes, instead. In how many was it kept,
and was it kept with two slots fewer?
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from headgate.controller.plan.predict.latency import ROOTS, WARM

FLOWS = {
    "one": (("burn", 4),),
    "two": (("burn", 4), ("burn", 2)),
    "call": (("wait", 20), ("burn", 1)),
    "mixed": (("burn", 1), ("wait", 60), ("burn", 3)),
    "long": (("burn", 25),),
    "cache": (("burn", 2), ("misses", 8)),
    "service": (("varied", 15), ("burn", 3)),
    "uneven": (("skewed", 4),),
    "three": (("burn", 2), ("burn", 3), ("burn", 2)),
    "far": (("varied", 80), ("wait", 10)),
}
PARTS = (0.3, 0.5, 0.7, 0.9)  # of what the plan carries
WARM_S, FIRST_TPS, FIRST_S = 8.0, 20.0, 40.0
REPEATS = 200
P50_WITHIN, P99_WITHIN = 0.20, 0.35
TASKS = """
import math
import random
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


def misses(row, ms):
    # one in ten takes five times as long
    time.sleep(ms / 1000 * (5 if random.Random(row).random() < 0.1 else 1))
    return row


def varied(row, ms):
    # log-normal, 0.5
    time.sleep(ms / 1000 * math.exp(random.Random(row).gauss(-0.125, 0.5)))
    return row


def skewed(row, ms):
    return burn(row, ms * math.exp(random.Random(row).gauss(-0.18, 0.6)))


class Out(Sink):
    def write(self, rows, ids):
        pass


flow = topology({name!r})
last = flow.source("count", Count)
for number, (kind, ms) in enumerate({steps!r}):
    last = last >> flow.task(f"step{{number}}", {{"burn": burn, "wait": wait, "misses": misses,
        "varied": varied, "skewed": skewed}}[kind], ms=ms)
last >> flow.task("out", Out)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=25.0)
    parser.add_argument("--flows", default=",".join(FLOWS))
    parser.add_argument("--limits", default="", help="times what a row alone takes")
    parser.add_argument("--rows", type=int, default=1000, help="at least so many are measured in a run")
    parser.add_argument("--chance", action="store_true", help="what a perfect prediction would come to")
    asked = parser.parse_args()
    if asked.chance:
        say(by_chance(asked.flows.split(","), asked.seconds, asked.rows))
        return
    close: list[tuple[bool, bool]] = []
    kept: list[tuple[bool, bool]] = []
    with tempfile.TemporaryDirectory(prefix="headgate-latency-") as folder:
        for name in asked.flows.split(","):
            here = Path(folder) / name
            here.mkdir()
            (here / "cells.py").write_text(TASKS.format(name=name, steps=FLOWS[name]))
            run(here, FIRST_TPS, FIRST_S, "auto")
            for part in PARTS:
                if not asked.limits:
                    close.append(cell(here, name, part, asked.seconds, asked.rows))
                for times in filter(None, asked.limits.split(",")):
                    kept += limited(here, name, part, float(times), asked.seconds)
    if asked.limits:
        within, more = (sum(pair[at] for pair in kept) for at in (0, 1))
        say(
            {
                "runs": len(kept),
                "p95 kept": within,
                "two slots fewer keep it too": more,
                "load": os.getloadavg(),
            }
        )
        return
    p50, p99 = (sum(pair[at] for pair in close) for at in (0, 1))
    say({"runs": len(close), "p50 within 20 %": p50, "p99 within 35 %": p99, "load": os.getloadavg()})


def by_chance(flows: list[str], seconds: float, rows: int) -> dict[str, Any]:
    """Expected of a run of each flow and part; `worst`: in which p99 is least often within."""
    chance, said = np.random.default_rng(1), {}
    for name in flows:
        slowest_ms = max(float(times(kind, ms, 100_000, chance).mean()) for kind, ms in FLOWS[name])
        for part in PARTS:
            gap_ms = slowest_ms / part
            warm = int(WARM_S * 1000 / gap_ms)
            every = warm + max(rows, int((seconds - WARM_S) * 1000 / gap_ms))
            pairs = [
                (
                    tandem(name, gap_ms, ROOTS, int(WARM * ROOTS), chance),
                    tandem(name, gap_ms, every, warm, chance),
                )
                for _ in range(REPEATS)
            ]
            near = [
                np.mean([abs(told[at] / measured[at] - 1) <= within for told, measured in pairs])
                for at, within in ((0, P50_WITHIN), (2, P99_WITHIN))
            ]
            error = float(np.median([told[2] / measured[2] - 1 for told, measured in pairs]))
            said[f"{name} {part}"] = round(float(near[0]), 2), round(float(near[1]), 2), round(error, 2)
    p50, p99 = (round(sum(of[at] for of in said.values()), 1) for at in (0, 1))
    worst = dict(sorted(said.items(), key=lambda one: one[1][1])[:6])
    return {"runs": len(said), "p50 within 20 %": p50, "p99 within 35 %": p99, "worst": worst}


def tandem(name: str, gap_ms: float, rows: int, warm: int, chance: np.random.Generator) -> list[float]:
    """p50, p95, p99 of rows that come evenly, of those after `warm` ones: each task takes them in turn."""
    due_ms = np.arange(rows) * gap_ms
    at_ms = due_ms
    for kind, ms in FLOWS[name]:
        took_ms = times(kind, ms, rows, chance)
        done_ms = np.cumsum(took_ms)
        at_ms = done_ms + np.maximum.accumulate(at_ms - (done_ms - took_ms))
    latency_ms = np.sort((at_ms - due_ms)[warm:])
    return [float(latency_ms[math.ceil(share * len(latency_ms)) - 1]) for share in (0.5, 0.95, 0.99)]


def times(kind: str, ms: float, rows: int, chance: np.random.Generator) -> np.ndarray[Any, Any]:
    """What a row takes in a task of `TASKS`."""
    match kind:
        case "misses":
            return ms * np.where(chance.random(rows) < 0.1, 5.0, 1.0)
        case "varied":
            return ms * np.exp(chance.normal(-0.125, 0.5, rows))
        case "skewed":
            return ms * np.exp(chance.normal(-0.18, 0.6, rows))
    return np.full(rows, float(ms))


def cell(here: Path, name: str, part: float, seconds: float, rows: int) -> tuple[bool, bool]:
    """One run at this part of what its plan carries: was p50 as predicted, and p99?"""
    carries = json.loads(command(here, "plan", "cells.py:flow", "--rate", "5", "--slots", "4", "-o", "json"))
    rate_tps = part * carries["prediction"]["rate_tps"]
    trace = run(here, rate_tps, max(seconds, WARM_S + rows / rate_tps), "advise")
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


def limited(here: Path, name: str, part: float, times: float, seconds: float) -> list[tuple[bool, bool]]:
    """A run that plans for a p95: was it kept, and also by a plan with two slots fewer? Empty: no plan keeps it."""
    plan = "plan", "cells.py:flow", "--slots", "4", "-o", "json"
    rate_tps = part * json.loads(command(here, *plan, "--rate", "5"))["prediction"]["rate_tps"]
    alone = json.loads(command(here, *plan, "--rate", "1"))["latency"]["p50_ms"]
    limit, rate = f"{times * alone:.1f}ms", str(rate_tps)
    asked = *plan[:2], "-o", "json", "--rate", rate
    found = command(here, *asked, "--p95", limit, refused=(4,))
    said = {"flow": name, "part": part, "rate_tps": round(rate_tps, 1), "limit": limit}
    if not found:
        say({**said, "no plan keeps it": True})
        return []
    slots = json.loads(found)["slots"]["used"]
    measured = sinks(run(here, rate_tps, seconds, "advise", f"p95={limit}"))
    is_kept, fewer_keep = measured[1] <= float(limit[:-2]), False
    least = json.loads(command(here, *asked))["slots"]["used"]
    said |= {
        "slots": slots,
        "least": least,
        "measured_ms": measured,
        "kept": is_kept,
        "load": os.getloadavg()[0],
    }
    if is_kept and slots >= least + 2 and write_plan(here, rate_tps, slots - 2):
        fewer = sinks(run(here, rate_tps, seconds, "advise", plan=True))
        fewer_keep = fewer[1] <= float(limit[:-2])
        said |= {"with two slots fewer": fewer}
    say(said)
    return [(is_kept, fewer_keep)]


def write_plan(here: Path, rate_tps: float, slots: int) -> bool:
    """plan.json: for this rate or more, on so many slots; False: there is none."""
    for more in range(40, -1, -1):
        rate = str(rate_tps * (1 + more / 20))
        found = json.loads(command(here, "plan", "cells.py:flow", "-o", "json", "--rate", rate))
        if found["slots"]["used"] == slots:
            (here / "plan.json").write_text(json.dumps(found))
            return True
    return False


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


def run(
    here: Path, rate_tps: float, seconds: float, mode: str, setting: str = "", plan: bool = False
) -> Path:
    """Its trace. plan: by plan.json."""
    before = set((here / "traces").glob("*/*/run.json"))
    words = ["--rates", str(rate_tps), "--seconds", str(seconds), "--vms", "4"]
    words += ["--plan", "plan.json"] if plan else ["--mode", mode]
    words += ["--set", setting] if setting else []
    command(here, "up", "cells.py:flow", *words, "--trace-dir", "traces")
    new = set((here / "traces").glob("*/*/run.json")) - before
    return next(path.parent for path in new if not path.parent.is_symlink())


def command(here: Path, *words: str, refused: tuple[int, ...] = ()) -> str:
    """What it says; nothing where it ends with one of these."""
    where = {**os.environ, "XDG_CACHE_HOME": str(here / "cache")}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "headgate", *words],
        cwd=here, env=where, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    if done.returncode in refused:
        return ""
    if done.returncode not in (0, 8):
        raise SystemExit(f"{' '.join(words)}: {done.stderr[-3000:]}")
    return done.stdout


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main()
