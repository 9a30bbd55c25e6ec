"""Kubernetes' Horizontal Pod Autoscaler: replicas × use / wanted use, every 15 s. Pure.

Read in: the documentation of Kubernetes, "Horizontal Pod Autoscaling", algorithm details and scaling policies
(kubernetes/website at 0165025: every 15 s, tolerance 0.1, lowering to the most recommended in five minutes), and the
API reference of autoscaling/v2 (80 % of the CPU where no metric is set; up by 100 % or 4 pods in 15 s, whichever is
more). Pods that are not ready yet are not modelled: a plan is in force as a whole.

    desired_replicas(10, use=0.2, target=0.1)  # 20
"""

from __future__ import annotations

import math
from collections import deque

from headgate.lab.rate_policies.rule_turns import DeciderQuestion, Rival, Turn1s

SYNC_S, TOLERANCE, TARGET, QUIET_S = 15, 0.1, 0.8, 300.0
MOST_TIMES, MOST_PODS = 2, 4


def desired_replicas(replicas: int, use: float, target: float, tolerance: float = TOLERANCE) -> int:
    """use, target: in the same unit. At least one; as it is where the ratio is within the tolerance of 1."""
    ratio = use / target
    if abs(ratio - 1) <= tolerance + 1e-12:
        return replicas
    return max(1, math.ceil(replicas * ratio - 1e-9))


class PodThreshold:
    """Recommendations of one target, look by look."""

    def __init__(self, target: float = TARGET, quiet_s: float = QUIET_S) -> None:
        self.target, self.quiet_s = target, quiet_s
        self._asked: deque[tuple[float, int]] = deque()

    def replicas(self, at_s: float, now: int, use: float) -> int:
        """The number to scale to."""
        if not self._asked:
            self._asked.append((at_s, now))
        self._asked.append((at_s, desired_replicas(now, use, self.target)))
        while self._asked[0][0] < at_s - self.quiet_s:
            self._asked.popleft()
        wanted = self._asked[-1][1]
        if wanted < now:
            wanted = min(now, max(asked for _, asked in self._asked))
        return min(wanted, max(MOST_TIMES * now, now + MOST_PODS))


class PodThresholds(Rival):
    """`hpa`: a slot is a pod, its use that of the slowest task's threads."""

    def __init__(self, given: DeciderQuestion) -> None:
        super().__init__(given)
        self._pods = PodThreshold()
        self._busy: deque[float] = deque(maxlen=SYNC_S)
        self._looked_s = -math.inf

    def look(self, now: Turn1s) -> float | None:
        self._busy.append(now.busy)
        if len(self._busy) < SYNC_S or now.in_force_s is None or now.at_s - self._looked_s < SYNC_S:
            return None
        self._looked_s = now.at_s
        wanted = self._pods.replicas(now.at_s, now.slots, sum(self._busy) / SYNC_S)
        return now.rate_of(min(wanted, self.given.most_slots)) if wanted != now.slots else None
