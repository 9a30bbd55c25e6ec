"""Worlds with an exclusive task whose VMs are cut off for longer than a lease, again and again, while workers,
agents and controllers die and plans change. `python tests/simulation/partitioned.py FIRST LAST` runs many."""

from __future__ import annotations

import sys

from headgate.controller.simulation.clock import S
from headgate.controller.simulation.world import Options, SimWorld

TROUBLE_S = 30  # from the first cut until lines and machines are whole again
WHOLE_S = 25  # until then the task works once more
CUT_MOST_S = 20
RATE_TPS = 8.0


def partitioned(seed: int) -> SimWorld:
    """One such world; raises AssertionError when two work at once, or none at the end."""
    world = SimWorld(seed, Options(shape="exclusive", faults=0, rate_tps=RATE_TPS, vms_least=1))
    world.begin()
    _plan_trouble(world)
    world.clock.run_until((3 + TROUBLE_S) * S)
    world.faults.stop()
    for agent in world.agents.values():
        agent.start()
    end_ns = world.now_ns + WHOLE_S * S
    while not _works(world):
        world.resume()
        world.clock.run_until(world.now_ns + S // 2)
        assert world.now_ns < end_ns, "no thread of the exclusive task may work"
    return world


def _works(world: SimWorld) -> bool:
    threads = [t for worker in world.workers() for t in worker.threads.values()]
    return any(t.core.task.exclusive and t.could_work for t in threads)


def _plan_trouble(world: SimWorld) -> None:
    r, faults = world.random, world.faults
    for _ in range(r.randint(1, 3)):
        agent = r.choice(list(world.agents.values()))

        def cut(agent: object = agent, for_ns: int = r.randint(1, CUT_MOST_S) * S) -> None:
            agent.cut_until_ns = world.now_ns + for_ns  # type: ignore[attr-defined]

        world.clock.at(r.randint(2 * S, TROUBLE_S // 2 * S), f"cut {agent.name}", cut)
    others = [
        faults.kill_worker, faults.kill_controller, faults.kill_controller_somewhere,
        faults.kill_agent, faults.lose_vm, world.propose, world.propose,
    ]  # fmt: skip
    for _ in range(r.randint(1, 4)):
        world.clock.at(r.randint(2 * S, TROUBLE_S * S), "trouble", r.choice(others))


if __name__ == "__main__":
    failed = 0
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        try:
            partitioned(number)
        except AssertionError as error:
            failed += 1
            print(f"seed {number}: {error}", flush=True)
    print(f"{sys.argv[1]}..{sys.argv[2]}: {failed} failed")
