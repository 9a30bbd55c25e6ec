"""A live source moves to another slot of its VM while rows of it are open: leaver and successor each have events
that they accepted, and whoever dies, nothing of either is lost."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs
from source_stories import finish, knowledge, proposed, sources, until

from headgate.lab.simulation.simulated_thread import SimSource
from headgate.lab.simulation.simulated_topologies import turned
from headgate.lab.simulation.simulated_world import Options, SimWorld
from headgate.lab.simulation.virtual_time import MS, S
from headgate.topology_runtime.wire.messages import Frame

SEED = 4
CALM = Options(shape="live", faults=0, rate_tps=8.0, parted=False)


def moved(queue_ms: float) -> tuple[SimWorld, SimSource, SimSource]:
    """A world in which the source went to another slot of its VM while rows wait so long at the sink; leaver and
    successor, which reads."""
    world = SimWorld(SEED, CALM)
    world.begin()
    world.clock.run_until(5 * S)
    world.options = replace(CALM, queue_ms=queue_ms)
    (old,) = sources(world)
    proposed(world)
    k = knowledge(world)
    assert k.proposal is not None
    k.proposal = replace(k.proposal, plan=turned(k.proposal.plan, old.worker.agent.shape))
    world.controller.ask("apply")
    until(world, lambda: [t for t in sources(world) if t is not old and t.source.ledger], 35)
    new = [t for t in sources(world) if t is not old and t.source.ledger]
    assert new[0].worker is not old.worker and new[0].worker.agent is old.worker.agent
    return world, old, new[0]


def wait_on(world: SimWorld, leaver: SimSource) -> None:
    """What the leaver sent goes on waiting at the sinks, what others send does not."""
    world.options = replace(CALM, queue_ms=1)
    for thread in leaver.worker.threads.values():
        waiting = [item for item in thread.inbox if isinstance(item, Frame)]
        thread.inbox.clear()
        thread.inbox.extend(structs.replace(frame, flushed_ns=world.now_ns + 20 * S) for frame in waiting)


def test_the_leaver_dies_when_its_successor_has_acked_what_follows() -> None:
    world, old, new = moved(queue_ms=33_000)
    assert old.alive and old.source.ledger is not None and not old.source.ledger.empty
    ledger = new.source.ledger
    assert ledger is not None
    least = ledger.position + 5
    assert old.source.ledger.acked < old.source.ledger.position <= ledger.position
    wait_on(world, old)
    until(world, lambda: ledger.acked >= least)
    world.clock.run_until(world.now_ns + 300 * MS)  # and its disk knows
    assert not old.source.ledger.empty
    old.worker.kill("kill -9")
    finish(world, CALM)


def test_the_successor_dies_when_the_leaver_has_closed_the_folder() -> None:
    world, old, new = moved(queue_ms=600)
    world.clock.run_until(world.now_ns + S // 2)
    assert new.source.ledger is not None and not new.source.ledger.empty
    until(world, lambda: not old.alive)
    new.worker.kill("kill -9")
    finish(world, CALM)
