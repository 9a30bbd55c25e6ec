"""A plan in one picture: what it carries and what limits it, task by task, and what every slot holds."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headgate.controller.models.plans import Bundle, Plan, usd_per_hour
from headgate.controller.models.task_models import Model, peak
from headgate.controller.pictures import drawing
from headgate.controller.pictures.drawing import (
    COLOURS,
    DARK_RED,
    GREY,
    INK,
    LINE,
    PALE,
    SMALL_PT,
    TEXT_PT,
    WIDTH_IN,
    number,
    percent,
    shortened,
    text_in,
    tint,
)
from headgate.controller.plan.predict.placement_load import load_of
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.wording import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# ── The slot map: one cell per slot with its threads, CPU and memory, VM by VM ──────────────────────────
#
# Up to `EACH_SLOT` slots every slot has its cell; above, slots that hold the same threads share one.

EACH_SLOT = 200  # cells still tell slots apart
MOST_KINDS = 64  # cells of slots that hold the same
NARROW_IN = 0.6  # cells less wide inside leave out what the words above them say too
MOST_NUMBERED = 24  # tasks whose numbers are explained
MOST_BARS = 9  # tasks shown in one cell
LEFT_IN, MAP_IN = 0.15, WIDTH_IN - 0.3
BAR_IN, GAP_IN, HEAD_IN, EDGE_IN = 0.145, 0.025, 0.19, 0.035
STATIC = "#8d939c"  # tasks of fixed size


@dataclass(frozen=True)
class Cell:
    """One slot, or `slots` slots of the same kind. `cpu`, `memory`: (lowest, highest) fraction."""

    name: str
    bundles: tuple[Bundle, ...]
    cpu: tuple[float, float] = (0.0, 0.0)
    memory: tuple[float, float] = (0.0, 0.0)
    limits: bool = False
    slots: int = 1

    @property
    def full(self) -> bool:
        return any(bundle.full for bundle in self.bundles)

    @property
    def height_in(self) -> float:
        """Head, bars, the two gauges."""
        bars = min(len(self.bundles), MOST_BARS + 1)
        return HEAD_IN + (max(1, bars) + 2) * (BAR_IN + GAP_IN) + 2 * EDGE_IN


@dataclass(frozen=True)
class SlotBlock:
    """Cells that stand together in one row: slots of one VM, or kinds of slots (no name)."""

    name: str
    cells: tuple[Cell, ...]


@dataclass
class SlotRow:
    """Blocks side by side, `top_in` inches below the map's upper edge."""

    top_in: float
    blocks: list[SlotBlock] = field(default_factory=list)

    @property
    def cells(self) -> int:
        return sum(len(block.cells) for block in self.blocks)

    @property
    def cell_in(self) -> float:
        return max(cell.height_in for block in self.blocks for cell in block.cells)

    @property
    def height_in(self) -> float:
        named = any(block.name for block in self.blocks)
        return self.cell_in + (HEAD_IN if named else 0.0) + 3 * EDGE_IN


@dataclass(frozen=True)
class SlotMap:
    """Rows of blocks; a cell is `pitch_in` inches wide. `left_out`: what the map does not show."""

    rows: tuple[SlotRow, ...]
    pitch_in: float
    height_in: float
    left_out: str = ""


def slot_map(plan: Plan) -> SlotMap:
    vms = {vm.vm: _cells_of(plan, vm) for vm in plan.vms}
    slots = sum(len(cells) for cells in vms.values())
    if slots <= EACH_SLOT:
        columns = _columns(slots, max((len(cells) for cells in vms.values()), default=1))
        blocks = [
            SlotBlock(_vm_words(vm, vms[vm.vm], start, columns), vms[vm.vm][start : start + columns])
            for vm in plan.vms
            for start in range(0, len(vms[vm.vm]), columns)
        ]
        return _flowed(blocks, columns, slots, "")
    kinds = _kinds([cell for cells in vms.values() for cell in cells])
    shown, rest = kinds[:MOST_KINDS], kinds[MOST_KINDS:]
    left_out = f"and {counted(sum(cell.slots for cell in rest), 'slot')} of {counted(len(rest), 'kind')} more"
    columns = 8  # wide enough for a name and `limits`: no VM stands over these cells
    return _flowed([SlotBlock("", (cell,)) for cell in shown], columns, len(shown), left_out if rest else "")


