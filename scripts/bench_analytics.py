"""How fast traces are analysed: rows of samples a second, curated only and with all analyses, and the memory.

Traces of three sizes are generated, each is analysed by `headgate analyze` in a fresh process, and the memory of
that process and its JVM is looked at five times a second. Time should grow with the rows and nothing more,
memory not at all. The whole size of the goals: `--sizes 1e7,3e7,1e8`.
"""
# bench: analytics – rows/s of `headgate analyze`, curated and with all analyses; memory; three sizes

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent))

from generate_trace import generate
from made_runs import Wanted

SIZES = "1e6,3e6,1e7"
CURATED_GOAL, ALL_GOAL, MEMORY_GOAL_MB = 500_000, 150_000, 8192  # rows/s, rows/s; of a driver
LOOK_EVERY_S = 0.2


def megabytes(process: psutil.Process) -> float:
    """Resident memory of a process and everything below it."""
    total = 0
    for one in (process, *process.children(recursive=True)):
        try:
            total += one.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total / 2**20


def analyse(traces: Path, output: Path, options: list[str]) -> tuple[dict[str, Any], float, float]:
    """(what the analysis says, seconds, highest memory in MB)."""
    words = [
        "-P",
        "-m",
        "dashboards.cli",
        "analyze",
        str(traces),
        "--output",
        str(output),
        "-o",
        "json",
        *options,
    ]
    began_s, highest = time.monotonic(), 0.0
    log = output.parent / "analyze.log"
    with open(log, "wb") as said, open(output.parent / "analyze.json", "wb") as found:
        process = subprocess.Popen([sys.executable, *words], stdout=found, stderr=said)
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
        raise SystemExit(
            f"headgate analyze ended with {process.returncode}:\n{log.read_text('utf-8')[-2000:]}"
        )
    return json.loads((output / "analysis.json").read_text("utf-8")), took_s, highest


def measure(rows: int, folder: Path, threads: int, options: list[str]) -> dict[str, Any]:
    """One size: generate, analyse, forget."""
    began_s = time.monotonic()
    truth = generate(folder / "traces", Wanted(rows, threads=threads, runs=2))
    generated_s = time.monotonic() - began_s
    document, took_s, highest_mb = analyse(folder / "traces", folder / "out", options)
    seconds = document["seconds"]
    curated_s, analysed_s = seconds["curate"], seconds["curate"] + seconds["analyse"]
    return {
        "rows": truth["rows"],
        "generated_rows_per_s": round(truth["rows"] / generated_s),
        "whole_s": round(took_s, 2),
        "start_s": seconds["start"],
        "curated_s": curated_s,
        "analysed_s": round(analysed_s, 2),
        "curated_rows_per_s": round(truth["rows"] / curated_s),
        "analysed_rows_per_s": round(truth["rows"] / analysed_s),
        "memory_mb": round(highest_mb),
        "r2_error": r2_error(truth, document),
    }


def r2_error(truth: dict[str, Any], document: dict[str, Any]) -> float | None:
    """How far the R² of CPU that was found is from the true one (of rows of one second)."""
    found = (document.get("cpu") or {}).get("r2")
    true = float(np.mean([run["r2"]["cpu"] for run in truth["runs"]]))
    return None if found is None else round(found - true, 4)


def linearity(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A line through (rows, seconds): what every row costs, what is paid once, how well the line fits. growth:
    rows/s of the largest size by that of the smallest, once what is paid once is taken off."""
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("-o", "--output", choices=("json", "table"), default="table")
    parser.add_argument("--sizes", default=SIZES, help="rows of samples, ascending")
    parser.add_argument("--threads", type=int, default=50)
    parser.add_argument("--folder", type=Path, help="where the traces go for a while [a temporary one]")
    chosen, options = parser.parse_known_args()
    rows = []
    for size in (int(float(text)) for text in chosen.sizes.split(",")):
        folder = Path(tempfile.mkdtemp(prefix="headgate-bench-", dir=chosen.folder))
        try:
            rows.append(measure(size, folder, chosen.threads, options))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        sys.stderr.write(f"{rows[-1]}\n")
    goals = {
        "curated_rows_per_s": CURATED_GOAL, "analysed_rows_per_s": ALL_GOAL, "memory_mb": MEMORY_GOAL_MB,
    }  # fmt: skip
    fit = linearity(rows)
    if chosen.output == "json":
        document = {
            "schema": "headgate/bench/v1",
            "benchmark": "analytics",
            "rows": rows,
            "linear": fit,
            "goals": goals,
        }
        print(json.dumps(document, indent=1, allow_nan=False))
        return
    for row in (*rows, fit):
        print("  ".join(f"{key} {value}" for key, value in row.items() if value is not None))


if __name__ == "__main__":
    main()
