"""A small world whose source takes what comes by itself."""

from __future__ import annotations

from collections.abc import Callable

from enactment_world import MODELS, TOPOLOGY, WALL0, FakeVm, S, World, vm
from msgspec.structs import replace

from headgate.controller.core.loop import Loop
from headgate.controller.knowledge.records import Submitted
from headgate.topology_runtime import messages as m

SOURCE = replace(TOPOLOGY.tasks[0], arriving=True)
ARRIVING = replace(TOPOLOGY, tasks=(SOURCE, *TOPOLOGY.tasks[1:]))


class ArrivingVm(FakeVm):
    """A VM whose source takes what comes, and reads at most so many rows a second of it."""

    world: ArrivingWorld

    def run_sources(self, wall_ns: int) -> None:
        for source in self.sources.values():
            if source.reading and self.desired is not None and self.desired.schedule is not None:
                most = source.emitted + max(1, int(self.world.carries_tps / 20))
                source.emitted = max(source.emitted, min(self.world.arrived, most))
            source.acked = source.emitted

    def report(self) -> m.Report:
        report, world = super().report(), self.world
        said = []
        for now in report.sources:
            waits = world.arrived - now.emitted
            oldest_ns = world.now.wall_ns - int(waits / max(world.comes_tps, 1.0) * S) if waits > 0 else 0
            times = {"oldest_ns": oldest_ns, "seen_ns": world.now.wall_ns}
            said.append(replace(now, arrived=max(world.arrived, now.emitted), **times))
        return replace(report, sources=tuple(said))


class ArrivingWorld(World):
    """`comes_tps` rows a second come from the beginning of the run on; `carries_tps` of them are read."""

    vm_kind = ArrivingVm

    def __init__(self, comes_tps: float, told_tps: float, uncapped: bool = True) -> None:
        self.comes_tps, self.carries_tps = comes_tps, 1e6
        self._arrived, self._at_ns = 0.0, 0
        super().__init__((vm("vm1", 8), vm("vm2", 8)))
        self.submitted = Submitted(ARRIVING, MODELS, ((0.0, told_tps),), 0.0, (), WALL0, uncapped)
        self.loop = Loop(self.settings, self.submitted)

    @property
    def arrived(self) -> int:
        schedule = self.loop.knowledge.durable.schedule
        if schedule is not None and self.now.wall_ns > schedule.start_ns:
            began_ns = self._at_ns or schedule.start_ns
            self._at_ns = min(
                self.now.wall_ns, schedule.end_ns or self.now.wall_ns
            )  # none is taken after the end
            self._arrived += self.comes_tps * max(0, self._at_ns - began_ns) / S
        return int(self._arrived)

    @property
    def rates(self) -> dict[str, object]:
        return dict(self.ask("status").data["rates"])

    def plans_between(self, begin_s: float, end_s: float) -> list[dict[str, object]]:
        return [d for d in self.traces if d["action"] in ("plan", "adopt")]

    @property
    def planned_tps(self) -> float:
        plan = self.loop.knowledge.plan
        assert plan is not None
        return plan.rate_tps

    def seconds_until(self, what: Callable[[], bool], most_s: float) -> float:
        passed = 0.0
        while not what():
            assert passed < most_s, self.ask("status").data["rates"]
            self.run(0.25)
            passed += 0.25
        return passed
