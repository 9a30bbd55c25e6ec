"""An input rate as it becomes known, span by span, for whoever goes through it in its order. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

NS = 1_000_000_000
KEPT_S = 60.0  # behind what is known: nobody looks back further


class OfferedSpan(NamedTuple):
    """known: False where nobody said, and the rate before stands in. rows: until its beginning."""

    from_s: float
    to_s: float
    rate_tps: float
    known: bool
    rows: float


@dataclass
class OfferSoFar:
    """What was offered since second 0."""

    spans: deque[OfferedSpan] = field(default_factory=deque)

    @property
    def until_s(self) -> float:
        return self.spans[-1].to_s if self.spans else 0.0

    def add(self, to_s: float, rate_tps: float | None) -> None:
        """From where it is known on until `to_s`; None: nothing is known of that time."""
        if to_s <= self.until_s or (rate_tps is None and not self.spans):
            return
        last = self.spans[-1] if self.spans else OfferedSpan(0.0, 0.0, 0.0, True, 0.0)
        rows = last.rows + (last.to_s - last.from_s) * last.rate_tps
        rate = last.rate_tps if rate_tps is None else rate_tps
        self.spans.append(OfferedSpan(last.to_s, to_s, rate, rate_tps is not None, rows))

    def forget(self, before_s: float) -> None:
        while len(self.spans) > 1 and self.spans[0].to_s < before_s - KEPT_S:
            self.spans.popleft()

    def known_at(self, at_s: float) -> bool:
        return self._span(at_s).known

    def rate_at(self, now_ns: int) -> float:
        return self._span(now_ns / NS).rate_tps

    def offered(self, now_ns: int) -> float:
        span = self._span(now_ns / NS)
        return span.rows + (now_ns / NS - span.from_s) * span.rate_tps

    def _span(self, at_s: float) -> OfferedSpan:
        """The span at whose end, or in which, this is."""
        for span in reversed(self.spans):
            if span.from_s < at_s:
                return span
        return self.spans[0]
