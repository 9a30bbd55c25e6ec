"""Re-plans on the real system, watched from outside and read from its own trace.

replan  rate steps 1 → 3 → 1 and a ramp: decided how long after the step, in force how long after that, pause
dip     plans forced to and fro at a constant load of 70 %: how much the output of threads that do not move falls
"""
# bench: replan dip – re-plans: reaction, enactment, pause, dip of threads that do not move, loss

from __future__ import annotations

import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.benchmark_runner import spread
from headgate.dashboards.runs.connection import contact_of
from headgate.topology_runtime.wire.channels import ask
from headgate.topology_runtime.wire.messages import Request
from watched_runs.trials import Trial, trial

LOW, HIGH = 30.0, 90.0
HOLD_S = 65.0  # a rate stays so long: the controller lowers a plan once a minute at most
AROUND_S = 5.0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def steps_and_ramp(cycles: int) -> tuple[str, list[float], float]:
    """(the rates file, times of its steps, seconds in all): `cycles` times low → high → low, then a ramp."""
    lines, steps, at = [f"0,{LOW:g}"], [], 25.0
    for _ in range(cycles):
        for rate in (HIGH, LOW):
            lines.append(f"{at:g},{rate:g}")
            steps.append(at)
            at += HOLD_S / 2
    for i in range(1, 11):
        lines.append(f"{at:g},{LOW + (HIGH - LOW) * i / 10:g}")
        at += 3.0
    return "\n".join(lines) + "\n", steps, at + 15.0


def replan(folder: Path, repeats: int) -> dict[str, Any]:
    """So many steps, 1 → 3 → 1, then a ramp."""
    cycles = max(1, repeats // 2)
    rates, steps, seconds = steps_and_ramp(cycles)
    (folder / "rates.txt").write_text(rates)
    say(f"replan: {cycles} cycles of steps and a ramp, {seconds:.0f} s")
    with trial(folder, "rates.txt", seconds, ["--vms", "4,4"]) as running:
        summary = running.finish()
        lost = len(running.missing(summary["tuples"]["emitted"]))
    plans = [plan for plan in summary["plans"][1:] if plan["reason"] == "rate_changed"]
    after = []
    for step, following in zip(steps, [*steps[1:], seconds], strict=True):
        found = [p["at_s"] - step for p in plans if step <= p["at_s"] < following]
        after.append(found[0] if found else float("inf"))
    return {
        "replans": len(plans),
        "decided_after_step_s": spread(after),
        "in_force_after_s": spread([p["enacted_s"] for p in plans]),
        "pause_ms": spread([p["pause_ms"] for p in plans]),
        "rolled_back": sum(p["rolled_back"] for p in plans),
        "missing_at_the_sink": lost,
        "tuples": summary["tuples"],
    }


def command(running: Trial, name: str, **arguments: Any) -> Any:
    reply = ask(contact_of(str(running.folder / "state")), Request(name, arguments))
    if reply.error:
        raise RuntimeError(reply.error[2])
    return reply.data


def dip(folder: Path, replans: int) -> dict[str, Any]:
    """Plans for 85 and 60 rows/s in turn while 42 are offered, 70 % of the lower."""
    offered, between = 42.0, 22.0
    say(f"dip: {replans} forced plans, {between * replans + 15:.0f} s")
    times: list[datetime] = []
    with trial(folder, f"{offered:g}", between * replans + 15, ["--vms", "4,4"]) as running:
        running.wait_for_tuples()
        time.sleep(10.0)
        for i in range(replans):
            began = time.monotonic()
            plan = command(running, "plan", rate_tps=(85.0, 60.0)[i % 2], propose=True)
            times.append(datetime.now().astimezone())
            command(running, "apply", id=plan["id"])
            time.sleep(max(0.0, between - (time.monotonic() - began)))
        summary = running.finish()
        lost = len(running.missing(summary["tuples"]["emitted"]))
    plans = [plan for plan in summary["plans"] if plan["reason"] == "operator"]
    return {
        "forced_plans": len(plans),
        "dip": spread(dips(folder, times)),
        "in_force_after_s": spread([p["enacted_s"] for p in plans]),
        "pause_ms": spread([p["pause_ms"] for p in plans]),
        "missing_at_the_sink": lost,
        "tuples": summary["tuples"],
    }


def dips(folder: Path, times: list[datetime]) -> list[float]:
    """1 − tuples in the 5 s after / before, of the tasks none of whose threads moved, for each plan."""
    rows = [row for path in folder.rglob("samples/*.parquet") for row in pq.read_table(path).to_pylist()]
    found = []
    for at in times:
        before, after = (defaultdict(lambda: defaultdict(int)) for _ in range(2))
        for row in rows:
            side = after if row["time"] > at else before
            if abs(row["time"] - at) <= timedelta(seconds=AROUND_S):
                side[row["task"]][row["thread"]] += row["tuples_in"] or row["tuples_out"]
        stayed = [task for task in before if before[task].keys() == after[task].keys()]
        had = sum(sum(before[task].values()) for task in stayed)
        has = sum(sum(after[task].values()) for task in stayed)
        if had:
            found.append(1.0 - has / had)
    return found


def in_a_folder(watched: Callable[[Path, int], dict[str, Any]], repeats: int = 10) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return watched(Path(folder), repeats)


BENCHMARKS = {"replan": partial(in_a_folder, replan), "dip": partial(in_a_folder, dip)}
