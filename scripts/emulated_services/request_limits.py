"""What a service agrees to serve: a token bucket, in the form that needs no tokens.

`Limit` keeps the time at which everything asked for so far has been paid (virtual scheduling, as in the
generic cell rate algorithm of ITU-T I.371), so whoever asks learns at once how long to wait, in the order
of asking, over all connections together.
"""

from __future__ import annotations

import asyncio
import math

import msgspec

BURST_S = 0.05  # what an idle service may give at once, in seconds of its rate
SHORT_S = 0.001  # shorter waits are left for the next time: a debt is not forgotten


class Terms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The agreement of one service; None: no limit. latency_s: added to every request."""

    bytes_per_s: float | None = None
    requests_per_s: float | None = None
    latency_s: float = 0.0


class Limit:
    """At most `rate_per_s` on average, and `burst_s` of it ahead."""

    def __init__(self, rate_per_s: float, burst_s: float = BURST_S) -> None:
        self._rate_per_s = rate_per_s
        self._burst_s = burst_s
        self._paid_s = -math.inf

    def wait_s(self, amount: float, now_s: float) -> float:
        """How long to wait before `amount` may pass."""
        self._paid_s = max(self._paid_s, now_s - self._burst_s) + amount / self._rate_per_s
        return max(0.0, self._paid_s - now_s)


class Gate:
    """A service's terms, kept: every connection of the account passes here."""

    def __init__(self, terms: Terms) -> None:
        self._latency_s = terms.latency_s
        self._bytes = None if terms.bytes_per_s is None else Limit(terms.bytes_per_s)
        self._requests = None if terms.requests_per_s is None else Limit(terms.requests_per_s)

    async def request(self) -> None:
        """Wait until one more request may go on."""
        wait_s = self._latency_s
        if self._requests is not None:
            wait_s += self._requests.wait_s(1.0, asyncio.get_running_loop().time())
        if wait_s > 0.0:
            await asyncio.sleep(wait_s)

    async def data(self, amount_bytes: int) -> None:
        """Wait until so many bytes may go on."""
        if self._bytes is None:
            return
        wait_s = self._bytes.wait_s(amount_bytes, asyncio.get_running_loop().time())
        if wait_s > SHORT_S:
            await asyncio.sleep(wait_s)
