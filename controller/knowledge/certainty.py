"""How surely a placement carries a rate: what is asked for, and what is told of it. Frozen, plain values."""

from __future__ import annotations

import math

import msgspec

SLOT, TOGETHER = 0.053, 0.05  # measured in 144 trials and 102 (docs/measured-models.md; decision 23)


class ErrorSpread(msgspec.Struct, frozen=True):
    """By how much plans err, as standard deviations of ln(what a row costs / what was predicted).

    slot: each slot for itself. together: all slots of a plan alike; where the models' own errors are not known. models:
    model → (by how much ln is off on average, its own standard deviation), learned."""

    slot: float = SLOT
    together: float = TOGETHER
    models: dict[str, tuple[float, float]] = {}


class Sure(msgspec.Struct, frozen=True):
    """A plan shall carry its rate with this probability. strict: or there is none; else it is as sure as the slots
    there are allow. margin: threads and slots are for the rate × this."""

    probability: float
    spread: ErrorSpread = ErrorSpread()
    strict: bool = True
    margin: float = 1.0


class Certainty(msgspec.Struct, frozen=True):
    """`chance`: at least so probably the placement carries `rate_tps`; asked for was `probability`. The rest: by what
    errors that was worked out, and `margin`."""

    probability: float
    rate_tps: float
    chance: float
    margin: float
    spread: ErrorSpread

    @property
    def told(self) -> str:
        """The chance in three digits, never more than it is."""
        return f"{math.floor(1000 * self.chance) / 1000:.3f}"
