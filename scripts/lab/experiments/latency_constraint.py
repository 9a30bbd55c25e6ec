"""Paper 4's experiment again: six stages, large buffers, a latency constraint of 300 ms.

    .venv/bin/python -P -m headgate.lab.experiments.latency_constraint --runs 3

`--parallel` threads of each stage over `--workers` VMs of one slot; all to all from the first stage to the second and
from the fifth to the last, within a worker between. Buffers hold 256 rows of 128 bytes (32 KB), and leave two seconds
after the one before if they are not full (`--gap 2000`: an ack must come back some time). Runs of two kinds, each
without and with the constraint in turns; `--ways nothing,buffers,both --parallel 4` shows the paper's two steps apart
(Fig. 7 to 9): no constraint, one that may change buffers only, as its tasks are unchained, and one that may chain as
well, which it can only where a worker has one thread of a stage.

low        rows at a low rate: mean latency at the sinks by the trace, over the last 20 s; and when it was above the
           limit last
saturated  more rows than it can carry: rows/s at the sinks over the last 20 s

The sinks' latencies count from when a row was due, in each of the sinks' threads: they share nothing with the sums that
the managers of the constraint judge by. A JSON line each; `--picture FILE`: the first low run that may change most.
"""

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

STAGES = ("partition", "decode", "merge", "overlay", "encode", "serve")
LIMIT_MS, GAP_MS = 300.0, 2000
TASKS = """
from headgate.topology_runtime.api.builder import topology
from headgate.topology_runtime.api.logic import Source
from headgate.topology_runtime.api.topology import Static

TEXT = "x" * 108  # with its number 128 bytes on the wire, or so
each = Static({parallel}, {cpu}, 0.0005)

class Streams(Source):
    def open(self, context):
        self.first, self.stride = context.partition, context.partitions

    def read(self, position, limit):
        return [(self.first + n * self.stride, TEXT) for n in range(position, position + limit)]

def work(row):
    return row

def end(row):
    return None

video = topology("video")
partition = video.source("partition", Streams, static=each)
decode, merge, overlay, encode = (video.task(name, work, static=each){unchained} for name in {middle})
serve = video.task("serve", end, static=each){unchained}
partition >> decode.local_first() >> merge.local_first() >> overlay.local_first() >> encode >> serve
"""
WAYS = ("nothing", "buffers", "both")  # what a constraint may change
CONSTRAINT = "video.latency(*{stages}, limit_ms={limit}, window_s=15)\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--parallel", type=int, default=16)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rate", type=float, default=1600.0, help="rows/s, low")
    parser.add_argument("--flood", type=float, default=60_000.0, help="rows/s, saturated")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--limit-ms", type=float, default=LIMIT_MS)
    parser.add_argument("--kinds", default="low,saturated")
    parser.add_argument(
        "--ways", default="nothing,both", help=f"of {','.join(WAYS)}; the first is compared with"
    )
    parser.add_argument("--picture", type=Path)
    asked = parser.parse_args()
    first, *others = ways = asked.ways.split(",")
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in asked.kinds.split(",")}
    with tempfile.TemporaryDirectory(prefix="headgate-latency-") as folder:
        for number in range(asked.runs):
            for kind, runs in found.items():
                values = {}
                for way in ways:
                    rate = asked.rate if kind == "low" else asked.flood
                    trace = run_once(Path(folder) / f"{kind}-{number}-{way}", asked, rate, way)
                    told = (
                        low(trace, asked.seconds, asked.limit_ms)
                        if kind == "low"
                        else saturated(trace, asked.seconds)
                    )
                    say({"run": number, "kind": kind, "may change": way, **told})
                    values[way] = told["mean_ms" if kind == "low" else "rows_per_s"]
                    if asked.picture and (kind, number, way) == ("low", 0, ways[-1]):
                        draw(trace, asked.picture, asked.limit_ms)
                runs.append(values)
    for way in others:
        ratios = {
            "latency is lower by": [run[first] / run[way] for run in found.get("low", [])],
            "throughput kept": [run[way] / run[first] for run in found.get("saturated", [])],
        }
        say({"may change": way, **{what: spread(values) for what, values in ratios.items() if values}})
    say({"load": os.getloadavg()})


