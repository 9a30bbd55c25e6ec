"""A VM whose clock is set: what was measured before is let go, and said; by one that lies about it, not for ever."""

from __future__ import annotations

import pytest
from enactment_world import World
from msgspec.structs import replace

from headgate.controller.knowledge import turns as t
from headgate.controller.monitor.border import check
from headgate.topology_runtime.errors import BadMessage

S, MS = 1_000_000_000, 1_000_000


def running() -> World:
    return World().start().until("committed")


def tell(world: World, *clock: int, vm: str = "vm1") -> None:
    report = replace(world.vms[vm].report(), clock=clock)  # type: ignore[arg-type]
    world.do(t.FromVm(report))


def steps(world: World) -> list[str]:
    return [str(event["text"]) for event in world.loop.knowledge.events if event["kind"] == "clock_step"]


def test_a_clock_that_is_set_lets_the_window_go() -> None:
    world = running()
    tell(world, 0, MS)
    before = world.loop.intake
    tell(world, 3600 * S, MS)
    assert world.loop.intake is not before
    assert steps(world) == [
        "the clock of vm1 was set by -3600.000 s, or the controller's: what was measured before is let go"
    ]


@pytest.mark.parametrize("clock", [(20 * MS, MS), (60 * MS, 20 * MS), (3600 * S, 0)])
def test_what_lies_within_the_errors_or_is_not_known_is_no_step(clock: tuple[int, int]) -> None:
    world = running()
    tell(world, 0, MS)
    before = world.loop.intake
    tell(world, *clock)
    assert world.loop.intake is before and not steps(world)


def test_an_agent_that_says_so_with_every_report_is_believed_twice_a_minute() -> None:
    world = running()
    for _ in range(240):
        tell(world, 0, MS)
        tell(world, 3600 * S, MS)
        world.run(0.25)
    assert len(steps(world)) == 2


@pytest.mark.parametrize("clock", [((1 << 62) + 1, MS), (-(1 << 63), MS), (0, -1)])
def test_a_clock_that_cannot_be_is_refused(clock: tuple[int, int]) -> None:
    world = running()
    check(replace(world.vms["vm1"].report(), clock=(-(10**17), MS)))
    with pytest.raises(BadMessage):
        check(replace(world.vms["vm1"].report(), clock=clock))
