"""Takes the noise out of a measured value, per key, with a Kalman filter of one dimension."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from math import isfinite
from typing import Any

from headgate.topology_runtime.logic import Keyed

State = tuple[float, float] | None  # (estimate, its variance); None before the first value


class Kalman(Keyed):
    """Adds `estimate` to each row: that of row[`field`], a value that wanders by `drift` (variance per row)
    and is measured with an error of variance `noise`. Rows without a finite number
    there go on as they are."""

    def __init__(self, field: str = "value", drift: float = 0.01, noise: float = 1.0) -> None:
        if drift < 0 or noise <= 0:
            raise ValueError("drift: at least 0, noise: above 0")
        self._field = field
        self._drift, self._noise = drift, noise

    def new(self, key: Hashable) -> State:
        return None

    def process(self, key: Hashable, row: dict[str, Any], state: State) -> tuple[State, Iterable[Any]]:
        measured = row.get(self._field)
        if isinstance(measured, bool) or not isinstance(measured, int | float) or not isfinite(measured):
            return state, [row]
        after = step(state, float(measured), self._drift, self._noise)
        return after, [{**row, "estimate": after[0]}]

    def restore(self, saved: Any) -> State:
        return None if saved is None else (saved[0], saved[1])


def step(state: State, measured: float, drift: float, noise: float) -> tuple[float, float]:
    """Predict (the variance grows by the drift), then correct by the gain variance / (variance + noise)."""
    if state is None:
        return measured, noise
    estimate, variance = state[0], state[1] + drift
    gain = variance / (variance + noise)
    return estimate + gain * (measured - estimate), (1.0 - gain) * variance
