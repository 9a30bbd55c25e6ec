"""Plans of the papers' topologies from the published models, as `paper_tables` and `paper_claims` ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from headgate.controller.files.model_files import read_models
from headgate.controller.knowledge.plans import Allocation, Plan, TaskAllocation
from headgate.controller.plan.highest import highest_plan
from headgate.controller.plan.planner import PlanRequest, plan_acquiring
from headgate.controller.plan.predict import predict
from headgate.controller.plan.schedulers import ALLOCATORS
from headgate.topology_runtime.cluster import Vm
from headgate.topology_runtime.examples import MODELS, NAMES, logic_alone
from headgate.topology_runtime.loading import load

PUBLISHED = read_models(MODELS)
SIZES = tuple(Vm(f"D{slots}", slots, usd_per_hour=0.098 * slots) for slots in (4, 2, 1))
FIVE_D3 = tuple(Vm(f"vm{number}", 4, usd_per_hour=0.392) for number in range(1, 6))
WHOLE = {name: load(name).topology for name in NAMES}
LOGIC = {name: logic_alone(topology) for name, topology in WHOLE.items()}
MICRO, APPLICATIONS = NAMES[:3], NAMES[3:]
RATES = (50, 100, 200)


@cache
def allocated(allocator: str, name: str, rate: int) -> Allocation:
    """Of the logic tasks."""
    return ALLOCATORS[allocator].allocate(LOGIC[name], PUBLISHED, float(rate))


def of(allocation: Allocation, task: str) -> TaskAllocation:
    return next(found for found in allocation.tasks if found.task == task)


@cache
def acquired(name: str, rate: int, pair: str, ends: bool = False) -> Plan:
    """The plan on as many slots as it takes; with `ends` source and sink are mapped too."""
    allocator, mapper = pair.split("+")
    topology = (WHOLE if ends else LOGIC)[name]
    asked = PlanRequest(topology, PUBLISHED, float(rate), (), allocator=allocator, mapper=mapper)
    return plan_acquiring(asked, SIZES)


@cache
def highest(name: str, pair: str) -> Plan:
    """The plan for the highest rate in steps of 10 on five VMs of four slots (section 8.5)."""
    allocator, mapper = pair.split("+")
    asked = PlanRequest(LOGIC[name], PUBLISHED, 0.0, FIVE_D3, allocator=allocator, mapper=mapper, fixed=True)
    return highest_plan(asked, 10.0)


def supported(name: str, plan: Plan, routing: str = "weighted", interference: str = "cpu") -> float:
    """The predicted rate in tuples/s under another routing and interference."""
    topology, where = LOGIC[name], (plan.placement, plan.vms)
    return predict(topology, PUBLISHED, *where, routing=routing, interference=interference).rate_tps


def totals(name: str, pair: str, ends: bool = False, rates: Sequence[int] = RATES) -> list[int]:
    return [acquired(name, rate, pair, ends).slots.total for rate in rates]


def added(names: Sequence[str], pair: str, ends: bool, rates: Sequence[int] = RATES) -> dict[str, int]:
    """Where the mapper needs more slots than ρ, and how many."""
    counts = {f"{n} at {rate}": acquired(n, rate, pair, ends).slots for n in names for rate in rates}
    return {
        at: count.total - count.estimated for at, count in counts.items() if count.total > count.estimated
    }


def saved(names: Sequence[str], ends: bool = False, rates: Sequence[int] = RATES) -> float:
    """The part of LSA+RSM's slots that MBA+SAM does without, all slots added up."""
    needed = {pair: sum(sum(totals(n, pair, ends, rates)) for n in names) for pair in ("mba+sam", "lsa+rsm")}
    return 1 - needed["mba+sam"] / needed["lsa+rsm"]
