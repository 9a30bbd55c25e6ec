"""Does a placement carry what was predicted? Trials of whole topologies in real slots.

    python -m headgate.lab.predictions.trial_predictions run --models DIR --output FILE.jsonl   (resumable)
    python -m headgate.lab.predictions.trial_predictions table FILE.jsonl --models DIR   (the table for the docs)

For each shape and routing: placements by MBA+SAM, MBA+DSM and LSA+DSM and at random, for rates that span a
factor of four. The rate a placement carries is found without its prediction: a closed loop tells about where
it is, open-loop trials with the stability test bracket it to 5 %.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from headgate.controller.files.planning_inputs import read_models
from headgate.controller.models.plans import Bundle, Placement
from headgate.controller.models.task_models import Model, peak_rate
from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.controller.plan.predict.prediction import predict
from headgate.lab.predictions.placed_threads import Placed, PlacedCounts, Use
from headgate.lab.predictions.prediction_scores import check_speeds, scored, table
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.loading import load
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import HeadgateError, Infeasible
from headgate.topology_runtime.measuring.bench_trials import TrialResult, run_trial
from headgate.topology_runtime.measuring.machine_speed import Reference
from headgate.topology_runtime.measuring.measuring_slots import Awake, Quotas

SHAPES = ("linear", "diamond", "star")
PAIRS = (("mba", "sam"), ("mba", "dsm"), ("lsa", "dsm"))
SPAN = 4.0  # between the lowest and the highest rate
CLOSED_S, SETTLE_S, LONGEST_S = 5.0, 4.0, 20.0
ROWS_LEAST = 50  # of a closed loop, within LONGEST_S
FIRST, UP, DOWN, CLOSE = 0.95, 1.06, 0.85, 1.06
TRIALS, TRIAL_S = 8, 8.0
SURE = 0.9  # an unstable verdict with less confidence is asked for again


Groups = Mapping[tuple[int, str], PlacedCounts]


@dataclass(frozen=True)
class Case:
    """One placement to try. `vms` has one VM of all slots."""

    shape: str
    number: int
    maker: str
    placement: Placement
    vms: tuple[Vm, ...]


def cases(
    shape: str, topology: Topology, models: dict[str, Model], slots: int, wanted: int, seed: int
) -> Iterator[Case]:
    """Placements for rates from the highest that `slots` slots carry down to a quarter of it."""
    top_tps = highest(topology, models, slots)
    for number in range(wanted):
        part = SPAN ** -(number / max(1, wanted - 1))
        makers = [*PAIRS, ("random", "random")]
        allocator, mapper = makers[number % len(makers)]
        chance = random.Random(f"{seed} {shape} {number}")
        placement, used = placed(topology, models, top_tps * part, slots, allocator, mapper, chance)
        yield Case(shape, number, f"{allocator}+{mapper}", placement, (Vm("vm1", used),))


def highest(topology: Topology, models: dict[str, Model], slots: int) -> float:
    """Rows/s that MBA+SAM plans on so many slots."""
    low, high = 0.0, 1.0
    while fits(topology, models, high, slots):
        low, high = high, 2 * high
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if fits(topology, models, middle, slots) else (low, middle)
    return low


def fits(topology: Topology, models: dict[str, Model], rate_tps: float, slots: int) -> bool:
    try:
        make_plan(PlanRequest(topology, models, rate_tps, (Vm("vm1", slots),)))
    except Infeasible:
        return False
    return True


def placed(  # everything a placement is made from
    topology: Topology,
    models: dict[str, Model],
    rate_tps: float,
    slots: int,
    allocator: str,
    mapper: str,
    chance: random.Random,
) -> tuple[Placement, int]:
    """(placement of the modelled tasks, slots it has); at random: MBA's threads over the slots by chance."""
    vms = (Vm("vm1", slots),)
    at_random = allocator == "random"
    names = ("mba", "sam") if at_random else (allocator, mapper)
    while True:
        try:
            plan = make_plan(
                PlanRequest(topology, models, rate_tps, vms, allocator=names[0], mapper=names[1])
            )
            break
        except Infeasible:
            rate_tps *= 0.97
    modelled = {task.name for task in topology.tasks if task.static is None}
    bundles = [bundle for bundle in plan.placement.bundles if bundle.task in modelled]
    if at_random:
        used = max(2, plan.slots.used)
        counts: dict[tuple[Slot, str], int] = {}
        for bundle in bundles:
            for part in split(bundle.threads, chance):
                key = Slot("vm1", chance.randrange(used)), bundle.task
                counts[key] = counts.get(key, 0) + part
        bundles = [Bundle(slot, task, threads) for (slot, task), threads in sorted(counts.items())]
    order = {slot: number for number, slot in enumerate(sorted({bundle.slot for bundle in bundles}))}
    renamed = tuple(Bundle(Slot("vm1", order[b.slot]), b.task, b.threads) for b in bundles)
    return Placement(renamed), len(order)


