"""How many random examples the property tests try: all in `scripts/test full`, a fourth in every other run. Only how
many: where the examples are the same each time, the short run tries the first of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

ALL, SHORT = "all-examples", "fewer-examples"
USUAL, PART = 100, 4  # examples of a test that names no number; the short run tries one in so many

settings.register_profile(ALL, settings.get_profile("ci"), max_examples=USUAL)  # ci: no deadline, no database
settings.register_profile(SHORT, settings.get_profile(ALL), max_examples=USUAL // PART)


def regardless_of_imports() -> None:
    """Examples that are the same each time must not depend on what else this process has imported: hypothesis takes
    numbers and texts for them from the source of all local modules that are there (`findings/hypothesis-imports.sh`),
    so that they changed with the tests that ran before."""
    nothing = vars(providers)["_local_constants"]
    pytest.MonkeyPatch().setattr(providers, "_get_local_constants", lambda: nothing)


def count_of(most: int) -> int:
    """That many, or the part of them that is for a short run: ten at least, if there are as many."""
    return max(min(most, 10), most * settings.default.max_examples // USUAL)


def first_quickly(*worlds: Any) -> list[Any]:
    """For `parametrize`: the first simulated world is one of the quick tests, the others are among the seeds."""
    return [worlds[0], *(pytest.param(world, marks=pytest.mark.seeds) for world in worlds[1:])]


def examples(most: int) -> settings:
    """The same examples each time; a failing one is printed so that it can be repeated."""
    return settings(
        max_examples=count_of(most),
        derandomize=True,
        print_blob=True,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


def searching(most: int) -> settings:
    """In `scripts/test full` other examples each run, printed so that they can be repeated; else the same ones."""
    return settings(
        max_examples=count_of(most),
        derandomize=settings.default.max_examples < USUAL,
        print_blob=True,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
