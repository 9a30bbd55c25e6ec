"""How good predictions are: R² (1 − SSres/SStot), errors, by shape; as a table for the docs.

Lines of the data file hold what was measured. What is predicted for them is computed again here, from models
brought to the speed the machine had during the trial: it drifts by a quarter within minutes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from msgspec.structs import replace

from headgate.controller.models.plans import Bundle, Placement
from headgate.controller.models.task_models import Model, Point
from headgate.controller.plan.predict.placement_load import load_of
from headgate.controller.plan.predict.prediction import likely_rate
from headgate.controller.plan.predict.row_shares import carried
from headgate.controller.plan.predict.slot_fit import resident_memory
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.measuring.machine_speed import CORE_SPEED
from headgate.topology_runtime.measuring.wake_cost import times_the_cpu

# ── How well what was predicted fits what was measured: the figures that scripts tell of it ─────────────


def r2(predicted: Sequence[float], actual: Sequence[float]) -> float | None:
    """1 − SSres/SStot about the line predicted = actual, below 0 when the mean would do better; None for fewer
    than three points, or where all are the same."""
    if len(actual) < 3:
        return None
    middle = mean(actual)
    total = sum((value - middle) ** 2 for value in actual)
    rest = sum((p - a) ** 2 for p, a in zip(predicted, actual, strict=True))
    return 1 - rest / total if total > 0 else None


def quantile(values: Sequence[float], share: float) -> float | None:
    """The value that `share` of them do not exceed; None of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


COLUMNS = (
    "placements", "n", "rates, rows/s", "highest: R²", "error, %: median", "95th percentile", "likely: R²",
    "error, %: median", "95th percentile", "CPU R²", "mean error, points", "memory R²", "mean error, MB",
)  # fmt: skip


@dataclass(frozen=True)
class Scored:
    """A trial beside its prediction, the highest rate and the likely one; `cpu`, `memory_mb`: (predicted, measured)
    of each slot."""

    shape: str
    routing: str
    limited_by: str
    predicted_tps: float
    likely_tps: float
    measured_tps: float
    cpu: tuple[tuple[float, float], ...]
    memory_mb: tuple[tuple[float, float], ...]


def scored(line: Mapping[str, Any], topology: Topology, models: Mapping[str, Model]) -> Scored:
    """`topology`: without tasks of fixed size, which ran beside the slots. Rows are shared out as they were in
    the trial: models at another speed would share them out otherwise."""
    check_speeds(models, line.get("speed_of", CORE_SPEED))
    now = {task: at_speed(model, line["speed"]) for task, model in models.items()}
    bundles = [
        Bundle(Slot("vm1", int(slot) - 1), task, threads)
        for slot, tasks in line["placement"].items()
        for task, threads in tasks.items()
    ]
    placement, vms = Placement(tuple(bundles)), (Vm("vm1", len(line["placement"])),)
    load = load_of(topology, now, placement, vms, shared_cpu=True)
    shares = [
        line["shares"][str(load.slots[group.slot].number + 1)][load.tasks[group.task]]
        for group in load.groups
    ]
    split = carried(load, shares)
    limit, likely_tps = split.limit, likely_rate(load, split)
    assert limit is not None and likely_tps is not None
    needs = zip(load.slots, load.needs(shares, line["use_tps"]), strict=True)
    held = resident_memory(placement, topology, models)
    measured = {slot["slot"] - 1: slot for slot in line["slots"]}
    return Scored(
        line["shape"],
        line["routing"],
        load.tasks[limit.task],
        limit.rate_tps,
        likely_tps,
        line["measured_tps"],
        tuple((cpu, measured[slot.number]["cpu"]) for slot, (cpu, _) in needs),
        tuple(
            (held[Slot("vm1", number)] / 1e6, slot["memory_bytes"] / 1e6)
            for number, slot in sorted(measured.items())
        ),
    )


def check_speeds(models: Mapping[str, Model], speed_of: str) -> None:
    """Raises InvalidInput when models tell another kind of speed than what is to be compared with them."""
    others = sorted(name for name, m in models.items() if m.more.get("speed_of", CORE_SPEED) != speed_of)
    if others:
        raise InvalidInput(
            f"these models and runs were measured beside different loops: {', '.join(others)}",
            cause=f"the runs say the speed of a {speed_of}, these models do not (`speed_of`)",
            hint="measure the models again: headgate model profile",
        )


def at_speed(model: Model, speed: float) -> Model:
    """The model as it would be at another speed of the machine: what computes gains rate with it, what
    waits needs less CPU, and so does every wake."""
    part = speed / float(model.more["reference_speed"])
    points = tuple(_at(point, part, model.more["waiting"]) for point in model.points)
    return replace(model, points=points, more=model.more | times_the_cpu(model.more, 1 / part))


def _at(point: Point, part: float, waiting: bool) -> Point:
    if waiting:
        return replace(point, cpu=point.cpu / part)
    return replace(point, rate_tps=point.rate_tps * part)


def table(trials: Sequence[Scored], failed: int) -> str:
    """Markdown: a row per shape and routing, one per shape, and all."""
    rows = []
    for shape in dict.fromkeys(trial.shape for trial in trials):
        here = [trial for trial in trials if trial.shape == shape]
        rows += [
            (f"{shape}, {routing}", [trial for trial in here if trial.routing == routing])
            for routing in ("weighted", "shuffle")
        ]
        rows.append((f"**{shape}**", here))
    rows.append(("**all**", list(trials)))
    out = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    out += [_row(name, here) for name, here in rows if here]
    if failed:
        out.append(f"\n{failed} of {len(trials) + failed} trials failed and are left out.")
    return "\n".join(out)


def _row(name: str, trials: Sequence[Scored]) -> str:
    highest, likely = (
        [(getattr(trial, f"{of}_tps"), trial.measured_tps) for trial in trials]
        for of in ("predicted", "likely")
    )
    cpu = [pair for trial in trials for pair in trial.cpu]
    memory = [pair for trial in trials for pair in trial.memory_mb]
    measured = [trial.measured_tps for trial in trials]
    cells = [
        name,
        str(len(trials)),
        f"{min(measured):.3g}…{max(measured):.3g}",
        *_fit(highest),
        *_fit(likely),
        _r2(cpu),
        f"{100 * mean(abs(p - m) for p, m in cpu):.1f}",
        _r2(memory),
        f"{mean(abs(p - m) for p, m in memory):.2f}",
    ]
    return "| " + " | ".join(cells) + " |"


def _fit(rates: Sequence[tuple[float, float]]) -> tuple[str, str, str]:
    """R², median and 95th percentile of the error."""
    errors = [abs(predicted - measured) / measured for predicted, measured in rates]
    return _r2(rates), f"{100 * median(errors):.1f}", f"{100 * (quantile(errors, 0.95) or 0.0):.1f}"


def _r2(pairs: Sequence[tuple[float, float]]) -> str:
    found = r2([predicted for predicted, _ in pairs], [measured for _, measured in pairs])
    return "–" if found is None else f"{found:.3f}"
