"""A scenario live: a sender process at its own pace, `headgate up` with real agents and workers, a sink with a clock.

What is counted comes from the sender's clock, the sink's, and the processes there are. Two things are taken from the
run: when a plan with how many threads was in force, and how long moved threads paused.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from itertools import groupby
from math import ceil
from pathlib import Path
from typing import Any

import psutil

from scenarios.scenario_course import HEADROOM, Course, note_alarms
from scenarios.scenario_shapes import LATE_VM_S, Scenario
from watched_runs.arrivals import HEADGATE, Followed, S, Stage, followed
from watched_runs.trials import ROLES

THREAD_TPS, TRUE_TPS = 10.0, 12.0  # what a thread is modelled for, and what it does
WORK_CPU, SLOT_CORES = 0.7, 0.12  # of its slot; its slots
SPARE_S = 8.0  # of the run, for a sender that begins late
SLOW_VM = "vm2"
WATCH_S = 0.02

WORK = """
class work:
    def open(self, context):
        times = {slow} if {vm!r} in context.directory.split("/") else 1
        self.each_s, self.cpu_s = times * {each_s}, times * {cpu_s}

    def __call__(self, row):
        over, spun = time.monotonic() + self.each_s, time.thread_time() + self.cpu_s
        while time.thread_time() < spun:
            pass
        time.sleep(max(0.0, over - time.monotonic()))
        return row
"""


class Machines:
    """The processes of a run: how many workers there are, and VMs that are held up on their way."""

    def __init__(self, late_s: float) -> None:
        self.late_s = late_s
        self.workers: list[tuple[int, int]] = []  # (UTC ns, how many)
        self.loads: list[float] = []
        self.came: list[str] = []  # VMs that were held up
        self.used: set[int] = set()  # of these, by their place, those that had workers
        self._agents: dict[int, int] = {}  # process → place in `came`
        self._stopped: dict[int, float] = {}
        self._known: set[int] | None = None
        self._lock = threading.Lock()

    def look(self, pid: int, folder: Path) -> None:
        self.loads.append(os.getloadavg()[0])
        there = 0
        with suppress(psutil.Error):
            for child in psutil.Process(pid).children(recursive=True):
                with suppress(psutil.Error):
                    if ROLES["worker"] in " ".join(child.cmdline()):
                        there += 1
                        parents = {parent.pid for parent in child.parents()}
                        self.used |= {self._agents[agent] for agent in parents & self._agents.keys()}
        self.workers.append((time.time_ns(), there))

    def hold_up(self, folder: Path, over: threading.Event) -> None:
        """Stop the agent of each VM that is asked for once the run goes on, before it can say a word."""
        while not over.wait(WATCH_S):
            self._hold_up(folder)
        for pid in list(self._stopped):
            self._go_on(pid)

    def _hold_up(self, folder: Path) -> None:
        running = {}
        for path in (folder / "state/machines").glob("*.running"):
            with suppress(OSError, ValueError):
                running[int(path.read_text())] = path.stem
        if self._known is None:
            log = folder / "log.txt"
            if log.exists() and "plan 1 is in force" in log.read_text():
                self._known = set(running)
            return
        for pid in running.keys() - self._known:
            self._known.add(pid)
            with suppress(psutil.Error):
                psutil.Process(pid).suspend()
                self._stopped[pid] = time.monotonic() + self.late_s
                self._agents[pid] = len(self.came)
                self.came.append(running[pid])
        for pid in [pid for pid, until_s in self._stopped.items() if time.monotonic() >= until_s]:
            self._go_on(pid)

    def _go_on(self, pid: int) -> None:
        del self._stopped[pid]
        with suppress(psutil.Error):
            psutil.Process(pid).resume()


def tried(scenario: Scenario, seconds: int) -> Course:
    """Its course. Raises RuntimeError with the run's log when the run fails."""
    rates = [max(1.0, round(rate)) for rate in scenario.rates(True, seconds)]
    steps = [(tps, float(len(list(same)))) for tps, same in groupby(rates)]
    machines, over = Machines(LATE_VM_S), threading.Event()
    slow = scenario.machines == "slow"
    work = WORK.format(
        each_s=1 / TRUE_TPS, cpu_s=WORK_CPU * SLOT_CORES / THREAD_TPS, slow=2 if slow else 1, vm=SLOW_VM
    )
    models = {"work": (THREAD_TPS * scenario.model, WORK_CPU), "store": (1000.0, 0.1)}
    late = scenario.machines == "late"
    options = ("--slot-cores", f"{SLOT_CORES:g}", *(("--max-vms", "3") if late else ()))
    with tempfile.TemporaryDirectory(prefix="headgate-scenario-") as name:
        folder = Path(name)
        watch = threading.Thread(target=machines.hold_up, args=(folder, over))
        if late:
            watch.start()
        try:
            stage = Stage(work, models, options, machines.look)
            run = followed(folder, steps, seconds + SPARE_S, "4" if late else "4,4,4", stage)
        finally:
            over.set()
            if late:
                watch.join()
        return course_of(run, rates, machines, scenario)


