"""The bugs that scripts/mutate plants still fit the code, each in one place, and leave it a program."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from planted.plants import PLANTS

ROOT = Path(__file__).resolve().parents[2]


def test_their_names_tell_them_apart():
    assert len({plant.name for plant in PLANTS}) == len(PLANTS) >= 60


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_a_bug_fits_the_code_in_one_place_and_something_notices_it(plant):
    assert plant.breaks or plant.test
    assert not plant.test or (ROOT / plant.test).is_file()
    for file, old, new in plant.edits:
        text = (ROOT / file).read_text()
        assert text.count(old) == 1 and old != new
        if file.endswith(".py"):
            ast.parse(text.replace(old, new))
