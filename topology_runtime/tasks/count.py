"""Counts rows by key."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import compress
from typing import Any

from headgate.topology_runtime.logic import Keyed


class CountByKey(Keyed):
    """Emits (key, rows of this key so far) for every `every`-th row of a key."""

    def __init__(self, every: int = 1) -> None:
        self._every = every

    def new(self, key: Hashable) -> int:
        return 0

    def process(self, key: Hashable, row: Any, state: int) -> tuple[int, Iterable[tuple[Hashable, int]]]:
        count = state + 1
        return count, [(key, count)] if count % self._every == 0 else ()

    def process_all(
        self, keys: Sequence[Hashable], rows: Sequence[Any], states: dict[Hashable, int]
    ) -> tuple[list[tuple[Hashable, int]], Sequence[int] | None]:
        counted: list[tuple[Hashable, int]] = []
        for key in keys:
            states[key] = count = states[key] + 1
            counted.append((key, count))
        if self._every == 1:
            return counted, None
        told = [count % self._every == 0 for _, count in counted]
        return list(compress(counted, told)), told