def split(threads: int, chance: random.Random) -> list[int]:
    """A bundle in one, two or three parts."""
    cuts = sorted(chance.randrange(threads + 1) for _ in range(chance.randrange(3)))
    ends = [0, *cuts, threads]
    return [b - a for a, b in zip(ends, ends[1:], strict=False) if b > a]


# ── one trial ───────────────────────────────────────────────────────────────────────────────────


def bare(topology: Topology) -> Topology:
    """The topology as it is predicted and run here: tasks of fixed size are beside the slots."""
    import msgspec

    static = {task.name for task in topology.tasks if task.static is not None}
    tasks = tuple(task for task in topology.tasks if task.name not in static)
    edges = tuple(e for e in topology.edges if e.source not in static and e.target not in static)
    return msgspec.structs.replace(topology, tasks=tasks, edges=edges)


def tried(
    case: Case,
    topology: Topology,
    models: dict[str, Model],
    routing: str,
    slot_cores: float,
    user_paths: tuple[str, ...],
) -> dict[str, Any]:
    """Everything measured of one placement under one routing. The prediction only shares out the rows."""
    predicted = predict(bare(topology), models, case.placement, case.vms, routing=routing)
    shares = {(share.slot.number + 1, share.task): share.share for share in predicted.shares}
    placement: dict[int, dict[str, int]] = {}
    for bundle in case.placement.bundles:
        placement.setdefault(bundle.slot.number + 1, {})[bundle.task] = bundle.threads
    waits = bool(models[topology.by_name[predicted.limited_by or ""].model_name].more.get("waiting"))
    quotas = Quotas()
    try:
        with tempfile.TemporaryDirectory() as directory, Awake(), Reference(quotas) as reference:
            thread_tps = modelled(case, models)
            bench = Placed(topology, placement, shares, thread_tps, Path(directory), slot_cores, user_paths)
            check_speeds(models, reference.speed_of)
            found = bracketed(bench, quotas, waits, reference) | {"speed_of": reference.speed_of}
    finally:
        quotas.remove()
    return {
        "shape": case.shape,
        "number": case.number,
        "maker": case.maker,
        "routing": routing,
        "placement": {str(slot): tasks for slot, tasks in placement.items()},
        "shares": {str(slot): {task: shares[slot, task] for task in placement[slot]} for slot in placement},
        **found,
    }


def modelled(case: Case, models: dict[str, Model]) -> dict[str, float]:
    """Task → rows/s of one of its threads, by its model."""
    totals: dict[str, list[float]] = {}
    for bundle in case.placement.bundles:
        totals.setdefault(bundle.task, []).append(
            peak_rate(models[bundle.task], bundle.threads) / bundle.threads
        )
    return {task: min(values) for task, values in totals.items()}


