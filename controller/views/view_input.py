"""What a picture is made from: the loop's knowledge, looked at and never changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.core.loop_result import LoopResult
from controller.knowledge.knowledge import Knowledge
from controller.knowledge.membership import Membership
from controller.knowledge.turns import Now
from controller.views.in_task import Percentiles


@dataclass(frozen=True, slots=True)
class ViewInput:
    """One look. seen: by the last turn of the loop, None before the first. stage: of the run's end.
    in_task: task → latency of its rows, of the last seconds."""

    k: Knowledge
    members: Membership
    seen: LoopResult | None
    duplicates: int
    stage: str
    now: Now
    in_task: Mapping[str, Percentiles] = field(default_factory=dict)