def course_of(run: Followed, rates: Sequence[float], machines: Machines, scenario: Scenario) -> Course:
    begin_ns, end_ns = run.sent[0], run.sent[-1]
    seconds = (end_ns - begin_ns) / S
    came = [0.0] * ceil(seconds + 1e-9)
    for at_ns in run.sent:
        came[min(len(came) - 1, (at_ns - begin_ns) // S)] += 1
    plans = in_force(run, scenario)
    peak_tps = max(rates)
    course = Course(
        seconds,
        came,
        [(max(0.0, (at_ns - begin_ns) / S), tps) for at_ns, tps, _ in plans],
        [(max(0.0, (at_ns - begin_ns) / S), float(many)) for at_ns, many in machines.workers],
        [((stored - sent) / S, 1.0) for _, sent, stored in run.stored],
        ceil(round(peak_tps * HEADROOM / THREAD_TPS, 6)),
        plans_s=[plan["at_s"] for plan in run.summary["plans"][1:]],
        lost=len(run.sent) - len({row for row, _, _ in run.stored}),
        pauses_ms=[pause_ms for _, _, pause_ms in plans[1:]],
        load=round(statistics.mean(machines.loads), 1) if machines.loads else None,
    )
    course.beside = told(run.trace)
    for asked_ns, status in run.looks:
        note_alarms(course.alarms, {one["what"] for one in status["alarms"]}, (asked_ns - begin_ns) / S)
    if machines.came:
        course.note = f"VMs used {len(machines.used)} of {len(machines.came)} times"
    return course


def told(trace: Path) -> list[dict[str, Any]]:
    """The row that `headgate lab shadow` has for the run itself."""
    words = [*HEADGATE, "lab", "shadow", str(trace), "--policy", "controller", "-o", "json"]
    found = json.loads(subprocess.run(words, capture_output=True, check=True, timeout=120).stdout)
    rows: list[dict[str, Any]] = found["policies"]
    return rows


def in_force(run: Followed, scenario: Scenario) -> list[tuple[int, float, float]]:
    """(UTC ns from which, rows/s that it truly carries, pause in ms) of each plan that came into force."""
    whole = {
        plan["id"]: plan for plan in map(whole_plan, (run.trace / "plans.jsonl").read_text().splitlines())
    }
    decided = [d for d in run.decisions() if d["plan"] and d["action"] == "plan"]
    times = {id(d): datetime.fromisoformat(d["time"]).timestamp() for d in decided}
    plans = run.summary["plans"]
    first = next((plan for plan in plans[1:] if of_rate(decided, plan)), None)
    began_s = times[id(of_rate(decided, first)[0])] - first["at_s"] if first is not None else 0.0
    found = []
    for plan in plans:
        if plan["in_force"] and (same := of_rate(decided, plan)):
            at_s = began_s + plan["at_s"] + plan["enacted_s"] if found else 0.0
            found.append((int(at_s * S), carries(whole[same[0]["plan"]["id"]], scenario), plan["pause_ms"]))
    return found


def whole_plan(line: str) -> dict[str, Any]:
    plan: dict[str, Any] = json.loads(line)["plan"]
    return plan


def of_rate(decided: Sequence[dict[str, Any]], plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Decisions for this plan's rate; one that was taken back comes again without one of its own."""
    return [d for d in decided if abs(d["plan"]["rate_tps"] - plan["rate_tps"]) < 0.01]


def carries(plan: dict[str, Any], scenario: Scenario) -> float:
    """Its threads have equal shares of the rows; the slowest says how many there can be."""
    threads = [(bundle["vm"], bundle["threads"].get("work", 0)) for bundle in plan["placement"]]
    slow = scenario.machines == "slow" and any(many for vm, many in threads if vm == SLOW_VM)
    return sum(many for _, many in threads) * TRUE_TPS * (0.5 if slow else 1.0)
