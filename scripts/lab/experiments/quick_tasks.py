"""Peaks of quick tasks: predicted from models that are measured as a user measures them, against what slots carry.

    .venv/bin/python -P -m headgate.lab.experiments.quick_tasks --models DIR --output FILE.jsonl [--cells 0::4]

96 cells: tasks that take 1, 10 or 100 µs of CPU for a row by construction (by their thread's clock; of 1 µs a loop
whose rounds are calibrated first), slots of 0.12 to 1 core by CPU quota, 1 to 8 threads that send into the slot, two
such tasks in it one after the other, each by its thread or the second run by the first (chained). Models are measured
as `up --measure first` does, one for each cost and size of slot, and kept in DIR. A cell offers more than the slot
takes for a moment, and then by the clock what was done then, with the settings of a run: what is done is the peak. A
JSON line for each cell; those that FILE has are not run again. The last line: how many peaks are within 15 %.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from headgate.controller.files.planning_inputs import read_models
from headgate.controller.models.plans import Bundle, Placement
from headgate.controller.models.task_models import peak_rate
from headgate.controller.plan.predict.prediction import predict
from headgate.lab.predictions.prediction_scores import at_speed
from headgate.lab.predictions.trial_predictions import lines
from headgate.topology_runtime.api.builder import topology
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.logic import Source, no_side_effects
from headgate.topology_runtime.api.topology import Static, Topology
from headgate.topology_runtime.measuring.bench import START_S, WatchedRig, cpu_s_of
from headgate.topology_runtime.measuring.bench_trials import OfferedLoad
from headgate.topology_runtime.measuring.machine_speed import Reference
from headgate.topology_runtime.measuring.measuring_slots import Awake, Quotas
from headgate.topology_runtime.wire.messages import DataPlaneSettings
from headgate.topology_runtime.wire.run_options import FRAME_ROWS
from headgate.topology_runtime.worker.meters import meter as mt

COSTS_US, SLOTS, SENDERS = (1, 10, 100), (0.12, 0.25, 0.5, 1.0), (1, 2, 4, 8)
CHAINED = (False, True)
WITHIN = 0.15
LEAST_US = 5  # a thread's clock takes some tenths of one
OVERLOAD_TPS, OVERLOAD_S = 2e6, 1.0
SETTLE_S, MEMORY = (1.0, 4.0), 512 << 20
FEEDER, SLOT = 0, 1  # numbers of the workers
Row = tuple[int, int]


class Numbers(Source):
    """Rows without end."""

    def read(self, position: int, limit: int) -> list[Row]:
        return [(n, n % 17) for n in range(position, position + limit)]


def burn(row: Row, us: int, rounds: int) -> Row:
    """So many µs of this thread's CPU by its clock; too few for that clock: so many rounds of a loop."""
    if us < LEAST_US:
        for _ in range(rounds):
            pass
        return row
    end_ns = time.thread_time_ns() + 1000 * us
    while time.thread_time_ns() < end_ns:
        pass
    return row


@no_side_effects
def nothing(row: Any) -> None:
    """A sink."""


@dataclass(frozen=True)
class Cell:
    cost_us: int
    cores: float
    senders: int
    chained: bool

    @property
    def name(self) -> str:
        return f"{self.cost_us} us, {self.cores:g} cores, {self.senders} senders{', chained' * self.chained}"


def cells() -> list[Cell]:
    return [Cell(*of) for of in product(COSTS_US, SLOTS, SENDERS, CHAINED)]


# ── What a row costs by construction ────────────────────────────────────────────────────────────────────


def rounds_of(cost_us: float) -> int:
    """Rounds of the loop of which a call takes that long: by two sizes, each the least of many calls."""
    few, many = 10, 4000
    few_s, many_s = (min(_call_s(n) for _ in range(50)) for n in (few, many))
    round_s = (many_s - few_s) / (many - few)
    return max(0, round((cost_us * 1e-6 - (few_s - few * round_s)) / round_s))


def _call_s(rounds: int) -> float:
    row, calls = (0, 0), 20
    began = time.thread_time_ns()
    for _ in range(calls):
        burn(row, 0, rounds)
    return (time.thread_time_ns() - began) / calls / 1e9


def flow(cell: Cell, rounds: int) -> Topology:
    built, here = topology("quick"), Static(cell.senders, 0.0, 0.0)
    costs: dict[str, Any] = {"us": cell.cost_us, "rounds": rounds, "model": "burn"}
    (
        built.source("numbers", Numbers, static=here)
        >> built.task("first", burn, **costs)
        >> built.task("second", burn, **costs)
        >> built.task("sink", nothing, static=Static(1, 0.0, 0.0))
    )
    return built.build()


# ── Models, as a user gets them ─────────────────────────────────────────────────────────────────────────


def models_of(cell: Cell, rounds: int, folder: Path) -> Path:
    """The folder of this cost's model in slots of that size; measured where it is not there, as before a first run."""
    from headgate.topology_runtime.measuring.calibrate import DERATE, SECONDS
    from headgate.topology_runtime.measuring.profile_steps import QUICK
    from headgate.topology_runtime.measuring.task_profile import ProfileRequest, profile

    place = folder / f"{cell.cost_us}us-{cell.cores:g}"
    if not (place / "burn.json").exists():
        asked = flow(cell, rounds)
        task = asked.by_name["first"]
        wish = msgspec.structs.replace(QUICK, derate=DERATE)
        request = ProfileRequest(asked, (task,), (), place, cell.cores, MEMORY, wish, SECONDS)
        (found,) = profile(request, lambda record, step: None)
        if found.failed is not None:
            raise found.failed
    return place


