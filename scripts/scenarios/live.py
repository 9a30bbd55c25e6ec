"""A scenario live: a sender process at its own pace, `headgate up` with real agents and workers, a sink with a clock.

What is counted comes from the sender's clock, the sink's, and the processes there are. Two things are taken from the
run: when a plan was in force and what it is predicted to carry, and how long moved threads paused.
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

from scenarios.course import HEADROOM, Course, note_alarms
from scenarios.shapes import LATE_VM_S, Scenario
from watched_runs.arrivals import HEADGATE, Followed, S, Stage, followed
from watched_runs.trials import ROLES

THREAD_TPS = 10.0  # what a thread is modelled for; it does 12
SPARE_S = 8.0  # of the run, for a sender that begins late
SLOW_VM = "vm2"
WATCH_S = 0.02

WORK = """
class work:
    def open(self, context):
        self.each_s = {each_s} * ({slow} if {vm!r} in context.directory.split("/") else 1)

    def __call__(self, row):
        over, spun = time.monotonic() + self.each_s, time.thread_time() + 0.005
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
    work = WORK.format(each_s=1 / (1.2 * THREAD_TPS), slow=2 if slow else 1, vm=SLOW_VM)
    models = {"work": (THREAD_TPS * scenario.model, 0.75), "store": (1000.0, 0.1)}
    late = scenario.machines == "late"
    options = ("--max-vms", "3") if late else ()
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
    plans = in_force(run)
    peak_tps = max(rates)
    course = Course(
        seconds,
        came,
        [(max(0.0, (at_ns - begin_ns) / S), tps / scenario.model) for at_ns, tps, _ in plans],
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
    """The row that `headgate shadow` has for the run itself."""
    words = [*HEADGATE, "shadow", str(trace), "--policy", "controller", "-o", "json"]
    found = json.loads(subprocess.run(words, capture_output=True, check=True, timeout=120).stdout)
    rows: list[dict[str, Any]] = found["policies"]
    return rows


def in_force(run: Followed) -> list[tuple[int, float, float]]:
    """(UTC ns from which, tuples/s that it is predicted to carry, pause in ms) of each plan that came into force."""
    decided = iter([d for d in run.decisions() if d["action"] == "plan"])
    found: list[tuple[int, float, float]] = []
    for plan in run.summary["plans"]:
        decision: dict[str, Any] = next(
            d for d in decided if abs(d["plan"]["rate_tps"] - plan["rate_tps"]) < 0.01
        )
        if plan["in_force"]:
            at_s = datetime.fromisoformat(decision["time"]).timestamp() + plan["enacted_s"]
            found.append((int(at_s * S), decision["plan"]["predicted_tps"], plan["pause_ms"]))
    return found
