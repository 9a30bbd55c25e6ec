"""A bug to plant in the code, and what must notice it.

A plant is old text of a file and the new text in its place; the old text must be there exactly once, so that a
plant that no longer fits the code is noticed itself. `breaks`: words of the invariants that notice it, one of
which the violation must say. `test`: noticed by this test, because hardly any simulated seed can."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

WORKER, EXECUTE = "topology_runtime/worker", "controller/execute"
LEDGER, ACKS, CODE = f"{WORKER}/ledger.py", f"{WORKER}/acks.py", f"{WORKER}/user_code.py"
WINDOWS, PANES, BURIAL = f"{WORKER}/windows.py", f"{WORKER}/panes.py", f"{WORKER}/burial.py"
OUTBOX = f"{WORKER}/outbox.py"
OUTPUTS, CORE, SOURCE = f"{WORKER}/outputs.py", f"{WORKER}/thread_core.py", f"{WORKER}/source.py"
ORDERS, STATE = f"{WORKER}/orders.py", f"{WORKER}/state.py"
KEYED, KEYED_ROWS = f"{WORKER}/keyed.py", f"{WORKER}/keyed_rows.py"
APPLIED = f"{WORKER}/applied.py"
FOLDING, EXECUTOR, STEPS = "controller/knowledge/folding.py", f"{EXECUTE}/executor.py", f"{EXECUTE}/steps.py"
SPOOL = f"{WORKER}/spool.py"
BATCHES, ATTEMPTS = f"{WORKER}/batches.py", f"{WORKER}/attempts.py"
COLUMNS, GATHERING = f"{WORKER}/columns.py", f"{WORKER}/gathering.py"
WANTED, AGENT, LOOP = f"{EXECUTE}/desired.py", "agent/state.py", "controller/core/loop.py"

LATE = ("not yet", "no re-plan", "behind", "finished and no more")  # it does not settle
LOST = ("is not", "unaccounted", "reached no sink")  # a row is counted as done and is not
SAVED = ("saved as acked", "goes back")


@dataclass(frozen=True)
class Plant:
    """edits: (file, old text, new text). more: other options of the seeds (world.Options)."""

    name: str
    edits: tuple[tuple[str, str, str], ...]
    breaks: tuple[str, ...] = ()
    shape: str | None = None
    kinds: tuple[str, ...] = ()
    seeds: int = 60
    more: dict[str, Any] = field(default_factory=dict)
    test: str = ""


def one(name: str, file: str, old: str, new: str, breaks: tuple[str, ...] = (), **options: Any) -> Plant:
    return Plant(name, ((file, old, new),), breaks, **options)
