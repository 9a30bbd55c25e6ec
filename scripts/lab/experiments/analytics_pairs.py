"""Two states of the analysis on one trace, in turns: rows of samples a second, CPU time, memory. A JSON line a run.

The other state is checked out beside this one (`git worktree`) and runs with this one's Python. Which of a pair
comes first changes from pair to pair. The last line has what this state does in times of the other, pair by pair.

    .venv/bin/python -P -m headgate.lab.experiments.analytics_pairs --against 33707e8 --rows 12e6 --pairs 3 --folder DIR

The trace stays in the folder for a next time. With `--pairs 0` this state runs once, alone.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.bench_analytics import analyse, cpu_s, made
from made_traces.made_runs import Wanted

ROOT = Path(__file__).parents[3]
RATES = ("curated_rows_per_s", "analysed_rows_per_s", "analysed_rows_per_cpu_s")


def measured(root: Path, rows: int, traces: Path, output: Path) -> dict[str, Any]:
    """One run of the state that is checked out at `root`."""
    shutil.rmtree(output, ignore_errors=True)
    before_s = cpu_s()
    document, took_s, highest_mb = analyse(traces, output, [], root)
    used_s = cpu_s() - before_s
    shutil.rmtree(output)
    seconds = document["seconds"]
    return {
        "whole_s": round(took_s, 2),
        "cpu_s": round(used_s, 2),
        **{name: seconds[name] for name in ("start", "curate", "analyse")},
        "curated_rows_per_s": round(rows / seconds["curate"]),
        "analysed_rows_per_s": round(rows / (seconds["curate"] + seconds["analyse"])),
        "analysed_rows_per_cpu_s": round(rows / used_s),
        "memory_mb": round(highest_mb),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", metavar="REV", default="33707e8")
    parser.add_argument("--rows", type=float, default=12e6)
    parser.add_argument("--threads", type=int, default=50)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--folder", type=Path, required=True)
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    rows, folder = int(chosen.rows), chosen.folder.resolve()
    traces, other = folder / f"traces-{rows}", folder / f"state-{chosen.against}"
    truth, _ = made(traces, Wanted(rows, threads=chosen.threads, runs=2))
    states = {"this": ROOT}
    if chosen.pairs:
        states["other"] = other
        if not other.exists():
            subprocess.run(
                ["git", "worktree", "add", "--force", "--detach", str(other), chosen.against],
                cwd=ROOT,
                check=True,
            )
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in states}
    for pair in range(max(1, chosen.pairs)):
        for name in list(states)[:: -1 if pair % 2 else 1]:
            row = measured(states[name], truth["rows"], traces, folder / f"out-{name}")
            found[name].append(row)
            print(json.dumps({"state": name, "pair": pair, **row}), flush=True)
    if chosen.pairs:
        times = {
            rate: [round(a[rate] / b[rate], 3) for a, b in zip(found["this"], found["other"], strict=True)]
            for rate in RATES
        }
        medians = {rate: statistics.median(values) for rate, values in times.items()}
        print(
            json.dumps({"times": times, "medians": medians, "against": chosen.against, "rows": truth["rows"]})
        )


if __name__ == "__main__":
    main()