def _cells_of(plan: Plan, vm: Vm) -> tuple[Cell, ...]:
    bundles: dict[int, list[Bundle]] = {}
    for bundle in plan.placement.bundles:
        if bundle.slot.vm == vm.vm:
            bundles.setdefault(bundle.slot.number, []).append(bundle)
    uses = {use.slot: use for use in plan.prediction.slots if use.vm == vm.vm}
    cells = []
    for slot in vm.all_slots():
        held, use = tuple(bundles.get(slot.number, ())), uses.get(slot.number)
        cpu, memory = (use.cpu, use.memory) if use is not None else (0.0, 0.0)
        limits = plan.prediction.limited_by_slot == str(slot)
        cells.append(Cell(str(slot), held, (cpu, cpu), (memory, memory), limits))
    return tuple(cells)


def _kinds(cells: Sequence[Cell]) -> list[Cell]:
    """One cell for all slots that hold the same threads; what limits first, then the most frequent."""
    kinds: dict[tuple[bool, tuple[tuple[str, int, bool], ...]], Cell] = {}
    for cell in cells:
        key = (cell.limits, tuple((b.task, b.threads, b.full) for b in cell.bundles))
        known = kinds.get(key)
        kinds[key] = cell if known is None else _joined(known, cell)
    named = [replace(c, name=c.name if c.slots == 1 else f"{c.slots:,} slots") for c in kinds.values()]
    return sorted(named, key=lambda cell: (not cell.limits, -cell.slots))


def _joined(one: Cell, other: Cell) -> Cell:
    cpu = (min(one.cpu[0], other.cpu[0]), max(one.cpu[1], other.cpu[1]))
    memory = (min(one.memory[0], other.memory[0]), max(one.memory[1], other.memory[1]))
    return replace(one, cpu=cpu, memory=memory, slots=one.slots + other.slots)


def _columns(slots: int, largest: int) -> int:
    """Cells per row: few and wide for few slots, and whole VMs side by side where that is possible."""
    if slots <= 6:
        return max(slots, 4)
    desired = 8 if slots <= 40 else 12
    return desired if largest >= desired else desired // largest * largest


def _vm_words(vm: Vm, cells: Sequence[Cell], start: int, columns: int) -> str:
    """`vm1 · 4 slots · $0.392/h`, or which slots of it this row holds."""
    here = len(cells[start : start + columns])
    words = [vm.vm] if len(cells) <= columns else [f"{vm.vm}, slots {start} to {start + here - 1}"]
    if start == 0:
        words.append(counted(vm.slots, "slot"))
        words += [f"${vm.usd_per_hour:.3g}/h"] if vm.usd_per_hour else []
    room_in = MAP_IN / columns * here - 4 * EDGE_IN
    while len(words) > 1 and text_in(" · ".join(words), SMALL_PT) > room_in:
        words.pop()
    return " · ".join(words)


def _flowed(blocks: Sequence[SlotBlock], columns: int, cells: int, left_out: str) -> SlotMap:
    columns = max(1, min(columns, max(cells, 4)))
    rows = [SlotRow(0.0)]
    for block in blocks:
        if rows[-1].blocks and rows[-1].cells + len(block.cells) > columns:
            rows.append(SlotRow(rows[-1].top_in + rows[-1].height_in))
        rows[-1].blocks.append(block)
    rows = [row for row in rows if row.blocks]
    height_in = (rows[-1].top_in + rows[-1].height_in if rows else 0.0) + (0.2 if left_out else 0.0)
    return SlotMap(tuple(rows), MAP_IN / columns, height_in, left_out)


