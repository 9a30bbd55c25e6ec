"""ContTune: sizes by what sizes did before, and by DS2 where none was near. Pure.

Lian et al., "ContTune", PVLDB 16 (2023). Read in: its abstract and its repository, ljqcodelove/ContTune at 8cbcf89:
README (its observations of Nexmark Q1; "d_nearest … otherwise, DS2 is triggered") and code (a Gaussian process with
a squared exponential kernel over parallelism → processing ability, its length and height by the marginal likelihood).
Of the paper's Algorithm 1 (Big-small) there was no text to read; by abstract and README
a job behind its rate is first made large enough ("Big": here doubled until it keeps up), then brought to the fewest
that carry the rate ("Small"). How often it looks is not said: once a minute here. Its code takes observations as exact;
here they have an error of 1 % of the largest.

    abilities = Abilities()
    for parallelism, tps in {1: 530e3, 2: 967e3, 4: 1830e3}.items():
        abilities.hear(parallelism, tps)
    abilities.least(900e3, most=8)  # 2
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from headgate.lab.rate_policies.rule_turns import DeciderQuestion, Rival, Turn1s
from headgate.lab.rate_policies.true_rates import whole_instances, worth_a_change

Floats = NDArray[np.float64]
ALPHA, LOOK_S, WARM_S, ERROR = 1, 60, 20, 0.01
SATURATED = 0.9  # measured; rows come by chance, and no reading is above 1
LENGTHS = np.geomspace(0.5, 100.0, 25)


class Abilities:
    """Parallelism → rows/s that it could take, the mean of what was seen."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, float]] = {}

    def hear(self, parallelism: int, tps: float) -> None:
        count, mean = self._seen.get(parallelism, (0, 0.0))
        self._seen[parallelism] = (count + 1, mean + (tps - mean) / (count + 1))

    def nearest(self, parallelism: int) -> int | None:
        """How far the nearest one that was seen is."""
        return min((abs(parallelism - seen) for seen in self._seen), default=None)

    def means(self, most: int) -> Floats:
        """Rows/s of 1 to `most`, by the process. Needs one observation."""
        at = np.array(sorted(self._seen), float)
        tps = np.array([self._seen[int(one)][1] for one in at])
        height = float(np.abs(tps).max()) or 1.0
        length = max(LENGTHS, key=lambda one: _likelihood(at, tps / height, one))
        weights = np.linalg.solve(_kernel(at, at, length) + ERROR**2 * np.eye(len(at)), tps)
        return np.asarray(_kernel(np.arange(1.0, most + 1), at, length) @ weights)

    def least(self, rate_tps: float, most: int) -> int | None:
        """The least parallelism that takes this rate; None: none up to `most` does."""
        enough = np.flatnonzero(self.means(most) >= rate_tps)
        return int(enough[0]) + 1 if len(enough) else None


def _kernel(a: Floats, b: Floats, length: float) -> Floats:
    return np.asarray(np.exp(-0.5 * ((a[:, None] - b) / length) ** 2))


def _likelihood(at: Floats, values: Floats, length: float) -> float:
    """Logarithm of the marginal one, with the height that makes it greatest."""
    k = _kernel(at, at, length) + ERROR**2 * np.eye(len(at))
    _, log_det = np.linalg.slogdet(k)
    height2 = float(values @ np.linalg.solve(k, values)) / len(at)
    return -0.5 * (len(at) * math.log(max(height2, 1e-300)) + float(log_det))


def smaller_step(rate_tps: float, now: int, ability_tps: float, abilities: Abilities, most: int) -> int:
    """The parallelism for this rate: by the process where one within ALPHA was seen, else DS2's (linear in what one
    does now)."""
    found = abilities.least(rate_tps, most)
    if found is not None:
        nearest = abilities.nearest(found)
        if nearest is not None and nearest <= ALPHA:
            return found
    return min(most, whole_instances(rate_tps / (ability_tps / now)))


class ConservativeTuning(Rival):
    """`conttune`: a slot is one more of parallelism, the headroom is kept as with DS2."""

    def __init__(self, given: DeciderQuestion) -> None:
        super().__init__(given)
        self._abilities = Abilities()
        self._offered = self._done = self._busy_s = 0.0
        self._seconds, self._lag = 0, 0.0

    def look(self, now: Turn1s) -> float | None:
        if now.in_force_s is None or now.in_force_s < WARM_S:
            self._clear(now)
            return None
        self._seconds += 1
        self._offered, self._done = self._offered + now.offered_tps, self._done + now.done_tps
        self._busy_s += now.busy
        if self._seconds < LOOK_S:
            return None
        rate_tps = self._offered / self._seconds * self.given.headroom
        busy, ability_tps = self._busy_s / self._seconds, self._done / max(self._busy_s, 1e-9)
        behind = busy >= SATURATED and now.offer.backlog > self._lag
        self._clear(now)
        if ability_tps <= 0:
            return None
        self._abilities.hear(now.slots, ability_tps)
        most = self.given.most_slots
        if behind:
            return now.rate_of(min(most, 2 * now.slots))
        wanted = smaller_step(rate_tps, now.slots, ability_tps, self._abilities, most)
        return now.rate_of(wanted) if worth_a_change(now.slots, wanted) else None

    def _clear(self, now: Turn1s) -> None:
        self._offered = self._done = self._busy_s = 0.0
        self._seconds, self._lag = 0, now.offer.backlog
