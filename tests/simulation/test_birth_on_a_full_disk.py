"""A controller that is started again while its disk is full begins its life once the disk takes records.
The simulation found one that knew nothing for ever after."""

from __future__ import annotations

from headgate.controller.knowledge import turns as t
from headgate.controller.simulation.clock import S
from headgate.controller.simulation.world import Options, SimWorld


def test_a_controller_started_on_a_full_disk_begins_when_the_disk_heals() -> None:
    world = SimWorld(1, Options(shape="line", faults=0))
    world.begin()
    world.clock.run_until(4 * S)
    epoch = world.checks.durable.next_epoch
    world.disk.fails = True
    world.controller.kill("kill -9")
    world.clock.run_until(7 * S)
    reply = world.controller.ask("status")
    assert reply is not None and reply.error is not None and "not begun" in reply.error[2]
    world.disk.fails = False
    world.clock.run_until(9 * S)
    durable = world.controller.loop.knowledge.durable
    assert (durable.boot, durable.next_epoch) == (2, epoch)
    assert durable.phase in ("probation", "committed")
    reply = world.controller.ask("status")
    assert reply is not None and reply.error is None


def test_told_to_end_before_it_could_begin_it_ends() -> None:
    world = SimWorld(1, Options(shape="line", faults=0))
    world.disk.fails = True
    world.controller.start()
    world.controller.do(t.Stopping("asked by a signal"))
    assert world.controller.finish is not None and world.controller.finish.error is not None
