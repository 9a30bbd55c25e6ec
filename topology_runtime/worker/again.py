"""Dead letters that a source thread sends again, because an operator says that the cause is mended. Pure but for
the keys of user code.

Each row is a root of its own in a ledger beside the source's (letters.py: how it is named), sent straight to the
letter's task, by the routes of the edge that it once came by. What is said of it is a state: the serials of what is to
be sent again; whose rows are here; which of those are done. A root whose row dies again is never acked (burial.py): it
stays open until the controller, which hears of that from the task, asks for it no more.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headgate.topology_runtime.letters import AGAIN_PARTITION, LetterRow, SendAgain, SentAgain
from headgate.topology_runtime.messages import Ack
from headgate.topology_runtime.worker import rows as wire
from headgate.topology_runtime.worker.ledger import Ledger, Root
from headgate.topology_runtime.worker.orders import Orders
from headgate.topology_runtime.worker.router import Router
from headgate.topology_runtime.worker.thread_core import KeyOf

SHARE, LEAST_TPS = (
    0.1,
    20.0,
)  # of the rate that the source thread is modelled for; but so many rows/s at least
BURST_NS = 100_000_000  # rows that are late by more than that are not made up for
SEQUENCES = 1 << 61  # roots of letters are numbered from here on, far from those of positions


@dataclass(slots=True)
class LetterSends:
    """Of one source thread."""

    ledger: Ledger = field(default_factory=lambda: Ledger(first=SEQUENCES))
    _boot: int = 0
    _rows: dict[int, LetterRow] = field(default_factory=dict)  # not done, by serial
    _waiting: deque[int] = field(default_factory=deque)  # not sent yet
    _sequences: dict[int, int] = field(default_factory=dict)  # serial → of its root
    _serials: dict[int, int] = field(default_factory=dict)  # the other way round
    _done: set[int] = field(default_factory=set)
    _next_ns: int = 0  # the next one for the first time

    def now(self, thread: int) -> SentAgain | None:
        """What has become of them, if there are any."""
        if not (self._rows or self._done):
            return None
        return SentAgain(thread, self._boot, tuple(self._rows), tuple(self._done))

    @property
    def any(self) -> bool:
        return bool(self._rows)

    def want(self, said: SendAgain) -> None:
        """What is to be sent again from now on."""
        if said.boot < self._boot:
            return
        if said.boot > self._boot:
            self.clear()
            self._boot = said.boot
        desired = set(said.serials)
        self._done &= desired
        for serial in self._rows.keys() - desired:
            self._forget(serial)
        for row in said.rows:
            if row.serial in desired and row.serial not in self._done and row.serial not in self._rows:
                self._rows[row.serial] = row
                self._waiting.append(row.serial)

    def clear(self) -> None:
        """This thread sends nothing any more; another one will be asked."""
        self._done.clear()
        for serial in list(self._rows):
            self._forget(serial)

    def _forget(self, serial: int) -> None:
        del self._rows[serial]
        sequence = self._sequences.pop(serial, None)
        if sequence is not None:
            del self._serials[sequence]
            self.ledger.give_up(sequence)

    def ack(self, ack: Ack, now_ns: int) -> bool:
        """True when it was the ack of a letter's root."""
        if ack.key.sequence < SEQUENCES:
            return False
        if self.ledger.ack(ack, now_ns):
            self._is_done(ack.key.sequence)
        return True

    def sent(self, root: Root, value: int, now_ns: int) -> None:
        """The id of its frame; 0: it went nowhere, so it is not done."""
        if value and self.ledger.sent(root, value, now_ns):
            self._is_done(root.sequence)

    def _is_done(self, sequence: int) -> None:
        serial = self._serials.pop(sequence)
        del self._sequences[serial], self._rows[serial]
        self._done.add(serial)

    def due(self, now_ns: int, tps: float) -> tuple[Root, LetterRow] | None:
        """What is to be sent now, one after the other; `tps`: for the first time, so many rows/s."""
        root = self.ledger.next_replay(now_ns)
        while root is None and tps and self._waiting and self._next_ns <= now_ns and self.ledger.room():
            serial = self._waiting.popleft()
            if serial in self._rows and serial not in self._sequences:
                self._next_ns = max(self._next_ns, now_ns - BURST_NS) + int(1e9 / tps)
                root = self.ledger.begin([serial], now_ns, now_ns)
                self._sequences[serial], self._serials[root.sequence] = root.sequence, serial
        return None if root is None else (root, self._rows[self._serials[root.sequence]])


@dataclass(frozen=True)
class Way:
    """Where a letter's row goes: by this edge to this thread, and the row."""

    edge: int
    target: int
    row: Any


class Ways:
    """The ways of letters by some orders; routers are made when they are needed."""

    def __init__(self, orders: Orders, thread: int, key_of: KeyOf) -> None:
        self.orders, self._thread, self._key_of = orders, thread, key_of
        self._routers: dict[int, Router] = {}

    def of(self, letter: LetterRow) -> Way | str:
        """Why its row cannot be sent, when it cannot."""
        topology = self.orders.topology
        edges = [] if letter.task not in topology.by_name else topology.in_edges(letter.task)
        edge = next((number for number, edge in edges if edge.source == letter.feeder), None)
        if edge is None or edge not in self.orders.route_of:
            return f"no rows of {letter.feeder} go to {letter.task}"
        try:
            (row,) = wire.read(letter.data, letter.shape)
        except (msgspec.DecodeError, ValueError) as error:
            return f"the row cannot be read back: {error}"
        threads = sorted(thread for thread, _ in self.orders.route_of[edge].targets)
        if topology.edges[edge].grouping in ("all", "direct"):  # the one that failed, or who is in its place
            there = letter.thread in threads
            return Way(edge, letter.thread if there else threads[letter.thread % len(threads)], row)
        parts = list(self._router(edge).split([row]))
        if parts:
            return Way(edge, parts[0][0], row)
        (_, why), self._routers[edge].unroutable = self._routers[edge].unroutable[-1], []
        return f"no key can be made of the row: {why}"

    def _router(self, number: int) -> Router:
        if number not in self._routers:
            edge = self.orders.topology.edges[number]
            key = self._key_of(edge.key) if edge.key is not None else None
            route = self.orders.route_of[number]
            self._routers[number] = Router(edge, route, frozenset(), key, lambda _: 1, self._thread)
        return self._routers[number]


def partition_of(task: int) -> int:
    """The partition that letters of this task (its number in the topology) have when they are sent again."""
    return AGAIN_PARTITION + task
