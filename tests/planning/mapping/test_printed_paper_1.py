"""Paper 1's mappers beside its text, on seeded worlds whose numbers are exact: α, Eq. 1 and 2, and moves."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from msgspec.structs import replace
from printed_traffic import PrintedWorld, offline, schedule
from worlds import vms_of

from headgate.controller.models.plans import Allocation, Placement, TaskAllocation, TaskFlow
from headgate.controller.plan.mappers.free_slots import Room, TopologySpread
from headgate.controller.plan.mappers.topology_based import most_in_slot, topology_based
from headgate.controller.plan.mappers.traffic_based import traffic_based
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.errors import Infeasible

WORLDS = 400
ALPHAS = (0.0, 0.0, 0.25, 0.5, 1.0)


def made_world(seed: int, printed: bool) -> tuple[Allocation, Room, PrintedWorld]:
    """Loads in 64ths and whole rates, so that every sum is exact whatever its order."""
    chance = random.Random(seed)
    count = chance.randint(2, 5)
    threads = [chance.randint(1, 4) for _ in range(count)]
    loads = [chance.choice((2, 4, 8, 16, 24)) / 64 for _ in range(count)]
    sizes = [chance.choice((1, 4, 16)) / 64 for _ in range(count)]
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    joined = sorted(chance.sample(pairs, chance.randint(1, min(len(pairs), count))))
    rates = {(a, b): float(chance.randint(1, 9)) for a, b in joined}
    slots = [chance.randint(1, 3) for _ in range(chance.randint(1, 4))]
    alpha, bound = chance.choice(ALPHAS), chance.choice((1.0, 1.0, 0.75, 0.5))
    tasks = tuple(
        TaskAllocation(f"t{n}", 1.0, threads[n], loads[n] * threads[n], sizes[n] * threads[n])
        for n in range(count)
    )
    flows = tuple(
        TaskFlow(f"t{a}", f"t{b}", rate * threads[a] * threads[b]) for (a, b), rate in rates.items()
    )
    room = Room(
        vms_of(*slots),
        flows=flows,
        spread=TopologySpread(alpha, 0.5),
        as_printed=printed,
        bounds={"": bound, "vm1": 1.0},
    )
    nodes = [(n, float(n) * (1.0 if place == 0 else bound)) for place, n in enumerate(slots)]
    world = PrintedWorld(threads, loads, sizes, rates, nodes, alpha, printed)
    return Allocation("mba", 1.0, tasks, 1), room, world


def contents_of(placement: Placement, room: Room) -> list[list[tuple[tuple[str, int], ...]]]:
    """Of each VM, what its slots hold, in no order."""
    held: dict[str, dict[int, dict[str, int]]] = {vm.vm: {} for vm in room.vms}
    for bundle in placement.bundles:
        held[bundle.slot.vm].setdefault(bundle.slot.number, {})[bundle.task] = bundle.threads
    return [sorted(tuple(sorted(one.items())) for one in held[vm.vm].values()) for vm in room.vms]


def contents_printed(world: PrintedWorld) -> list[list[tuple[tuple[str, int], ...]]]:
    found: list[list[tuple[tuple[str, int], ...]]] = [[] for _ in world.nodes]
    for worker, node in world.a2.items():
        held = Counter(f"t{x[0]}" for x, at in world.a1.items() if at == worker)
        found[node].append(tuple(sorted(held.items())))
    return [sorted(contents) for contents in found]


def placed(allocation: Allocation, room: Room) -> Placement | None:
    try:
        return traffic_based(allocation, room)
    except Infeasible:
        return None


@pytest.mark.parametrize("printed", [True, False])
def test_every_world_is_scheduled_as_the_text_says(printed):
    """Threads to slots and slots to VMs are those of the printed phases, or both find that they do not fit."""
    refused = 0
    for seed in range(WORLDS):
        allocation, room, world = made_world(seed, printed)
        fits, found = schedule(world), placed(allocation, room)
        assert (found is not None) == fits, seed
        refused += not fits
        if found is not None:
            assert contents_of(found, room) == contents_printed(world), seed
    assert 0 < refused < WORLDS / 2


def test_every_world_is_scheduled_offline_as_the_text_says():
    """Threads beside what feeds them, at most M(α), empty slots first from β on; slots round robin over nodes."""
    for seed in range(WORLDS):
        chance = random.Random(seed)
        threads = [chance.randint(1, 5) for _ in range(chance.randint(1, 6))]
        pairs = [(a, b) for a in range(len(threads)) for b in range(a + 1, len(threads))]
        feeds = set(chance.sample(pairs, chance.randint(0, len(pairs))))
        sizes = [chance.randint(1, 3) for _ in range(chance.randint(1, 4))]
        spread = TopologySpread(chance.choice(ALPHAS), chance.choice((0.0, 0.3, 0.5, 0.8, 1.0)))
        tasks = tuple(TaskAllocation(f"t{n}", 1.0, count, 0.1, 0.1) for n, count in enumerate(threads))
        flows = tuple(TaskFlow(f"t{a}", f"t{b}", 1.0) for a, b in sorted(feeds))
        room = Room(vms_of(*sizes), flows=flows, spread=spread)
        found = topology_based(Allocation("mba", 1.0, tasks, 1), room)
        order = [Slot(f"vm{vm}", n) for n in range(3) for vm, size in enumerate(sizes, 1) if n < size]
        printed = offline(threads, feeds, len(order), spread.alpha, spread.beta)
        expected = {
            (slot, f"t{c}"): held.count(c) for slot, held in zip(order, printed, strict=True) for c in held
        }
        assert {(b.slot, b.task): b.threads for b in found.bundles} == expected, seed


def test_as_printed_exactly_so_many_slots_are_in_use_of_at_most_so_many_threads():
    """Eq. 2: min(E, W); and no slot has more than M(α)."""
    looked = 0
    for seed in range(WORLDS):
        allocation, room, _ = made_world(seed, True)
        found = placed(allocation, room)
        if found is None:
            continue
        looked += 1
        threads, slots = sum(task.threads for task in allocation.tasks), len(room.slots())
        held: Counter[object] = Counter()
        for bundle in found.bundles:
            held[bundle.slot] += bundle.threads
        assert len(held) == min(threads, slots), seed
        assert max(held.values()) <= most_in_slot(threads, slots, room.spread.alpha), seed
    assert looked > WORLDS / 2


def test_no_vm_is_over_its_bound():
    """Eq. 1, of each VM by itself: two fit below 0.6 of vm1, the others have to be on vm2."""
    tasks = tuple(TaskAllocation(name, 1.0, 2, 0.5, 0.1) for name in "abc")
    allocation = Allocation("mba", 1.0, tasks, 1)
    flows = (TaskFlow("a", "b", 9.0), TaskFlow("b", "c", 9.0))
    room = Room(vms_of(2, 2), flows=flows, bounds={"vm1": 0.25})
    used = Counter({vm.vm: 0 for vm in room.vms})
    for bundle in traffic_based(allocation, room).bundles:
        used[bundle.slot.vm] += bundle.threads
    assert used["vm1"] <= 2 and used["vm2"] == 6 - used["vm1"]
    with pytest.raises(Infeasible, match="bound"):
        traffic_based(allocation, replace(room, bounds={"": 0.25}))


def test_a_thread_that_is_placed_moves_where_less_is_left_so():
    """a, b share a slot by the first pair; c and d then pull b away from a, which no later step would without moves."""
    tasks = tuple(TaskAllocation(n, 1.0, 1, cpu, 0.1) for n, cpu in (("a", 0.5), ("b", 0.4), ("c", 0.3)))
    tasks += (TaskAllocation("d", 1.0, 1, 0.3, 0.1),)
    flows = (
        TaskFlow("a", "b", 9.0),
        TaskFlow("b", "c", 8.0),
        TaskFlow("b", "d", 7.0),
        TaskFlow("c", "d", 1.0),
    )
    found = traffic_based(Allocation("mba", 1.0, tasks, 1), Room(vms_of(2), flows=flows))
    where = {bundle.task: bundle.slot for bundle in found.bundles}
    assert where["b"] == where["c"] == where["d"] != where["a"]
