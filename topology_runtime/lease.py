"""Leases: an exclusive thread works only while its VM's lease lasts, and none other begins before that is over.

The lease of a VM lasts `LEASE_NS` from when the heartbeat was *sent* that the controller answered, by the
monotonic clock of that VM, which agent and workers share. Threads stop `MARGIN_NS` before its end; a call that
is still under way at its end is ended with its worker. The controller waits for `OVER_NS` since it last
answered: as long as that, 5 % more for clocks that run at different rates, and a tenth of a second.
"""

from __future__ import annotations

import msgspec

NS = 1_000_000_000
LEASE_NS = 10 * NS
MARGIN_NS = NS // 2
OVER_NS = LEASE_NS * 105 // 100 + NS // 10


def may_begin(now_ns: int, until_ns: int) -> bool:
    """May an exclusive thread begin something under a lease until then? Not at its last moment either."""
    return now_ns < until_ns - MARGIN_NS


def is_over(now_ns: int, answered_ns: int) -> bool:
    """Has a lease that was granted last with the answer at `answered_ns` run out, wherever it is?"""
    return now_ns >= answered_ns + OVER_NS


class Lease(msgspec.Struct, frozen=True, tag="lease"):
    """Exclusive threads may work until then (monotonic ns), by the desired states sent before this."""

    until_ns: int
