"""The bugs that scripts/mutate plants still fit the code, each in one place, and leave it a program."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


for part in (
    "planting",
    "plants_of_rows",
    "plants_of_plans",
    "plants_of_state",
    "plants_of_packages",
    "plants_of_measuring",
    "plants_of_moves",
):
    load(part)
PLANTS = load("plants").PLANTS


def test_their_names_tell_them_apart():
    assert len({plant.name for plant in PLANTS}) == len(PLANTS) >= 60


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_a_bug_fits_the_code_in_one_place_and_something_notices_it(plant):
    assert plant.breaks or plant.test
    assert not plant.test or (ROOT / plant.test).is_file()
    for file, old, new in plant.edits:
        text = (ROOT / file).read_text()
        assert text.count(old) == 1 and old != new
        ast.parse(text.replace(old, new))
