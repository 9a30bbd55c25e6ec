"""Tasks' own metrics, from what sample blocks bring, added up over the threads of a task. Nothing is decided by them.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate.controller.knowledge.run_view import UserMetricNow
from headgate.topology_runtime.api.user_metrics import BUCKETS, NAME, NAMES_MOST
from headgate.topology_runtime.wire.messages import SampleBlock
from headgate.topology_runtime.wire.report_messages import UserMetric

NS = 1_000_000_000
GAUGE_NS = 15 * NS  # the value of a thread that says nothing for so long counts no more
KINDS = ("counter", "gauge", "histogram")


@dataclass(slots=True)
class UserTotal:
    kind: str
    value: float = 0.0
    count: int = 0
    buckets: dict[int, int] = field(default_factory=dict)
    gauges: dict[int, tuple[int, float]] = field(default_factory=dict)  # thread → when, what


class UserTotals:
    """Of the tasks of a topology; at most NAMES_MOST names of each. What makes no sense is passed over."""

    def __init__(self, tasks: tuple[str, ...]) -> None:
        self._of: dict[str, dict[str, UserTotal]] = {task: {} for task in tasks}

    def add(self, block: SampleBlock, now_ns: int) -> None:
        for one in block.user:
            if (total := self._total(one)) is None:
                continue
            if one.kind == "gauge":
                total.gauges[one.thread] = now_ns, one.value
                continue
            total.value += one.value
            total.count += one.count
            for bucket, more in one.buckets:
                total.buckets[bucket] = total.buckets.get(bucket, 0) + more

    def _total(self, one: UserMetric) -> UserTotal | None:
        names = self._of.get(one.task)
        sound = (
            NAME.fullmatch(one.name) and one.kind in KINDS and all(0 <= at < BUCKETS for at, _ in one.buckets)
        )
        if names is None or not sound or (one.name not in names and len(names) >= NAMES_MOST):
            return None
        total = names.setdefault(one.name, UserTotal(one.kind))
        return total if total.kind == one.kind else None

    def now(self, now_ns: int) -> tuple[UserMetricNow, ...]:
        found = []
        for task, names in self._of.items():
            for name, total in sorted(names.items()):
                total.gauges = {
                    thread: seen for thread, seen in total.gauges.items() if now_ns - seen[0] < GAUGE_NS
                }
                value = (
                    sum(value for _, value in total.gauges.values()) if total.kind == "gauge" else total.value
                )
                if total.kind != "gauge" or total.gauges:
                    buckets = tuple(sorted(total.buckets.items()))
                    found.append(UserMetricNow(task, name, total.kind, value, total.count, buckets))
        return tuple(found)