def bracketed(bench: Placed, quotas: Quotas, waits: bool, reference: Reference) -> dict[str, Any]:
    """The rate between the highest stable and the lowest unstable trial, and the use of slots and groups at
    the former."""
    try:
        bench.begin(quotas)
        closed_tps = closed_loop(bench)
        bracket = Bracket(FIRST * closed_tps)
        trials: list[dict[str, Any]] = []
        at: dict[str, Any] = {}
        while len(trials) < TRIALS and not bracket.closed:
            rate_tps = bracket.rate_tps
            looks: list[tuple[Use, Groups]] = []
            with reference.meter() as meter:
                found = run_trial(bench, rate_tps, TRIAL_S, waits, partial(look, bench, looks))
            trials.append(
                {
                    "rate_tps": rate_tps,
                    "stable": found.stable,
                    "confidence": found.confidence,
                    "seconds": found.seconds,
                    "speed": meter.rounds_per_s,
                }
            )
            bracket.judge(found.stable, found.confidence)
            if found.stable:
                (before, counted), (after, now) = looks[first_judged(found)], looks[-1]
                at = {
                    "use_tps": found.achieved_tps,
                    "slots": between(before, after, bench.slot_cores),
                    "groups": seen_of(counted, now, after.at_s - before.at_s),
                }
        low, high = bracket.low, bracket.high
        if not low:
            raise HeadgateError(
                f"no stable rate found from {closed_tps:.3g} down to {bracket.rate_tps:.3g} rows/s"
            )
        measured = math.sqrt(low * high) if math.isfinite(high) else low
        speed = fmean(trial["speed"] for trial in trials if trial["rate_tps"] in (low, high))
        known_high = high if math.isfinite(high) else None
        return {"speed": speed, "closed_tps": closed_tps, "low_tps": low, "high_tps": known_high,
                "measured_tps": measured, "trials": trials, **at}  # fmt: skip
    finally:
        bench.end()


def look(bench: Placed, looks: list[tuple[Use, Groups]]) -> None:
    looks.append((bench.use(), bench.groups()))


def first_judged(found: TrialResult) -> int:
    """The first look, of those at the ends of the bins and at the beginning, that the verdict rests on."""
    times = [0.0, *(bin.t_s for bin in found.bins)]
    return next(number for number, t_s in enumerate(times) if t_s >= found.evidence.from_s)


@dataclass
class Bracket:
    """The highest stable and the lowest unstable rate so far, and the rate to try next, in rows/s. A rate that was
    unstable without being sure of it is tried once more: a moment's hiccup would end the bracket far too low."""

    rate_tps: float
    low: float = 0.0
    high: float = math.inf
    doubted: float = 0.0

    @property
    def closed(self) -> bool:
        return self.low > 0 and self.high <= CLOSE * self.low

    def judge(self, stable: bool, confidence: float) -> None:
        """The verdict on `rate_tps`."""
        if stable:
            self.low = self.rate_tps
        elif confidence < SURE and self.rate_tps != self.doubted:
            self.doubted = self.rate_tps
            return
        else:
            self.high = self.rate_tps
        if not self.low:
            self.rate_tps = self.high * DOWN
        else:
            self.rate_tps = math.sqrt(self.low * self.high) if math.isfinite(self.high) else self.low * UP


def closed_loop(bench: Placed) -> float:
    bench.saturate()
    bench.until(lambda: bench.done() > 0, 30.0, "finish a row")
    bench.watch(SETTLE_S)
    done, began = bench.done(), bench.use().at_s
    bench.wait_for(
        lambda: bench.done() > done + ROWS_LEAST and bench.use().at_s > began + CLOSED_S, LONGEST_S
    )
    if bench.done() == done:
        raise HeadgateError(f"no row was finished in {LONGEST_S:g} s of a closed loop")
    return (bench.done() - done) / (bench.use().at_s - began)


