"""The main thread's eyes on the links to peer workers: which stands, which broke.

The sender makes the sockets and the watches on them; this reads the watches.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from queue import Empty, SimpleQueue
from typing import TypeVar

from headgate.topology_runtime.channels import LinkWatch, Waiter
from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.messages import WorkerAt

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
