"""How far this machine's clock is from the controller's. Pure; times are ns, monotonic where not said otherwise.

Each report is answered with the controller's time. It was read somewhere between sending and hearing, so the middle is
off by half the round trip at most (Cristian 1989). The answer with the least round trip of the last half minute counts,
its error growing by what two clocks may drift apart.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

S = 1_000_000_000
KEPT_NS = 30 * S
DRIFT = 100e-6  # two quartz clocks that nobody keeps
UNFELT_NS = S // 1000  # below this a clock is taken for right
UNANSWERED_MOST = 64

ReportId = tuple[int, int]  # the agent's boot, the number of its report


class _Heard(NamedTuple):
    heard_ns: int
    ahead_ns: int  # the controller's UTC less this machine's monotonic time
    error_ns: int


class ClockOffset:
    """Of one machine, by what its agent sent and heard."""

    def __init__(self) -> None:
        self._sent: deque[tuple[ReportId, int]] = deque(maxlen=UNANSWERED_MOST)
        self._answers: deque[_Heard] = deque()

    def sent(self, report: ReportId, now_ns: int) -> None:
        self._sent.append((report, now_ns))

    def answered(self, report: ReportId, controller_ns: int, now_ns: int) -> None:
        """controller_ns: its UTC when it answered this report."""
        while self._sent and self._sent[0][0] < report:
            self._sent.popleft()
        if not self._sent or self._sent[0][0] != report:
            return
        _, sent_ns = self._sent.popleft()
        new = _Heard(now_ns, controller_ns - (sent_ns + now_ns) // 2, (now_ns - sent_ns + 1) // 2)
        best = self._best(now_ns)
        if best is not None and abs(new.ahead_ns - best.ahead_ns) > new.error_ns + _error_ns(best, now_ns):
            self._answers.clear()  # both cannot be: a clock was set, or this machine slept
        self._answers.append(new)
        while self._answers[0].heard_ns < now_ns - KEPT_NS:
            self._answers.popleft()

    def offset_ns(self, now_ns: int, wall_ns: int) -> tuple[int, int]:
        """(what to add to this machine's own UTC, by how much that may be wrong); (0, 0) before anything was heard.

        What is less than its own error, or than anybody feels, is 0: on one machine nothing is added."""
        best = self._best(now_ns)
        if best is None:
            return 0, 0
        found, error_ns = best.ahead_ns + now_ns - wall_ns, _error_ns(best, now_ns)
        return (found if abs(found) > max(error_ns, UNFELT_NS) else 0), error_ns

    def _best(self, now_ns: int) -> _Heard | None:
        return min(self._answers, key=lambda answer: _error_ns(answer, now_ns), default=None)


def _error_ns(answer: _Heard, now_ns: int) -> int:
    return answer.error_ns + int(DRIFT * (now_ns - answer.heard_ns))
