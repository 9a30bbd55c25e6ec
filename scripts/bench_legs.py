"""Where the latency of a row goes between two workers: W3's rows (200 a second through five stages), leg by leg, as the
workers' own meters tell it. Each leg is a mean; the source's is what is left of the mean from when a row was due.

    source   due → given to the first task: its thread wakes, reads, makes a frame
    wake     of a task: in its inbox → its thread has it; chained: what it costs to be called
    run      of a task: its code and what is around it, until what came of it has left
    link     given to the sender's thread → in the inbox: two wakes, encryption, sockets
    hop      beside it: one bare hop of ZeroMQ between two processes, the median
"""
# bench: legs – where the latency of a row goes between two workers, leg by leg, in W3

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import bench_data_plane as w3  # noqa: E402
from headgate.topology_runtime.latency_buckets import bucket_ns  # noqa: E402
from headgate.topology_runtime.worker import meter as mt  # noqa: E402
from headgate.topology_runtime.worker.rig import Rig  # noqa: E402

PLACES = {"source": [0], "f1": [0], "f2": [1], "f3": [1], "count": [1]}
TASKS = w3.NAMES[1:]
RATE_TPS = 200.0
LINK = "f1", "f2"


class Counted:
    """What the meters have now."""

    def __init__(self, rig: Rig) -> None:
        fields = mt.TUPLES_IN, mt.LATENCY_SUM_NS, mt.BUSY_NS
        self.of = {task: [rig.count(task, field) for field in fields] for task in TASKS}
        self.link = rig.links().get(LINK, (0, 0))
        self.whole = rig.latencies(TASKS[-1])


def legs(seconds: float, chained: tuple[str, ...]) -> dict[str, float]:
    """Mean ms of each leg, in order of a row's way; `whole` of all of them."""
    with tempfile.TemporaryDirectory() as directory:
        rig = Rig(w3.topology(), PLACES, directory, (str(HERE),), chained=chained)
        try:
            rig.start()
            rig.offer([(0.0, RATE_TPS)])
            rig.pump(1.0)
            before = Counted(rig)
            rig.pump(seconds)
            return between(before, Counted(rig))
        finally:
            rig.stop()


def between(before: Counted, after: Counted) -> dict[str, float]:
    found: dict[str, float] = {}
    for task in TASKS:
        rows, waited_ns, busy_ns = (b - a for a, b in zip(before.of[task], after.of[task], strict=True))
        if task == LINK[1]:
            frames, link_ns = (b - a for a, b in zip(before.link, after.link, strict=True))
            found[f"link {LINK[0]} → {LINK[1]}"] = link_ns / frames / 1e6
        found[f"{task} wake"] = (waited_ns - busy_ns) / rows / 1e6
        found[f"{task} run"] = busy_ns / rows / 1e6
    counts = [b - a for a, b in zip(before.whole, after.whole, strict=True)]
    whole = sum(count * bucket_ns(bucket) for bucket, count in enumerate(counts)) / sum(counts) / 1e6
    return {"source": whole - sum(found.values()), **found, "whole": whole}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("-n", "--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("-o", "--output", choices=["json", "table"], default="table")
    options = parser.parse_args()
    runs: dict[str, list[dict[str, float]]] = {"a thread per task": [], "chained": []}
    hops = []
    for turn in range(options.repeats):
        hops.append(w3.bare_hop(options.seconds)[0])
        for name, chained in zip(runs, ((), w3.NAMES), strict=True):
            runs[name].append(legs(options.seconds, chained))
        told = ", ".join(f"{name} {its[-1]['whole']:.2f} ms" for name, its in runs.items())
        print(f"legs {turn + 1}/{options.repeats}: {told}, a bare hop {hops[-1]:.2f}", file=sys.stderr)
    result = {
        "benchmark": "legs",
        "n": options.repeats,
        "hop_ms": w3.spread(hops),
        "legs_ms": {
            name: {leg: w3.spread([run[leg] for run in its]) for leg in its[0]} for name, its in runs.items()
        },
    }
    if options.output == "json":
        print(json.dumps({"schema": "headgate/bench/v1", "results": [result]}, indent=2))
        return
    print(f"a bare hop {told_of(w3.spread(hops))} ms; n = {options.repeats}, medians")
    for name, its in result["legs_ms"].items():  # type: ignore[attr-defined]
        print(f"\n{name}, ms of a row")
        for leg, spread in its.items():
            print(f"  {leg:14} {told_of(spread)}")


def told_of(spread: dict[str, float]) -> str:
    return f"{spread['median']:.3f} ({spread['min']:.3f} to {spread['max']:.3f})"


if __name__ == "__main__":
    main()
