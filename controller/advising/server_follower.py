"""What a Prometheus server says of a rate, told to an advisor in its order, as long as one likes to ask.

Whatever is wrong with server or values is named once, until it is something else, and it is asked again, less often
while it does not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from headgate.controller.advising.advisor import Advice, Advisor
from headgate.controller.advising.prometheus import POINTS_MOST, PrometheusServer
from headgate.topology_runtime.errors import InvalidInput, Unreachable

GAP_STEPS = 3.0  # so many values may come late
RETRY_MOST_S = 60.0
SAME_S = 1e-3


class RateAsked(NamedTuple):
    """What is asked: tuples/s are values of `query` × `scale`."""

    query: str
    step_s: float
    scale: float
    every_s: float


class ServerFollower:
    """began_s: UTC of the advisor's second 0, a step before the first value. trouble: what is wrong now, in words."""

    def __init__(
        self,
        server: PrometheusServer,
        asked: RateAsked,
        advisor: Advisor,
        from_s: float,
        say: Callable[[str], None],
    ) -> None:
        self._server, self._asked, self._advisor, self._say = server, asked, advisor, say
        self._known_s = self.began_s = self._grid(from_s)
        self._failed = 0
        self.trouble = ""

    @property
    def wait_s(self) -> float:
        """Until it is asked again: twice as long each time that it fails."""
        every_s = self._asked.every_s
        return max(every_s, min(RETRY_MOST_S, every_s * 2.0 ** min(self._failed, 10)))

    def go_on(self, now_s: float) -> list[Advice]:
        """What there is to say since the last time; what is wrong is said, and nothing ends it."""
        try:
            found = self.ask(now_s)
        except (Unreachable, InvalidInput) as error:
            self._failed += 1
            cause = f": {error.cause}" if error.cause else ""
            self._told(f"{error.what}{cause}; it is asked again, every {RETRY_MOST_S:g} s at least")
            return []
        if self._failed:
            self._failed = 0
            self._say(f"{self._server.url} answers again")
        return found

    def ask(self, now_s: float) -> list[Advice]:
        """The same, but raises what is wrong with the answer."""
        step_s = self._asked.step_s
        to_s = min(self._grid(now_s), self._known_s + (POINTS_MOST - 1) * step_s)
        if to_s < self._known_s + step_s - SAME_S:
            return []
        points, left_out = self._server.rates(self._asked.query, self._known_s + step_s, to_s, step_s)
        late = to_s - (points[-1][0] if points else self._known_s) > GAP_STEPS * step_s + SAME_S
        trouble = [left_out] if left_out else []
        trouble += ["no value comes: nothing is advised until there is one"] if late else []
        if trouble:
            self._told("; ".join(trouble))
        elif points:
            self.trouble = ""
        return self._heard(points, to_s, late)

    def _heard(self, points: Sequence[tuple[float, float]], to_s: float, late: bool) -> list[Advice]:
        """Each value stands for the step before it. What is missing between two is unknown; what is missing at the
        end may still come, but not for long."""
        found: list[Advice] = []
        step_s, offer = self._asked.step_s, self._advisor.offer
        for at_s, rate_tps in points:
            if not offer.spans:
                self.began_s = at_s - step_s
            found += self._advisor.hear(at_s - step_s - self.began_s, None)
            found += self._advisor.hear(at_s - self.began_s, rate_tps * self._asked.scale)
            self._known_s = at_s
        if late:
            found += self._advisor.hear(to_s - self.began_s, None)
            self._known_s = to_s
        return found

    def _grid(self, at_s: float) -> float:
        return at_s // self._asked.step_s * self._asked.step_s

    def _told(self, text: str) -> None:
        """Once, until it is something else than other figures."""
        before, self.trouble = self.trouble, text
        if _without_figures(text) != _without_figures(before):
            self._say(text)


def _without_figures(text: str) -> str:
    return "".join(letter for letter in text if not letter.isdigit())