# ── drawing ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class TaskColours:
    """How tasks look: their numbers by first place in the plan, and the threads that fill a slot (τ̂)."""

    numbers: Mapping[str, int]
    most_threads: Mapping[str, int]

    def colour(self, task: str) -> str:
        if task not in self.most_threads:
            return STATIC
        return COLOURS[self.numbers[task] % len(COLOURS)]

    def part(self, bundle: Bundle) -> float:
        """How much of a full slot these threads are."""
        most = self.most_threads.get(bundle.task)
        return 1.0 if not most else min(1.0, bundle.threads / most)

    def label(self, bundle: Bundle, room_in: float) -> str:
        """`blob 50`, or the task's number in the list where its name does not fit."""
        name = f"{bundle.task} {bundle.threads:,}"
        return name if text_in(name, SMALL_PT) <= room_in - 0.06 else self.short(bundle)

    def short(self, bundle: Bundle) -> str:
        return f"({self.numbers[bundle.task] + 1}) {bundle.threads:,}"

    def numbered(self, plan: SlotMap) -> list[str]:
        """The tasks that stand on the map by their number."""
        room_in = plan.pitch_in - 4 * EDGE_IN
        bundles = {b for row in plan.rows for block in row.blocks for c in block.cells for b in c.bundles}
        tasks = {bundle.task for bundle in bundles if self.label(bundle, room_in) == self.short(bundle)}
        return sorted(tasks, key=self.numbers.__getitem__)


def draw_map(axes: Axes, plan: SlotMap, look: TaskColours, top_in: float) -> None:
    for row in plan.rows:
        x_in, y_in = LEFT_IN, top_in + row.top_in
        head_in = row.height_in - row.cell_in - 3 * EDGE_IN
        for block in row.blocks:
            width_in = plan.pitch_in * len(block.cells)
            if block.name:
                _box(axes, (x_in + 0.02, y_in, width_in - 0.04, row.height_in - EDGE_IN), PALE)
                _write(axes, x_in + 2 * EDGE_IN, y_in + HEAD_IN / 2 + 0.02, block.name, weight="bold")
            for place, cell in enumerate(block.cells):
                left_in = x_in + place * plan.pitch_in + EDGE_IN
                if block.name and plan.pitch_in - 4 * EDGE_IN <= NARROW_IN:
                    cell = replace(cell, name=cell.name.rpartition("/")[2])
                _draw_cell(axes, cell, look, (left_in, y_in + head_in + EDGE_IN, plan.pitch_in - 2 * EDGE_IN))
            x_in += width_in
    if plan.left_out:
        _write(axes, LEFT_IN + EDGE_IN, top_in + plan.height_in - 0.1, plan.left_out, size=TEXT_PT)


def _draw_cell(axes: Axes, cell: Cell, look: TaskColours, at: tuple[float, float, float]) -> None:
    """`at`: left, top, width in inches."""
    left_in, top_in, width_in = at
    inside_in = width_in - 2 * EDGE_IN
    colour, width_pt, dashes = outline(cell)
    _box(axes, (left_in, top_in, width_in, cell.height_in), "white", colour, width_pt, dashes)
    x_in, y_in = left_in + EDGE_IN, top_in + EDGE_IN
    sign = "full" if cell.full else "" if cell.bundles else "free"
    name, sign = _head(cell.name, sign, cell.limits, inside_in)
    _write(axes, x_in, y_in + 0.07, name)
    _write(axes, x_in + inside_in, y_in + 0.07, sign, colour=colour if cell.bundles else GREY, right=True)
    y_in += HEAD_IN
    for bundle in cell.bundles[:MOST_BARS]:
        _bar(axes, x_in, y_in, inside_in, (look.part(bundle), look.colour(bundle.task)))
        _write(axes, x_in + 0.06, y_in + BAR_IN / 2, look.label(bundle, inside_in))
        y_in += BAR_IN + GAP_IN
    if len(cell.bundles) > MOST_BARS:
        _write(axes, x_in, y_in + BAR_IN / 2, f"+ {len(cell.bundles) - MOST_BARS} tasks", colour=GREY)
    y_in = top_in + cell.height_in - EDGE_IN - 2 * (BAR_IN + GAP_IN)
    for name, use in (("CPU", cell.cpu), ("mem", cell.memory)):
        if cell.bundles:
            _gauge(axes, x_in, y_in, inside_in, name, use)
        y_in += BAR_IN + GAP_IN


