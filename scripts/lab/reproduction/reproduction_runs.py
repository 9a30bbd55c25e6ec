"""One cell as a real run of `headgate up`: the plan is given and held, the rate led up a stair, the trace kept."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import msgspec
import pyarrow.parquet as pq
from msgspec.structs import replace

from headgate.controller.models.plan_data import plan_data
from headgate.controller.models.plans import Plan
from headgate.dashboards.runs.connection import contact_of
from headgate.lab.reproduction.rate_stair import Pace, Stair
from headgate.topology_runtime.api.topology import Topology, document_of
from headgate.topology_runtime.errors import Conflict, HeadgateError, InvalidInput, Unreachable
from headgate.topology_runtime.keys.key_pairs import Contact
from headgate.topology_runtime.measuring.machine_speed import Reference
from headgate.topology_runtime.measuring.measuring_slots import Awake, Quotas
from headgate.topology_runtime.wire.channels import ask
from headgate.topology_runtime.wire.messages import Request

START_S, ANSWER_S, END_S = 40.0, 5.0, 45.0
LOOK_S = 0.1
SPARE_S = 60.0  # a run whose leader was killed ends by itself so long after the stair's longest
STEPS = "steps.json"  # in the trace: what the analysis takes apart
STEPS_SCHEMA = "headgate/steps/v1"


@dataclass(frozen=True)
class Place:
    """Where runs are: `work` holds state and traces, `models` the folder of models."""

    work: Path
    models: Path

    @property
    def traces(self) -> Path:
        return self.work / "traces"


def run(place: Place, name: str, topology: Topology, plan: Plan, pace: Pace) -> dict[str, Any]:
    """What came of it: steps, trace, tuples, how fast the machine was meanwhile. `name`: of the log. Raises
    HeadgateError."""
    prepare(place, topology, plan)
    stair = Stair(plan.prediction.rate_tps, pace)
    load = os.getloadavg()[0]
    quotas = Quotas()
    try:
        with Awake(), Reference(quotas) as reference, Up(place, name, plan, stair, pace) as up:
            speed_of = reference.speed_of
            began, speeds = lead(up, stair, reference)
            summary = up.end()
    finally:
        quotas.remove()
    trace = Path(summary["trace"])
    steps = [asdict(step) | {"speed": speed} for step, speed in zip(stair.steps, speeds, strict=True)]
    write_steps(trace, began, steps)
    return {
        "trace": str(trace.relative_to(place.work)),
        "seconds": summary["seconds"],
        "steps": steps,
        "tuples": summary["tuples"],
        "latency_ms": summary["latency_ms"],
        "speed_of": speed_of,
        "load_before": load,
        "bounded": bool(stair.steps) and not stair.steps[-1].keeps_up,
    }


def prepare(place: Place, topology: Topology, plan: Plan) -> None:
    """An empty folder for the run's state, with what `Up` gives it."""
    state = place.work / "state"
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir(parents=True)
    (state / "topology.json").write_bytes(msgspec.json.encode(document_of(topology)))
    (state / "plan.json").write_text(json.dumps(plan_data(plan), allow_nan=False), "utf-8")


def write_steps(trace: Path, began_s: float, steps: list[dict[str, Any]]) -> None:
    """Times in seconds since 1970 UTC."""
    rows = [
        {"from_s": began_s + step["from_s"], "to_s": began_s + step["to_s"], "offered_tps": step["rate_tps"]}
        for step in steps
    ]
    (trace / STEPS).write_text(json.dumps({"schema": STEPS_SCHEMA, "steps": rows}, allow_nan=False), "utf-8")


def lead(up: Up, stair: Stair, reference: Reference) -> tuple[float, list[float]]:
    """Up the stair to its end; when it began, seconds since 1970, and how fast the machine was in each step. Raises
    HeadgateError when the run ends first."""
    status = up.until_done_something()
    began_s, speeds = time.time() - status["seconds"], list[float]()
    while not stair.over:
        with reference.meter() as meter:
            status = one_step(up, stair, status)
        if len(stair.steps) > len(speeds):
            speeds.append(meter.rounds_per_s)
    return began_s, speeds


def one_step(up: Up, stair: Stair, status: dict[str, Any]) -> dict[str, Any]:
    """Until the stair has one step more, or is over; the last status."""
    done = len(stair.steps)
    while not stair.over and len(stair.steps) == done:
        counts = status["tuples"]
        rate_tps = stair.look(status["seconds"], counts["offered"], counts["acked"])
        if rate_tps is not None:
            asked(up, Request("rate_set", {"rate_tps": rate_tps}))
        time.sleep(LOOK_S)
        up.check()
        status = asked(up, Request("status"))
    return status


