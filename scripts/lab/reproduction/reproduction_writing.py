"""From the records of the runs and the analysis of their traces to reproduction.json, the page and its pictures."""

from __future__ import annotations

import json
import platform
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.controller.models.plan_data import plan_of
from headgate.controller.models.task_models import Model
from headgate.controller.pictures.drawing import COLOURS, GREY, INK, WIDTH_IN, axes_at, drawn, tint
from headgate.controller.plan.predict.prediction import predict
from headgate.lab.predictions.prediction_scores import at_speed, check_speeds
from headgate.lab.reproduction.reproduction_answers import (
    latency_facts,
    plan_facts,
    slots_used,
    stable_rate,
    use_points,
)
from headgate.lab.reproduction.reproduction_cells import FIXED, Planner
from headgate.lab.reproduction.reproduction_page import PREFIX, page
from headgate.lab.reproduction.reproduction_runs import Record
from headgate.topology_runtime.measuring.machine_speed import SLOT_SPEED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# ── The pictures of the page: scatters about the line y = x, violins, bars; drawn as all pictures of
# headgate are

Data = dict[str, Any]
Points = Callable[[Data], Sequence[tuple[float, float]]]  # of a cell: (actual, said)
NAMES = ("slots", "planned", "predicted", "likely", "cpu", "memory", "latency")
SERIES = ("LSA", "LSA+RSM", "MBA", "MBA+SAM")
MARKS = ("o", "s", "^", "D", "P", "X", "v")
COLUMNS, LEFT_IN, TOP_IN, GAP_IN, UNDER_IN = 3, 0.6, 0.62, 0.5, 0.62
WIDE_IN = (WIDTH_IN - LEFT_IN - 0.15) / COLUMNS - GAP_IN
HALF = 0.42  # of the place of a violin


def draw(data: Data, folder: Path) -> list[Path]:
    """All of `NAMES` as SVG in the folder; their paths."""
    fixed = [c for c in data["cells"] if c["section"] == FIXED and c.get("actual_tps")]
    files = {name: folder / f"{PREFIX}{name}.svg" for name in NAMES}
    rate, use = "actual, rows/s", "% of a slot, all of a VM"
    _slots(files["slots"], data)
    for name in ("planned", "predicted", "likely"):
        _scatter(files[name], data, fixed, rate, f"{name}, rows/s", _rate(f"{name}_tps"))
    for name in ("cpu", "memory"):
        _scatter(files[name], data, fixed, f"actual {use}", "predicted", _use(name))
    _violins(files["latency"], data, fixed)
    return list(files.values())


def _rate(of: str) -> Points:
    return lambda cell: [(cell["actual_tps"], cell[of])]


def _use(of: str) -> Points:
    return lambda cell: [(100 * actual, 100 * said) for said, actual in use_points(cell, of, by_vm=True)]


