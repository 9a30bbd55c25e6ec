"""The figures of a run as a whole, and what of them differs from another run's by more than runs differ anyway."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

CARRIES = 0.01  # of what was offered: a plan that follows a rate is late by so much
RECORDED = "recorded"  # the policy that is the run itself


class RunFigures(msgspec.Struct, frozen=True):
    """A run in one row. slots: mean number with threads; waited_s: how long the episodes of overload
    took together. None: not known."""

    run: str
    topology: str
    started_us: int | None
    seconds: float | None
    offered_tps: float | None
    acked_tps: float | None
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    waited_s: float | None
    slots: float | None
    slot_hours: float | None
    usd: float | None
    replans: int | None
    lost: int | None
    dead_lettered: int | None
    replayed: int | None
    duplicates: int | None


class PolicyTried(msgspec.Struct, frozen=True):
    """A policy with the offer of a run, by the models; `recorded`: the run's own plans. rank: 1 is the one with the
    fewest slot-hours of those that carry what was offered (but for a hundredth), behind them those that fall short, by
    how much; None of the run itself, and of what could not begin. violations_s, violated_tuples: for how long more was
    offered than the plan in force is predicted to carry, and how much more; measured_s, measured_tuples: what the run
    really failed to finish, in stretches of 10 s; note: of its first plan; why: it could not begin or go on."""

    run: str
    policy: str
    rank: int | None
    slot_hours: float
    usd: float | None
    violations_s: float
    violated_tuples: float
    offered: float
    replans: int
    moves: int
    measured_s: float | None = None
    measured_tuples: float | None = None
    note: str | None = None
    why: str | None = None

    @property
    def carries(self) -> bool:
        return self.rank is not None and self.violated_tuples <= CARRIES * self.offered


class RunChange(msgspec.Struct, frozen=True):
    """A figure of a run, and what it was in `against`. differs: by more than two runs of the same differ; None: one of
    the two is not known."""

    run: str
    against: str
    figure: str
    unit: str
    value: float | None
    before: float | None
    differs: bool | None


@dataclass(frozen=True)
class FigureNoise:
    """What two runs of the same differ by: `share` of the larger one, or `least` in the figure's unit, whichever is
    more. decisions/0056 says where these are from."""

    unit: str
    share: float = 0.0
    least: float = 0.0


NOISE = {
    "seconds": FigureNoise("s", 0.02, 2.0),
    "offered_tps": FigureNoise("tuples/s", 0.02),
    "acked_tps": FigureNoise("tuples/s", 0.05),
    "p50_s": FigureNoise("s", 0.25, 0.02),
    "p95_s": FigureNoise("s", 0.25, 0.05),
    "p99_s": FigureNoise("s", 0.33, 0.1),
    "waited_s": FigureNoise("s", 0.25, 3.0),
    "slots": FigureNoise("slots", 0.03),
    "slot_hours": FigureNoise("slot·h", 0.03),
    "usd": FigureNoise("USD", 0.03),
    "replans": FigureNoise("re-plans"),
    "lost": FigureNoise("tuples"),
    "dead_lettered": FigureNoise("tuples"),
    "replayed": FigureNoise("tuples"),
    "duplicates": FigureNoise("tuples"),
}


def changes(
    own: Sequence[RunFigures], before: Sequence[RunFigures], named: bool = False
) -> Iterator[RunChange]:
    """Each run against the one of the same topology that began last before it, of these and of `before`; `named`:
    against that in `before`, whatever its topology."""
    for now in own:
        then = before[0] if named and before else previous(now, [*own, *before])
        if then is not None and then.run != now.run:
            yield from against(now, then)


def previous(now: RunFigures, others: Iterable[RunFigures]) -> RunFigures | None:
    earlier = [
        (other.started_us, other.run, other)
        for other in others
        if other.topology == now.topology
        and other.started_us is not None
        and now.started_us is not None
        and (other.started_us, other.run) < (now.started_us, now.run)
    ]
    return max(earlier, key=lambda one: one[:2])[2] if earlier else None


def against(now: RunFigures, then: RunFigures) -> Iterator[RunChange]:
    for figure, noise in NOISE.items():
        value, before = getattr(now, figure), getattr(then, figure)
        yield RunChange(now.run, then.run, figure, noise.unit, value, before, differs(noise, value, before))


def differs(noise: FigureNoise, value: float | None, before: float | None) -> bool | None:
    if value is None or before is None:
        return None
    return abs(value - before) > max(noise.least, noise.share * max(abs(value), abs(before)))


def waited_s(spans: Iterable[tuple[float, float]]) -> float:
    """How long these stretches take together; where two lie over each other it counts once."""
    whole, until = 0.0, float("-inf")
    for from_s, to_s in sorted(spans):
        whole += max(0.0, to_s - max(from_s, until))
        until = max(until, to_s)
    return whole
