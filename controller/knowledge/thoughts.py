"""What is being planned beside the loop, and what came of it last. Plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headgate.controller.knowledge.diagnoses import Diagnosis
from headgate.controller.knowledge.plans import Plan
from headgate.controller.knowledge.turns import Command
from headgate.topology_runtime.errors import HeadgateError


@dataclass(slots=True)
class OrderedPlan:
    """A plan that the shell was told to make for `request`, when `next_epoch` was the next one. diagnosis: that waits
    for it (None: a command does). urgent: it does not wait for what is not."""

    number: int
    request: Any
    since_ns: int
    next_epoch: int
    diagnosis: Diagnosis | None
    urgent: bool


@dataclass(frozen=True, slots=True)
class FoundPlan:
    """What came of a request: a plan and why it is for less, or an error."""

    request: Any
    plan: Plan | None
    degraded: str
    error: HeadgateError | None


@dataclass(slots=True)
class Thoughts:
    """asked: what is waited for; found: what was made last. rest_until_ns: nothing but what is urgent is asked before.
    parked: commands that wait for a plan. took_s: (epoch, how long its plan was made beside the loop)."""

    asked: OrderedPlan | None = None
    found: FoundPlan | None = None
    number: int = 0
    rest_until_ns: int = 0
    parked: list[Command] = field(default_factory=list)
    took_s: tuple[int, float] = (0, 0.0)
