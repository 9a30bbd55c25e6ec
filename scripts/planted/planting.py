"""A bug to plant in the code, and what must notice it.

A plant is old text of a file and the new text in its place; the old text must be there exactly once, so that a
plant that no longer fits the code is noticed itself. `breaks`: words of the invariants that notice it, one of
which the violation must say. `test`: noticed by this test, because hardly any simulated seed can."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

WORKER, EXECUTE = "topology_runtime/worker", "controller/execute"
LEDGER, ACKS, CODE = (
    f"{WORKER}/sources/source_ledger.py",
    f"{WORKER}/rows/acks.py",
    f"{WORKER}/calls/user_code.py",
)
WINDOWS, PANES, BURIAL = (
    f"{WORKER}/operators/window_task.py",
    f"{WORKER}/operators/window_task.py",
    f"{WORKER}/calls/dead_lettering.py",
)
OUTBOX = f"{WORKER}/links/peer_links.py"
OUTPUTS, CORE, SOURCE = (
    f"{WORKER}/calls/output_buffers.py",
    f"{WORKER}/operators/thread_core.py",
    f"{WORKER}/sources/source_task.py",
)
ORDERS, STATE = f"{WORKER}/orders/thread_orders.py", f"{WORKER}/orders/worker_state.py"
KEYED, KEYED_ROWS = f"{WORKER}/operators/keyed_task.py", f"{WORKER}/keyed_state/keyed_rows.py"
APPLIED = f"{WORKER}/keyed_state/applied_rows.py"
FOLDING, EXECUTOR, STEPS = (
    "controller/knowledge/journal_records.py",
    f"{EXECUTE}/rollout.py",
    f"{EXECUTE}/rollout_steps.py",
)
SPOOL = f"{WORKER}/sources/source_spool.py"
BATCHES, ATTEMPTS = f"{WORKER}/calls/batches.py", f"{WORKER}/calls/attempts.py"
COLUMNS, GATHERING = f"{WORKER}/rows/columns.py", f"{WORKER}/calls/batches.py"
WANTED, AGENT, LOOP = f"{EXECUTE}/desired_state.py", "agent/core/agent_state.py", "controller/core/loop.py"

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
