"""A thread whose rows cost more than its siblings': in virtual time, named and taken to another slot, once."""

from __future__ import annotations

from array import array

import pytest
from msgspec.structs import replace

from headgate.controller.analyze import costly_threads
from headgate.controller.core.loop import Loop
from headgate.controller.knowledge.controller_config import ControllerSettings
from headgate.controller.knowledge.journal_records import Submitted
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.wire.messages import SampleBlock
from scenarios import virtual_scenario as virtual
from scenarios.scenario_shapes import Scenario, steps

FROM_S = 10


class Watched:
    """A run in virtual time, in which rows cost more in one slot of `work`'s: the slot of a process."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, seconds: int, times: float, vms: bool = False
    ) -> None:
        self.loops: list[Loop] = []
        self.slot: Slot | None = None
        self.times, self.of_vm = times, vms
        watched = self

        def made(settings: ControllerSettings, submitted: Submitted) -> Loop:
            watched.loops.append(Loop(settings, submitted))
            return watched.loops[-1]

        class DearSampler(virtual.TrueSampler):
            def __call__(self, block: SampleBlock) -> SampleBlock:
                return watched.costing_more(super().__call__(block))

        monkeypatch.setattr(costly_threads, "ROWS_LEAST", 10)  # each takes a third of a second
        monkeypatch.setattr(virtual, "Loop", made)
        monkeypatch.setattr(virtual, "TrueSampler", DearSampler)
        for _ in virtual.tried(Scenario("watched", "", steps((0, 14.0))), seconds):
            pass

    @property
    def loop(self) -> Loop:
        return self.loops[0]

    def costing_more(self, block: SampleBlock) -> SampleBlock:
        """Of the first slot that holds threads of `work` alone, from `FROM_S` on."""
        columns = {name: array("q", block.threads[name]) for name in ("slot", "cpu_ns")}
        work = [task == "work" for task in block.tasks]
        if block.wall_ns - virtual.WALL_NS < FROM_S * 10**9:
            return block
        if self.slot is None and any(work):
            self.slot = Slot(block.vm, columns["slot"][work.index(True)])
        for place, number in enumerate(columns["slot"]):
            here = self.slot is not None and self.slot.vm == block.vm
            if here and work[place] and (self.of_vm or self.slot == Slot(block.vm, number)):
                columns["cpu_ns"][place] = round(columns["cpu_ns"][place] * self.times)
        return replace(block, threads={**block.threads, "cpu_ns": columns["cpu_ns"].tobytes()})

    def said(self) -> list[str]:
        return [event["text"] for event in self.loop.knowledge.events if event["kind"] == "thread"]


def test_it_is_named_and_goes_on_in_another_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, 110, 1.5)
    (said,) = watched.said()
    assert "of work in " in said and "1.5 times the CPU of its siblings'" in said
    k = watched.loop.knowledge
    reasons = [rollout.reason for rollout in k.durable.rollouts]
    assert reasons.count("thread_costly") == 1, reasons
    assert k.plan is not None and watched.slot not in {bundle.slot for bundle in k.plan.placement.bundles}


def test_where_its_vm_is_costly_no_thread_is(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, 95, 1.5, vms=True)
    assert watched.said() == []
