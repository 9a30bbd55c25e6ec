"""W1 and W4 beside other stream processors (scripts/peers), each in its environment (`scripts/setup bench-peers`).

Each does the same work: the functions are those of scripts/peers/work.py, and what comes out is compared with what
has to. Measured is what a peer takes for its rows once it runs, not its start; headgate and the peers by turns; told
are ratios, above 1 where headgate is faster. Where a peer is not installed or fails, the table says so.
bytewax-items is bytewax whose source gives its rows one at a time.
"""
# bench: peers – W1 and W4 beside bytewax, pathway, PyFlink, PySpark streaming, ray

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import bench_data_plane as w1  # noqa: E402
import bench_work as w4  # noqa: E402

PEERS = ("bytewax", "bytewax-items", "ray", "pathway", "flink", "pyspark")
FOLDER = HERE.parent / ".headgate" / "peers"
ROWS = {
    "bytewax": (2_000_000, 300_000), "bytewax-items": (100_000, 100_000),
    "ray": (400_000, 200_000), "pathway": (60_000, 60_000),
    "flink": (60_000, 6_000), "pyspark": (60_000, 60_000),
}  # fmt: skip
MOST_S = 120.0


def peer(name: str, work: str) -> dict[str, Any]:
    """What a run of it tells, or why there is none."""
    package, _, mode = name.partition("-")
    python = FOLDER / package / "bin" / "python"
    if not python.exists():
        return {"why": "not installed: scripts/setup bench-peers"}
    rows = ROWS[name][work == "W4"]
    with tempfile.TemporaryDirectory() as home:
        command = [str(python), "-P", str(HERE / "peers" / f"{package}_peer.py"), work, str(rows), mode]
        env = {**os.environ, "PYTHONPATH": str(HERE), "HOME": home, "RAY_TMPDIR": home}
        try:
            done = subprocess.run(command, env=env, cwd=home, capture_output=True, text=True, timeout=MOST_S)
        except subprocess.TimeoutExpired:
            return {"why": f"not done after {MOST_S:g} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"per_s"')]
    if done.returncode or not lines:
        return {"why": (done.stderr.strip().splitlines() or ["it told nothing"])[-1][:200]}
    told: dict[str, Any] = json.loads(lines[-1])
    return told


def ours(work: str, seconds: float, chained: bool) -> float:
    if work == "W1":
        return w1.ours(seconds, {n: [0] for n in w1.NAMES}, w1.NAMES if chained else ())
    return w4.ours("object", 400_000, "msgspec", chained).per_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--works", default="W1,W4")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("-n", "--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--to", type=Path, help="Keep all rates in this CSV.")
    parser.add_argument("--plot", type=Path, help="Draw the ratios (SVG).")
    parser.add_argument("-o", "--output", choices=["json", "table"], default="table")
    options = parser.parse_args()
    kept, results = ["work,peer,version,turn,headgate_per_s,headgate_chained_per_s,peer_per_s,load"], []
    for work in options.works.split(","):
        found: dict[str, dict[str, Any]] = {
            name: {"times": [], "chained": []} for name in options.peers.split(",")
        }
        for turn in range(options.repeats):
            plain, chain = ours(work, options.seconds, False), ours(work, options.seconds, True)
            for name in [name for name, known in found.items() if "why" not in known]:
                told = peer(name, work)
                found[name] |= {key: told[key] for key in ("version", "delivery", "why") if key in told}
                if "why" in told:
                    continue
                found[name]["times"].append(plain / told["per_s"])
                found[name]["chained"].append(chain / told["per_s"])
                rates = f"{plain:.0f},{chain:.0f},{told['per_s']:.0f}"
                kept.append(f"{work},{name},{told['version']},{turn},{rates},{os.getloadavg()[0]:.1f}")
                print(kept[-1], file=sys.stderr, flush=True)
                if options.to:
                    options.to.write_text("\n".join(kept) + "\n")
        for name, known in found.items():
            told = {key: spread(known[key]) for key in ("times", "chained") if known[key]}
            results.append({"work": work, "peer": name, "n": len(known["times"]), **known, **told})
            print("  ".join(f"{key}={value}" for key, value in results[-1].items()), flush=True)
    if options.plot:
        draw(options.plot, results)
    if options.output == "json":
        print(json.dumps({"schema": "headgate/bench/v1", "results": results}, indent=2))


def spread(values: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 2), "min": round(min(values), 2), "max": round(max(values), 2)
    }  # fmt: skip


def draw(path: Path, results: list[dict[str, Any]]) -> None:
    """How many times as fast headgate is, with the least and the most of the turns."""
    from matplotlib.figure import Figure

    shown = [one for one in results if one["n"]]
    figure = Figure(figsize=(7, 0.4 * len(shown) + 1), layout="constrained")
    axes = figure.subplots()
    for key, marker in (("times", "o"), ("chained", "s")):
        medians = [one[key]["median"] for one in shown]
        low = [m - one[key]["min"] for m, one in zip(medians, shown, strict=True)]
        high = [one[key]["max"] - m for m, one in zip(medians, shown, strict=True)]
        label = "a thread per task" if key == "times" else "chained"
        axes.errorbar(medians, range(len(shown)), xerr=(low, high), fmt=marker, capsize=3, label=label)
    axes.set_yticks(range(len(shown)), [f"{one['work']} {one['peer']} {one['version']}" for one in shown])
    axes.set_xscale("log")
    axes.axvline(1.0, color="gray", linewidth=1)
    axes.set_xlabel("headgate's rows/s by the peer's, medians with least and most")
    axes.legend()
    figure.savefig(path)


if __name__ == "__main__":
    main()
