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

import sys
from typing import Any

from benchmarks.benchmark_runner import spread
from benchmarks.data_plane import bench_data_plane as w3
from headgate.topology_runtime.latency.latency_buckets import bucket_ns
from headgate.topology_runtime.worker.meters import meter as mt
from headgate.topology_runtime.worker.rig import Rig

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
    with w3.running(w3.topology(), w3.TWO_WORKERS, chained=chained) as rig:
        rig.offer([(0.0, RATE_TPS)])
        rig.pump(1.0)
        before = Counted(rig)
        rig.pump(seconds)
        return between(before, Counted(rig))


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


def all_legs(repeats: int = 5, seconds: float = 3.0) -> dict[str, Any]:
    runs: dict[str, list[dict[str, float]]] = {"a thread per task": [], "chained": []}
    hops = []
    for turn in range(repeats):
        hops.append(w3.bare_hop(seconds)[0])
        for name, chained in zip(runs, ((), w3.NAMES), strict=True):
            runs[name].append(legs(seconds, chained))
        told = ", ".join(f"{name} {its[-1]['whole']:.2f} ms" for name, its in runs.items())
        print(f"legs {turn + 1}/{repeats}: {told}, a bare hop {hops[-1]:.2f}", file=sys.stderr)
    return {
        "hop_ms": spread(hops),
        "legs_ms": [
            {"how": name, "leg": leg, **spread([run[leg] for run in its])}
            for name, its in runs.items()
            for leg in its[0]
        ],
    }


BENCHMARKS = {"legs": all_legs}
