"""The data plane beside its bare limits, in one run, side by side: quote ratios, never absolute rates.

W1  source → f1 → f2 → f3 → count in one worker, against a bare loop making tuples and calling f1–f3
W2  the same over two workers (source, f1 | f2, f3, count), against two processes that pass 512-tuple frames
    over one ZeroMQ pair without acks
    each without chains and with (worker/orders/thread_orders.py), one after the other; with --times instead: without
    event time, with timestamps that no task uses, with counts by key in the place of the sink, and those by timers
W3  200 rows/s through five stages over two workers: latency from the intended emit time, against a hop;
    without chains and with
"""
# bench: W1 W2 W3 – throughput and latency of the data plane beside its bare limits

from __future__ import annotations

import itertools
import multiprocessing as mp
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from benchmarks.benchmark_runner import SCRIPTS, spread
from benchmarks.data_plane import bench_tasks as bt
from headgate.topology_runtime.api.topology import Edge, Static, Task, Timestamps, Topology
from headgate.topology_runtime.keys.curve import new_pair
from headgate.topology_runtime.keys.key_pairs import Contact, KeyGuard, Who, contact_at
from headgate.topology_runtime.latency.latency_buckets import percentile_ns
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.channels import PullChannel, PushChannel, encode
from headgate.topology_runtime.wire.run_options import FRAME_ROWS
from headgate.topology_runtime.worker.rig import Rig
from headgate.topology_runtime.worker.rows import row_values as wire

FRAME = 512  # of the bare limits
MODELLED_TPS = 16384.0  # opens the window: rows in flight at most twice as many
FULL_TPS = 20_000_000.0  # more than anything does
NAMES = ("source", "f1", "f2", "f3", "count")
TWO_WORKERS = {"source": [0], "f1": [0], "f2": [1], "f3": [1], "count": [1]}


OWN = "benchmarks.data_plane.bench_tasks"
FORMS = ("plain", "stamped", "keyed", "timed")


def topology(form: str = "plain") -> Topology:
    stamps = Timestamps(0, unit="us") if form in ("stamped", "timed") else None
    source = Task("source", kind="source", run=f"{OWN}:Numbers", static=Static(), timestamps=stamps)
    sinks = {
        "keyed": Task("count", kind="keyed", state="keyed", run=f"{OWN}:CountedRows"),
        "timed": Task("count", kind="keyed", state="keyed", run=f"{OWN}:TimedCounts", timed=True),
    }
    sink = sinks.get(form, Task("count", run=f"{OWN}:count"))
    tasks = (source, *(Task(n, run=f"{OWN}:{n}") for n in NAMES[1:-1]), sink)
    edges = [Edge(a, b) for a, b in itertools.pairwise(NAMES)]
    if form in sinks:
        edges[-1] = Edge(*NAMES[-2:], grouping="fields", key=f"{OWN}:key")
    return Topology("bench", tasks, tuple(edges))


@contextmanager
def running(
    topology: Topology,
    places: Mapping[str, Sequence[int]],
    settings: m.DataPlaneSettings | None = None,
    modelled: Mapping[str, float] | None = None,
    chained: tuple[str, ...] = (),
) -> Iterator[Rig]:
    """Real workers, acks and meters on, until the block is left."""
    with tempfile.TemporaryDirectory() as folder:
        settings = settings or m.DataPlaneSettings()
        rig = Rig(topology, places, folder, (str(SCRIPTS),), settings, modelled or {}, chained=chained)
        try:
            rig.start()
            yield rig
        finally:
            rig.stop()


def bare_loop(seconds: float) -> float:
    """Rows/s of one loop that makes the tuples and calls the three functions."""
    source, done, start = bt.Numbers(), 0, time.perf_counter()
    while (now := time.perf_counter()) - start < seconds:
        for row in source.read(done, FRAME):
            bt.f3(bt.f2(bt.f1(row)))
        done += FRAME
    return done / (now - start)


def _pass_on(contact: Contact, seconds: float) -> None:
    push, source, done, end = PushChannel(contact), bt.Numbers(), 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        rows = [bt.f1(row) for row in source.read(done, FRAME)]
        push.send_bytes(wire.write(rows, wire.TUPLES))
        done += FRAME
        if done % (FRAME * 64) == 0:  # the pair has no acks: do not run away from the reader
            time.sleep(0)
    push.send_bytes(b"")
    push.close()


def bare_pair(seconds: float) -> float:
    """Rows/s of two processes and one ZeroMQ pair, frames of 512, no acks."""
    own, pusher = new_pair(), new_pair()
    pull = PullChannel(KeyGuard(own, {pusher.public: Who("worker", "bench")}.get))
    process = mp.get_context("spawn").Process(
        target=_pass_on, args=(contact_at(pull.endpoint, pusher), seconds)
    )
    process.start()
    done, start = 0, 0.0
    while True:
        data = pull.wait_for_bytes(10.0)
        if not data:
            break
        start = start or time.perf_counter()
        for row in wire.read(data, wire.TUPLES):
            bt.f3(bt.f2(row))
        done += FRAME
    rate = done / (time.perf_counter() - start)
    process.join()
    pull.close()
    return rate


