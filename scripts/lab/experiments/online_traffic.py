"""Paper 1's experiment again: a six-stage topology over four VMs, first in turn, then by the traffic that was measured.

    .venv/bin/python -P -m headgate.lab.experiments.online_traffic --runs 5

Each VM is a network namespace with one slot; a switch of our own delays every packet by 1 ms (the delay that there was
in fact is part of the answer, see `watched_runs/slow_net.py`). Each run begins with the plan of `dsm` (round robin, as
Storm does) and is planned again by the trigger of the mapper `traffic`. What is compared is the half minute before that
and the one after it has settled: bytes that the VMs' devices sent by the kernel's counters (messages to the controller
among them), bytes that the switch carried from VM to VM, and latency from the trace. Rows are counted where they end,
in a file of their numbers. A run in which another plan was made, or packets took twice as long as asked for (a
loaded machine), is discarded, whatever its figures.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from watched_runs.slow_net import SlowNet, slow_net

VMS, CONTROLLER = 4, 5
THREAD_TPS = 105.0  # of a stage, which waits for 8 ms with each row
STAGES = ("parse", "enrich", "score", "pack")
SLOT_CORES, MEMORY = 0.4, 1 << 28
BEFORE_S, AFTER_S, SETTLES_S = 30.0, 30.0, 8.0
HEADGATE = [sys.executable, "-P", "-m", "headgate"]
PROFILES = {
    "even": (500, 500, 500, 500, 500),
    "uneven": (200, 1000, 1000, 100, 100),
}  # bytes of rows, by edge
TASKS = """
from time import sleep

from headgate.topology_runtime.tasks.row_sources import Counter

class Events(Counter):
    def __init__(self, size, limit=None):
        super().__init__(limit)
        self._text = "x" * size

    def read(self, position, limit):
        return [(number, self._text) for number in super().read(position, limit)]

class Stage:
    def __init__(self, size):
        self._text = "x" * size

    def __call__(self, row):
        sleep(0.008)  # as for the answer of a service: what a row costs does not depend on who else is on this machine
        return (row[0], self._text)