def run_once(folder: Path, asked: argparse.Namespace, rate: float, way: str) -> Path:
    """One run; its trace."""
    folder.mkdir()
    cpu = 0.9 * asked.workers / (asked.parallel * len(STAGES))
    unchained = ".unchained()" if way == "buffers" else ""
    text = TASKS.format(parallel=asked.parallel, cpu=round(cpu, 5), middle=STAGES[1:-1], unchained=unchained)
    text += CONSTRAINT.format(stages=STAGES, limit=asked.limit_ms) if way != "nothing" else ""
    (folder / "stages.py").write_text(text)
    words = [
        "up", "stages.py:video", "--rates", str(rate), "--vms", ",".join(["1"] * asked.workers), "--slot-cores", "0.4",
        "--mapper", "dsm", "--set", f"gap={GAP_MS}", "--seconds", str(asked.seconds), "--mode", "advise",
        "--state-dir", "state", "--trace-dir", "traces",
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-P", "-m", "headgate", *words],
        cwd=folder, capture_output=True, text=True, timeout=asked.seconds + 120, check=False,
    )  # fmt: skip
    if done.returncode not in (0, 8):
        raise SystemExit(done.stderr[-4000:])
    (head,) = (one for one in (folder / "traces" / "video").glob("*/run.json") if not one.parent.is_symlink())
    return head.parent


def rows_of(trace: Path, query: str) -> list[dict[str, Any]]:
    words = ["sql", str(trace), query, "-o", "json"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "headgate", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def seconds_of(trace: Path) -> list[tuple[float, float, float]]:
    """(second of the run, mean ms, rows) at the sinks."""
    rows = rows_of(trace, "select at_s, mean_s, tuples from fct_latency_per_second order by at_s")
    return [(row["at_s"], row["mean_s"] * 1000, row["tuples"]) for row in rows]


def low(trace: Path, seconds: float, limit_ms: float) -> dict[str, float]:
    every = seconds_of(trace)
    last = [(ms, rows) for at_s, ms, rows in every if at_s > seconds - 20]
    met = max([at_s for at_s, ms, _ in every if ms > limit_ms], default=0.0)
    return {"mean_ms": round(sum(ms * n for ms, n in last) / sum(n for _, n in last), 2), "met_after_s": met}


def saturated(trace: Path, seconds: float) -> dict[str, float]:
    rows = [rows for at_s, _, rows in seconds_of(trace) if seconds - 22 < at_s < seconds - 2]
    return {"rows_per_s": round(sum(rows) / 20, 1)}


def spread(values: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 3), "least": round(min(values), 3),
        "most": round(max(values), 3), "n": len(values),
    }  # fmt: skip


def draw(trace: Path, path: Path, limit_ms: float) -> None:
    """Figure 9 again: what a row waits and works, stage by stage, second by second."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    begin = "(select min(time) from links)"
    ways = rows_of(
        trace,
        f"select date_diff('second', {begin}, time) as s, from_task as stage, avg(buffer_latency_s) * 500 as buffer, "
        "avg(channel_latency_s) * 1000 as way from links group by 1, 2 order by 1",
    )
    works = rows_of(
        trace,
        f"select date_diff('second', {begin}, time) as s, task as stage, avg(latency_mean_s) * 1000 as work "
        "from samples where tuples_in > 0 group by 1, 2 order by 1",
    )
    seconds = sorted({row["s"] for row in ways})
    at = {(row["s"], row["stage"], what): row[what] or 0.0 for row in ways for what in ("buffer", "way")}
    at |= {(row["s"], row["stage"], "work"): row["work"] or 0.0 for row in works}
    kinds = [(stage, what) for stage in STAGES for what in ("work", "buffer", "way")][1:-2]
    colours = {"work": "#C2410C", "buffer": "#334155", "way": "#94A3B8"}
    layers = [[at.get((second, *kind), 0.0) for second in seconds] for kind in kinds]
    figure, axes = pyplot.subplots(figsize=(8, 4))
    axes.stackplot(
        seconds, layers, colors=[colours[what] for _, what in kinds], edgecolor="white", linewidth=0.3
    )
    axes.axhline(limit_ms, color="black", linestyle="-.", linewidth=1)
    sinks = seconds_of(trace)
    axes.plot(
        [s for s, _, _ in sinks],
        [ms for _, ms, _ in sinks],
        color="black",
        linewidth=1,
        label="measured at the sinks",
    )
    for what, label in (("buffer", "in buffers"), ("way", "between threads"), ("work", "in tasks")):
        axes.plot([], [], color=colours[what], linewidth=6, label=label)
    axes.set(xlabel="seconds", ylabel="ms, mean", xlim=(0, seconds[-1]), ylim=(0, None))
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path)


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main()
