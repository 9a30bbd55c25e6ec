"""What one turn of the controller does to the world, collected while it thinks.

Records change `knowledge.durable` at once; they come out as one Persist in front of everything else, so
nothing is sent that the journal does not know.
"""

from __future__ import annotations

from typing import Any

from headgate.controller.knowledge.folding import fold
from headgate.controller.knowledge.knowledge import Knowledge
from headgate.controller.knowledge.plans import Plan
from headgate.controller.knowledge.records import Record
from headgate.controller.knowledge.turns import Instruction, Now, Persist, Say, Trace
from headgate.topology_runtime.utc import utc_iso


class Turn:
    """One turn at `now`."""

    def __init__(self, knowledge: Knowledge, now: Now) -> None:
        self.knowledge, self.now = knowledge, now
        self._records: list[Record] = []
        self._instructions: list[Instruction] = []

    def record(self, record: Record) -> None:
        """Journal this, and know it from now on."""
        self.knowledge.durable = fold(self.knowledge.durable, record)
        self._records.append(record)

    def do(self, instruction: Instruction) -> None:
        self._instructions.append(instruction)

    def event(self, kind: str, text: str, level: str = "info", **more: Any) -> None:
        """Something happened that people may want to know: a flat record, and a line on stderr."""
        k = self.knowledge
        k.event_number += 1
        k.events.append(
            {
                "number": k.event_number,
                "time": utc_iso(self.now.wall_ns),
                "kind": kind,
                "epoch": k.epoch,
                "text": text,
                **more,
            }
        )
        self.do(Say(level, text))

    def decided(self, decision: dict[str, Any], plan: Plan | None = None) -> None:
        """A decision for the trace, `explain` and `status`; the `plan` that it is about."""
        self.knowledge.last_decision = decision
        if decision["action"] != "none":
            self.knowledge.actions.append(decision)
        fresh = plan is not None and self.knowledge.remember(plan)
        self.do(Trace("decision", decision, plan if fresh else None))

    @property
    def writes(self) -> bool:
        return bool(self._records)

    def instructions(self) -> list[Instruction]:
        if not self._records:
            return self._instructions
        return [Persist(tuple(self._records)), *self._instructions]