def _panels(figure: Figure, names: Sequence[str], tall_in: float) -> Iterator[tuple[str, Axes]]:
    """Axes with the shape's name above, three in a row."""
    for place, name in enumerate(names):
        left_in = LEFT_IN + place % COLUMNS * (WIDE_IN + GAP_IN)
        axes = axes_at(figure, left_in, TOP_IN + place // COLUMNS * (tall_in + UNDER_IN), WIDE_IN, tall_in)
        axes.set_title(name)
        yield name, axes


def _height_in(panels: int, tall_in: float) -> float:
    return TOP_IN + -(-panels // COLUMNS) * (tall_in + UNDER_IN)


def _scatter(file: Path, data: Data, cells: Sequence[Data], x: str, y: str, points: Points) -> None:
    """A panel for each shape; a hollow mark is shuffle."""
    pairs, shapes = list(data["pairs"]), list(data["shapes"])
    with drawn(file, _height_in(len(shapes), WIDE_IN)) as figure:
        for shape, axes in _panels(figure, shapes, WIDE_IN):
            for cell in (cell for cell in cells if cell["shape"] == shape):
                colour = COLOURS[pairs.index(cell["pair"]) % len(COLOURS)]
                axes.plot(
                    *zip(*points(cell), strict=True),
                    linestyle="",
                    marker=MARKS[pairs.index(cell["pair"]) % len(MARKS)],
                    markeredgecolor=colour,
                    markerfacecolor="white" if cell["routing"] == "shuffle" else colour,
                )
            axes.axline((0, 0), slope=1, color=GREY, linestyle="--", linewidth=0.7)
            low, high = (
                min(axes.get_xlim()[0], axes.get_ylim()[0]),
                max(axes.get_xlim()[1], axes.get_ylim()[1]),
            )
            axes.set(xlim=(max(0.0, low), high), ylim=(max(0.0, low), high), xlabel=x, ylabel=y)
        both = any(cell["routing"] == "shuffle" for cell in cells)
        _legend(figure, pairs, "hollow: shuffle" if both else "")


def _legend(figure: Figure, names: Sequence[str], note: str) -> None:
    from matplotlib.lines import Line2D

    marks = [
        Line2D(
            [], [], linestyle="", marker=MARKS[n % len(MARKS)], color=COLOURS[n % len(COLOURS)], label=name
        )
        for n, name in enumerate(names)
    ]
    notes = [Line2D([], [], linestyle="", marker="o", color=GREY, markerfacecolor="white", label=note)]
    figure.legend(handles=[*marks, *(notes if note else [])], loc="upper left", ncols=len(marks) + 1)


def _violins(file: Path, data: Data, cells: Sequence[Data]) -> None:
    """How tuples' latency is spread at the highest stable step of each pair, with its median; weighted routing."""
    of = {
        (c["shape"], c["pair"]): c["latency"]
        for c in cells
        if c["routing"] == "weighted" and c.get("latency")
    }
    shapes = [shape for shape in data["shapes"] if any(key[0] == shape for key in of)]
    pairs = [pair for pair in data["pairs"] if any(key[1] == pair for key in of)]
    edges = [
        edge for latency in of.values() for begin, end, _ in latency["histogram"] for edge in (begin, end)
    ]
    span = min(edges, default=0.1), max(edges, default=1.0)  # one for all
    with drawn(file, _height_in(max(1, len(shapes)), WIDE_IN)) as figure:
        for shape, axes in _panels(figure, shapes, WIDE_IN):
            axes.set_yscale("log")
            axes.set_ylim(*span)
            axes.yaxis.set_major_formatter(lambda seconds, _: f"{seconds:g}")
            axes.yaxis.set_minor_formatter(lambda seconds, _: "")
            for place, pair in enumerate(pairs):
                if (shape, pair) in of:
                    _violin(axes, place, of[shape, pair], COLOURS[place % len(COLOURS)])
            axes.set_xticks(range(len(pairs)), [pair.upper() for pair in pairs], rotation=30, ha="right")
            axes.set_ylabel("latency, s")
        figure.text(LEFT_IN / WIDTH_IN, 1, "\nat the highest stable step, with its median", va="top")


def _violin(axes: Axes, place: int, latency: Mapping[str, Any], colour: str) -> None:
    bins = latency["histogram"]
    widest = max(tuples for _, _, tuples in bins)
    edges = [edge for begin, end, _ in bins for edge in (begin, end)]
    half = [HALF * tuples / widest for _, _, tuples in bins for _ in range(2)]
    left, right = [place - w for w in half], [place + w for w in half]
    axes.fill_betweenx(edges, left, right, facecolor=tint(colour), edgecolor=colour, linewidth=0.6)
    axes.plot([place - HALF / 2, place + HALF / 2], [latency["p50_s"]] * 2, color=INK)


def _slots(file: Path, data: Data) -> None:
    """Slots that the allocators ask for and that their mappers take, at each rate."""
    counts = {(row["shape"], row["rate_tps"], row["pair"]): row for row in data["slot_counts"]}
    shapes = list(data["shapes"])
    with drawn(file, _height_in(len(shapes), WIDE_IN)) as figure:
        for shape, axes in _panels(figure, shapes, WIDE_IN):
            rates = sorted({rate for of, rate, _ in counts if of == shape})
            for place, rate_tps in enumerate(rates):
                rows = [counts.get((shape, rate_tps, pair)) for pair in ("lsa+rsm", "mba+sam")]
                values = [row[key] if row else 0 for row in rows for key in ("estimated", "total")]
                places = [place + 0.2 * (n - 1.5) for n in range(len(values))]
                bars = axes.bar(places, values, 0.18, color=COLOURS[: len(values)])
                axes.bar_label(bars, [f"{value:g}" if value else "" for value in values], fontsize=6)
            axes.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates])
            axes.set(xlabel="rows/s", ylabel="slots")
        from matplotlib.patches import Patch

        handles = [Patch(color=COLOURS[n], label=name) for n, name in enumerate(SERIES)]
        figure.legend(handles=handles, loc="upper left", ncols=len(handles))


