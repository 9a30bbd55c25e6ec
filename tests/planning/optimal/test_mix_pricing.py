"""The worthiest mix, found beside it by scipy; and that a bound holds however little is kept."""

from __future__ import annotations

import random
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from headgate.controller.plan.optimal.slot_mixes import Effort, Item, worthiest


@cache  # the tests below look at the same problems
def most_by_scipy(seed: int) -> float:
    """What the worthiest mix is worth: of each item how much it is fed, and whether it is there."""
    items = problem(seed)
    size = len(items)
    rows, highs = [], []
    for number, item in enumerate(items):  # fed if there, and wholly if it cannot be divided
        row = np.zeros(2 * size)
        row[number], row[size + number] = 1, -1
        rows.append(row)
        highs.append((-np.inf if item.divisible else 0.0, 0.0))
    for task in {item.task for item in items}:
        rows.append(np.array([0.0] * size + [float(item.task == task) for item in items]))
        highs.append((0.0, 1.0))
    rows.append(np.array([item.cpu for item in items] + [0.0] * size))
    rows.append(np.array([0.0] * size + [item.memory for item in items]))
    highs += [(0.0, 1.0)] * 2
    low, high = zip(*highs, strict=True)
    found = milp(
        [-item.worth for item in items] + [0.0] * size,
        constraints=LinearConstraint(np.array(rows), low, high),
        integrality=[0] * size + [1] * size,
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 0.0},
    )
    assert found.status == 0
    return -float(found.fun)


def problem(seed: int) -> list[Item]:
    """Up to eight tasks with up to five items, a few of which fill a slot; memory and worth rise with threads."""
    chance = random.Random(seed)
    found = []
    for task in range(chance.randint(2, 8)):
        divisible = chance.random() < 0.8
        cpu, memory, worth = (chance.uniform(0.03, 0.35) for _ in range(3))
        for threads in range(1, chance.randint(1, 5) + 1):
            grown = [size * threads ** chance.uniform(0.5, 1.1) for size in (cpu, memory, worth)]
            found.append(Item(task, *map(min, grown[:2], (1.0, 1.0)), grown[2], divisible, threads))
    return found


@pytest.mark.parametrize("tens", range(12))
def test_it_is_found_where_it_is_worth_more_and_nothing_where_none_is(tens):
    for seed in range(10 * tens, 10 * tens + 10):
        items = problem(seed)
        most = most_by_scipy(seed)
        found, bound = worthiest(items, most * (1 - 1e-5), 4000, True, Effort(10**9))
        assert found and found[0].worth == pytest.approx(most, rel=1e-5), seed
        assert bound >= most * (1 - 1e-9), seed
        assert worthiest(items, most * (1 + 1e-5), 4000, True, Effort(10**9)) == ([], most * (1 + 1e-5)), seed
        for mix in found:
            used = sum(item.cpu * fed for item, fed in mix.items), sum(item.memory for item, _ in mix.items)
            assert max(used) <= 1 + 1e-6
            assert mix.worth == pytest.approx(sum(item.worth * fed for item, fed in mix.items))
            assert len({item.task for item, _ in mix.items}) == len(mix.items)


@pytest.mark.parametrize("least", [-1.0, -0.1, 0.0])
def test_no_mix_that_does_not_fit_is_found_whatever_it_has_to_be_worth(least):
    """What does not fit is worth nothing, which is more than `least` where that is negative."""
    for seed in range(40):
        chance = random.Random(seed)
        items = [
            Item(task, 0.3 * chance.random(), chance.uniform(0.3, 0.9), chance.uniform(0.1, 0.5), True, 1)
            for task in range(chance.randint(2, 6))
        ]
        found, _ = worthiest(items, least, 4000, False, Effort(10**9), 800)
        assert found, seed
        for mix in found:
            assert sum(item.memory for item, _ in mix.items) <= 1 + 1e-6, seed
            assert len({item.task for item, _ in mix.items}) == len(mix.items), seed


@pytest.mark.parametrize("rows", [1, 2, 4, 8])
@pytest.mark.parametrize("proving", [False, True])
def test_the_bound_holds_however_few_rows_are_kept(rows, proving):
    for seed in range(40):
        items = problem(seed)
        most = most_by_scipy(seed)
        for least in (0.0, most * 0.999):
            assert worthiest(items, least, rows, proving, Effort(10**9))[1] >= most * (1 - 1e-9), seed


@pytest.mark.parametrize("effort", [0, 100, 1000])
def test_the_bound_holds_however_little_may_be_spent(effort):
    for seed in range(40):
        items = problem(seed)
        most = most_by_scipy(seed)
        assert worthiest(items, most * 0.999, 4000, True, Effort(effort))[1] >= most * (1 - 1e-9), seed


# ── What a command prints is read by programs: a library that greets on standard output would be in the
# middle of it

PROGRAM = """
from headgate.controller.plan.predict.linear_program import LinearProgram

program = LinearProgram([1.0, 2.0])
program.add(1.0, 1.0, {0: 1.0, 1: 1.0})
print(len(program.solve()[0]))
"""


def test_the_solver_says_nothing() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("2\n", "")
