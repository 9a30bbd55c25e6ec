"""A world whose tasks say to each other what they are told to, in rows of given sizes, and use the CPU they are told
to: samples tell of it by the threads that there are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from enactment_world import MEMORY, FakeVm, World, ints, vm
from msgspec.structs import replace

from headgate.controller.core.loop import Loop
from headgate.controller.knowledge import turns as t
from headgate.controller.knowledge.models import Model, ModelSlot, Point
from headgate.topology_runtime import messages as m
from headgate.topology_runtime.topology import Edge, Static, Task, Topology

RATE = 100
PIPE = Topology(
    "pipe",
    (
        Task("source", kind="source", static=Static(1, 0.05, 0.05)),
        Task("a"),
        Task("b"),
        Task("c"),
        Task("d"),
        Task("e"),
        Task("sink", static=Static(1, 0.05, 0.05)),
    ),
    tuple(
        Edge(*ends) for ends in (("source", "a"), ("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "sink"))
    ),
)  # fmt: skip
ENDS = [(edge.source, edge.target) for edge in PIPE.edges]
LARGE = ("b", "c")  # an edge that rows alone do not tell from the others
BYTES = dict.fromkeys(ENDS, 20) | {LARGE: 2000}
MODELS = tuple(
    Model(name, ModelSlot(1.0, MEMORY), (Point(1, RATE * 1.5, 0.55, 0.05),)) for name in "abcde"
)  # two threads nearly fill a slot


class TraffickedWorld(World):
    """sizes: edge → bytes of a row; cores: task → CPU of all its threads."""

    vms: dict[str, FakeVm]

    def __init__(
        self,
        sizes: Mapping[tuple[str, str], int] = BYTES,
        cores: Mapping[str, float] | None = None,
        models: tuple[Model, ...] = MODELS,
        **given: Any,
    ) -> None:
        given = {
            "vms": [vm(f"vm{n}", 1) for n in (1, 2, 3)],
            "mapper": "traffic",
            "rate_tps": float(RATE),
            **given,
        }
        super().__init__(**given)
        self.sizes, self.cores = dict(sizes), dict(cores or {})
        self.submitted = replace(self.submitted, topology=PIPE, models=models)
        self.loop = Loop(self.settings, self.submitted)

    def where(self) -> dict[str, list[str]]:
        """Task → the VMs of its threads that do not leave."""
        found: dict[str, list[str]] = defaultdict(list)
        for bundle in self.rollout.plan.placement.bundles:
            found[bundle.task] += [bundle.slot.vm] * bundle.threads
        return dict(found)

    def reasons(self) -> list[str]:
        """Of the plans that came into force."""
        return [d["trigger"] for d in self.traces if d["action"] == "plan"]  # type: ignore[misc]

    def between_vms(self) -> float:
        """Bytes/s, of each edge its rows times their size times the part of its pairs of threads that are apart."""
        total, where = 0.0, self.where()
        for source, target in ENDS:
            pairs = [(x, y) for x in where[source] for y in where[target]]
            total += RATE * self.sizes[source, target] * sum(x != y for x, y in pairs) / len(pairs)
        return total

    def do(self, event: t.Event) -> list[t.Instruction]:
        if isinstance(event, t.FromVm) and isinstance(event.message, m.SampleBlock):
            event = t.FromVm(self.told(event.message))
        return super().do(event)

    def told(self, block: m.SampleBlock) -> m.SampleBlock:
        """The block with what came to this VM's threads, and what they used."""
        threads = [
            (thread, name)
            for name, one in self.vms.items()
            for worker in one.workers.values()
            for thread in worker.threads.values()
            if not thread.leaving
        ]
        rows = []
        for source, target in ENDS:
            pairs = [
                (x, of, y, to)
                for x, of in threads
                for y, to in threads
                if (x.task, y.task) == (source, target)
            ]
            for x, of, y, to in pairs:
                if to == block.vm:
                    part = RATE // len(pairs)
                    size = part * self.sizes[source, target] if (of, x.slot) != (to, y.slot) else 0
                    rows.append((x.thread, y.thread, part, size, 1, 0, 0))
        links = {
            name: ints(column) for name, column in zip(m.LINK_COLUMNS, zip(*rows, strict=True), strict=False)
        }
        mine = [thread for thread, name in threads if name == block.vm]
        counts = defaultdict(int)
        for thread, _ in threads:
            counts[thread.task] += 1
        each = {task: int(cores * 1e9 / max(1, counts[task])) for task, cores in self.cores.items()}
        columns = dict(block.threads) | {"cpu_ns": ints(each.get(task, 0) for task in block.tasks)}
        slots = dict(block.slots)
        numbers = sorted({thread.slot.number for thread in mine})
        used = [sum(each.get(x.task, 0) for x in mine if x.slot.number == number) for number in numbers]
        slots |= {"slot": ints(numbers), "cpu_ns": ints(min(10**9, ns) for ns in used)}
        slots |= {name: ints([0] * len(numbers)) for name in m.SLOT_COLUMNS if name not in ("slot", "cpu_ns")}
        return replace(block, links=links or block.links, threads=columns, slots=slots)
