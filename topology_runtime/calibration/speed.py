"""How fast this machine is just now: a fixed loop, run again and again beside each measurement.

Shared machines drift by several percent within minutes. Rates of computing tasks are divided by this
speed, so that models measured at different times can be compared (measurement: Models)."""

from __future__ import annotations

import threading
from statistics import median
from time import thread_time_ns
from types import TracebackType

ROUNDS = 20_000  # about a millisecond
EVERY_S = 0.1


class SpeedMeter:
    """Runs the loop ten times a second, on whatever core is free, while the `with` block lasts."""

    def __init__(self) -> None:
        self._speeds: list[float] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="speed", daemon=True)

    def __enter__(self) -> SpeedMeter:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        self._speeds.append(rounds_per_s())
        while not self._end.wait(EVERY_S):
            self._speeds.append(rounds_per_s())

    @property
    def rounds_per_s(self) -> float:
        """The median so far."""
        return median(self._speeds)


def rounds_per_s() -> float:
    """Rounds of a small loop of arithmetic and a dictionary per second of CPU time."""
    began_ns = thread_time_ns()
    kept: dict[int, int] = {}
    total = 0
    for number in range(ROUNDS):
        total += number * number & 1023
        kept[number & 63] = total
    return ROUNDS / ((thread_time_ns() - began_ns) / 1e9)
