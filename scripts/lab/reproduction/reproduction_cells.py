"""What is tried: topologies × pairs of planners × routing, in an order of which every beginning is balanced.

Section 8.5 (and 8.6): the highest rate that each pair plans on a fixed number of slots; what does that plan carry?
Section 8.4: VMs are acquired for a given rate by LSA+RSM and by MBA+SAM; do these carry it?
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from headgate.controller.models.plans import Plan
from headgate.controller.models.task_models import Model
from headgate.controller.plan.acquire import exact
from headgate.controller.plan.planner import PlanRequest, plan_acquiring
from headgate.controller.plan.scaling import highest_plan
from headgate.controller.plan.schedulers import PAIRS as PAIRS
from headgate.controller.plan.schedulers import pairs as all_pairs
from headgate.lab.predictions.trial_shapes import CHANGES
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import Infeasible, InvalidInput
from headgate.topology_runtime.tasks import representative

MICRO = ("linear", "diamond", "star")
SHAPES = (*MICRO, "finance", "traffic", "smart-grid")
COMPARED = ("lsa+rsm", "mba+sam")  # in section 8.4
ROUTINGS = ("weighted", "shuffle")
FIXED, ACQUIRED = "8.5", "8.4"
SIZES = (4, 2, 1)  # slots of the VMs that are acquired (section 8.2)
PARTS = (0.25, 0.5, 1.0)  # of MBA+SAM's highest rate: what VMs are acquired for (the paper: 50, 100, 200)
RUN_PART = 0.5  # … and the one that is run as well
STEPS_TO_HIGHEST = 28  # the paper's planned 280 rows/s in steps of 10


@dataclass(frozen=True)
class Cell:
    """One run. `part`: of MBA+SAM's highest rate, for which VMs are acquired; None: the slots are fixed."""

    section: str
    shape: str
    pair: str
    routing: str
    part: float | None = None

    @property
    def key(self) -> str:
        words = [self.section, self.shape, self.pair, self.routing]
        return " ".join([*words, *([f"{self.part:g}"] if self.part is not None else [])])


def other_pairs() -> tuple[str, ...]:
    """Pairs of what headgate plans with beyond the paper's."""
    return tuple(pair for pair in all_pairs() if pair not in PAIRS)


def cells(shapes: Sequence[str], pairs: Sequence[str], routings: Sequence[str]) -> list[Cell]:
    """In rounds: every shape once a round, each with another pair. First all of 8.5 under one routing, then under
    the next, then 8.4."""
    found = []
    for routing in routings:
        for turn in range(len(pairs)):
            for place, shape in enumerate(shapes):
                found.append(Cell(FIXED, shape, pairs[(place + turn) % len(pairs)], routing))
    compared = [pair for pair in COMPARED if pair in pairs]
    for turn in range(len(compared)):
        for place, shape in enumerate(shapes):
            pair = compared[(place + turn) % len(compared)]
            found.append(Cell(ACQUIRED, shape, pair, routings[0], RUN_PART))
    return found


# ── what they are planned from ──────────────────────────────────────────────────────────────────


def topology_of(shape: str) -> Topology:
    """The shape with plain waits for the two services and tasks that suit small slots (see trial_shapes)."""
    found: Topology = getattr(representative, shape.replace("-", "_"))()
    tasks = tuple(replace(task, **CHANGES.get(task.model_name, {})) for task in found.tasks)
    return replace(found, tasks=tasks)


@dataclass(frozen=True)
class Setting:
    """The machine as it is planned for: VMs of fixed slots, all slots alike, and measured models."""

    models: Mapping[str, Model]
    vms: tuple[Vm, ...]

    @property
    def slots(self) -> int:
        return sum(vm.slots for vm in self.vms)

    def sizes(self) -> list[Vm]:
        return [replace(self.vms[0], vm=f"size{n}", slots=n) for n in SIZES]