def between(before: Use, after: Use, slot_cores: float) -> list[dict[str, Any]]:
    """Of each slot the share of its CPU, and the bytes at the end."""
    seconds = after.at_s - before.at_s
    return [
        {
            "slot": slot,
            "cpu": (after.cpu_s[slot] - before.cpu_s[slot]) / seconds / slot_cores,
            "memory_bytes": after.memory_bytes[slot],
        }
        for slot in after.cpu_s
    ]


def seen_of(before: Groups, after: Groups, seconds: float) -> list[dict[str, Any]]:
    return [
        {"slot": slot, "task": task, **seen(before[slot, task], counts, seconds)}
        for (slot, task), counts in sorted(after.items())
    ]


def seen(before: PlacedCounts, after: PlacedCounts, seconds: float) -> dict[str, float]:
    """What a group did between two looks: rows/s, and ms that a row took in the logic, off the CPU of that;
    rows waiting at the end."""
    rows = max(1, after.rows - before.rows)
    return {
        "tps": (after.rows - before.rows) / seconds,
        "busy_ms": (after.busy_ns - before.busy_ns) / rows / 1e6,
        "wait_ms": (after.wait_ns - before.wait_ns) / rows / 1e6,
        "queue": after.queue,
    }


# ── all of them ─────────────────────────────────────────────────────────────────────────────────


def run(a: argparse.Namespace) -> None:
    models = read_models(a.models)
    done = {key(line) for line in lines(a.output)}
    shapes = a.shapes.split(",")
    every = []
    for shape in shapes:
        loaded = load(f"{a.module}:{shape}", runs=True)
        for case in cases(shape, bare(loaded.topology), models, a.slots, a.placements, a.seed):
            every += [(case, loaded, routing) for routing in ("weighted", "shuffle")]
    for count, (case, loaded, routing) in enumerate(every, 1):
        name = (case.shape, case.number, routing)
        if name in done:
            continue
        try:
            line = tried(case, loaded.topology, models, routing, a.slot_cores, loaded.user_paths)
        except HeadgateError as error:
            line = {"shape": case.shape, "number": case.number, "routing": routing, "maker": case.maker,
                    "failed": error.what, "cause": error.cause}  # fmt: skip
        with a.output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, allow_nan=False) + "\n")
        said = (
            line.get("failed")
            or f"predicted {scored(line, bare(loaded.topology), models).predicted_tps:.3g}, "
            f"measured {line['measured_tps']:.3g}"
        )
        print(
            f"{count}/{len(every)} {case.shape} {case.number} {case.maker} {routing}: {said}", file=sys.stderr
        )


def show(a: argparse.Namespace) -> None:
    models, known = read_models(a.models), lines(a.file)
    shapes = {line["shape"]: load(f"{a.module}:{line['shape']}", runs=True).topology for line in known}
    good = [scored(line, bare(shapes[line["shape"]]), models) for line in known if "failed" not in line]
    print(table(good, len(known) - len(good)))


def key(line: dict[str, Any]) -> tuple[str, int, str]:
    return line["shape"], line["number"], line["routing"]


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--module", default=str(Path(__file__).with_name("trial_shapes.py")))
    commands = parser.add_subparsers(required=True)
    trials = commands.add_parser("run")
    trials.add_argument("--models", type=Path, required=True)
    trials.add_argument("--output", type=Path, required=True)
    trials.add_argument("--shapes", default=",".join(SHAPES))
    trials.add_argument("--slots", type=int, default=6)
    trials.add_argument("--slot-cores", type=float, default=0.2)
    trials.add_argument("--placements", type=int, default=8)
    trials.add_argument("--seed", type=int, default=1)
    trials.set_defaults(call=run)
    scores = commands.add_parser("table")
    scores.add_argument("file", type=Path)
    scores.add_argument("--models", type=Path, required=True)
    scores.set_defaults(call=show)
    a = parser.parse_args()
    os.environ.setdefault("PYTHONHASHSEED", "0")
    a.call(a)


if __name__ == "__main__":
    main()