def _head(name: str, sign: str, limits: bool, room_in: float) -> tuple[str, str]:
    """What stands over a cell: as much of its name and of what it is as there is room for."""
    number_ = name.rpartition("/")[2]
    signs = [f"{sign}, limits" if sign else "limits", "limits"] if limits else [sign]
    for words in signs:
        for label in (name, number_):
            if text_in(f"{label} {words}", SMALL_PT) <= room_in:
                return label, words
    return number_, signs[-1]


def outline(cell: Cell) -> tuple[str, float, str]:
    """(colour, points, dashes) of a cell's edge: thick for full slots, dashed for free ones."""
    if cell.limits:
        return DARK_RED, 2.0, "-"
    if cell.full:
        return INK, 1.4, "-"
    return (LINE, 0.8, "-") if cell.bundles else (GREY, 0.8, "--")


def _bar(axes: Axes, x_in: float, y_in: float, width_in: float, bar: tuple[float, str]) -> None:
    part, colour = bar
    _box(axes, (x_in, y_in, max(0.03, part * width_in), BAR_IN), tint(colour))
    _box(axes, (x_in, y_in, 0.035, BAR_IN), colour)


def _gauge(
    axes: Axes, x_in: float, y_in: float, width_in: float, name: str, use: tuple[float, float]
) -> None:
    """What is used of the slot, with the number; more than all of it in dark red."""
    low, high = use
    over = high > 1.005
    words = percent(high) if percent(low) == percent(high) else f"{100 * low:.0f}–{percent(high)}"
    text = f"{name} {words if width_in > NARROW_IN else words.removesuffix(' %')}"
    _box(axes, (x_in, y_in, width_in, BAR_IN), "none", LINE, 0.5)
    fill = tint(DARK_RED) if over else "#e4e7eb"
    _box(axes, (x_in, y_in, width_in * min(1.0, high), BAR_IN), fill)
    _write(axes, x_in + 0.025, y_in + BAR_IN / 2, text, colour=DARK_RED if over else INK)


def _box(
    axes: Axes,
    at: tuple[float, float, float, float],
    face: str,
    edge: str = "none",
    points: float = 0.0,
    dashes: str = "-",
) -> None:
    """`at`: left, top, width, height in inches."""
    from matplotlib.patches import Rectangle

    left, top, width, height = at
    style: dict[str, Any] = {"facecolor": face, "edgecolor": edge, "linewidth": points, "linestyle": dashes}
    axes.add_patch(Rectangle((left, top), width, height, joinstyle="miter", **style))


def _write(
    axes: Axes, x: float, y: float, text: str, *, size: float = SMALL_PT, colour: str = INK,
    weight: str = "normal", right: bool = False,
) -> None:  # fmt: skip
    axes.text(
        x, y, text, fontsize=size, color=colour, fontweight=weight, va="center_baseline",
        ha="right" if right else "left",
    )  # fmt: skip


def task_list(look: TaskColours, tasks: Sequence[str]) -> str:
    """`(2) parse_sensor_lines, (5) …`: what the numbers in cells stand for; nothing without numbers."""
    if not tasks:
        return ""
    words = [f"({look.numbers[task] + 1})\u00a0{task}" for task in tasks[:MOST_NUMBERED]]
    more = len(tasks) - len(words)
    return f"Numbers: {', '.join(words)}{f' and {more} more' if more else ''}."


