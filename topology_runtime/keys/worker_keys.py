"""The keys of one agent's workers: each lives as long as its worker."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from headgate.topology_runtime.keys.curve import new_pair
from headgate.topology_runtime.keys.key_pairs import KeyGuard, KeyPair, Who, keyed


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


# ── A worker's key, for its life only: handed to it by a pipe, so that no file, command line or environment
# holds it

PAIR_BYTES = 80  # two keys of 40 characters: a pipe takes them at once


@contextmanager
def handing(pair: KeyPair) -> Iterator[int]:
    """The descriptor that a child inherits while it is started."""
    reader, writer = os.pipe()
    try:
        os.write(writer, f"{pair.public}{pair.secret}".encode("ascii"))
        os.close(writer)
        yield reader
    finally:
        os.close(reader)


def handed(descriptor: int) -> KeyPair:
    """In the child. Raises ValueError when it was handed none."""
    with os.fdopen(descriptor, "rb") as pipe:
        words = pipe.read(PAIR_BYTES + 1).decode("ascii")
    if len(words) != PAIR_BYTES:
        raise ValueError(f"{len(words)} characters are no pair of keys")
    return KeyPair(words[: PAIR_BYTES // 2], words[PAIR_BYTES // 2 :])
