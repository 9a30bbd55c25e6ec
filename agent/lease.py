"""The lease of this VM: how long its exclusive threads may work. Pure; times are monotonic ns."""

from __future__ import annotations

from collections import deque

from headgate.topology_runtime.lease import LEASE_NS


class VmLease:
    """It lasts until `until_ns`: `LEASE_NS` from when the newest report was sent that the controller answered."""

    def __init__(self) -> None:
        self.until_ns = 0
        self.unanswered: deque[tuple[int, int]] = deque()  # (sequence, when) of reports not answered yet

    def sent(self, sequence: int, now_ns: int) -> None:
        """A report leaves. Those older than a lease are forgotten: their answer would grant nothing."""
        self.unanswered.append((sequence, now_ns))
        while self.unanswered[0][1] <= now_ns - LEASE_NS:
            self.unanswered.popleft()

    def answered(self, sequence: int) -> bool:
        """The controller grants a lease for this report; True when that is longer than it had."""
        before = self.until_ns
        while self.unanswered and self.unanswered[0][0] <= sequence:
            number, sent_ns = self.unanswered.popleft()
            if number == sequence:
                self.until_ns = max(self.until_ns, sent_ns + LEASE_NS)
        return self.until_ns > before
