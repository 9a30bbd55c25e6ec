"""A source that moves while its rows wait for long: the successor begins before the leaver has run empty, and
when the leaver dies then, what it had open is read again."""

from __future__ import annotations

from headgate.controller.simulation.clock import MS, S
from headgate.controller.simulation.thread import SimSource
from headgate.controller.simulation.world import Options, SimWorld

SEED = 3
WAIT_MS = 33_000  # rows wait so long at the sink: longer than a successor waits


def sources(world: SimWorld) -> list[SimSource]:
    threads = [t for worker in world.workers() for t in worker.threads.values()]
    return [t for t in threads if isinstance(t, SimSource)]


def handed_over() -> tuple[SimWorld, SimSource]:
    """A world in which the successor reads and the leaver has rows open; the leaver."""
    world = SimWorld(SEED, Options(shape="line", faults=0, rate_tps=8.0, vms_least=2, parted=False))
    world.begin()
    world.clock.run_until(4 * S)
    world.options = Options(shape="line", faults=0, rate_tps=8.0, vms_least=2, queue_ms=WAIT_MS)
    world.clock.run_until(5 * S)
    old = sources(world)[0]
    reply = world.controller.ask("plan", rate_tps=20.0, propose=True)
    assert reply is not None and reply.error is None
    world.swap()
    world.controller.ask("apply")
    while not any(t is not old and t.source.ledger for t in sources(world)):
        world.clock.run_until(world.now_ns + 100 * MS)
        assert world.now_ns < 40 * S, "no successor begins"
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
    while not (world.disk.tallies and world.disk.tallies.sources[0].apart):
        world.clock.run_until(world.now_ns + 100 * MS)
    kept = world.disk.tallies.sources[0]
    assert kept.acked > world.account.of(old.place).prefix, "the successor begins behind what is open"
    world.clock.run_until(world.now_ns + S)
    finish(world)


def test_a_leaver_that_is_killed_then_reads_again_what_it_had_open() -> None:
    world, old = handed_over()
    old.worker.kill("kill -9")
    finish(world)


def test_so_it_does_when_the_controller_is_killed_as_well() -> None:
    world, old = handed_over()
    world.controller.kill("kill -9")
    old.worker.kill("kill -9")
    finish(world)


def test_a_leaver_that_is_lost_with_its_vm_is_read_again_at_once() -> None:
    world, old = handed_over()
    assert old.source.ledger is not None
    left_open = old.source.ledger.acked
    known = world.controller.loop.knowledge.counts.source("source", 0)
    assert known.acked <= left_open < known.emitted
    old.worker.agent.lose()
    finish(world)


def test_so_it_is_when_the_controller_is_killed_as_well() -> None:
    world, old = handed_over()
    old.worker.agent.lose()
    world.clock.run_until(world.now_ns + 100 * MS)
    world.controller.kill("kill -9")
    finish(world)