SCHEMA = "headgate/reproduction/v1"
NAME = "reproduction"
STEP = ("step", "offered_tps", "achieved_tps", "seconds", "slope", "queue_slope", "stable", "speed")
CELL = ("key", "section", "shape", "pair", "routing", "part")
RUN = ("trace", "seconds", "tuples", "load_before")

Rows = Sequence[Mapping[str, Any]]


def analysed(traces: Sequence[Path], to: Path, tell: Any) -> tuple[Rows, Rows]:
    """The steps of these runs, and what slots used in them, by `headgate analyze`."""
    from headgate.dashboards.analytics.analysis_pipeline import AnalysisSettings, run

    run([str(trace) for trace in traces], to, AnalysisSettings(), tell)
    found = (
        json.loads((to / "results" / f"{name}.json").read_text("utf-8")) for name in ("steps", "step_slots")
    )
    steps, slots = found
    return steps, slots


def data_of(head: Record, records: Sequence[Record], steps: Rows, slots: Rows, planner: Planner) -> Record:
    """The whole as plain data."""
    by_run, use = defaultdict(list), defaultdict(list)
    for row in steps:
        by_run[row["run"]].append(row)
    for row in slots:
        use[row["run"], row["step"]].append(row)
    cells = [_cell(record, by_run, use, planner) for record in records]
    counts = list(planner.slot_counts(head["shapes"]))
    whole = {"schema": SCHEMA, **head, "slot_counts": counts, "cells": cells}
    return json.loads(json.dumps(rounded(whole), allow_nan=False))  # type: ignore[no-any-return]


def _cell(record: Record, by_run: Mapping[str, Any], use: Mapping[Any, Any], planner: Planner) -> Record:
    of = {name: record.get(name) for name in CELL}
    if record.get("failed"):
        return of | {"failed": record["failed"]}
    plan, topology = plan_of(record["plan"]), planner.topologies[record["shape"]]
    run = "/".join(Path(record["trace"]).parts[-2:])
    mine = [judged(row, record["steps"]) for row in sorted(by_run.get(run, []), key=lambda row: row["step"])]
    found = stable_rate(mine)
    at, limit = found.pop("step"), plan.prediction.limited_by
    last = next((row for row in mine if row["step"] == at), None)
    done_tps = (last["achieved_tps"] or last["offered_tps"]) if last else 0.0
    measured, models = use.get((run, at), []), planner.of.models
    check_speeds(models, record.get("speed_of", SLOT_SPEED))
    now = models_at(models, found["speed"])
    at_speed = predict(topology, now, plan.placement, plan.vms, routing=plan.routing)
    return of | plan_facts(plan) | found | {name: record[name] for name in RUN} | {
        "limited_by_model": topology.by_name[limit].model_name if limit else None,
        "likely_tps": predict(topology, models, plan.placement, plan.vms, routing=plan.routing).likely_tps,
        "predicted_at_speed_tps": at_speed.rate_tps,
        "likely_at_speed_tps": at_speed.likely_tps,
        "steps": [{name: row[name] for name in STEP} for row in mine],
        "slots_used": slots_used(measured, done_tps, plan, topology, models, now) if last else [],
        "latency": latency_facts(last) if last and last["histogram"] else None,
    }  # fmt: skip


def models_at(models: Mapping[str, Model], speed: float | None) -> dict[str, Model]:
    """Models brought to this speed of the machine; None: as they are."""
    return {name: at_speed(model, speed) if speed else model for name, model in models.items()}


def judged(row: Mapping[str, Any], led: Rows) -> Record:
    """A step as the analysis has it, with what was seen of the queue while it was led: either may say that it did
    not keep up."""
    seen = led[row["step"]]
    stable = bool(seen["keeps_up"] and row["stable"] is not False)
    return {**row, "queue_slope": seen["slope"], "stable": stable, "speed": seen["speed"]}


def rounded(value: Any) -> Any:
    """Six digits are more than anything here is worth."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list | tuple) else value


def write(data: Record, folder: Path) -> Path:
    """reproduction.json, the page, its pictures; the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{NAME}.json").write_text(json.dumps(data, indent=1, allow_nan=False) + "\n", "utf-8")
    draw(data, folder)
    file = folder / f"{NAME}.md"
    file.write_text(page(data), "utf-8")
    return file


def machine() -> str:
    """This machine in a line."""
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    kernel = ".".join(platform.release().split(".")[:2])
    words = f"{len(names)} × {names[0]}" if names else platform.machine()
    return f"{words}, Linux {kernel}, Python {platform.python_version()}"
