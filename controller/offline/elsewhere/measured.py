"""What another system measured of an operator, and the model that follows from it. Pure.

These systems tell for how long an operator was busy and how many rows it took. Rows per busy second of one thread is
the rate that one thread carries, whatever the load was. What CPU and memory a thread takes they do not tell; both are
assumed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headgate.controller.knowledge.models import Model, ModelSlot, Point, Spread
from headgate.topology_runtime.faults.words import NAME, shown, significant

LITTLE_BUSY = 0.05  # of the time: what is seen below is far from what it is used for


class Observed(NamedTuple):
    """An operator that took `rows_tps` with `threads`, which were busy for `busy` of the time. each_tps: rows per busy
    second of each thread, where that is known; rounding: by what part a rate may be off because figures are rounded."""

    name: str
    threads: int
    rows_tps: float
    busy: float
    each_tps: tuple[float, ...] = ()
    rounding: float = 0.0

    @property
    def rate_tps(self) -> float:
        """What one thread carries."""
        return self.rows_tps / (self.busy * self.threads)


@dataclass
class Metrics:
    """What a document tells: operators, what is wrong with others, and those that take no rows from any other."""

    seen: list[Observed] = field(default_factory=list)
    faults: dict[str, list[str]] = field(default_factory=dict)  # operator (or "") → faults
    sources: list[str] = field(default_factory=list)

    def fault(self, name: str, text: str) -> None:
        self.faults.setdefault(name, []).append(text)


class ThreadUse(NamedTuple):
    """Fractions of a slot that one busy thread takes; None: not known, a whole core and no memory."""

    cpu: float | None = None
    memory: float | None = None


def number_of(data: Mapping[str, Any], key: str) -> tuple[float, str | None]:
    """(number, fault) of a figure that must be finite and not negative; these systems write many as text."""
    if key not in data or data[key] is None:
        return 0.0, f"{key} is missing"
    value = data[key]
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        return 0.0, f"{key}: expected a number, got {shown(value)}"
    if not math.isfinite(number):
        return 0.0, f"{key} is {value}: it was not measured"
    return (number, None) if number >= 0 else (0.0, f"{key}: {number:g} is negative")


def observed(
    name: str, threads: int, rows_tps: float, busy_threads: float, each_tps: tuple[float, ...] = ()
) -> tuple[Observed | None, str | None]:
    """(what was seen, fault). busy_threads: busy time per time, of all threads together."""
    if threads < 1:
        return None, "it has no threads"
    if rows_tps == 0:
        return None, "it took no rows, so nothing is known of what it can take"
    if busy_threads == 0:
        return None, f"it took {significant(rows_tps)} rows/s in no busy time that was measured"
    if busy_threads > threads * 1.02:
        return None, f"it was busy for {busy_threads:.4g} s in each second, with only {threads} to be so"
    return Observed(name, threads, rows_tps, min(1.0, busy_threads / threads), each_tps), None


def task_name(operator: str) -> str | None:
    """A task's name made of an operator's (`Sink: out` → `out`), None when nothing is left of it."""
    plain = re.sub(r"\b(Source|Sink): ", "", operator)
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", plain.replace("->", " ")).strip("_")[:64]
    return name if NAME.fullmatch(name) else None


def model_from(task: str, system: str, seen: Sequence[Observed], use: ThreadUse) -> Model:
    """One point for one thread; as many as share a slot by what was given of CPU and memory make another."""
    busy = sum(one.busy * one.threads for one in seen)
    rate_tps = sum(one.rows_tps for one in seen) / busy
    cpu, memory = 1.0 if use.cpu is None else use.cpu, use.memory or 0.0
    spread = _spread(rate_tps, seen)
    most = max(1, math.floor(1 / max(cpu, memory) + 1e-9))
    points = [
        Point(count, count * rate_tps, count * cpu, count * memory, spread) for count in sorted({1, most})
    ]
    more = {
        "measured_by": system,
        "threads_seen": [one.threads for one in seen],
        "busy_seen": [round(one.busy, 4) for one in seen],
        "assumed": assumptions(system, use),
    }
    return Model(task, ModelSlot(cores=1.0), tuple(points), more)


def assumptions(system: str, use: ThreadUse) -> list[str]:
    """What such models do not know, in sentences."""
    told = ["Rates are rows per busy second of one thread, extrapolated from the load that there was."]
    told.append(
        f"{system} tells busy time, not CPU: a busy thread is assumed to take a whole core (--thread-cpu)."
        if use.cpu is None
        else f"That a busy thread takes {use.cpu:g} of a slot's CPU was given, not measured."
    )
    told.append(
        f"{system} tells no operator's memory: none is assumed, so memory limits nothing (--thread-memory)."
        if use.memory is None
        else f"That a thread takes {use.memory:g} of a slot's memory was given, not measured."
    )
    told.append("That threads in one slot do not disturb each other is assumed; `model profile` measures it.")
    return told


def _spread(rate_tps: float, seen: Sequence[Observed]) -> Spread | None:
    """Half of what threads, or files, differ by, and no less than what rounding hides."""
    rates = [rate for one in seen for rate in (one.each_tps or (one.rate_tps,))]
    half = (max(rates) - min(rates)) / 2 / rate_tps
    relative = min(1.0, max(half, *(one.rounding for one in seen), 0.0))
    return Spread(relative=round(relative, 4)) if relative else None
