"""A trial at one steady rate that ends as soon as its verdict is sure. Pure: bins in, a finding out.

The trial is looked at once a second. Every look may be wrong, so the error allowed is spent over them: by
time t the share (t / longest)³ of it (a power family as in Kim and DeMets 1987; what is known of a slope
grows with the cube of time). A look may err by what has been spent since the look before; adding these up
(Bonferroni) bounds the whole trial. When time is up the verdict is what the evidence tends to, and says so.
"""

from __future__ import annotations

import msgspec

from headgate.topology_runtime.stability.evidence import (
    Bin,
    Evidence,
    Verdict,
    confidence,
    evidence,
    leaning,
    verdict_of,
)

ERROR = 0.005  # each way: of a surely wrong verdict, over all looks of a trial
LONGEST_S, LONGEST_WAITS_S = 10.0, 20.0  # a throttled service hides overload for 7 to 17 s
STABLE_FROM = 0.75  # of the longest time, where a service may hide overload
FIRST_S = 5.0  # a machine that stops for a second or two must not look like a trend …
LEAST_SPAN_S = 3.0  # … nor what is left after a warm-up that seems to end late
WAVES = 4  # rows that every thread has done before: with many threads they come in waves
SLACK_S = 1e-6


class Looks(msgspec.Struct, frozen=True):
    """When a trial is looked at, and its error each way. `stable_from_s`: it is not called stable before
    (the service behind the task may be living on its reserve)."""

    longest_s: float = LONGEST_S
    stable_from_s: float = 0.0
    first_s: float = FIRST_S
    every_s: float = 1.0
    error: float = ERROR

    def spent(self, at_s: float) -> float:
        """Of the error, by then."""
        return self.error * min(1.0, max(0.0, at_s) / self.longest_s) ** 3


def looks_for(waits: bool, longest_s: float | None = None, wave_s: float = 0.0) -> Looks:
    """`waits`: the task waits for a service, which may be throttled; `wave_s`: in which every thread does
    a row."""
    longest_s = longest_s or (LONGEST_WAITS_S if waits else LONGEST_S)
    first_s = min(longest_s, max(FIRST_S, WAVES * wave_s))
    return Looks(longest_s, STABLE_FROM * longest_s if waits else 0.0, first_s)


class Finding(msgspec.Struct, frozen=True):
    """`forced`: time was up before it was sure. `confidence`: of the verdict, 0 … 1; `seconds` it took."""

    verdict: Verdict
    confidence: float
    forced: bool
    seconds: float
    evidence: Evidence

    @property
    def text(self) -> str:
        sure = f"forced after {self.seconds:.1f} s" if self.forced else f"sure after {self.seconds:.1f} s"
        return f"{self.verdict} ({sure}, confidence {self.confidence:.3f}): {self.evidence.text}"


class Trial:
    """The clock of the bins begins when the rate begins to be offered."""

    def __init__(self, looks: Looks) -> None:
        self._looks = looks
        self._bins: list[Bin] = []
        self._next_s = looks.first_s
        self._spent_stable = self._spent_unstable = 0.0

    def add(self, bin_: Bin) -> Finding | None:
        """The finding as soon as there is one; bins come in order of time."""
        self._bins.append(bin_)
        seconds = bin_.t_s
        over = seconds >= self._looks.longest_s - SLACK_S
        if seconds < self._next_s - SLACK_S and not over:
            return None
        while self._next_s <= seconds + SLACK_S:
            self._next_s += self._looks.every_s
        return self._look(seconds, over)

    def _look(self, seconds: float, over: bool) -> Finding | None:
        found, spent = evidence(self._bins), self._looks.spent(seconds)
        if found.span_s < LEAST_SPAN_S and not over:
            return None  # nothing is decided, so nothing is spent
        may_be_stable = over or seconds >= self._looks.stable_from_s - SLACK_S
        error_stable = spent - self._spent_stable if may_be_stable else 0.0
        error_unstable = spent - self._spent_unstable
        verdict = verdict_of(found, error_stable, error_unstable)
        self._spent_unstable = spent
        if may_be_stable:
            self._spent_stable = spent
        if verdict == "unsure" and not over:
            return None
        forced = verdict == "unsure"
        if forced:
            verdict = leaning(found, error_unstable)
        return Finding(verdict, confidence(found, verdict), forced, seconds, found)
