"""Held-out trials of the stability verdict: real workers in real slots, 10 % below and above capacity.

Each trial measures the capacity in a closed loop, offers 0.9 or 1.1 times as much until there is a verdict,
and measures the capacity again: the load is the offered rate / the mean of both. Trials whose capacity
moved so far that the load is not what was meant are counted apart ("drifted"), not as right or wrong.
Results are kept as JSON lines; a run that is started again goes on where it ended.
"""
# bench: stability – verdicts on held-out trials of three kinds of task, wrong each way and time to verdict

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.benchmark_runner import SCRIPTS
from headgate.topology_runtime.api.topology import Edge, Task, Topology
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.measuring.bench import Bench, BenchPlace, Stopped, bench_topology
from headgate.topology_runtime.measuring.bench_trials import TrialResult, probe, run_trial
from headgate.topology_runtime.measuring.measuring_slots import Quotas
from headgate.topology_runtime.measuring.profile_steps import frame_rows
from headgate.topology_runtime.measuring.task_profile import SILENCE_S
from headgate.topology_runtime.stability.trial_evidence import papers_verdict
from headgate.topology_runtime.worker.meters import sample_rows

LOADS = {"stable": 0.9, "unstable": 1.1}
MEANT = {"stable": (0.8, 0.95), "unstable": (1.05, 1.25)}  # the load, measured round the trial
WRONG_MOST = 2  # each way, of 150
WITHIN = {"cpu": 1.0, "wait": 1.0, "throttled": 2.0}  # of --seconds
TASKS = "headgate.topology_runtime.tasks"
ROWS = 200
THROTTLE_TPS, RESERVE_S = 60.0, 0.5
PAUSE_S = 0.6  # before a trial: a service's reserve is full again
GAP_S = BenchPlace("", (), 1.0).gap_s


@dataclass(frozen=True)
class Kind:
    """One kind of task; expected_tps sizes its frames."""

    task: Task
    threads: int
    expected_tps: float
    waits: bool = False


@dataclass
class Trials:
    """What all trials share."""

    seconds: float
    probe_s: float
    cores: float
    directory: str
    quotas: Quotas
    stop: threading.Event

    def one(self, kind: str, side: str, number: int) -> dict[str, Any]:
        """One held-out trial as a record of the results file."""
        with service() if kind == "throttled" else contextlib.nullcontext("") as address:
            return {"kind": kind, "side": side, "number": number} | self._measured(
                kind_of(kind, address), f"{kind}-{side}-{number}", LOADS[side], WITHIN[kind] * self.seconds
            )

    def _measured(self, kind: Kind, name: str, load: float, longest_s: float) -> dict[str, Any]:
        bench = self._bench(kind, name)
        try:
            bench.begin(self.quotas, name, 0)
            before_tps = self._capacity(bench, kind)
            bench.quiet(self.seconds)
            bench.watch(PAUSE_S)
            found = run_trial(bench, load * before_tps, longest_s, kind.waits)
            after_tps = self._capacity(bench, kind)
        finally:
            bench.end()
        return record(found, before_tps, after_tps)

    def _capacity(self, bench: Bench, kind: Kind) -> float:
        rows = frame_rows(kind.expected_tps / kind.threads, GAP_S)
        return probe(bench, kind.threads, rows, self.probe_s, self.cores, SILENCE_S).rate_tps

    def _bench(self, kind: Kind, name: str) -> Bench:
        path = Path(self.directory, f"{name}.rows")
        sample_rows.write(path, [("source", {"id": n, "subject": f"subject {n}"}) for n in range(ROWS)])
        source = Task("source", "source", f"{TASKS}.row_sources:Counter")
        whole = Topology(
            "stability", (source, kind.task, Task("sink")), (Edge("source", "task"), Edge("task", "sink"))
        )
        rows = frame_rows(kind.expected_tps / kind.threads, GAP_S)
        place = BenchPlace(self.directory, (), self.cores)
        small = bench_topology(whole, kind.task, path)
        return Bench(small, "task", kind.threads, rows, place, self.stop)


def kind_of(name: str, address: str) -> Kind:
    if name == "cpu":
        return Kind(Task("task", run=f"{TASKS}.computing:Spin", params={"cpu_ms": 2.0}), 2, 70.0)
    if name == "wait":
        return Kind(Task("task", run=f"{TASKS}.waiting:Wait", params={"ms": 40.0}), 4, 95.0)
    task = Task("task", run=f"{TASKS}.waiting:Lookup", params={"service": address})
    return Kind(task, 8, THROTTLE_TPS, waits=True)


