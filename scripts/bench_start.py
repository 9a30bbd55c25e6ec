"""How long it takes to begin.

start  `headgate up` to the first tuple at the sink, models given
help   `headgate --help` against a bare interpreter, in turn
"""
# bench: start help – from `up` to the first tuple; `--help` beside a bare interpreter

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from watched_runs.trials import trial


def spread(values: list[float]) -> dict[str, float]:
    return {"n": len(values), "median": statistics.median(values), "min": min(values), "max": max(values)}


def start(repeats: int) -> dict[str, Any]:
    found = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder, trial(Path(folder), "100", 3, ["--vms", "4,4"]) as run:
            found.append(run.wait_for_tuples())
            run.finish()
    return {"benchmark": "start", "first_tuple_s": spread(found)}


def seconds_of(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def help_(repeats: int) -> dict[str, Any]:
    headgate = str(Path(sys.executable).parent / "headgate")
    ratios = [
        seconds_of([headgate, "--help"]) / seconds_of([sys.executable, "-c", "pass"]) for _ in range(repeats)
    ]
    return {"benchmark": "help", "ratio_to_bare": spread(ratios)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=["start", "help"])
    parser.add_argument("-n", "--repeats", type=int, default=5)
    parser.add_argument("-o", "--output", choices=["json", "table"], default="table")
    options = parser.parse_args()
    results = [
        start(options.repeats) if name == "start" else help_(options.repeats) for name in options.names
    ]
    if options.output == "json":
        print(json.dumps({"schema": "headgate/bench/v1", "results": results}, indent=2))
        return
    for result in results:
        print("  ".join(f"{key}={value}" for key, value in result.items()))


if __name__ == "__main__":
    main()
