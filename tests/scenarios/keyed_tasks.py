"""User code of the keyed scenario: imported by workers only."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable
from pathlib import Path

from headgate.topology_runtime.api.logic import Keyed

GROUPS = 20


def group(number: int) -> tuple[int, int]:
    return number % GROUPS, number


class Tally(Keyed):
    """How many rows of a group there were, this one included."""

    def new(self, key: Hashable) -> int:
        return 0

    def process(
        self, key: Hashable, row: tuple[int, int], state: int
    ) -> tuple[int, Iterable[tuple[int, int]]]:
        return state + 1, [(row[0], state + 1)]


class SlowTally(Tally):
    """One row takes as long as it is told, which is legal; once, whoever gets it."""

    def process(
        self, key: Hashable, row: tuple[int, int], state: int
    ) -> tuple[int, Iterable[tuple[int, int]]]:
        here = Path(__file__).parent
        if (here / "be-slow").exists() and not (here / "slow").exists():
            (here / "slow").touch()
            while not (here / "go-on").exists():
                time.sleep(0.05)
        return super().process(key, row, state)