# ── One cell ────────────────────────────────────────────────────────────────────────────────────────────


class Loaded(WatchedRig):
    """The two tasks in their slot; senders and the sink beside it, in a worker that nothing limits."""

    def __init__(self, cell: Cell, rounds: int, each_tps: float, peak_tps: float, folder: str) -> None:
        places = {"numbers": [FEEDER] * cell.senders, "first": [SLOT], "second": [SLOT], "sink": [FEEDER]}
        per_source = peak_tps / cell.senders
        modelled = {"numbers": per_source, "first": each_tps, "second": each_tps}
        settings = DataPlaneSettings(frame_rows=FRAME_ROWS)
        super().__init__(flow(cell, rounds), places, folder, (), settings, modelled)
        self.chained = ("first", "second") if cell.chained else ()

    def begin(self, quotas: Quotas, cores: float) -> None:
        for slot in (FEEDER, SLOT):
            self.spawn(slot)
        self.until(lambda: all(w.endpoint for w in self._workers.values()), START_S, "start its workers")
        self.send("prepared")
        self.until(self.ready, START_S, "build its objects")
        quotas.bind(self.pid_of(SLOT), "quick", cores, SLOT)

    def done(self) -> int:
        return self.count("sink")

    def look_now(self) -> dict[str, float]:
        counts = {f"{task}_frames": self.count(task, mt.FRAMES_IN) for task in ("first", "second", "sink")}
        cpu = {"slot_s": cpu_s_of(self.pid_of(SLOT)), "feeder_s": cpu_s_of(self.pid_of(FEEDER))}
        return {"at_s": time.monotonic(), "rows": self.done(), **counts, **cpu}

    def carried(self, rate_tps: float, settle_s: float, seconds: float) -> dict[str, float]:
        """What is done when so much is offered, after a while."""
        OfferedLoad(self, rate_tps)
        self.until(lambda: self.done() > 0, START_S, "finish a row")
        self.watch(settle_s)
        before = self.look_now()
        self.watch(seconds)
        after = self.look_now()
        past_s = after["at_s"] - before["at_s"]
        return {name: (after[name] - before[name]) / past_s for name in after if name != "at_s"}


def run(cell: Cell, rounds: int, models: Path, seconds: float) -> dict[str, Any]:
    """Predicted and measured peak of a cell, and what its slot did meanwhile."""
    known = read_models(models)
    here, beside = Slot("vm1", 0), Slot("vm2", 0)
    threads = {
        "numbers": (beside, cell.senders),
        "first": (here, 1),
        "second": (here, 1),
        "sink": (beside, 1),
    }
    placement = Placement(tuple(Bundle(slot, task, count) for task, (slot, count) in threads.items()))
    vms = Vm("vm1", 1, slot_cores=cell.cores), Vm("vm2", 1)
    modelled = predict(flow(cell, rounds), known, placement, vms).rate_tps
    quotas = Quotas()
    try:
        with tempfile.TemporaryDirectory() as folder, Awake(), Reference(quotas) as reference:
            bench = Loaded(cell, rounds, peak_rate(known["burn"], 1), modelled, folder)
            try:
                bench.begin(quotas, cell.cores)
                most = bench.carried(OVERLOAD_TPS, SETTLE_S[0], OVERLOAD_S)
                with reference.meter() as meter:
                    paced = bench.carried(most["rows"], SETTLE_S[1], seconds)
            finally:
                bench.end()
    finally:
        quotas.remove()
    now = {name: at_speed(model, meter.rounds_per_s) for name, model in known.items()}
    predicted = predict(flow(cell, rounds), now, placement, vms).rate_tps
    told = {name: float(f"{paced[name]:.4g}") for name in paced}
    errors = [round(tps / paced["rows"] - 1, 3) for tps in (modelled, predicted)]
    return {"cell": cell.name, "predicted_tps": round(modelled), "measured_tps": round(paced["rows"]),
            "error": errors[0], "error_at_speed": errors[1], "overload_tps": round(most["rows"]), "paced": told,
            "load": round(os.getloadavg()[0], 1)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--cells", default="0::1", help="which of the 96, as a slice: 0::5")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument(
        "--budget", type=float, default=float("inf"), help="begin no cell after so many seconds"
    )
    asked = parser.parse_args()
    rounds, end_s = rounds_kept(asked.models), time.monotonic() + asked.budget
    chosen = cells()[slice(*(int(part) if part else None for part in asked.cells.split(":")))]
    done = {line["cell"]: line for line in lines(asked.output)}
    for cell in chosen:
        if cell.name in done or time.monotonic() > end_s:
            continue
        done[cell.name] = run(cell, rounds, models_of(cell, rounds, asked.models), asked.seconds)
        with asked.output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(done[cell.name], allow_nan=False) + "\n")
        print(json.dumps(done[cell.name]), file=sys.stderr, flush=True)
    print(json.dumps(summary(list(done.values()))))


def rounds_kept(folder: Path) -> int:
    """Of 1 µs: those that the models in the folder were measured with, else found now."""
    file = folder / "rounds.json"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(rounds_of(1.0)))
    return int(json.loads(file.read_text()))


def summary(done: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """In how many the predicted peak is within 15 % of the measured one."""
    errors = [abs(line["error"]) for line in done]
    close = sum(error <= WITHIN for error in errors)
    return {"cells": len(errors), "within 15 %": close, "median error": statistics.median(errors or [0.0])}


if __name__ == "__main__":
    main()
