"""Every scheduler there is: allocators and mappers by name, and all that follows from the name. Pure.

An allocator counts threads and slots from models; a mapper puts the threads into slots. All take the same, and are
predicted, verified, compared and tried in replays alike: a new one is a file, and a row here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from headgate.controller.models.plans import Allocation, Placement
from headgate.controller.models.task_models import Model
from headgate.controller.plan.allocators.lsa import lsa
from headgate.controller.plan.allocators.mba import mba, rising
from headgate.controller.plan.mappers import mapper_rules
from headgate.controller.plan.mappers.dsm import dsm
from headgate.controller.plan.mappers.free_slots import Room
from headgate.controller.plan.mappers.greedy_matching import greedy_matching
from headgate.controller.plan.mappers.rsm import rsm
from headgate.controller.plan.mappers.sam import sam
from headgate.controller.plan.mappers.task_groups import task_level_mapper, top_down_mapper
from headgate.controller.plan.mappers.topology_based import topology_based
from headgate.controller.plan.mappers.traffic_based import traffic_based
from headgate.controller.plan.optimal.fewest_slots import optimal_allocator, optimal_mapper
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.wording import did_you_mean

PAIRS = ("lsa+dsm", "lsa+rsm", "mba+dsm", "mba+rsm", "mba+sam")  # those of paper 0


class Allocator(msgspec.Struct, frozen=True):
    """`source`: where it is described. reserves: "bundles" of threads, whole slots of them, or "mixes" of them for each
    slot. rising: a model by which it needs no more slots than by the given one, and never less at a higher rate.
    slow: a controller makes its plans beside its loop. brims: slots are full at the rate, so it takes a margin where
    the models have a spread."""

    allocate: Callable[[Topology, Mapping[str, Model], float], Allocation]
    source: str
    reserves: str = ""
    rising: Callable[[Model], Model] | None = None
    slow: bool = False
    brims: bool = False


class Mapper(msgspec.Struct, frozen=True):
    """`source`: where it is described; `words`: what it does, in a sentence; `rules`: what its plans obey.

    wants: what its allocator has to reserve. spreads: it uses every slot it is given, so it is given ρ and
    as few more as it needs. heedless: it looks at no need of threads, so it fits anywhere. in_order: it takes slots in
    their order whatever VM they are in, so that single slots tell how many it needs.
    by_traffic: it looks at what tasks say to each other, so plans of a run are made by what was measured of that.
    online: the controller plans again where that saves traffic between VMs or lightens one.
    slow: as of an allocator. steady: of plans that are as good it makes the one with the fewest moves."""

    place: Callable[[Allocation, Room], Placement]
    source: str
    words: str
    rules: tuple[mapper_rules.Rule, ...] = ()
    wants: str = ""
    spreads: bool = False
    heedless: bool = False
    in_order: bool = False
    by_traffic: bool = False
    online: bool = False
    slow: bool = False
    steady: bool = False


ALLOCATORS: dict[str, Allocator] = {
    "lsa": Allocator(lsa, "paper 0, Alg. 2"),
    "mba": Allocator(mba, "paper 0, Alg. 3", reserves="bundles", rising=rising),
    "optimal": Allocator(optimal_allocator, "ours", reserves="mixes", slow=True, brims=True),
}

MAPPERS: dict[str, Mapper] = {
    "dsm": Mapper(
        dsm,
        "paper 0, Alg. 4",
        "DSM deals the threads out to the slots in turn, whatever they need.",
        (mapper_rules.uneven,),
        spreads=True,
        heedless=True,
    ),
    "rsm": Mapper(
        rsm,
        "paper 0, Alg. 5",
        "RSM takes one thread of each task in turn to the VM nearest by free memory, free CPU and network "
        "that holds it, and there into the slot with the least free memory that holds it.",
        (mapper_rules.over_needed,),
    ),
    "sam": Mapper(
        sam,
        "paper 0, Alg. 6",
        "SAM gives a full bundle the next empty slot, and a rest the fullest slot with room for it: that "
        "with the least CPU and memory free in sum.",
        (mapper_rules.crowded_full_slots, mapper_rules.over_reserved, mapper_rules.unsupported),
        wants="bundles",
        in_order=True,
    ),
    "topology": Mapper(
        topology_based,
        "paper 1, section 3.1",
        "Topology-based scheduling puts threads into slots with tasks that feed them, up to a number of threads, "
        "and looks at no load.",
        spreads=True,
        heedless=True,
    ),
    "traffic": Mapper(
        traffic_based,
        "paper 1, section 3.2.3",
        "Traffic-based scheduling takes pairs of threads by falling traffic to the emptiest slot or beside what they "
        "speak with, then slots to VMs likewise.",
        (mapper_rules.over_slots,),
        spreads=True,
        by_traffic=True,
        online=True,
    ),
    "task-level": Mapper(
        task_level_mapper,
        "paper 2, Alg. 1 to 3",
        "Task-level allocation takes pairs of threads, those of the most significant pair of tasks first, to the "
        "emptiest slot, or where one of the two is.",
        (mapper_rules.over_slots,),
        spreads=True,
        by_traffic=True,
    ),
    "top-down": Mapper(
        top_down_mapper,
        "paper 2, Alg. 4 and 5",
        "Top-down allocation takes whole pairs of tasks, the most significant first, and splits both evenly where they "
        "do not fit into a slot.",
        (mapper_rules.over_slots,),
        spreads=True,
        by_traffic=True,
    ),
    "greedy-matching": Mapper(
        greedy_matching,
        "paper 3, Alg. 1",
        "Greedy matching gives each thread, those that need most first, the slot by which CPU and bandwidth of all "
        "slots deviate least.",
        (mapper_rules.over_slots,),
        spreads=True,
        by_traffic=True,
        online=True,
    ),
    "optimal": Mapper(
        optimal_mapper,
        "ours",
        "The mixes of threads were chosen for each slot with the thread counts; they are put into slots so that those "
        "which speak with each other share a VM.",
        (mapper_rules.unsupported,),
        wants="mixes",
        in_order=True,
        steady=True,
    ),
}


def pair_faults(allocator: str, mapper: str) -> dict[str, str]:
    """What is wrong with this pair, in words: with its allocator, with its mapper."""
    faults = {
        what: f"no {what} {chosen!r}, there are {', '.join(known)}{did_you_mean(chosen, known)}"
        for what, chosen, known in (("allocator", allocator, ALLOCATORS), ("mapper", mapper, MAPPERS))
        if chosen not in known
    }
    if not faults and (wants := MAPPERS[mapper].wants) not in ("", ALLOCATORS[allocator].reserves):
        others = " or ".join(name for name, one in ALLOCATORS.items() if one.reserves == wants)
        faults["mapper"] = f"{mapper} maps the {wants} that {others} reserves; {allocator} reserves none"
    return faults


def pair_of(text: str) -> tuple[str, str]:
    """`mba+sam` → (allocator, mapper). Raises InvalidInput with every fault."""
    allocator, plus, mapper = text.partition("+")
    faults = [f"{text!r} is not ALLOCATOR+MAPPER"]
    if plus:
        faults = [f"{text!r}: {fault}" for fault in pair_faults(allocator, mapper).values()]
    if faults:
        raise InvalidInput(f"invalid pair of schedulers {text!r}", faults=faults)
    return allocator, mapper


def pairs() -> tuple[str, ...]:
    """Every pair that there is."""
    return tuple(f"{a}+{m}" for a in ALLOCATORS for m in MAPPERS if not pair_faults(a, m))


def each_once() -> tuple[str, ...]:
    """Pairs in which each allocator and each mapper is: mappers with the allocator that goes with them, then allocators
    that are in none of these."""
    found = [f"{allocator_for(mapper)}+{mapper}" for mapper in MAPPERS]
    others = (name for name in ALLOCATORS if not any(pair.startswith(f"{name}+") for pair in found))
    return (*found, *(f"{name}+{mapper_for(name)}" for name in others))


def allocator_for(mapper: str) -> str:
    """The allocator that goes with a mapper when none is chosen."""
    return next(name for name in ("mba", *ALLOCATORS) if not pair_faults(name, mapper))


def mapper_for(allocator: str) -> str:
    """The mapper that goes with an allocator when none is chosen."""
    return {"lsa": "rsm", "optimal": "optimal"}.get(allocator, "sam")
