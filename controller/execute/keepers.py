"""Who may hold the state of each key range: what the desired state says of keyed tasks. Pure.

While a plan is in force its owners hold everything: a keyed thread says that it has switched only once its
ranges have come and gone. An enactment that is followed by another before that leaves several that may:
its owners, and whoever could hold a range before it. Before any routes were switched to, nobody has any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

from msgspec.structs import replace

from headgate.controller.knowledge.records import ALL_GO_BY_IT, Durable
from headgate.topology_runtime.cluster import Slot, Vm
from headgate.topology_runtime.messages import Keepers, Route, ThreadSpec
from headgate.topology_runtime.topology import Topology


def keepers_now(d: Durable, topology: Topology) -> tuple[Keepers, ...]:
    """By the desired state of now; `homes` are of all threads named."""
    if d.rollout is None:
        return ()
    if d.phase not in ALL_GO_BY_IT:
        return d.rollout.keepers
    return tuple(_layer(topology, d.rollout.routes_number, d.rollout.routes, d.rollout.threads, sure=True))


def keepers_next(
    d: Durable, topology: Topology, number: int, patched: tuple[Route, ...]
) -> tuple[Keepers, ...]:
    """Of a plan decided now, until it is in force. Rows go by routes `patched` until it is SWITCHED."""
    if d.rollout is None:
        return ()
    found = [*keepers_now(d, topology)]
    if d.phase != "prepared":
        found += _layer(topology, d.rollout.routes_number, d.rollout.routes, d.rollout.threads)
    found += _layer(topology, number, patched, d.rollout.threads)
    return _distinct(found)


def _layer(
    topology: Topology,
    number: int,
    routes: Iterable[Route],
    threads: Iterable[ThreadSpec],
    sure: bool = False,
) -> Iterator[Keepers]:
    """The owners by these routes, per keyed task."""
    vms = {thread.thread: thread.slot.vm for thread in threads}
    seen: set[str] = set()
    for route in routes:
        task = topology.edges[route.edge].target
        if not route.ranges or task in seen or topology.by_name[task].state != "keyed":
            continue
        seen.add(task)
        owners = sorted({thread for thread, _ in route.ranges})
        homes = tuple((thread, vms[thread]) for thread in owners if thread in vms)
        yield Keepers(task, number, route.ranges, sure, homes)


def _distinct(found: Iterable[Keepers]) -> tuple[Keepers, ...]:
    """One of each table of owners: under its newest number; sure if it was once."""
    tables: dict[tuple[str, tuple[tuple[int, int], ...]], Keepers] = {}
    for h in found:
        known = tables.setdefault((h.task, h.ranges), h)
        homes = tuple(sorted({*known.homes, *h.homes}))
        number, sure = max(known.number, h.number), known.sure or h.sure
        tables[h.task, h.ranges] = replace(known, number=number, sure=sure, homes=homes)
    return tuple(tables.values())


def answering(
    keepers: Iterable[Keepers], threads: Iterable[ThreadSpec], vms: Iterable[Vm], quarantined: Set[Slot]
) -> tuple[ThreadSpec, ...]:
    """On each VM with snapshots that may be asked for and no thread that can answer: one that can, in the place of a
    thread that had one. In a slot that is not quarantined if there is any."""
    there = {t.slot.vm for t in threads if t.slot not in quarantined}
    slots = {vm.vm: [Slot(vm.vm, number) for number in range(vm.slots)] for vm in vms}
    found: dict[str, ThreadSpec] = {}
    for h in keepers:
        for thread, vm in h.homes:
            if vm not in there and vm in slots:
                slot = next((slot for slot in slots[vm] if slot not in quarantined), slots[vm][0])
                found.setdefault(vm, ThreadSpec(thread, h.task, slot, leaving=True, answers=True))
    return tuple(found[vm] for vm in sorted(found))


def told(keepers: Iterable[Keepers], desired: set[int], vms: set[str]) -> tuple[Keepers, ...]:
    """As agents are told: `homes` only of threads that are not desired any more, on VMs that can answer."""
    return tuple(
        replace(h, homes=tuple((t, vm) for t, vm in h.homes if t not in desired and vm in vms))
        for h in keepers
    )