def setting(models: Mapping[str, Model], vms: Sequence[int]) -> Setting:
    """Raises InvalidInput: a model is missing, or they were measured in slots of different sizes."""
    wanted = tuple(dict.fromkeys(task.model_name for task in topology_of("linear").tasks if not task.static))
    faults = [f"there is no model of {name!r}" for name in wanted if name not in models]
    sizes = {(m.slot.cores, m.slot.memory_bytes) for name, m in models.items() if name in wanted}
    if len(sizes) > 1:
        said = ", ".join(f"{cores:g} cores and {size:,} bytes" for cores, size in sorted(sizes))
        faults.append(f"the models were measured in slots of different sizes: {said}")
    if faults:
        raise InvalidInput("these models cannot be used", faults=faults, hint="headgate model profile")
    cores, memory_bytes = next(iter(sizes))
    made = tuple(Vm(f"vm{n}", slots, cores, memory_bytes) for n, slots in enumerate(vms, 1))
    return Setting({name: models[name] for name in wanted}, made)


class Planner:
    """Plans of cells; what several cells need is planned once."""

    def __init__(self, of: Setting, topologies: Mapping[str, Topology]) -> None:
        self.of, self.topologies = of, dict(topologies)
        self._highest: dict[str, float] = {}

    def use(self, shape: str, topology: Topology) -> None:
        """Plan for that topology from now on."""
        self.topologies[shape] = topology
        self._highest.pop(shape, None)

    def step_tps(self, shape: str) -> float:
        """How far apart the planned rates are: 1, 2 or 5 times a power of ten, about 1/28 of the highest."""
        about = self.highest_tps(shape) / STEPS_TO_HIGHEST
        steps = [digit * 10.0**power for power in range(-3, 6) for digit in (1, 2, 5)]
        return min(steps, key=lambda step: abs(step - about))

    def highest_tps(self, shape: str) -> float:
        """What MBA+SAM plans on all fixed slots, in fine steps."""
        if shape not in self._highest:
            self._highest[shape] = highest_plan(self.request(shape, "mba+sam", "weighted"), 0.1).rate_tps
        return self._highest[shape]

    def request(self, shape: str, pair: str, routing: str, rate_tps: float = 1.0) -> PlanRequest:
        allocator, mapper = pair.split("+")
        return PlanRequest(
            topology=self.topologies[shape],
            models=dict(self.of.models),
            rate_tps=rate_tps,
            vms=self.of.vms,
            allocator=allocator,
            mapper=mapper,
            routing=routing,
            fixed=True,
        )

    def plan(self, cell: Cell) -> Plan:
        """Raises Infeasible: nothing fits, or more slots are acquired than this machine is asked to give."""
        if cell.part is None:
            return highest_plan(self.request(cell.shape, cell.pair, cell.routing), self.step_tps(cell.shape))
        found = self.acquired(cell.shape, cell.pair, cell.routing, cell.part)
        if found.slots.total > self.of.slots:
            raise Infeasible(f"{found.slots.total} slots are acquired, {self.of.slots} are there")
        return found

    def acquired(self, shape: str, pair: str, routing: str, part: float) -> Plan:
        """For a part of MBA+SAM's highest rate, a multiple of the step."""
        step = self.step_tps(shape)
        rate_tps = max(1, round(part * self.highest_tps(shape) / step)) * step
        return plan_acquiring(self.request(shape, pair, routing, rate_tps), self.of.sizes(), exact)

    def slot_counts(self, shapes: Sequence[str]) -> Iterator[dict[str, object]]:
        """Figures 7 and 8: slots that the allocators ask for, and that the mappers take, without running."""
        for shape in shapes:
            for part in PARTS:
                for pair in COMPARED:
                    try:
                        plan = self.acquired(shape, pair, "weighted", part)
                    except Infeasible:
                        continue
                    yield {
                        "shape": shape, "part": part, "rate_tps": plan.rate_tps, "pair": pair,
                        "estimated": plan.slots.estimated, "extra": plan.slots.extra, "total": plan.slots.total,
                    }  # fmt: skip
