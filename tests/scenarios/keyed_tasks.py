"""User code of the keyed scenario: imported by workers only."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable
from pathlib import Path

from headgate.topology_runtime.logic import Keyed

GROUPS = 20
SLOW = 140  # is read a fifth of a second after the rate has risen, long before the re-plan that follows


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
    """One row takes 8 s, which is legal; once, whoever gets it."""

    def process(
        self, key: Hashable, row: tuple[int, int], state: int
    ) -> tuple[int, Iterable[tuple[int, int]]]:
        slept = Path(__file__).with_name("slept")
        if row[1] == SLOW and not slept.exists():
            slept.touch()
            time.sleep(8)
        return super().process(key, row, state)
