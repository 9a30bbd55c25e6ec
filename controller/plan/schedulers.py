"""Every scheduler there is: allocators and mappers by name, and all that follows from the name. Pure.

An allocator counts threads and slots from models; a mapper puts the threads into slots. All take the same, and are
predicted, verified, compared and tried in replays alike: a new one is a file, and a row here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from controller.knowledge.models import Model
from controller.knowledge.plans import Allocation, Placement
from controller.plan import mapper_rules as rule
from controller.plan.dsm import dsm
from controller.plan.lsa import lsa
from controller.plan.mba import mba, rising
from controller.plan.room import Room
from controller.plan.rsm import rsm
from controller.plan.sam import sam
from topology_runtime.errors import InvalidInput
from topology_runtime.faults.words import did_you_mean
from topology_runtime.topology import Topology

PAIRS = ("lsa+dsm", "lsa+rsm", "mba+dsm", "mba+rsm", "mba+sam")  # those of paper 0


class Allocator(msgspec.Struct, frozen=True):
    """`source`: where it is described. bundles: it reserves bundles of threads, whole slots of them. rising: a model
    by which it needs no more slots than by the given one, and never less at a higher rate."""

    allocate: Callable[[Topology, Mapping[str, Model], float], Allocation]
    source: str
    bundles: bool = False
    rising: Callable[[Model], Model] | None = None


class Mapper(msgspec.Struct, frozen=True):
    """`source`: where it is described; `words`: what it does, in a sentence; `rules`: what its plans obey.

    bundled: it needs an allocator that reserves bundles. spreads: it uses every slot it is given, so it is given ρ.
    in_order: it takes slots in their order whatever VM they are in, so that single slots tell how many it needs."""

    place: Callable[[Allocation, Room], Placement]
    source: str
    words: str
    rules: tuple[rule.Rule, ...] = ()
    bundled: bool = False
    spreads: bool = False
    in_order: bool = False


ALLOCATORS: dict[str, Allocator] = {
    "lsa": Allocator(lsa, "paper 0, Alg. 2"),
    "mba": Allocator(mba, "paper 0, Alg. 3", bundles=True, rising=rising),
}

MAPPERS: dict[str, Mapper] = {
    "dsm": Mapper(
        dsm,
        "paper 0, Alg. 4",
        "DSM deals the threads out to the slots in turn, whatever they need.",
        (rule.uneven,),
        spreads=True,
    ),
    "rsm": Mapper(
        rsm,
        "paper 0, Alg. 5",
        "RSM takes one thread of each task in turn to the VM nearest by free memory, free CPU and network "
        "that holds it, and there into the slot with the least free memory that holds it.",
        (rule.over_needed,),
    ),
    "sam": Mapper(
        sam,
        "paper 0, Alg. 6",
        "SAM gives a full bundle the next empty slot, and a rest the fullest slot with room for it: that "
        "with the least CPU and memory free in sum.",
        (rule.crowded_full_slots, rule.over_reserved, rule.unsupported),
        bundled=True,
        in_order=True,
    ),
}


def pair_faults(allocator: str, mapper: str) -> list[str]:
    """What is wrong with this pair, in words."""
    faults = [
        f"{what}: no {chosen!r}, there are {', '.join(known)}{did_you_mean(chosen, known)}"
        for what, chosen, known in (("allocator", allocator, ALLOCATORS), ("mapper", mapper, MAPPERS))
        if chosen not in known
    ]
    if not faults and MAPPERS[mapper].bundled and not ALLOCATORS[allocator].bundles:
        bundling = " or ".join(name for name, one in ALLOCATORS.items() if one.bundles)
        faults.append(
            f"mapper: {mapper} maps the bundles that {bundling} reserves; {allocator} reserves none"
        )
    return faults


def pair_of(text: str) -> tuple[str, str]:
    """`mba+sam` → (allocator, mapper). Raises InvalidInput with every fault."""
    allocator, plus, mapper = text.partition("+")
    faults = pair_faults(allocator, mapper) if plus else [f"{text!r} is not ALLOCATOR+MAPPER"]
    if faults:
        raise InvalidInput(f"{text!r} is no pair of schedulers", faults=faults)
    return allocator, mapper


def pairs() -> tuple[str, ...]:
    """Every pair that there is."""
    return tuple(f"{a}+{m}" for a in ALLOCATORS for m in MAPPERS if not pair_faults(a, m))


def mapper_for(allocator: str) -> str:
    """The mapper that goes with an allocator when none is chosen."""
    return "rsm" if allocator == "lsa" else "sam"
