"""How fast traces are analysed: rows of samples a second, CPU time, and the memory.

Traces of several sizes are generated, each is analysed by `headgate analyze` in a fresh process, and the memory of
that process and those below it is looked at five times a second. Time should grow with the rows and nothing more,
memory hardly: a line through rows and seconds says what a row costs and what is paid once. Options that are not known
here go to `headgate analyze`. The whole size of the goals, which goes on where it was when it is cut off:

    scripts/bench analytics --sizes 1e7,3e7,1e8 --folder DIR --plot analytics.svg

`--against ROOT` analyses each with another state of the code too, first the one, then the other: ROOT is a work tree.
"""
# bench: analytics – rows/s of `headgate analyze`, CPU time, memory; three sizes

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from made_traces.generate_trace import generate
from made_traces.made_runs import Wanted

SIZES = "3e6,6e6,1.2e7"
ALL_GOAL, MEMORY_GOAL_MB = 1_000_000, 2048  # rows/s; of the process
LOOK_EVERY_S, TELL_EVERY_S = 0.2, 10.0
DISK_BYTES = 250  # for a row of samples: the trace of it, and what is made of that
FOUND = "found.jsonl"  # in the folder: a line for each size that was measured


def megabytes(process: psutil.Process) -> float:
    """Resident memory of a process and everything below it."""
    total = 0
    for one in (process, *process.children(recursive=True)):
        try:
            total += one.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total / 2**20


def folder_mb(folder: Path) -> float:
    """Size of the files in it."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20


def cpu_s() -> float:
    """CPU time of all processes started here that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def analyse(
    traces: Path, output: Path, options: list[str], root: Path | None = None
) -> tuple[dict[str, Any], float, float]:
    """(what the analysis says, seconds, highest memory in MB). What it tells of itself goes to stderr. `root`: where
    another state of the code is."""
    words = [
        "-P",
        "-m",
        "headgate",
        "analyze",
        str(traces),
        "--output",
        str(output),
        *options,
    ]
    began_s, highest = time.monotonic(), 0.0
    where = {**os.environ, **({"PYTHONPATH": str(root / ".editable")} if root else {})}
    process = subprocess.Popen([sys.executable, *words, "-o", "json"], stdout=subprocess.DEVNULL, env=where)
    watched = psutil.Process(process.pid)
    try:
        while process.poll() is None:
            try:
                highest = max(highest, megabytes(watched))
            except psutil.NoSuchProcess:
                break
            time.sleep(LOOK_EVERY_S)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait()
    took_s = time.monotonic() - began_s
    if process.returncode:
        raise SystemExit(f"headgate analyze ended with {process.returncode}")
    return json.loads((output / "analysis.json").read_text("utf-8")), took_s, highest


def made(traces: Path, wanted: Wanted) -> tuple[dict[str, Any], float | None]:
    """(the truth of these traces, seconds to generate them). Whole ones that are there are used: no seconds."""
    truth = traces / "truth.json"  # written last
    if truth.exists():
        return json.loads(truth.read_text("utf-8")), None
    shutil.rmtree(traces, ignore_errors=True)
    began_s = time.monotonic()
    found = generate(traces, wanted, tell=telling(wanted.rows))
    return found, time.monotonic() - began_s


def telling(rows: int) -> Callable[[int], None]:
    """Says now and then how many of the rows are generated."""
    written, told_s = 0, time.monotonic()

    def tell(more: int) -> None:
        nonlocal written, told_s
        written += more
        if time.monotonic() - told_s >= TELL_EVERY_S:
            told_s = time.monotonic()
            sys.stderr.write(f"generated {written:,} of {rows:,} rows\n")

    return tell


def measure(
    rows: int, folder: Path, threads: int, options: list[str], against: Path | None
) -> dict[str, Any]:
    """One size: generate, analyse, forget."""
    free = shutil.disk_usage(folder).free
    if free < rows * DISK_BYTES:
        raise SystemExit(
            f"{folder}: {rows * DISK_BYTES / 1e9:.0f} GB are needed, {free / 1e9:.0f} GB are free"
        )
    traces, output = folder / f"traces-{rows}", folder / f"out-{rows}"
    truth, generated_s = made(traces, Wanted(rows, threads=threads, runs=2))
    found: dict[str, Any] = {
        "rows": truth["rows"],
        "generated_rows_per_s": generated_s and round(truth["rows"] / generated_s),
        **measured_once(truth, traces, output, options, None),
    }
    if against is not None:
        found["against"] = measured_once(truth, traces, output, options, against)
    shutil.rmtree(traces)
    return found


