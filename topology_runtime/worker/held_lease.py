"""The lease as a worker has it: its exclusive threads begin nothing `MARGIN_NS` before its end, and a call that is
still under way at its end is ended with the process.

That end is an alarm of the kernel's, renewed with the lease: it comes also when the agent hangs, when a call never
lets go of the interpreter, and, to a worker that was stopped, before it takes another step.
"""

from __future__ import annotations

import signal

from headgate.topology_runtime.lease import NS, may_begin

FARTHEST_S = 1e6  # an alarm further off than that is as good as none


class HeldLease:
    """Renewed and looked at by the main thread, read by exclusive threads."""

    def __init__(self) -> None:
        self.until_ns = 0
        self._armed = False

    def renew(self, until_ns: int, now_ns: int) -> None:
        """A word of the agent. A lease that is over when it comes is none."""
        if until_ns > max(self.until_ns, now_ns):
            self.until_ns = until_ns
            signal.setitimer(signal.ITIMER_REAL, min((until_ns - now_ns) / NS, FARTHEST_S))
            self._armed = True

    def look(self, working: bool, now_ns: int) -> None:
        """Near the end nothing is begun any more; if nothing is under way either, there is nothing to end."""
        if self._armed and not working and not may_begin(now_ns, self.until_ns):
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._armed = False