def words_of_bars(look: TaskColours) -> str:
    """How to read the map, with an example of a full bar."""
    example = max(look.most_threads.items(), key=lambda item: item[1], default=None)
    full = f": {counted(example[1], 'thread')} of {example[0]} fill a bar" if example else ""
    return f"Bars: threads of each task as a part of those that give a slot's peak rate{full}."


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

MOST_TASKS = 24  # rows of the chart of tasks; more tasks than that: those that carry least
ROW_IN = 0.19
AXIS_IN = 0.46  # under the rows: ticks and what the axis means
MARKS_IN = 0.14  # above them: the names of the marked rates
LONGEST_NAME = 22  # letters of a task's name beside its row


@dataclass(frozen=True)
class Carried:
    """The input rate that the threads of `task` carry, each group as if alone in its slot."""

    task: str
    rate_tps: float
    limits: bool


def plan_picture(
    plan: Plan, topology: Topology, models: Mapping[str, Model], path: str | os.PathLike[str]
) -> None:
    """Write the picture of `plan` to `path` (.svg, .png, .pdf), whole or not at all.

    Raises UsageError for another suffix and without matplotlib, InvalidInput for a file that cannot be
    written."""
    slots = slot_map(plan)
    look = _look(plan, topology, models)
    rows = carried(plan, topology, models)
    sentence, beneath = headline(plan), _beneath(plan, look, look.numbered(slots))
    chart_in = MARKS_IN + ROW_IN * len(rows) + AXIS_IN if rows else 0.0
    height_in = drawing.headline_in(sentence, beneath) + chart_in + slots.height_in + 0.15
    with drawing.drawn(path, height_in) as figure:
        sheet = drawing.paper(figure)
        top_in = drawing.headline(figure, sentence, beneath)
        if rows:
            _draw_carried(figure, plan, rows, look, top_in + MARKS_IN)
        draw_map(sheet, slots, look, top_in + chart_in + 0.06)


def headline(plan: Plan) -> str:
    """The plan in a sentence: what it takes, what it carries, what gives way first."""
    found = plan.prediction
    words = (
        f"{plan.topology} at {number(plan.rate_tps)} rows/s: {counted(plan.slots.total, 'slot')} on "
        f"{counted(len(plan.vms), 'VM')}, predicted {number(found.rate_tps)} rows/s"
    )
    if found.limited_by is None:
        return words
    return f"{words}, limited by {found.limited_by} in {found.limited_by_slot}"


def carried(plan: Plan, topology: Topology, models: Mapping[str, Model]) -> list[Carried]:
    """Per modelled task, breadth first, with the plan's own routing shares; of more than `MOST_TASKS`
    tasks those that carry least, least first."""
    load = load_of(topology, models, plan.placement, plan.vms, shared_cpu=False)
    shares = load.in_order(plan.prediction.shares, load.peak_shares())
    rows = [
        Carried(load.tasks[task], rate_tps, load.tasks[task] == plan.prediction.limited_by)
        for task, rate_tps in load.ceilings(shares).items()
    ]
    if len(rows) <= MOST_TASKS:
        return rows
    return sorted(rows, key=lambda row: (not row.limits, row.rate_tps))[:MOST_TASKS]


def _look(plan: Plan, topology: Topology, models: Mapping[str, Model]) -> TaskColours:
    held = {bundle.task for bundle in plan.placement.bundles}
    tasks = [task for task in topology.breadth_first if task.name in held]
    modelled = [task for task in tasks if task.static is None and task.model_name in models]
    ordered = [*modelled, *(task for task in tasks if task not in modelled)]  # colours go to models first
    numbers = {task.name: place for place, task in enumerate(ordered)}
    return TaskColours(numbers, {task.name: peak(models[task.model_name])[1] for task in modelled})


