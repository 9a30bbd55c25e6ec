"""A controller that waits for a topology, and VMs whose agents measure tasks as they are told: each in so many seconds,
or not at all. What is wrong with two profiles in one slot, or one beside a worker, is said at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from enactment_world import FakeVm, S, World, vm
from msgspec.structs import replace

from headgate.controller.core.loop import Loop
from headgate.controller.knowledge import turns as t
from headgate.controller.knowledge.models import Model
from headgate.topology_runtime import messages as m
from headgate.topology_runtime.cluster import Vm
from headgate.topology_runtime.profiles import ProfileAt, Profiled, ProfileSpec
from headgate.topology_runtime.topology import Edge, Static, Task, Topology

NAMES = ("a", "b", "c")
CHAIN = Topology(
    "chain",
    (
        Task("source", "source", static=Static(1, 0.1, 0.1)),
        *(Task(name, run=f"x:{name}") for name in NAMES),
        Task("sink", static=Static(1, 0.1, 0.1)),
    ),
    tuple(Edge(x, y) for x, y in zip(("source", *NAMES), (*NAMES, "sink"), strict=True)),
)


def model_of(task: str, rate_tps: float, machine: str = "") -> dict[str, Any]:
    """Of slots as those of `vm`."""
    points = [{"threads": n, "rate_tps": rate_tps * n, "cpu": 0.2 * n, "memory": 0.1} for n in (1, 2)]
    slot = {"cores": 1.0, "memory_bytes": 1 << 29, "machine": machine}
    return {"schema": "headgate/model/v1", "task": task, "slot": slot, "points": points, "complete": True}


class MeasuringVm(FakeVm):
    """machine: its kind. rate_tps: what it finds of every task. unable: why it cannot measure; dumb: never begins."""

    world: MeasuringWorld
    machine = "slow-1"
    rate_tps = 40.0
    unable = ""
    dumb = False

    def __init__(self, world: World, shape: Vm, boot: int) -> None:
        super().__init__(world, shape, boot)
        self.profiles: dict[int, tuple[ProfileSpec, int]] = {}  # number → it, and when it ends
        self.outcomes: dict[int, Profiled] = {}

    def hello(self) -> m.Hello:
        return replace(super().hello(), machine=self.machine)

    def tell(self, desired: m.DesiredState, ready_ns: int) -> None:
        super().tell(desired, ready_ns)
        named = {spec.number: spec for spec in desired.profiles if spec.slot.vm == self.name}
        self.outcomes = {number: said for number, said in self.outcomes.items() if number in named}
        for number in self.profiles.keys() - named.keys():
            self.world.ended.append(self.profiles.pop(number)[0])
        for number, spec in named.items():
            if number not in self.profiles and number not in self.outcomes and not self.dumb:
                self.profiles[number] = spec, self.world.mono_ns + int(self.world.measure_s * S)
                self.world.begun.append(spec)
        slots = [spec.slot for spec, _ in self.profiles.values()]
        assert len(set(slots)) == len(slots), "two profiles in one slot"
        assert not {slot for slot, one in self.workers.items() if one.state == "running"} & set(slots)

    def report(self) -> m.Report:
        at = tuple(ProfileAt(number, 1, 4) for number in sorted(self.profiles))
        return replace(super().report(), profiles=at)

    def restart(self) -> None:
        super().restart()
        self.profiles.clear()
        self.outcomes.clear()

    def due(self) -> list[Profiled]:
        """Those that have ended meanwhile, and those whose end was not heard."""
        for number, (spec, end_ns) in list(self.profiles.items()):
            if self.world.mono_ns >= end_ns:
                del self.profiles[number]
                data = msgspec.json.encode(model_of(spec.task, self.rate_tps, self.machine))
                raises = spec.task in self.world.raising
                error = "ValueError: no" if raises else self.unable
                self.outcomes[number] = Profiled(self.name, number, b"" if error else data, error, raises)
        return list(self.outcomes.values())


class MeasuringWorld(World):
    """begun, ended: profiles, in order; ended: those that were told to. raising: tasks whose code fails."""

    vm_kind = MeasuringVm
    vms: dict[str, MeasuringVm]

    def __init__(self, *vms: str, slots: int = 4, **settings: Any) -> None:
        self.begun: list[ProfileSpec] = []
        self.ended: list[ProfileSpec] = []
        self.raising: set[str] = set()
        self.measure_s = 5.0
        super().__init__(tuple(vm(name, slots) for name in vms or ("vm1", "vm2")), **settings)
        self.loop = Loop(self.settings)
        self.number = 0

    def do_hello(self, name: str) -> None:
        self.do(t.FromVm(self.vms[name].hello()))

    def new_life(self, *later: str) -> None:
        """Of the controller, which was killed; it hears reports first, and then each agent says again who it is, but
        for these."""
        self.loop = Loop(self.settings)
        self._folded = (-1, self._folded[1])
        self.do(t.Started(tuple(self.journal), self.tallies, 2, tuple(self.letters)))
        self.run(0.4)
        for name, one in self.vms.items():
            if one.speaks and name not in later:
                self.do_hello(name)

    def heal(self, name: str) -> None:
        self.vms[name].cut = False
        self.do_hello(name)

    def look(self) -> Iterator[t.Event]:
        yield from super().look()
        for one in self.vms.values():
            yield from [t.FromVm(said) for said in one.due() if one.speaks]

    def submit(self, **more: Any) -> m.Reply:
        """What was answered; its number is kept."""
        given = {"topology": msgspec.to_builtins(CHAIN), "models": [], "steps": [[0, 50]], "measure": True}
        reply = self.ask("submit", **{**given, **more})
        if reply.error is None:
            assert isinstance(reply.data, dict)
            self.number = int(reply.data.get("submission", 0))
        return reply

    def stands(self) -> dict[str, Any]:
        reply = self.ask("submission", number=self.number)
        assert isinstance(reply.data, dict)
        return reply.data

    @property
    def models(self) -> dict[str, Model]:
        return self.loop.knowledge.models