"""


def topology(folder: Path, sizes: tuple[int, ...]) -> dict[str, Any]:
    static = {"threads": 1, "cpu": 0.1, "memory": 0.1}
    names = ["source", *STAGES, "sink"]
    source = {"name": "source", "kind": "source", "run": "six_stages:Events", "params": {"size": sizes[0]}}
    sink = {"name": "sink", "run": "headgate.topology_runtime.tasks.sinks:CollectToFile"}
    stages = [
        {"name": name, "run": "six_stages:Stage", "params": {"size": size}}
        for name, size in zip(STAGES, sizes[1:], strict=True)
    ]
    return {
        "schema": "headgate/topology/v1",
        "name": "six",
        "tasks": [
            source | {"static": static},
            *stages,
            sink | {"static": static, "params": {"path": str(folder / "rows.jsonl"), "key": 0}},
        ],
        "edges": [{"from": a, "to": b} for a, b in zip(names, names[1:], strict=False)],
    }


def write(folder: Path, sizes: tuple[int, ...]) -> None:
    """Two threads of each stage, two of which fill a slot: four slots, whatever puts them there."""
    (folder / "six_stages.py").write_text(TASKS)
    (folder / "topology.json").write_text(json.dumps(topology(folder, sizes)))
    (folder / "models").mkdir()
    slot = {"cores": SLOT_CORES, "memory_bytes": MEMORY, "machine": "any"}
    for name in STAGES:
        points = [
            {"threads": n, "rate_tps": THREAD_TPS * n, "cpu": 0.12 * n, "memory": 0.44 * n} for n in (1, 2)
        ]
        model = {"schema": "headgate/model/v1", "task": name, "slot": slot, "points": points}
        (folder / "models" / f"{name}.json").write_text(json.dumps(model))


class Disturbed(Exception):
    """Other plans were made than the one in question, as on a machine that others load."""


class Run:
    """One run in namespaces of its own. `seconds`: until which it lasts, from its first tuple on."""

    def __init__(self, folder: Path, net: SlowNet, rate_tps: float, seconds: float) -> None:
        self.folder, self.net = folder, net
        self.processes: list[subprocess.Popen[bytes]] = []
        keys = folder / "keys"
        self._done("keys", "init", str(keys))
        here = net.address(CONTROLLER)
        vms = ",".join(f"vm{n}=1" for n in range(1, VMS + 1))
        self._start(CONTROLLER, "controller", "run", "--topology", "topology.json", "--models", "models",
                    "--rate", str(rate_tps), "--vms", vms, "--slot-cores", str(SLOT_CORES),
                    "--set", f"slot-memory={MEMORY}", "--set", "mapper=traffic", "--set", f"seconds={seconds}",
                    "--set", f"traffic-triggers=every={BEFORE_S + SETTLES_S:g},first=dsm", "--state-dir", "state",
                    "--trace-dir", "trace", "--path", str(folder), "--keys", str(keys), "--listen", here,
                    "--port", "7001", "--command-port", "7002", "--run", f"online{os.getpid()}")  # fmt: skip
        for n in range(1, VMS + 1):
            key = keys / f"agent.vm{n}.key"
            self._done("keys", "add", "agent", f"vm{n}", "--keys", str(keys))
            self._start(n, "agent", "run", "--controller", f"tcp://{here}:7001", "--vm", f"vm{n}", "--key", str(key),
                        "--slots", "1", "--slot-cores", str(SLOT_CORES), "--slot-memory", str(MEMORY),
                        "--state-dir", f"agent{n}", "--run", f"online{os.getpid()}", "--set", "allow-folders=yes",
                        "--workers-as", "agent", "--listen", net.address(n))  # fmt: skip

    def _done(self, *words: str) -> None:
        subprocess.run([*HEADGATE, *words], cwd=self.folder, check=True, capture_output=True)

    def _start(self, host: int, *words: str) -> None:
        with (self.folder / "log").open("ab") as log:
            line = ["setpriv", "--pdeathsig", "TERM", *self.net.inside(host, *HEADGATE, *words)]
            self.processes.append(
                subprocess.Popen(line, cwd=self.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            )

    def counted(self, until: float) -> list[tuple[float, int]]:
        """(time, bytes that the VMs' devices sent) once a second, until the controller has ended."""
        found = []
        while self.processes[0].poll() is None:
            found.append((time.time(), sum(self.net.sent_bytes(n) for n in range(1, VMS + 1))))
            if time.time() > until:
                raise TimeoutError(f"the run does not end:\n{(self.folder / 'log').read_text()[-3000:]}")
            time.sleep(1.0)
        return found

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            process.wait(20)


def run(profile: str, rate_tps: float, delay_ms: float) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix=f"online-traffic-{os.getpid()}-"))
    seconds = 2 * SETTLES_S + BEFORE_S + SETTLES_S + AFTER_S + 15
    try:
        write(folder, PROFILES[profile])
        with slow_net(VMS + 1, delay_ms, folder / "switch.jsonl") as net:
            begun = Run(folder, net, rate_tps, seconds)
            try:
                counters = begun.counted(time.time() + seconds + 90)
            finally:
                begun.end()
            return {"profile": profile, **told(folder, counters, net.seconds(), delay_ms)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def told(
    folder: Path, counters: list[tuple[float, int]], switch: list[dict[str, Any]], delay_ms: float
) -> dict[str, Any]:
    """Before and after the plan that the trigger made, and what became of the rows."""
    trace = folder / "trace"
    if not (trace / "decisions.jsonl").exists():
        raise Disturbed(f"nothing was decided:\n{(folder / 'log').read_text()[-2000:]}")
    decisions = [json.loads(line) for line in (trace / "decisions.jsonl").read_text().splitlines()]
    plans = [d for d in decisions if d["action"] == "plan"]
    moves = [d for d in plans if d["trigger"] == "traffic_saved"]
    if [d["trigger"] for d in plans] != ["start", "traffic_saved"]:
        raise Disturbed("; ".join(f"{d['trigger']}: {d['text']}" for d in plans))
    at = utc(moves[0]["time"])
    spans = {"before": (at - BEFORE_S, at), "after": (at + SETTLES_S, at + SETTLES_S + AFTER_S)}
    answer: dict[str, Any] = {"move": moves[0]["text"], "slots": [d["plan"]["slots"] for d in plans]}
    for name, span in spans.items():
        answer[name] = {
            "device_bytes_per_s": rate_of(counters, *span),
            "between_vms_bytes_per_s": rate_of([(line["time"], between(line)) for line in switch], *span),
            "latency_ms": latency_ms(trace, *span),
            "delay_ms": statistics.median(
                line["delay_ms"][0]
                for line in switch
                if span[0] <= line["time"] < span[1] and line["delay_ms"][0]
            ),
        }
    worst = max(answer[name]["delay_ms"] for name in spans)
    if worst > 2 * delay_ms:
        raise Disturbed(f"packets took {worst:.1f} ms in the median, {delay_ms:g} were asked for")
    numbers = [int(line) for line in (folder / "rows.jsonl").read_text().split()]
    answer["rows"] = {"distinct": len(set(numbers)), "again": len(numbers) - len(set(numbers))}
    answer["rows"]["lost"] = max(numbers) + 1 - len(set(numbers))
    for what in ("device_bytes_per_s", "between_vms_bytes_per_s", "latency_ms"):
        answer[f"{what}_ratio"] = answer["after"][what] / answer["before"][what]
    evidence = moves[0]["evidence"]["traffic"]
    answer["predicted_ratio"] = 1 - evidence["saved"]
    answer["headgate_bytes_per_s"] = evidence["measured_bytes_per_s"]
    return answer


def between(line: dict[str, Any]) -> int:
    """Bytes from VM to VM so far."""
    return sum(n for way, n in line["bytes"].items() if str(CONTROLLER) not in way and way != "dropped")


def rate_of(points: list[tuple[float, int]], begin: float, end: float) -> float:
    inside = [point for point in points if begin <= point[0] <= end]
    (first, low), (last, high) = inside[0], inside[-1]
    return (high - low) / (last - first)


def latency_ms(trace: Path, begin: float, end: float) -> float:
    """The median of all rows, from the moment they were due."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found: list[tuple[float, float]] = []
    for file in sorted((trace / "latency").glob("*.parquet")):
        table = pq.read_table(file)
        at = [us / 1e6 for us in table["time"].cast(pa.int64()).to_pylist()]
        rows = zip(at, table["latency_s"].to_pylist(), table["tuples"].to_pylist(), strict=True)
        found += [(latency, tuples) for time_s, latency, tuples in rows if begin <= time_s < end]
    half, so_far = sum(tuples for _, tuples in found) / 2, 0.0
    for latency, tuples in sorted(found):
        so_far += tuples
        if so_far >= half:
            return latency * 1000
    raise AssertionError("no latencies in the trace")


def utc(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rate", type=float, default=150.0)
    parser.add_argument("--delay-ms", type=float, default=1.0)
    parser.add_argument("--profile", choices=[*PROFILES], default="even")
    asked = parser.parse_args()
    found: list[dict[str, Any]] = []
    discarded = 0
    while len(found) < asked.runs:
        try:
            found.append(run(asked.profile, asked.rate, asked.delay_ms))
        except Disturbed as error:
            discarded += 1
            print(f"discarded: {error}", file=sys.stderr, flush=True)
            if discarded > 2 * asked.runs:
                raise
            continue
        print(json.dumps(found[-1]), flush=True)
        ratio = found[-1]["device_bytes_per_s_ratio"]
        print(f"run {len(found)} of {asked.runs}: bytes × {ratio:.2f}", file=sys.stderr, flush=True)
    medians = {
        what: statistics.median(one[what] for one in found)
        for what in ("device_bytes_per_s_ratio", "between_vms_bytes_per_s_ratio", "latency_ms_ratio")
    }
    print(
        json.dumps(
            {
                "n": len(found),
                "discarded": discarded,
                **medians,
                "lost": sum(one["rows"]["lost"] for one in found),
            }
        )
    )


if __name__ == "__main__":
    main()