def _beneath(plan: Plan, look: TaskColours, numbered: Sequence[str]) -> str:
    usd = usd_per_hour(plan.vms)
    words = [
        f"{plan.allocator} + {plan.mapper}, {plan.routing} routing"
        + (f", ${usd:,.3g} per hour" if usd else "")
        + f"; CPU and memory in % of each slot at {number(plan.prediction.at_rate_tps)} rows/s.",
        words_of_bars(look),
    ]
    words.append(task_list(look, numbered))
    return " ".join(words)


# ── the chart of tasks ──────────────────────────────────────────────────────────────────────────


def _draw_carried(figure: Figure, plan: Plan, rows: list[Carried], look: TaskColours, top_in: float) -> None:
    names_in = min(
        2.2, 0.25 + max(drawing.text_in(shortened(row.task, LONGEST_NAME), SMALL_PT) for row in rows)
    )
    axes = drawing.axes_at(figure, names_in, top_in, 7.55 - names_in, ROW_IN * len(rows))
    places = range(len(rows))
    colours = [look.colour(row.task) for row in rows]
    asked_tps, found_tps = plan.rate_tps, plan.prediction.rate_tps
    found_tps = asked_tps if plan.prediction.told_tps is None else found_tps
    end_tps = 1.12 * max(asked_tps, found_tps, min(max(row.rate_tps for row in rows), 2 * found_tps))
    axes.barh(places, [min(row.rate_tps, end_tps) for row in rows], 0.72, color=[tint(c) for c in colours])
    for place, row in zip(places, rows, strict=True):
        words = f"{number(row.rate_tps)}{_limit_words(plan, row)}"
        axes.text(
            0.006 * end_tps, place, words, fontsize=SMALL_PT, va="center_baseline",
            color=DARK_RED if row.limits else INK, fontweight="bold" if row.limits else "normal",
        )  # fmt: skip
        if row.rate_tps > end_tps:
            axes.text(end_tps, place, "▶ ", fontsize=SMALL_PT, ha="right", va="center_baseline", color=GREY)
    axes.set(xlim=(0, end_tps), ylim=(len(rows) - 0.5, -0.5))
    axes.set_yticks(list(places), [shortened(row.task, LONGEST_NAME) for row in rows])
    axes.xaxis.set_major_formatter(lambda rate_tps, _: number(rate_tps))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(_axis_words(plan, len(rows)), labelpad=2)
    _mark_rates(axes, asked_tps, plan.prediction.told_tps)


def _limit_words(plan: Plan, row: Carried) -> str:
    if not row.limits:
        return ""
    shared = row.rate_tps > 1.005 * plan.prediction.rate_tps
    return f"  limits: shares the CPU of {plan.prediction.limited_by_slot}" if shared else "  limits"


def _mark_rates(axes: Axes, asked_tps: float, found_tps: float | None) -> None:
    """The rate asked for, dashed, and the rate predicted, where it is known, solid; words at the foot of the chart."""
    asked_right = found_tps is None or asked_tps > found_tps
    marks = [(asked_tps, f"asked {number(asked_tps)}", INK, asked_right)]
    axes.axvline(asked_tps, color=INK, linestyle="--", linewidth=1.1)
    if found_tps is not None:
        axes.axvline(found_tps, color=DARK_RED, linewidth=1.6)
        marks.append((found_tps, f"predicted {number(found_tps)}", DARK_RED, not asked_right))
    for at_tps, words, colour, right in marks:
        axes.annotate(
            f" {words} ", (at_tps, 1.0), xycoords=("data", "axes fraction"), fontsize=SMALL_PT, color=colour,
            ha="left" if right else "right", va="bottom", annotation_clip=False,
        )  # fmt: skip


def _axis_words(plan: Plan, shown: int) -> str:
    words = "input rate in rows/s that the threads of each task carry, alone in their slots"
    tasks = sum(not task.static for task in plan.allocation.tasks)
    return words if shown >= tasks else f"{words} (the {shown} of {tasks} tasks that carry least)"
