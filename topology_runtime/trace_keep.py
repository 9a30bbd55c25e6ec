"""How many traces of a topology are kept: what `--trace-keep` says, as one value. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headgate.topology_runtime.errors import UsageError

ALL = "all"
DEFAULT = "runs=100,gb=20"
GB = 10**9
HINT = "say for example --trace-keep runs=100,gb=20,days=90, or all"


@dataclass(frozen=True)
class Keep:
    """Traces of one topology that are kept, the one being written among them: at most so many runs, so
    many bytes, none last written to more than so many days ago. None: no such limit."""

    runs: int | None = None
    total_bytes: int | None = None
    days: float | None = None


def parse_keep(text: str) -> Keep:
    """`runs=100,gb=20,days=90` (any of the three) or `all`. Raises UsageError with every fault."""
    if text == ALL:
        return Keep()
    limits: dict[str, float] = {}
    faults = []
    for part in text.split(","):
        name, _, number = part.strip().partition("=")
        value = _number(number)
        if name not in ("runs", "gb", "days"):
            faults.append(f"{part.strip()!r}: not one of runs=N, gb=N, days=N")
        elif name in limits:
            faults.append(f"{name} is there twice")
        elif not value > 0 or (name == "runs" and value != int(value)):
            faults.append(f"{part.strip()!r}: not a {'whole ' if name == 'runs' else ''}number above 0")
        else:
            limits[name] = value
    if faults:
        raise UsageError(f"--trace-keep: {text!r} says nothing to keep by", faults=faults, hint=HINT)
    runs, gb = limits.get("runs"), limits.get("gb")
    return Keep(None if runs is None else int(runs), None if gb is None else int(gb * GB), limits.get("days"))


def _number(text: str) -> float:
    """NaN when it is none, or infinite."""
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan
