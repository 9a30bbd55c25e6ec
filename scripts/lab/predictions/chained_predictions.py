"""Are predictions as good with chains as without? Each placement is run both ways, in turn.

    .venv/bin/python -P -m headgate.lab.predictions.chained_predictions --models DIR --output FILE.jsonl     (resumable)

Placements by chance of one thread of each computing task and a few of those that wait, over two or three slots, such
that at least one thread is run by the one before it (`thread_orders.py`). A closed loop tells what each
carries; models are brought to the speed that the machine had meanwhile. The last line: medians over all placements.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headgate.controller.execute.desired_state import chainable
from headgate.controller.files.planning_inputs import read_models
from headgate.controller.models.plans import Bundle, Placement
from headgate.controller.models.task_models import Model
from headgate.controller.plan.predict.prediction import predict
from headgate.lab.predictions.placed_threads import Placed
from headgate.lab.predictions.prediction_scores import at_speed, check_speeds
from headgate.lab.predictions.trial_predictions import Case, bare, closed_loop, modelled
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.loading import load
from headgate.topology_runtime.api.logic import runs_anywhere
from headgate.topology_runtime.api.task_functions import build
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.measuring.machine_speed import Reference
from headgate.topology_runtime.measuring.measuring_slots import Awake, Quotas

SHAPES = ("linear", "star")  # where a computing task follows another one only
WAITING_MOST = 4


def cases(shape: str, topology: Topology, models: dict[str, Model], wanted: int, seed: int) -> Iterator[Case]:
    """Placements with a chain."""
    tasks = [task.name for task in topology.tasks if task.static is None]
    computing = set(chainable(topology, models))
    anywhere = {name for name in computing if runs_anywhere(build(topology.by_name[name]))}
    number = 0
    while number < wanted:
        seed += 1
        chance = random.Random(f"{shape} {seed}")
        slots = chance.choice((2, 3))
        at = {task: chance.randrange(slots) for task in tasks}
        chains = any(
            at[edge.source] == at[edge.target]
            and edge.source in computing
            and edge.target in anywhere
            and len(topology.in_edges(edge.target)) == 1
            for edge in topology.edges
            if edge.source in at and edge.target in at
        )
        if not chains or len(set(at.values())) < slots:
            continue
        threads = {task: 1 if task in computing else chance.randint(1, WAITING_MOST) for task in tasks}
        bundles = [Bundle(Slot("vm1", at[task]), task, threads[task]) for task in tasks]
        placement = Placement(tuple(sorted(bundles, key=lambda bundle: (bundle.slot, bundle.task))))
        yield Case(shape, number, f"{seed}", placement, (Vm("vm1", slots),))
        number += 1


def carried(
    case: Case,
    topology: Topology,
    models: dict[str, Model],
    slot_cores: float,
    user_paths: tuple[str, ...],
    chained: tuple[str, ...],
) -> dict[str, Any]:
    """What one placement carries in a closed loop, what is predicted at that speed, and how many threads ran others."""
    bundles = case.placement.bundles
    placement: dict[int, dict[str, int]] = {}
    for bundle in bundles:
        placement.setdefault(bundle.slot.number + 1, {})[bundle.task] = bundle.threads
    shares = {(bundle.slot.number + 1, bundle.task): 1.0 for bundle in bundles}
    quotas = Quotas()
    try:
        with tempfile.TemporaryDirectory() as folder, Awake(), Reference(quotas) as reference:
            check_speeds(models, reference.speed_of)
            threads_tps = modelled(case, models)
            bench = Placed(topology, placement, shares, threads_tps, Path(folder), slot_cores, user_paths)
            bench.chained = chained
            try:
                bench.begin(quotas)
                with reference.meter() as meter:
                    tps = closed_loop(bench)
                borrowers = bench.borrowers()
            finally:
                bench.end()
            now = {task: at_speed(model, meter.rounds_per_s) for task, model in models.items()}
    finally:
        quotas.remove()
    predicted = predict(bare(topology), now, case.placement, case.vms, routing="weighted")
    return {"tps": tps, "predicted_tps": predicted.rate_tps, "borrowers": borrowers}


def tried(case: Case, loaded: Any, models: dict[str, Model], slot_cores: float) -> dict[str, Any]:
    """Both ways, the first one by turns."""
    topology = loaded.topology
    ways = {"threads": (), "chained": chainable(bare(topology), models)}
    names = list(ways) if case.number % 2 else list(reversed(ways))
    found = {
        name: carried(case, topology, models, slot_cores, loaded.user_paths, ways[name]) for name in names
    }
    if found["chained"]["borrowers"] == 0 or found["threads"]["borrowers"]:
        raise HeadgateError(f"{case.shape} {case.number}: who ran whom is not as it was to be: {found}")
    return {"shape": case.shape, "number": case.number, **found}


def told(lines: list[dict[str, Any]]) -> dict[str, Any]:
    def errors(way: str) -> list[float]:
        return [abs(line[way]["predicted_tps"] / line[way]["tps"] - 1) for line in lines]

    ratios = [line["chained"]["tps"] / line["threads"]["tps"] for line in lines]
    return {
        "n": len(lines),
        "chained_to_threads": {
            "median": statistics.median(ratios),
            "least": min(ratios),
            "most": max(ratios),
        },
        **{
            f"error_{way}": {"median": statistics.median(errors(way)), "worst": max(errors(way))}
            for way in ("threads", "chained")
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--placements", type=int, default=12, help="of each shape")
    parser.add_argument("--most", type=int, default=1_000, help="so many more in this call")
    parser.add_argument("--slot-cores", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--module", default=str(Path(__file__).with_name("trial_shapes.py")))
    asked = parser.parse_args()
    models = read_models(asked.models)
    lines = (
        [json.loads(line) for line in asked.output.read_text("utf-8").splitlines()]
        if asked.output.exists()
        else []
    )
    known = {(line["shape"], line["number"]) for line in lines}
    most = len(lines) + asked.most
    for shape in SHAPES:
        loaded = load(f"{asked.module}:{shape}", runs=True)
        for case in cases(shape, bare(loaded.topology), models, asked.placements, asked.seed):
            if (shape, case.number) in known or len(lines) >= most:
                continue
            lines.append(tried(case, loaded, models, asked.slot_cores))
            with asked.output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(lines[-1], allow_nan=False) + "\n")
            ratio = lines[-1]["chained"]["tps"] / lines[-1]["threads"]["tps"]
            print(
                f"{len(lines)} of {len(SHAPES) * asked.placements}: chained × {ratio:.3f}",
                file=sys.stderr,
                flush=True,
            )
    print(json.dumps(told(lines)))


if __name__ == "__main__":
    main()
