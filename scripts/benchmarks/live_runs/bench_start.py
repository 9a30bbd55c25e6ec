"""How long it takes to begin.

start        `headgate up` to the first tuple at the sink, models given
start-steps  the same, and what each process took of it: when it was there, and its CPU until that tuple
help         `headgate --help` against a bare interpreter, in turn
"""
# bench: start start-steps help – `up` to the first tuple, what each process took of that; `--help` beside Python

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from benchmarks.benchmark_runner import spread
from watched_runs.trials import trial, watched

ONE_TRIAL = "100", 3, ("--vms", "4,4")  # rates, seconds, options


def start(repeats: int = 5) -> dict[str, Any]:
    found = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder, trial(Path(folder), *ONE_TRIAL) as run:
            found.append(run.wait_for_tuples())
            run.finish()
    return {"first_tuple_s": spread(found)}


def start_steps(repeats: int = 5) -> dict[str, Any]:
    """A process by its role and how many of that role came before it. Of those that are there in every run."""
    took: list[float] = []
    at_s, cpu_s = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder, trial(Path(folder), *ONE_TRIAL) as run:
            seconds, processes = watched(run)
            run.finish()
        took.append(seconds)
        count = Counter[str]()
        for process in processes:
            count[process.role] += 1
            name = f"{process.role} {count[process.role]}"
            at_s[name].append(process.at_s)
            cpu_s[name].append(process.cpu_s)
    steps = [
        {"process": name, "began_s": statistics.median(at_s[name]), "cpu_s": spread(cpu_s[name])}
        for name in at_s
        if len(at_s[name]) == repeats
    ]
    every = sum(step["cpu_s"]["median"] for step in steps)
    return {"first_tuple_s": spread(took), "cpu_s": every, "steps": steps}


def seconds_of(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def help_(repeats: int = 5) -> dict[str, Any]:
    headgate = str(Path(sys.executable).parent / "headgate")
    ratios = [
        seconds_of([headgate, "--help"]) / seconds_of([sys.executable, "-c", "pass"]) for _ in range(repeats)
    ]
    return {"ratio_to_bare": spread(ratios)}


BENCHMARKS = {"start": start, "start-steps": start_steps, "help": help_}
