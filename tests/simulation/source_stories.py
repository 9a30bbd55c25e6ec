"""Worlds with a live source that moves or dies while rows of it are open: what their stories have in common."""

from __future__ import annotations

from collections.abc import Callable

from headgate.controller.knowledge.knowledge import Knowledge
from headgate.controller.knowledge.spooled_events import unread
from headgate.lab.simulation.simulated_thread import SimSource
from headgate.lab.simulation.simulated_world import Options, SimWorld
from headgate.lab.simulation.virtual_time import MS, S


def knowledge(world: SimWorld) -> Knowledge:
    return world.controller.loop.knowledge


def sources(world: SimWorld) -> list[SimSource]:
    threads = [t for worker in world.workers() for t in worker.threads.values()]
    return [t for t in threads if isinstance(t, SimSource)]


def until(world: SimWorld, so: Callable[[], object], limit_s: float = 20.0, step_ns: int = MS) -> float:
    """Goes on until it is so; after how many seconds."""
    begin_ns = world.now_ns
    while not so():
        world.clock.run_until(world.now_ns + step_ns)
        assert world.now_ns - begin_ns < limit_s * S, f"not within {limit_s} s"
    return (world.now_ns - begin_ns) / S


def proposed(world: SimWorld, rate_tps: float = 20.0) -> None:
    """A plan waits for its operator's word."""
    reply = world.controller.ask("plan", rate_tps=rate_tps, propose=True)
    assert reply is not None and reply.error is None and knowledge(world).proposal is not None


def source_of_proposal(world: SimWorld) -> str:
    """The VM that is to have the source."""
    proposal = knowledge(world).proposal
    assert proposal is not None
    return next(b.slot.vm for b in proposal.plan.placement.bundles if b.task == "source")


def finish(world: SimWorld, calm: Options) -> None:
    """All is settled, every event that was accepted comes out, none is left on a VM that is there."""
    world.options = calm
    world.wait("the plan is in force", lambda: world.unsettled, 30)
    k = knowledge(world)
    assert not k.counts.source("source", 0).apart
    assert all(world.agents[vm].gone for _, vm in unread(k))
    world.end()
    world.clean_up()
