"""How the data plane behaves: settings that every worker of a run has alike."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import msgspec

from headgate.topology_runtime.errors import UsageError

FRAME_ROWS = 2048  # in a frame of a run at most: a frame costs as much as some 250 rows of a quick task


def cap_at(most: int, modelled_tps: float | None, gap_s: float = 0.0) -> int:
    """Rows in a frame at most, for a thread of this rate: a tenth of a second of it, so that a slow task's frame still
    acks soon; or as many as come in a gap, if that is longer."""
    return most if modelled_tps is None else max(1, min(most, int(max(0.1, gap_s) * modelled_tps)))


class DataPlaneSettings(msgspec.Struct, frozen=True):
    """How the data plane behaves; the same for every worker of a run."""

    gap_s: float = 0.001  # flush an edge's buffer at once if its last flush is this old
    frame_rows: int = 256  # rows in a frame at most
    window_s: float = 2.0  # rows in flight (not kept) per source thread: at most modelled rate × this
    strict: bool = False  # round-trip rows on hops inside a worker too
    switch_interval_s: float = 0.005


# ── How many traces of a topology are kept: what `--trace-keep` says, as one value. Pure ────────────────

ALL = "all"
DEFAULT_KEEP = "runs=100,gb=20"
GB = 10**9
KEEP_HINT = "say for example --trace-keep runs=100,gb=20,days=90, or all"


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
        raise UsageError(f"--trace-keep: {text!r} says nothing to keep by", faults=faults, hint=KEEP_HINT)
    runs, gb = limits.get("runs"), limits.get("gb")
    return Keep(None if runs is None else int(runs), None if gb is None else int(gb * GB), limits.get("days"))


def _number(text: str) -> float:
    """NaN when it is none, or infinite."""
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


# ── When an online mapper plans again: what `--traffic-triggers` says, as plain values. Pure ────────────

DEFAULT_TRIGGERS = "every=60,saves=0.2,load=0.9,for=10"
TRIGGERS_HELP = (
    "When the mapper traffic plans again at the same rate: every so many s, where that saves more than this part of "
    "what goes between VMs; for a VM above this load for so many s; first=dsm: the first plan by that mapper."
)
TRIGGER_NAMES = {
    "every": "every_s",
    "saves": "saves",
    "load": "load_bound",
    "for": "load_s",
    "first": "first",
}
SHARES = ("saves", "load")  # from 0 to 1
MOST_S = 1e9


def parse_triggers(text: str) -> dict[str, Any]:
    """`every=60,saves=0.2,load=0.9,for=10,first=dsm` (any of these). Raises UsageError with every fault."""
    found: dict[str, Any] = {}
    faults = []
    for part in text.split(","):
        name, _, number = part.strip().partition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if name not in TRIGGER_NAMES:
            faults.append(f"{part.strip()!r}: not one of every=S, saves=PART, load=PART, for=S, first=MAPPER")
        elif TRIGGER_NAMES[name] in found:
            faults.append(f"{name} is there twice")
        elif name == "first":
            found[name] = number
        elif name in SHARES and not 0 <= value <= 1:
            faults.append(f"{part.strip()!r}: not a part from 0 to 1")
        elif name not in SHARES and not 1 <= value <= MOST_S:
            faults.append(f"{part.strip()!r}: not a number of seconds from 1 on")
        else:
            found[TRIGGER_NAMES[name]] = value
    if faults:
        raise UsageError(
            f"--traffic-triggers: {text!r} says no triggers",
            faults=faults,
            hint=f"for example {DEFAULT_TRIGGERS}",
        )
    return found