def record(found: TrialResult, before_tps: float, after_tps: float) -> dict[str, Any]:
    """`bins` are kept, so that another test can be tried on the same trials."""
    return {
        "load": found.offered_tps / statistics.mean((before_tps, after_tps)),
        "before_tps": before_tps,
        "after_tps": after_tps,
        "paper": papers_verdict(found.evidence),
        **{k: v for k, v in msgspec.to_builtins(found).items() if k != "bins"},
        "bins": [list(msgspec.structs.astuple(each)) for each in found.bins],
    }


@contextlib.contextmanager
def service() -> Iterator[str]:
    """A throttled service of its own: "host:port"."""
    command = [sys.executable, "-P", "-m", "emulated_services.throttled_service", "--owner", str(os.getpid())]
    command += ["--rate", str(THROTTLE_TPS), "--reserve", str(RESERVE_S)]
    env = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=env) as process:
        try:
            assert process.stdout is not None
            yield f"127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


# ── many ────────────────────────────────────────────────────────────────────────────────────────


class Results:
    """The file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self.records: list[dict[str, Any]] = []
        if path.exists():
            for line in path.read_text("utf-8").splitlines():
                with contextlib.suppress(ValueError):  # a torn last line
                    self.records.append(json.loads(line))

    def known(self) -> set[tuple[str, str, int]]:
        return {(r["kind"], r["side"], r["number"]) for r in self.records}

    def add(self, found: dict[str, Any]) -> None:
        with self._lock, open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(found, allow_nan=False) + "\n")
            self.records.append(found)


def run(trials: Trials, results: Results, each: int, at_once: int) -> int:
    """`each`: trials per kind and side. How many failed; they are tried again by the next run."""
    todo = [(kind, side, n) for n in range(each) for kind in WITHIN for side in LOADS]
    todo = [key for key in todo if key not in results.known()]
    failed, begin_s = [0], time.monotonic()

    def one(key: tuple[str, str, int]) -> None:
        try:
            if not trials.stop.is_set():
                results.add(trials.one(*key))
        except (HeadgateError, OSError) as error:
            failed[0] += 1
            print(f"{key}: {error}", file=sys.stderr)
        except Stopped:
            return
        done = len(results.records)
        print(f"{done} trials, {time.monotonic() - begin_s:.0f} s", file=sys.stderr)

    with ThreadPoolExecutor(at_once) as pool:
        try:
            list(pool.map(one, todo))
        except BaseException:
            trials.stop.set()
            raise
    return failed[0]


def summary(records: Sequence[dict[str, Any]], seconds: float) -> list[dict[str, Any]]:
    """A row for each kind and side, and one for each side."""
    rows = []
    for side in LOADS:
        for kind in (*WITHIN, "all"):
            found = [r for r in records if r["side"] == side and kind in (r["kind"], "all")]
            low, high = MEANT[side]
            meant = [r for r in found if low <= r["load"] <= high]
            times = sorted(r["seconds"] for r in meant)
            rows.append(
                {
                    "kind": kind,
                    "side": side,
                    "n": len(meant),
                    "wrong": sum(r["verdict"] != side for r in meant),
                    "wrong_sure": sum(r["verdict"] != side and not r["forced"] for r in meant),
                    "unsure": sum(r["forced"] for r in meant),
                    "paper_wrong": sum(r["paper"] != side for r in meant),
                    "drifted": len(found) - len(meant),
                    "median_s": statistics.median(times) if times else None,
                    "p95_s": times[int(0.95 * (len(times) - 1))] if times else None,
                    "late": sum(r["seconds"] > WITHIN[r["kind"]] * seconds + 0.5 for r in meant),
                }
            )
    return rows


def stability_trials(
    trials: int = 168,
    seconds: float = 10.0,
    probe_seconds: float = 4.0,
    cores: float = 0.15,
    side_by_side: int = 4,
    results: Path = Path("traces/stability_trials.jsonl"),
) -> dict[str, Any]:
    """trials: each way, over all three kinds; seconds: the longest, throttled services twice that; probe_seconds: of
    each measurement of capacity; cores: of each slot."""
    kept, quotas = Results(results), Quotas()
    try:
        with tempfile.TemporaryDirectory(prefix="headgate-stability-") as directory:
            shared = Trials(seconds, probe_seconds, cores, directory, quotas, threading.Event())
            failed = run(shared, kept, -(-trials // len(WITHIN)), side_by_side)
    finally:
        quotas.remove()
    rows = summary(kept.records, seconds)
    whole = [row for row in rows if row["kind"] == "all"]
    met = all(row["n"] >= 150 and row["wrong"] <= WRONG_MOST and not row["late"] for row in whole)
    return {"binding": quotas.binding, "failed": failed, "met": met, "rows": rows}


BENCHMARKS = {"stability": stability_trials}
