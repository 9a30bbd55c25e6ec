"""Plants bugs in copies of the code, one at a time, and sees each of them noticed.

    scripts/mutate             a dozen, always the same: those of `scripts/test`
    scripts/mutate --all       all of them, on all cores
    scripts/mutate NAME …      those whose names hold one of these words

A plant is caught by the first of its seeds that breaks one of the invariants it names, while the sound code
passes all seeds up to that one; or by the test it names, which passes on the sound code. Exit 1: one was not
caught, was caught for another reason, or no longer fits the code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from planted.planting import Plant
from planted.plants import PLANTS

ROOT = Path(__file__).resolve().parents[2]
FEW = (  # the short form: always these, of as many folders as can be, none of which needs real processes
    "a fault sends nothing again",
    "kept rows are acked at once (A2)",
    "a range comes without its state (A4)",
    "rows of different generations meet in a pane",
    "no fault when a worker was replaced",
    "incarnations begin anew",
    "a signed package runs a topology that nobody signed",
    "thread numbers are given twice",
    "ended leavers are waited for (B1)",
    "a failed journal is shrugged off (B6)",
    "a spread is no reason for a margin",
    "a stall begins when it is over",
)
LIMIT_S = 600

CHILD = """
import json, sys
from headgate.lab.simulation.simulated_seeds import run
from headgate.lab.simulation.simulated_world import Options
asked = json.loads(sys.argv[1])
options = Options(**{**asked["options"], "kinds": tuple(asked["options"]["kinds"])})
for seed in range(asked["seeds"]):
    error = run(seed, options).error
    if error:
        print(json.dumps([seed, error]))
        break
else:
    print(json.dumps([None, ""]))
"""


def planted(plant: Plant, folder: Path) -> str:
    """A copy of the code with the bug in it; returns why it cannot be planted, if so."""
    shutil.copytree(
        ROOT / ".editable" / "headgate", folder / "headgate", ignore=shutil.ignore_patterns("__pycache__")
    )
    for file, old, new in plant.edits:
        place = folder / "headgate" / file.removeprefix("scripts/")
        text = place.read_text()
        if text.count(old) != 1:
            return f"no longer fits the code: {text.count(old)} times in {file}: {old.strip()!r}"
        place.write_text(text.replace(old, new))
    return ""


def child(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{folder}:{folder / 'tests'}"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


def first_violation(plant: Plant, folder: Path, seeds: int) -> tuple[int | None, str]:
    """(the first seed that violates something, what); (None, "") when none does."""
    options: dict[str, Any] = {"shape": plant.shape, "kinds": plant.kinds, **plant.more}
    done = child(folder, "-c", CHILD, json.dumps({"options": options, "seeds": seeds}))
    if done.returncode:
        return 0, done.stderr.strip().splitlines()[-1]
    seed, error = json.loads(done.stdout)
    return seed, error


def by_seeds(plant: Plant, folder: Path) -> str:
    """Why the seeds do not catch it as they should; empty: they do."""
    seed, error = first_violation(plant, folder, plant.seeds)
    if seed is None:
        return f"not caught in {plant.seeds} seeds"
    if plant.breaks and not any(word in error for word in plant.breaks):
        return f"caught for another reason, by seed {seed}: {error}"
    sound, why = first_violation(plant, ROOT, seed + 1)
    return f"the sound code fails seed {sound} of it: {why}" if sound is not None else ""


def by_test(plant: Plant, folder: Path) -> str:
    """Why its test does not catch it; empty: it does."""
    if tested(ROOT, plant.test):
        return f"the sound code fails {plant.test}"
    return "" if tested(folder, plant.test) == 1 else f"{plant.test} passes with it"


@cache  # many plants name the same test, which the sound code has to pass once
def tested(folder: Path, test: str) -> int:
    """What pytest ends with, on the code in this folder."""
    which = "live" if test.endswith("_live.py") else "not live"
    return child(folder, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", which, test).returncode


def judge(plant: Plant) -> str:
    """Why it is not caught as it should be; empty: it is."""
    with tempfile.TemporaryDirectory(prefix="headgate-plant-") as name:
        folder = Path(name)
        unfit = planted(plant, folder)
        if unfit:
            return unfit
        try:
            return by_test(plant, folder) if plant.test else by_seeds(plant, folder)
        except subprocess.TimeoutExpired:
            return f"nothing was found in {LIMIT_S} s"


def chosen(words: list[str]) -> tuple[Plant, ...]:
    if words == ["--all"]:
        return PLANTS
    if words:
        return tuple(plant for plant in PLANTS if any(word in plant.name for word in words))
    named = {plant.name: plant for plant in PLANTS}
    return tuple(named[name] for name in FEW)


def judged(plants: tuple[Plant, ...]) -> Iterator[tuple[Plant, str]]:
    """As they are done, on all cores."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        asked = {pool.submit(judge, plant): plant for plant in plants}
        yield from ((asked[done], done.result()) for done in as_completed(asked))


def main(words: list[str]) -> int:
    plants = chosen(words)
    if not plants:
        print(f"no plant's name holds {' or '.join(words)}", file=sys.stderr)
        return 2
    bad = 0
    for number, (plant, why) in enumerate(judged(plants), 1):
        bad += bool(why)
        print(f"{number}/{len(plants)} {plant.name}: {why or 'caught'}", flush=True)
    print(f"{len(plants) - bad} of {len(plants)} planted bugs were caught")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
