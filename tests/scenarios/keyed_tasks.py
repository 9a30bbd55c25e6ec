"""User code of the keyed scenario: imported by workers only."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from topology_runtime.logic import Keyed

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
