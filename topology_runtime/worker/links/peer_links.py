"""What leaves a worker, and the sockets to its peers. What each thread gives leaves in the order in which it gave it.

A small frame is written to its socket by the thread that gives it, if nobody writes and nothing waits: on an idle
worker that spares it the wake of another thread. All else waits for the sender.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.wire.channels import LinkWatch, PushChannel, Waiter
from headgate.topology_runtime.wire.messages import WorkerAt

Item = tuple[Slot | None, Any]


class Outbox:
    """`peers`: the sockets, for whoever holds the lock (`taken`, `send`): a lock is all that ZeroMQ asks of threads
    that share one."""

    def __init__(self) -> None:
        self.peers: dict[Slot, PushChannel] = {}
        self._items: deque[Item] = deque()
        self._lock = threading.Lock()
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._woken = False

    def put(self, item: Item) -> None:
        """For the sender; (None, …): an order to it."""
        self._items.append(item)
        self.wake()

    def wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._wake.put(None)

    def send(self, slot: Slot, item: Any, written: Callable[[Any], bytes] = bytes) -> None:
        """At once, as it is written, if that keeps the order and the peer is connected; else the item waits."""
        if self._lock.acquire(blocking=False):
            try:
                channel = None if self._items else self.peers.get(slot)
                if channel is not None and channel.send_bytes(written(item)):
                    return
            finally:
                self._lock.release()
        self.put((slot, item))

    def wait(self) -> None:
        """Until there may be something. Called by the sender."""
        self._wake.get()
        self._woken = False  # before it looks: what comes from now on wakes it again

    @contextmanager
    def taken(self, most: int) -> Iterator[Iterator[Item]]:
        """What waits, so much of it at most; nothing is sent by others meanwhile."""
        try:
            with self._lock:
                yield self._taken(most)
        finally:
            if self._items:
                self.wake()

    def _taken(self, most: int) -> Iterator[Item]:
        for _ in range(most):
            try:
                yield self._items.popleft()
            except IndexError:
                return


# ── The main thread's eyes on the links to peer workers: which stands, which broke ──────────────────────
#
# The sender makes the sockets and the watches on them; this reads the watches.

T = TypeVar("T")


class Links:
    """Watches, by slot: the newest of each counts."""

    def __init__(self, fresh: SimpleQueue[tuple[WorkerAt, LinkWatch]]) -> None:
        self._fresh = fresh
        self._newest: dict[Slot, LinkWatch] = {}
        self._watched: dict[LinkWatch, Slot] = {}

    def changes(self, waiter: Waiter, ready: Container[object]) -> list[tuple[Slot, bool]]:
        """(slot, does its link stand?) by the watches that `waiter` said are ready."""
        for peer, watch in taken(self._fresh):
            self._newest[peer.slot] = watch
            self._watched[watch] = peer.slot
            waiter.add(watch)
        found: list[tuple[Slot, bool]] = []
        for watch, slot in [(w, slot) for w, slot in self._watched.items() if w.socket in ready]:
            for up in watch.changes():
                if up is None:
                    self._forget(watch, waiter)
                elif self._newest.get(slot) is watch:
                    found.append((slot, up))
        return found

    def _forget(self, watch: LinkWatch, waiter: Waiter) -> None:
        waiter.remove(watch)
        slot = self._watched.pop(watch)
        if self._newest.get(slot) is watch:
            del self._newest[slot]
        watch.close(linger_ms=0)


def taken(queue: SimpleQueue[T]) -> Iterator[T]:
    """What is in a queue now."""
    while True:
        try:
            yield queue.get_nowait()
        except Empty:
            return
