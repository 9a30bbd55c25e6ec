"""What a number of seeds must have met at least once: a simulator that never gets there proves nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

SEEDS_LEAST = 2000  # so many seeds of all shapes meet all of this

EXPECTED = (
    *(f"fault {kind}" for kind in (
        "kill_worker", "kill_worker_somewhere", "kill_worker_at_mark", "kill_agent", "kill_agent_somewhere",
        "kill_controller", "kill_controller_somewhere", "cut_vm", "lose_vm", "fail_journal", "break_data",
        "reorder_data", "half_open_data", "fill_disk",
        "lose_vm_at_move", "forge_report", "wear_out",
    )),
    *(f"killed at {place}" for place in ("deliver", "ack", "record", "word", "agent", "controller",
      "move")),
    *(f"{who} killed in {phase}" for who in ("worker", "controller")
      for phase in ("prepared", "switched", "probation", "committed")),
    "marks lost", "frames lost", "acks lost", "frames out of order", "replays by fault", "replays by deadline",
    "sources restarted", "sources read again", "spools drained", "events accepted anew",
    "dead letters", "exclusive hand-overs",
    "ranges moved", "ranges taken over", "ranges thawed",
    "ranges restored", "snapshots restored", "snapshots of changes", "journal failures",
    "VMs held dead", "no fault at all",
    "letters replayed", "letters died again",
    "stretches without faults", "sinks in workers of their own", "sinks on VMs of their own",
)  # fmt: skip


def missing(coverage: Counter[str]) -> list[str]:
    """What of the expected was never met."""
    return [name for name in EXPECTED if not coverage[name]]


def together(parts: Iterable[Counter[str]]) -> Counter[str]:
    found: Counter[str] = Counter(dict.fromkeys(EXPECTED, 0))
    for part in parts:
        found.update(part)
    return found
