"""The last values of one a second, kept without copying. Pure."""

from __future__ import annotations

import numpy as np

from headgate.topology_runtime.stability.slopes import Floats


class LastSeconds:
    """The last `most` values, oldest first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._twice = np.zeros(2 * most)
        self._next = self._count = self.added = 0

    def add(self, value: float) -> None:
        self._twice[self._next] = self._twice[self._next + self._most] = value
        self._next = (self._next + 1) % self._most
        self.added += 1
        self._count = min(self._count + 1, self._most)

    @property
    def values(self) -> Floats:
        end = self._next + self._most
        return self._twice[end - self._count : end]