def ours(
    seconds: float, places: dict[str, list[int]], chained: tuple[str, ...] = (), form: str = "plain"
) -> float:
    """Rows/s at the sink of the real workers, acks and meters on."""
    settings, modelled = m.DataPlaneSettings(frame_rows=FRAME_ROWS), dict.fromkeys(NAMES, MODELLED_TPS)
    with running(topology(form), places, settings, modelled, chained) as rig:
        rig.offer([(0.0, FULL_TPS)])
        rig.pump(1.0)
        before, start = rig.count("count"), time.perf_counter()
        rig.pump(seconds)
        return (rig.count("count") - before) / (time.perf_counter() - start)


def our_latency(seconds: float, chained: tuple[str, ...] = ()) -> tuple[float, float]:
    """(p50, p99) in ms at 200 rows/s, five stages over two workers."""
    with running(topology(), TWO_WORKERS, chained=chained) as rig:
        rig.offer([(0.0, 200.0)])
        rig.pump(1.0)
        before = rig.latencies("count")
        rig.pump(seconds)
        buckets = [a - b for a, b in zip(rig.latencies("count"), before, strict=True)]
        return percentile_ns(buckets, 0.5) / 1e6, percentile_ns(buckets, 0.99) / 1e6


def _echo(contact: Contact, count: int, gap_s: float) -> None:
    push = PushChannel(contact)
    time.sleep(0.3)
    due = time.time_ns()
    for _ in range(count):
        due += int(gap_s * 1e9)
        time.sleep(max(0.0, (due - time.time_ns()) / 1e9))
        push.send_bytes(encode((due, 0.5, "0123456789")))
    push.send_bytes(b"")
    push.close()


def bare_hop(seconds: float) -> tuple[float, float]:
    """(p50, p99) in ms of one bare ZeroMQ hop at 200 messages/s, from the intended send time."""
    own, pusher = new_pair(), new_pair()
    pull = PullChannel(KeyGuard(own, {pusher.public: Who("worker", "bench")}.get))
    process = mp.get_context("spawn").Process(
        target=_echo, args=(contact_at(pull.endpoint, pusher), int(seconds * 200), 0.005)
    )
    process.start()
    late: list[float] = []
    while data := pull.wait_for_bytes(10.0):
        late.append((time.time_ns() - wire.read(b"\x91" + data, wire.PLAIN)[0][0]) / 1e6)
    process.join()
    pull.close()
    late.sort()
    return late[len(late) // 2], late[int(len(late) * 0.99)]


def with_times(name: str, places: dict[str, list[int]], repeats: int, seconds: float) -> dict[str, object]:
    """Rows/s of each form, by turns; timestamps that nobody uses beside none, and timers beside counts by key."""
    rates: dict[str, list[float]] = {form: [] for form in FORMS}
    for i in range(repeats):
        for form in FORMS if i % 2 == 0 else reversed(FORMS):
            rates[form].append(ours(seconds, places, form=form))
        said = ", ".join(f"{form} {some[-1]:,.0f}/s" for form, some in rates.items())
        print(f"{name} {i + 1}/{repeats}: {said}", file=sys.stderr)
    pairs = {"unused": ("stamped", "plain"), "used": ("timed", "keyed")}
    ratios = {
        said: [a / b for a, b in zip(rates[one], rates[other], strict=True)]
        for said, (one, other) in pairs.items()
    }
    return {form: spread(some) for form, some in (rates | ratios).items()}


def throughput(name: str, repeats: int = 5, seconds: float = 3.0, times: bool = False) -> dict[str, object]:
    places = TWO_WORKERS if name == "W2" else {n: [0] for n in NAMES}
    if times:
        return with_times(name, places, repeats, seconds)
    threads, chains, rates = [], [], []
    for i in range(repeats):
        bare = bare_loop(seconds) if name == "W1" else bare_pair(seconds)
        rates.append(ours(seconds, places))
        threads.append(rates[-1] / bare)
        chains.append(ours(seconds, places, NAMES) / bare)
        said = f"{rates[-1]:,.0f}/s, {threads[-1]:.2f} of bare, chained {chains[-1]:.2f}"
        print(f"{name} {i + 1}/{repeats}: {said}", file=sys.stderr)
    return {
        "ratio_to_bare": spread(threads),
        "chained_to_bare": spread(chains),
        "tuples_per_s": spread(rates),
    }


def latency(repeats: int = 5, seconds: float = 3.0) -> dict[str, object]:
    bare, threads, chains = [], [], []
    for i in range(repeats):
        bare.append(bare_hop(seconds))
        threads.append(our_latency(seconds))
        chains.append(our_latency(seconds, NAMES))
        said = f"{threads[-1][0]:.2f} ms, chained {chains[-1][0]:.2f}, a bare hop {bare[-1][0]:.2f}"
        print(f"W3 {i + 1}/{repeats}: p50 {said}", file=sys.stderr)
    result: dict[str, object] = {}
    for name, ours in (("", threads), ("chained_", chains)):
        result[f"{name}p50_ms"] = spread([p50 for p50, _ in ours])
        for at, which in enumerate(("p50", "p99")):
            ratios = [a[at] / b[at] for a, b in zip(ours, bare, strict=True)]
            result[f"{name}{which}_to_bare"] = spread(ratios)
    return result


BENCHMARKS = {"W1": partial(throughput, "W1"), "W2": partial(throughput, "W2"), "W3": latency}
