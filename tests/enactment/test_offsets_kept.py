"""Sources with offsets let go only what a later controller would not read again."""

from __future__ import annotations

from arriving_world import ARRIVING, SOURCE, ArrivingVm, ArrivingWorld
from enactment_world import MODELS, WALL0
from msgspec.structs import replace

from headgate.controller.core.loop import Loop
from headgate.controller.knowledge import loop_events as t
from headgate.controller.knowledge.journal_records import Submitted
from headgate.controller.knowledge.knowledge import RunCounts
from headgate.topology_runtime.wire import messages as m

OFFSETS = replace(ARRIVING, tasks=(replace(SOURCE, offsets=True), *ARRIVING.tasks[1:]))


class OffsetsVm(ArrivingVm):
    """The row at a position has ten times its offset."""

    def report(self) -> m.Report:
        report = super().report()
        said = [replace(now, offsets=((now.acked, 10 * now.acked),)) for now in report.sources]
        return replace(report, sources=tuple(said))


class OffsetsWorld(ArrivingWorld):
    vm_kind = OffsetsVm
    kept = True  # does the disk take what is to be kept?

    def __init__(self, exactly_once: bool = False) -> None:
        super().__init__(100.0, 100.0)
        self.settings = replace(self.settings, exactly_once=exactly_once)
        self.submitted = Submitted(OFFSETS, MODELS, ((0.0, 100.0),), 0.0, (), WALL0, True)
        self.loop = Loop(self.settings, self.submitted)

    def perform(self, instruction: t.Instruction) -> None:
        if self.kept or not isinstance(instruction, t.KeepTallies):
            super().perform(instruction)

    @property
    def told(self) -> list[m.OffsetsKept]:
        return [message for _, message in self.sent if isinstance(message, m.OffsetsKept)]

    @property
    def begins_again(self) -> int:
        """The offset from which a controller begins that has nothing but the disk."""
        counts = RunCounts()
        assert self.tallies is not None
        counts.recall(self.tallies)
        known = counts.source("source", 0)
        return known.go_on_from(known.acked)[0]


def running(exactly_once: bool = False) -> OffsetsWorld:
    world = OffsetsWorld(exactly_once)
    world.start()
    world.until("committed")
    world.run(5.0)
    return world


def test_an_agent_hears_what_the_disk_has_and_no_more() -> None:
    world = running()
    vm, word = next((vm, said) for vm, said in reversed(world.sent) if isinstance(said, m.OffsetsKept))
    thread = world.source_thread()
    assert vm == thread.slot.vm and word == m.OffsetsKept(1, ((thread.thread, world.begins_again),))
    assert world.begins_again > 1000


def test_nothing_is_told_while_the_disk_takes_nothing() -> None:
    world = running()
    told, again = world.told, world.begins_again
    world.kept = False
    world.run(5.0)
    assert world.told == told and world.begins_again == again
    world.kept = True
    world.run(2.0)
    assert world.told[-1].offsets[0][1] > again


def test_keyed_state_that_counts_exactly_may_forget_what_the_disk_has_and_no_more() -> None:
    world = running(exactly_once=True)
    assert world.told[-1].positions == ((0, 0, world.begins_again // 10),)
    world.kept = False
    told = world.told
    world.run(5.0)
    assert world.told == told
    assert not running().told[-1].positions


def test_before_a_run_is_over_all_that_is_done_is_told() -> None:
    world = running()
    world.ask("stop")
    world.run(20.0)
    ends = next(n for n, (_, said) in enumerate(world.sent) if isinstance(said, m.Shutdown))
    (offset,) = (
        one for _, one in [s for _, s in world.sent[:ends] if isinstance(s, m.OffsetsKept)][-1].offsets
    )
    assert offset == 10 * world.loop.knowledge.counts.source("source", 0).emitted
