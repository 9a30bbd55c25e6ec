"""Memory that grows without end is told, and what only looks like it is not: steps, garbage that is collected, load,
caches that fill, states, a short run. By the definition, then in a made-up run with alarms."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from headgate.controller.analyze.growing_memory import MemoryLife

PACE = 1e-4  # of the slot per second


def life_of(
    memory: Callable[[int], float],
    load: Callable[[int], float] = lambda t: 0.5,
    seconds: int = 900,
    states: Callable[[int], float] = lambda t: 0.0,
    replans: tuple[int, ...] = (),
) -> tuple[MemoryLife, int]:
    """(the life, how many of its looks told of growth), with a little noise."""
    chance, life, told = random.Random(7), MemoryLife(), 0
    for t in range(seconds):
        if t in replans:
            life.replanned()
        life.take(float(t), memory(t) + chance.gauss(0, 5e-4), load(t), states(t))
        told += t % 60 == 59 and life.pace() is not None
    return life, told


def wave(t: int) -> float:
    return math.sin(t / 50)


@pytest.mark.parametrize(
    "load", [lambda t: 0.5, lambda t: 0.5 + 0.3 * wave(t), lambda t: random.Random(t).uniform(0.2, 0.8)]
)
def test_growth_is_told_at_any_load_that_does_not_only_rise(load):
    life, told = life_of(lambda t: 0.3 + PACE * t + 0.03 * load(t), load)
    assert told > 3
    while life.pace() is None:  # it is told again once the load is not falling
        life.blocks.pop()
    assert life.pace() == pytest.approx(PACE, rel=0.15)


def test_growth_goes_on_over_plans_and_their_steps_are_taken_off():
    life, _ = life_of(lambda t: 0.1 + PACE * t + 0.05 * (t // 200), replans=(200, 400, 600, 800))
    assert life.pace() == pytest.approx(PACE, rel=0.25)


NO_GROWTH = {
    "flat": {"memory": lambda t: 0.3},
    "one step": {"memory": lambda t: 0.1 + 0.1 * (t > 300)},
    "steps at plans": {
        "memory": lambda t: 0.1 + 0.05 * (t // 150),
        "replans": tuple(range(150, 900, 150)),
    },
    "garbage that is collected": {"memory": lambda t: 0.1 + 0.1 * (t % 90) / 90},
    "a little garbage": {"memory": lambda t: 0.3 + 0.02 * (t % 90) / 90},
    "load that rises": {"memory": lambda t: 0.1 + 0.2 * t / 900, "load": lambda t: 0.1 + t / 900},
    "load that rises and falls": {
        "memory": lambda t: 0.1 + 0.2 * min(t, 900 - t) / 450,
        "load": lambda t: 0.1 + min(t, 900 - t) / 450,
    },
    "load that fell and left its memory": {
        "memory": lambda t: 0.1 + 0.2 * min(t, 450) / 450,
        "load": lambda t: 0.1 + min(t, 900 - t) / 450,
    },
    "a cache that fills": {"memory": lambda t: 0.1 + 0.2 * (1 - math.exp(-t / 150))},
    "a table that is read": {"memory": lambda t: 0.1 + 0.2 * min(1.0, t / 200)},
    "a short run": {"memory": lambda t: 0.1 + 10 * PACE * t, "seconds": 290},
    "states": {"memory": lambda t: 0.1, "states": lambda t: 2 * PACE * t},
}


@pytest.mark.parametrize("what", NO_GROWTH)
def test_what_only_looks_like_growth_is_never_told(what):
    assert life_of(**NO_GROWTH[what])[1] == 0


def test_states_that_only_grow_are_told_as_such_and_those_that_came_at_once_are_not():
    assert life_of(lambda t: 0.1, states=lambda t: PACE * t)[0].states_grew() == pytest.approx(0.09, rel=0.05)
    assert life_of(lambda t: 0.1, states=lambda t: 0.2 if t > 30 else 0.0)[0].states_grew() == 0.0


def test_long_runs_are_kept_in_few_blocks():
    life, told = life_of(lambda t: 0.1 + PACE / 10 * t, seconds=7200)
    assert told and len(life.blocks) <= 48 and life.pace() == pytest.approx(PACE / 10, rel=0.05)
