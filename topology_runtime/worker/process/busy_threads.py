"""Threads that rows wait for ask those who send to them, from other workers, for fewer and larger frames. Pure.

A frame costs a slot as much as some hundred rows of a quick task. Many threads that each send one in a gap of 1 ms fill
a small slot with frames of single rows, which carries a tenth of what it could then. So, per thread, each `LOOK_NS`:

    gap = a fourth of the time that frames wait for the thread        (from the usual gap to `MOST_NS`)

By Little's law a sender then keeps back a fourth of the rows that wait for the thread anyway, and who does not let rows
wait is sent each row at once, as ever. The gap rises at once, where frames have waited for two looks, and falls by a
fourth at a look, so that it settles where frames nearly fill the slot (Nagle's rule, RFC 896, with a clock for acks).

>>> next_gap_ns(usual_ns=1_000_000, before_ns=1_000_000, waits_ns=(80_000_000, 40_000_000))
10000000
>>> next_gap_ns(usual_ns=1_000_000, before_ns=10_000_000, waits_ns=(0, 0))
7500000
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.latency.latency_messages import Pace
from headgate.topology_runtime.wire.run_options import LONGEST_GAP_S
from headgate.topology_runtime.worker.orders.thread_orders import Orders

NS = 1_000_000_000
LOOK_NS = NS // 5
PART = 4  # of the time that frames wait
MOST_NS = int(LONGEST_GAP_S * NS)
FALLS = 0.75  # of the gap before, at a look
TOLD = 1.2  # times another gap than was told is worth a word
AGAIN_NS = 4 * NS  # what is still asked for is said again so often


def next_gap_ns(usual_ns: int, before_ns: int, waits_ns: tuple[int, int]) -> int:
    """After frames waited so long in the last two looks."""
    asked_ns = min(MOST_NS, min(waits_ns) // PART)
    return max(usual_ns, asked_ns, int(FALLS * before_ns))


@dataclass(slots=True)
class _Waits:
    counts: tuple[int, ...]
    gap_ns: int
    told_ns: int  # the gap
    wait_ns: int = 0
    told_at_ns: int = 0


class BusyThreads:
    """Of one worker, by one numbering of routes."""

    def __init__(self, orders: Orders, slot: Slot) -> None:
        self._orders, self._slot = orders, slot
        self._usual_ns = int(orders.desired.settings.gap_s * NS)
        self._threads: dict[int, _Waits] = {}

    def look(self, counts: Mapping[int, tuple[int, int, int, int]], now_ns: int) -> Iterator[Pace]:
        """What is to be told. counts: of each thread here, since it began: frames, ns of calls; rows, and their ns from
        when they came until they were done."""
        return chain.from_iterable(self._look(number, counts[number], now_ns) for number in sorted(counts))

    def _look(self, number: int, counts: tuple[int, int, int, int], now_ns: int) -> Iterator[Pace]:
        known = self._threads.get(number)
        if known is None:
            self._threads[number] = _Waits(counts, self._usual_ns, self._usual_ns)
            return
        frames, busy_ns, rows, latency_ns = (a - b for a, b in zip(counts, known.counts, strict=True))
        known.counts = counts
        if frames <= 0 or rows <= 0:
            return
        before_ns, known.wait_ns = known.wait_ns, max(0, latency_ns // rows - busy_ns // frames)
        known.gap_ns = next_gap_ns(self._usual_ns, known.gap_ns, (before_ns, known.wait_ns))
        other = not 1 / TOLD < known.gap_ns / max(1, known.told_ns) < TOLD
        back = known.gap_ns == self._usual_ns != known.told_ns
        again = known.gap_ns > self._usual_ns and now_ns >= known.told_at_ns + AGAIN_NS
        if other or back or again:
            known.told_ns, known.told_at_ns = known.gap_ns, now_ns
            yield from self._paces(number, known.gap_ns)

    def _paces(self, number: int, gap_ns: int) -> Iterator[Pace]:
        orders = self._orders
        for place, edge in orders.topology.in_edges(orders.task_of.get(number, "")):
            for sender in orders.threads_of.get(edge.source, ()):
                if orders.slot_of[sender] != self._slot:
                    yield Pace(orders.number, sender, place, number, gap_ns, orders.cap_of(number))
