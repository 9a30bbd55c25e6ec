"""Two hundred small worlds, each with re-plans and faults of its own: after every event no tuple is
unaccounted for and the plan is the old or the new one; once the faults stop, everything settles."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.controller.simulation.world import REPLANS_LEAST, SimWorld

HERE = Path(__file__).parent
TRAIL_SHOWN = 60
HASHED = (3, 8, 11)


def run(seed: int) -> SimWorld:
    """One seed; a failure says how to run it again and what happened last."""
    world = SimWorld(seed)
    try:
        return world.run()
    except Exception as error:
        trail = "\n".join(list(world.clock.trail)[-TRAIL_SHOWN:])
        again = f"python -m pytest tests/simulation/test_simulated_seeds.py --seeds {seed}"
        pytest.fail(
            f"seed {seed} ({world.name}, faults {world.faults.done}): {type(error).__name__}: {error}\n"
            f"{trail}\nrun it again: {again}",
            pytrace=not isinstance(error, AssertionError),
        )


def test_no_tuple_is_unaccounted_for_and_everything_settles(seed: int) -> None:
    world = run(seed)
    assert world.account.read > 0
    assert world.checks.durable.next_epoch > REPLANS_LEAST + 1, "at least two re-plans"


@pytest.mark.parametrize("seed", HASHED)
def test_the_same_seed_gives_the_same_hash(seed: int) -> None:
    first, second = run(seed), run(seed)
    assert (first.clock.hash, first.clock.events) == (second.clock.hash, second.clock.events)


def test_different_seeds_give_different_hashes() -> None:
    assert len({run(seed).clock.hash for seed in HASHED}) == len(HASHED)


def test_another_process_with_other_hash_seeds_gives_the_same_hash() -> None:
    """Nothing depends on the order of sets of strings, on addresses or on the real clock."""
    program = (
        "import sys; from headgate.controller.simulation.world import SimWorld; "
        "print(SimWorld(int(sys.argv[1])).run().clock.hash)"
    )
    there = subprocess.run(
        [sys.executable, "-c", program, str(HASHED[0])],
        cwd=HERE,
        env={**os.environ, "PYTHONHASHSEED": "4711", "PYTHONPATH": str(HERE.parent.parent / ".editable")},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert int(there.stdout) == run(HASHED[0]).clock.hash
