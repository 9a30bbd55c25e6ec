"""A source that moves while its rows wait for long: the successor begins before the leaver has run empty, and
when the leaver dies then, what it had open is read again."""

from __future__ import annotations

import pytest
from source_stories import proposed, sources, until

from headgate.lab.simulation.simulated_thread import SimSource
from headgate.lab.simulation.simulated_world import Options, SimWorld
from headgate.lab.simulation.virtual_time import MS, S

SEED, OF_THREE_VMS = 3, 5
WAIT_MS = 33_000  # rows wait so long at the sink: longer than a successor waits


def handed_over(seed: int = SEED) -> tuple[SimWorld, SimSource]:
    """A world in which the successor reads and the leaver has rows open; the leaver."""
    world = SimWorld(seed, Options(shape="line", faults=0, rate_tps=8.0, vms_least=2, parted=False))
    world.begin()
    world.clock.run_until(4 * S)
    world.options = Options(shape="line", faults=0, rate_tps=8.0, vms_least=2, queue_ms=WAIT_MS)
    world.clock.run_until(5 * S)
    old = sources(world)[0]
    proposed(world)
    world.swap()
    world.controller.ask("apply")
    until(world, lambda: any(t is not old and t.source.ledger for t in sources(world)), 35, 100 * MS)
    assert old.alive and old.source.ledger is not None and not old.source.ledger.empty
    return world, old


def finish(world: SimWorld) -> None:
    world.options = Options(shape="line", faults=0)
    world.clock.run_until(world.now_ns + 20 * S)
    known = world.controller.loop.knowledge.counts.source("source", 0)
    assert known.emitted - known.acked < 30 and not known.apart, "all is done but the newest rows"
    world.end()


def test_a_position_is_done_only_when_the_leaver_is_past_it_too() -> None:
    world, old = handed_over()
    assert old.source.ledger is not None
    known = world.controller.loop.knowledge.counts.source("source", 0)
    assert known.acked <= old.source.ledger.acked
    finish(world)


def test_what_is_kept_on_disk_then_names_what_the_leaver_has_open() -> None:
    """The account took the kept position of the successor for that of the whole partition."""
    world, old = handed_over()
    until(world, lambda: world.disk.tallies and world.disk.tallies.sources[0].apart, step_ns=100 * MS)
    kept = world.disk.tallies.sources[0]
    assert kept.acked > world.account.of(old.place).prefix, "the successor begins behind what is open"
    world.clock.run_until(world.now_ns + S)
    finish(world)


@pytest.mark.parametrize("controller_too", [False, True])
def test_a_leaver_that_is_killed_then_reads_again_what_it_had_open(controller_too: bool) -> None:
    world, old = handed_over()
    if controller_too:
        world.controller.kill("kill -9")
    old.worker.kill("kill -9")
    finish(world)


@pytest.mark.parametrize("controller_too", [False, True])
def test_a_leaver_that_is_lost_with_its_vm_is_read_again_at_once(controller_too: bool) -> None:
    world, old = handed_over()
    assert old.source.ledger is not None
    left_open = old.source.ledger.acked
    known = world.controller.loop.knowledge.counts.source("source", 0)
    assert known.acked <= left_open < known.emitted
    old.worker.agent.lose()
    if controller_too:
        world.clock.run_until(world.now_ns + 100 * MS)
        world.controller.kill("kill -9")
    finish(world)


def gone(world: SimWorld, old: SimSource) -> bool:
    rollout = world.controller.loop.knowledge.durable.rollout
    return rollout is not None and old.desired.thread not in rollout.by_number


def reader_of(world: SimWorld) -> SimSource:
    """Who is to stay."""
    rollout = world.controller.loop.knowledge.durable.rollout
    assert rollout is not None
    staying = {thread.thread for thread in rollout.threads if not thread.leaving}
    return next(thread for thread in sources(world) if thread.desired.thread in staying)


def test_a_leaver_that_is_lost_as_its_successor_begins_anew_is_read_again() -> None:
    """The successor has been told where to begin, and not said yet that it has: it begins behind what was open."""
    world, old = handed_over()
    old.worker.agent.lose()
    lost_s = until(world, lambda: gone(world, old))
    world, old = handed_over()
    reader = reader_of(world)
    old.worker.agent.lose()
    world.clock.run_until(world.now_ns + int((lost_s - 0.04) * S))
    reader.worker.kill("kill -9")
    until(world, lambda: gone(world, old))
    finish(world)


def test_when_its_successor_is_lost_too_whoever_reads_next_begins_where_the_leaver_left_rows_open() -> None:
    world, _ = handed_over(OF_THREE_VMS)
    for source in sources(world):
        source.worker.agent.lose()
    for _ in range(40):
        world.clock.run_until(world.now_ns + S // 2)
        world.resume()
    finish(world)
