"""Rows move while rows are offered and nothing is broken: not only at the end, and through re-plans too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.controller.simulation.clock import MS, S

if TYPE_CHECKING:
    from headgate.controller.simulation.account import Partition
    from headgate.controller.simulation.world import SimWorld

LOOK_NS = 250 * MS
STILL_S = 4.0  # so long no position may be finished, with one due before; and as long as a task keeps rows


class Liveness:
    """A stretch begins when all that is desired is there, and ends when something goes wrong."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self._harm: object = None
        self._whole = False
        self._moved: dict[Partition, tuple[int, int]] = {}  # positions finished, and since when that many

    def start(self) -> None:
        self.world.later(LOOK_NS, self._look)

    def _look(self) -> None:
        if self.world.controller.finish is not None:
            return
        self.start()
        broken = self._broken
        if broken or not self._whole:
            self._moved.clear()
            self._whole = not broken and not self.world.unsettled and self._leased
            self.world.met["stretches without faults"] += self._whole
        if self._whole:
            self._rows_move()

    @property
    def _broken(self) -> bool:
        """Is something not as it should be, or was since the last look?"""
        world = self.world
        before, self._harm = self._harm, (len(world.faults.done), world.killed)
        return (
            self._harm != before
            or not world.controller.alive
            or world.disk.fails
            or world.now_ns < world.faults.silent_until_ns
            or any(not a.gone and (a.cut or a.full or not a.alive) for a in world.agents.values())
        )

    @property
    def _leased(self) -> bool:
        """May exclusive threads work? Not while the lease of their predecessors on a lost VM runs."""
        threads = [thread for worker in self.world.workers() for thread in worker.threads.values()]
        return all(thread.could_work for thread in threads if thread.core.task.exclusive)

    def _rows_move(self) -> None:
        world = self.world
        most_ns = int((STILL_S + world.shape.calm_s) * S + world.options.queue_ms * MS)
        schedule = world.offer
        assert schedule is not None
        due = schedule.due(world.wall_ns - most_ns)
        for task in world.shape.topology.sources:
            partitions = task.static.threads if task.static else 1
            for partition in range(partitions):
                place = task.name, partition
                known = world.account.of(place)
                done = known.prefix + len(known.above)
                if done != self._moved.get(place, (-1, 0))[0]:
                    self._moved[place] = done, world.now_ns
                still_ns = world.now_ns - self._moved[place][1]
                late = known.prefix < due // partitions
                assert not late or still_ns < most_ns, (
                    f"{done} rows of {place} are finished and no more in {still_ns / S:.1f} s without a fault"
                )
