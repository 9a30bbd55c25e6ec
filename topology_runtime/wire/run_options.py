"""How the data plane behaves: settings that every worker of a run has alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from headgate.topology_runtime.errors import UsageError

EVERY_SOURCE = "every source has ended"  # why a run ends by itself
FRAME_ROWS = 2048  # in a frame of a run at most: a frame costs as much as some 250 rows of a quick task

LONGEST_GAP_S = 0.1  # between frames, where who takes them cannot keep up with more of them


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


# ── How many traces of a topology are kept: what `trace-keep` says, as one value. Pure ────────────────

ALL = "all"
DEFAULT_KEEP = "runs=100,gb=20"
GB = 10**9
KEEP_HINT = "say for example runs=100,gb=20,days=90, or all"


@dataclass(frozen=True)
class Keep:
    """Traces of one topology that are kept, the one being written among them: at most so many runs, so
    many bytes, none last written to more than so many days ago. None: no such limit."""

    runs: int | None = None
    total_bytes: int | None = None
    days: float | None = None


def parse_keep(text: str, option: str = "--trace-keep") -> Keep:
    """`runs=100,gb=20,days=90` (any of the three) or `all`. Raises UsageError with every fault."""
    if text == ALL:
        return Keep()

    def fault(name: str, value: float) -> str:
        if name not in ("runs", "gb", "days"):
            return "not one of runs=N, gb=N, days=N"
        right = 0 < value < math.inf and (name != "runs" or value == int(value))
        return "" if right else f"not a {'whole ' if name == 'runs' else ''}number above 0"

    given = _named_numbers(option, text, fault, "says nothing to keep by", KEEP_HINT)
    runs, gb, days = (
        None if (one := given.get(name)) is None else float(one) for name in ("runs", "gb", "days")
    )
    return Keep(None if runs is None else int(runs), None if gb is None else int(gb * GB), days)


def _named_numbers(
    option: str, text: str, fault_of: Callable[[str, float], str], says: str, hint: str
) -> dict[str, str]:
    """`name=number,name=number`: name → number, as written. fault_of(name, number or NaN): what is wrong, or nothing.
    Raises UsageError with every fault."""
    found: dict[str, str] = {}
    faults = []
    for part in text.split(","):
        name, _, number = part.strip().partition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if name in found:
            faults.append(f"{name} is there twice")
        elif fault := fault_of(name, value):
            faults.append(f"{part.strip()!r}: {fault}")
        else:
            found[name] = number
    if faults:
        raise UsageError(f"{option}: {text!r} {says}", faults=faults, hint=hint)
    return found


# ── α and β of paper 1, and when an online mapper plans again, as plain values. Pure ────────────────────

DEFAULT_TRIGGERS = "every=60,saves=0.2,load=0.9,for=10"
TRIGGERS_HELP = (
    "When traffic or greedy-matching plans again at the same rate: every so many s, where that saves more than this "
    "part of what goes between VMs; for a VM above this load (load@vm2=0.7: that VM) for so many s; first=dsm: the "
    "first plan by that mapper."
)
TRIGGER_NAMES = {
    "every": "every_s",
    "saves": "saves",
    "load": "load_bound",
    "for": "load_s",
    "first": "first",
}
SHARES = ("saves", "load")  # from 0 to 1
OF_VM = "load@"  # the bound of one VM
MOST_S = 1e9


DEFAULT_SPREAD = "0,0.5"


def parse_spread(text: str) -> tuple[float, float]:
    """`α,β` of the mapper topology. Raises UsageError."""
    try:
        alpha, beta = (float(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(
            f"invalid topology-spread: {text!r} is not two numbers",
            hint=f"give --set topology-spread={DEFAULT_SPREAD}",
        ) from error
    if not (0 <= alpha <= 1 and 0 <= beta <= 1):
        raise UsageError(f"invalid topology-spread: {text!r} has a number that is not from 0 to 1")
    return alpha, beta


def parse_triggers(text: str) -> dict[str, Any]:
    """`every=60,saves=0.2,load=0.9,for=10,first=dsm` (any of these). Raises UsageError with every fault."""

    def fault(name: str, value: float) -> str:
        of_vm = name.startswith(OF_VM) and name != OF_VM
        if name not in TRIGGER_NAMES and not of_vm:
            return "not one of every=S, saves=PART, load=PART, load@VM=PART, for=S, first=MAPPER"
        if of_vm or name in SHARES:
            return "" if 0 <= value <= 1 else "not a part from 0 to 1"
        return "" if name == "first" or 1 <= value <= MOST_S else "not a number of seconds from 1 on"

    given = _named_numbers(
        "--traffic-triggers", text, fault, "says no triggers", f"for example {DEFAULT_TRIGGERS}"
    )
    bounds = {name.removeprefix(OF_VM): float(one) for name, one in given.items() if name.startswith(OF_VM)}
    found: dict[str, Any] = {
        TRIGGER_NAMES[name]: one if name == "first" else float(one)
        for name, one in given.items()
        if name in TRIGGER_NAMES
    }
    return found | ({"vm_bounds": bounds} if bounds else {})