def asked(up: Up, request: Request) -> dict[str, Any]:
    """The controller's answer. Raises HeadgateError when it refuses or has ended."""
    try:
        reply = ask(up.commands, request, ANSWER_S)
    except Unreachable:
        up.check()
        raise
    if reply.error is not None:
        raise HeadgateError(f"{request.command} was refused: {reply.error[2]}", cause=reply.error[3])
    found: dict[str, Any] = reply.data
    return found


class Up:
    """`headgate up` as a child in a process group of its own, so that Ctrl-C reaches us alone."""

    def __init__(self, place: Place, name: str, plan: Plan, stair: Stair, pace: Pace) -> None:
        self.log = place.work / "logs" / f"{name}.log"
        state = place.work / "state"
        self._state = state / "run"
        self._process: subprocess.Popen[bytes] | None = None
        slot = plan.vms[0]
        self._command = [
            *(
                sys.executable,
                "-P",
                "-m",
                "headgate",
                "up",
                str(state / "topology.json"),
            ),
            *("--plan", str(state / "plan.json"), "--models", str(place.models)),
            *("--vms", ",".join(str(vm.slots) for vm in plan.vms)),
            *("--slot-cores", f"{slot.slot_cores:g}", "--set", f"slot-memory={slot.slot_memory_bytes}"),
            *("--rates", f"{stair.rate_tps:.6g}", "--seconds", f"{pace.longest_s + SPARE_S:g}"),
            *("--state-dir", str(self._state), "--trace-dir", str(place.traces), "--set", "trace-keep=all"),
            *("-o", "json"),
        ]

    def __enter__(self) -> Up:
        self.log.parent.mkdir(exist_ok=True)
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, process_group=0
            )
        try:
            self.commands = self._endpoint()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        for number, patience_s in ((signal.SIGINT, 1.0), (signal.SIGINT, 10.0), (signal.SIGKILL, 10.0)):
            process.send_signal(number)
            try:
                process.communicate(timeout=patience_s)
                return
            except subprocess.TimeoutExpired:
                continue

    def end(self) -> dict[str, Any]:
        """Let it finish what is in flight; its summary."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        try:
            out, _ = self._process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired as error:
            raise HeadgateError(f"the run did not end within {END_S:g} s", hint=str(self.log)) from error
        if self._process.returncode != 0:
            raise self._failed()
        summary: dict[str, Any] = json.loads(out)
        return summary

    def check(self) -> None:
        """Raises HeadgateError when it has ended."""
        if self._process is not None and self._process.poll() is not None:
            raise self._failed()

    def until_done_something(self) -> dict[str, Any]:
        """The status with the first tuples that are done. Raises HeadgateError when there is none in time."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            self.check()
            status = asked(self, Request("status"))
            if status["tuples"]["acked"]:
                return status
            time.sleep(LOOK_S)
        raise Unreachable(f"no row was done within {START_S:g} s", hint=str(self.log))

    def _failed(self) -> HeadgateError:
        code = self._process.returncode if self._process else None
        lines = self.log.read_text("utf-8", "replace").splitlines()[-8:]
        return HeadgateError(
            f"the run ended with exit code {code}", cause="\n  ".join(lines), hint=str(self.log)
        )

    def _endpoint(self) -> Contact:
        """Where the controller takes commands, once it does."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            self.check()
            try:
                return contact_of(str(self._state))
            except Unreachable:
                time.sleep(LOOK_S)
        raise Unreachable(f"the controller was not there within {START_S:g} s", hint=str(self.log))


# ── What source and sink of a topology use of a slot, in proportion to their rate: measured once, in a run
#
# The paper reserves 10 % of a slot for each. Here slots are a fifth of a core, and a source or a sink may
# need half of one. Alone in an idle slot it needs most, as every row wakes it; so it is watched where it will
# be, among other threads: a plan by MBA+DSM at four fifths of the rate it is predicted to carry. Its part:
# the CPU of its own threads, and of what the worker does besides for all of them as much as it has of the
# slot's rows, in and out.

Rows = Sequence[Mapping[str, Any]]
Key = tuple[str, int, str]  # VM, slot, task

PART = 0.8  # of the predicted rate
SETTLE_S, WATCH_S = 4.0, 8.0
LATE_S = 1.2  # samples are on their way so long


def with_ends(topology: Topology, ends: Mapping[str, float]) -> Topology:
    """The topology whose tasks of fixed size declare what was measured; `ends`: task → CPU of a slot per row/s."""
    tasks = [
        replace(task, static=replace(task.static, cpu=0.0, cpu_per_tps=ends[task.name]))
        if task.static
        else task
        for task in topology.tasks
    ]
    return replace(topology, tasks=tuple(tasks))


def measured(place: Place, topology: Topology, plan: Plan) -> dict[str, float]:
    """Task of fixed size → CPU of a slot for each of its rows/s. Raises HeadgateError."""
    rate_tps = PART * plan.prediction.rate_tps
    trace, window = _run(place, topology, plan, rate_tps)
    fixed = [task.name for task in topology.tasks if task.static]
    return parts(
        _rows(trace, "samples", window), _rows(trace, "slots", window), fixed, plan.vms[0].slot_cores
    )


def parts(samples: Rows, slots: Rows, fixed: Sequence[str], slot_cores: float) -> dict[str, float]:
    """From samples of threads and slots (see the contract's trace) of the same seconds. A row of a task: taken in,
    or put out where it takes none in."""
    own: dict[Key, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])  # seconds of CPU, rows in, rows out
    windows: dict[Key, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for row in samples:
        key = row["vm"], row["slot"], row["task"]
        for place, name in enumerate(("cpu_s", "tuples_in", "tuples_out")):
            own[key][place] += row[name]
        windows[key][row["thread"]] += row["window_s"]
    used = {key: mean(row["cpu"] for row in slots if (row["vm"], row["slot"]) == key[:2]) for key in own}
    rates = {key: [value / max(windows[key].values()) for value in values] for key, values in own.items()}
    found = {}
    for key, (cpu, rows_in, rows_out) in rates.items():
        if key[2] not in fixed:
            continue
        here = [values for other, values in rates.items() if other[:2] == key[:2]]
        besides = max(0.0, used[key] * slot_cores - sum(values[0] for values in here))
        part = (rows_in + rows_out) / sum(values[1] + values[2] for values in here)
        found[key[2]] = round((cpu + besides * part) / slot_cores / (rows_in or rows_out), 6)
    return found


def _run(place: Place, topology: Topology, plan: Plan, rate_tps: float) -> tuple[Path, tuple[float, float]]:
    """(its trace, from when to when it was watched, seconds since 1970)."""
    prepare(place, topology, plan)
    stair = Stair(rate_tps, Pace(first=1.0))
    with Awake(), Up(place, f"ends-{topology.name}", plan, stair, Pace()) as up:
        up.until_done_something()
        time.sleep(SETTLE_S)
        began = time.time()
        time.sleep(WATCH_S)
        window = began, time.time()
        up.check()
        time.sleep(LATE_S)
        return Path(up.end()["trace"]), window


def _rows(trace: Path, table: str, window: tuple[float, float]) -> list[dict[str, Any]]:
    """Rows of a table whose own windows lie within that time."""
    from_s, to_s = window
    rows = [
        row for file in sorted((trace / table).glob("*.parquet")) for row in pq.read_table(file).to_pylist()
    ]
    ends = [(row, row["time"].timestamp()) for row in rows]
    return [row for row, end_s in ends if end_s - row["window_s"] >= from_s and end_s <= to_s]


# ── What was run so far: one line per cell, so that a run which was killed goes on at the next one ──────

SCHEMA = "headgate/reproduction-cells/v1"

Record = dict[str, Any]


class Store:
    """`WORK/cells.jsonl`: first the settings, then the cells; of one key the last line counts."""

    def __init__(self, work: Path, settings: Record) -> None:
        """Raises InvalidInput when what is there was run with other settings, or is damaged in its middle."""
        self.file = work / "cells.jsonl"
        self.records: dict[str, Record] = {}
        head = {"schema": SCHEMA, "settings": json.loads(json.dumps(settings))}
        lines = self._lines()
        if not lines:
            work.mkdir(parents=True, exist_ok=True)
            self.file.write_text(json.dumps(head) + "\n", "utf-8")
            return
        differs = _differences(lines[0].get("settings") or {}, head["settings"])
        if lines[0].get("schema") != SCHEMA or differs:
            raise InvalidInput(
                f"{self.file} is of another experiment",
                faults=differs,
                hint="--work another folder, or delete this one",
            )
        self.records = {line["key"]: line for line in lines[1:]}

    def add(self, record: Record) -> None:
        self.records[record["key"]] = record
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, allow_nan=False) + "\n")

    def is_done(self, key: str) -> bool:
        """What failed is tried again."""
        return key in self.records and not self.records[key].get("failed")

    def _lines(self) -> list[Record]:
        """A last line that was cut off is cut away."""
        try:
            content = self.file.read_bytes()
        except FileNotFoundError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            self.file.write_bytes(whole)
        lines = []
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                lines.append(json.loads(line))
            except ValueError as error:
                raise InvalidInput(f"{self.file}: line {number} is no JSON", cause=str(error)) from error
        return lines


def _differences(there: Record, wanted: Record) -> list[str]:
    names = dict.fromkeys((*there, *wanted))
    return [
        f"{name}: {there.get(name)!r} there, {wanted.get(name)!r} now"
        for name in names
        if there.get(name) != wanted.get(name)
    ]


@contextmanager
def alone_in(work: Path) -> Iterator[None]:
    """Raises Conflict when another one works in this folder."""
    work.mkdir(parents=True, exist_ok=True)
    with (work / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Conflict(
                f"another reproduction runs in {work}", hint="wait, or --work elsewhere"
            ) from error
        yield