def measured_once(
    truth: dict[str, Any], traces: Path, output: Path, options: list[str], root: Path | None
) -> dict[str, Any]:
    """Of one state of the code."""
    shutil.rmtree(output, ignore_errors=True)
    before_s = cpu_s()
    document, took_s, highest_mb = analyse(traces, output, options, root)
    used_s = cpu_s() - before_s
    disk_mb = folder_mb(output)
    shutil.rmtree(output)
    analysed_s = document["seconds"]["curate"] + document["seconds"]["analyse"]
    return {
        "whole_s": round(took_s, 2),
        "cpu_s": round(used_s, 2),
        "start_s": document["seconds"]["start"],
        "analysed_s": round(analysed_s, 2),
        "rows_per_s": round(truth["rows"] / took_s),
        "memory_mb": round(highest_mb),
        "disk_mb": round(disk_mb),
        "r2_error": r2_error(truth, document),
    }


@contextmanager
def workplace(folder: Path | None) -> Iterator[Path]:
    """This folder, or one that goes again."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as name:
        yield Path(name)


def measured(
    sizes: list[int], folder: Path, threads: int, options: list[str], against: Path | None
) -> list[dict[str, Any]]:
    """A row for each size; those in the folder's list are not measured again."""
    listed = folder / FOUND
    lines = listed.read_text("utf-8").splitlines() if listed.exists() else []
    known = {
        (each["size"], each["threads"], *each["options"]): each["row"] for each in map(json.loads, lines)
    }
    rows = []
    for size in sizes:
        key = (size, threads, *options)
        if key not in known:
            known[key] = measure(size, folder, threads, options, against)
            line = {"size": size, "threads": threads, "options": options, "row": known[key]}
            with listed.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        rows.append(known[key])
        sys.stderr.write(f"{rows[-1]}\n")
    return rows


def r2_error(truth: dict[str, Any], document: dict[str, Any]) -> float | None:
    """How far the R² of CPU that was found is from the true one (of rows of one second)."""
    found = (document.get("cpu") or {}).get("r2")
    true = float(np.mean([run["r2"]["cpu"] for run in truth["runs"]]))
    return None if found is None else round(found - true, 4)


def linearity(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A line through (rows, seconds): what every row costs, what is paid once, how well the line fits.
    memory_growth: the memory of the last size by that of the first."""
    n, took_s = (np.array([row[key] for row in rows], float) for key in ("rows", "analysed_s"))
    if len(rows) < 2:
        return {"us_per_row": None, "once_s": None, "r2": None, "memory_growth": None}
    slope, once = np.polyfit(n, took_s, 1)
    spread = float(((took_s - took_s.mean()) ** 2).sum())
    left = float(((took_s - slope * n - once) ** 2).sum())
    return {
        "us_per_row": round(slope * 1e6, 3),
        "once_s": round(float(once), 2),
        "r2": round(1 - left / spread, 4) if spread else None,
        "memory_growth": round(rows[-1]["memory_mb"] / rows[0]["memory_mb"], 2),
    }


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Seconds and memory by rows."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained")
    millions = [row["rows"] / 1e6 for row in rows]
    (line,) = left.plot(millions, [row["whole_s"] for row in rows], marker="o", label="all analyses")
    limit = [0, millions[-1] * 1e6 / ALL_GOAL]
    left.plot([0, millions[-1]], limit, ":", color=line.get_color(), label=f"goal: {ALL_GOAL:,} rows/s")
    left.set(xlabel="million rows of samples", ylabel="s", xlim=(0, None), ylim=(0, None))
    right.plot(millions, [row["memory_mb"] / 1024 for row in rows], marker="o", label="all processes")
    right.axhline(MEMORY_GOAL_MB / 1024, linestyle=":", label="goal")
    right.set(xlabel="million rows of samples", ylabel="GB at most", xlim=(0, None), ylim=(0, None))
    for axes in (left, right):
        axes.legend()
    figure.savefig(path)


def analytics(
    *more: str,
    sizes: str = SIZES,
    threads: int = 50,
    folder: Path | None = None,
    plot: Path | None = None,
    against: Path | None = None,
) -> dict[str, Any]:
    """sizes: rows of samples, ascending; folder: where traces go for a while, and found.jsonl [a temporary one]; plot:
    draw seconds and memory (needs matplotlib); against: a work tree with another state of the code."""
    with workplace(folder) as place:
        rows = measured([int(float(text)) for text in sizes.split(",")], place, threads, list(more), against)
    if plot:
        draw(rows, plot)
    goals = {"rows_per_s": ALL_GOAL, "memory_mb": MEMORY_GOAL_MB}
    return {"rows": rows, "linear": linearity(rows), "goals": goals}


BENCHMARKS = {"analytics": analytics}
