"""One cell as a real run of `headgate up`: the plan is given and held, the rate led up a stair, the trace kept."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from experiments.reproducing.stair import Pace, Stair
from headgate.controller.knowledge.plan_data import plan_data
from headgate.controller.knowledge.plans import Plan
from headgate.dashboards.terminal.connection import contact_of
from headgate.topology_runtime.calibration.awake import Awake
from headgate.topology_runtime.calibration.quota import Quotas
from headgate.topology_runtime.calibration.speed import Reference
from headgate.topology_runtime.channels import ask
from headgate.topology_runtime.errors import HeadgateError, Unreachable
from headgate.topology_runtime.keys.pairs import Contact
from headgate.topology_runtime.messages import Request
from headgate.topology_runtime.reading import document_of
from headgate.topology_runtime.topology import Topology

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
            *(sys.executable, "-P", "-m", "headgate.dashboards.cli", "up", str(state / "topology.json")),
            *("--plan", str(state / "plan.json"), "--models", str(place.models)),
            *("--vms", ",".join(str(vm.slots) for vm in plan.vms)),
            *("--slot-cores", f"{slot.slot_cores:g}", "--slot-memory", str(slot.slot_memory_bytes)),
            *("--rates", f"{stair.rate_tps:.6g}", "--seconds", f"{pace.longest_s + SPARE_S:g}"),
            *("--state-dir", str(self._state), "--trace-dir", str(place.traces), "--trace-keep", "all"),
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
        raise Unreachable(f"no tuple was done within {START_S:g} s", hint=str(self.log))

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
