"""The mean of the last values of each key."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from math import fsum, isfinite
from typing import Any

from headgate.topology_runtime.logic import Keyed

State = deque[float]


class SlidingMean(Keyed):
    """Adds `mean` to each row: that of row[`field`] over the key's last `rows` rows, of fewer at the
    start. Rows without a finite number there go on as they are."""

    def __init__(self, field: str = "value", rows: int = 10) -> None:
        if rows < 1:
            raise ValueError("rows: at least 1")
        self._field = field
        self._rows = rows

    def new(self, key: Hashable) -> State:
        return deque(maxlen=self._rows)

    def process(self, key: Hashable, row: dict[str, Any], state: State) -> tuple[State, Iterable[Any]]:
        value = row.get(self._field)
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            return state, [row]
        state.append(float(value))
        return state, [{**row, "mean": fsum(state) / len(state)}]

    def snapshot(self, state: State) -> list[float]:
        return list(state)

    def restore(self, saved: Any) -> State:
        return deque(saved, maxlen=self._rows)
