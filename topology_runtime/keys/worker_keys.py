"""The keys of one agent's workers: each lives as long as its worker."""

from __future__ import annotations

from collections.abc import Iterable

from headgate.topology_runtime.curve import new_pair
from headgate.topology_runtime.keys.pairs import KeyGuard, KeyPair, Who, keyed


class WorkerKeys:
    """The agent's own pair for them, and who they are. guard: asked by another thread."""

    def __init__(self) -> None:
        self.own = new_pair()
        self._whose: dict[str, Who] = {}
        self.guard = KeyGuard(self.own, self._whose.get)

    def endpoint(self, bound: str) -> str:
        """What a worker is told: where its agent listens, and under which key."""
        return keyed(bound, self.own.public)

    def make(self, vm: str, slot: int, incarnation: int) -> KeyPair:
        """For a worker that is about to start."""
        pair = new_pair()
        self._whose[pair.public] = Who("worker", f"{vm}/{slot}#{incarnation}")
        return pair

    def keep(self, living: Iterable[tuple[str, int, int]]) -> None:
        """Only those of these workers (VM, slot, incarnation) still count."""
        names = {f"{vm}/{slot}#{incarnation}" for vm, slot, incarnation in living}
        for public in [public for public, who in self._whose.items() if who.name not in names]:
            del self._whose[public]
