"""A rig whose workers are watched while they are measured, and what an open-loop trial asks of it."""

from __future__ import annotations

import time
from collections.abc import Callable

from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.schedule import Schedule
from headgate.topology_runtime.worker import meter as mt
from headgate.topology_runtime.worker.rig import Rig

LOOK_S = 0.02
QUIET_S = 0.1  # by then every worker has heard that nothing is offered any more


class WatchedRig(Rig):
    """`what`: what is measured, for errors. A subclass says what is done and what that used."""

    what = "the topology"

    def done(self) -> int:
        """Rows done so far."""
        raise NotImplementedError

    @property
    def cpu_s(self) -> float:
        """CPU time of the slots so far."""
        raise NotImplementedError

    @property
    def cores(self) -> float:
        """Of all slots together."""
        raise NotImplementedError

    @property
    def memory_bytes(self) -> int:
        """Of the slots' workers, above the bare worker."""
        raise NotImplementedError

    @property
    def threads_measured(self) -> int:
        raise NotImplementedError

    def watch(self, seconds: float) -> None:
        """Hear the workers for so long. Raises HeadgateError when one ended or a task fails."""
        self.wait_for(lambda: False, seconds)

    def until(self, so: Callable[[], bool], seconds: float, what: str) -> None:
        if not self.wait_for(so, seconds):
            raise HeadgateError(f"{self.what} did not {what} in {seconds:g} s: does it hang?")

    def wait_for(self, so: Callable[[], bool], seconds: float) -> bool:
        """Hear the workers until it is so, at most so long; was it?"""
        end_s = time.monotonic() + seconds
        while not so():
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return False
            self._hear(min(left_s, LOOK_S))
            self.look()
        return True

    def look(self) -> None:
        """Raises when a worker ended or a task fails."""
        for worker in self._workers.values():
            code = worker.popen.poll()
            if code is not None:
                raise HeadgateError(f"a worker of {self.what} ended with exit code {code}")
            for thread in worker.report.threads if worker.report else ():
                if thread.failed:
                    raise HeadgateError(f"{self.what} cannot run", cause=thread.failed)
        letters = self.letters()
        if letters and 2 * len(letters) >= self.done():
            raise HeadgateError(f"{self.what} fails on most of its rows", cause=letters[-1].error)

    def quiet(self, seconds: float) -> int:
        """Nothing is offered any more; waits until all that was is done, at most so long. Gives the number
        of rows the source has given, from which an offer may go on."""

        def emitted() -> int:
            return sum(self.count(task.name, mt.SOURCE_EMITTED) for task in self.topology.sources)

        for _ in range(2):  # the first is late for what was emitted while it was on its way
            self.send("committed", Schedule(time.time_ns(), ((0.0, 0.0),), base=float(emitted())))
            self.watch(QUIET_S)
            self.until(lambda: self.done() >= emitted(), seconds, "finish what was offered")
        return emitted()

    def sinks(self) -> list[str]:
        """Tasks at which rows end: latency from their offer is counted there."""
        ends = {edge.source for edge in self.topology.edges}
        return [task.name for task in self.topology.tasks if task.name not in ends]

    def end(self) -> None:
        """No process of it is left."""
        for worker in self._workers.values():
            worker.popen.kill()
        self.stop()


def cpu_s_of(pid: int) -> float:
    """CPU time of a process with all its threads, to the nanosecond (clock_getcpuclockid of Linux)."""
    return time.clock_gettime(~pid << 3 | 2)
