"""A process dies at points of an enactment: ten seconds later the plan is the old or the new one, no third.

A fifth of the 36 points, another one each day; `scripts/bench failpoints` has them all.
"""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from failpoints import Enactments, share_of, told

pytestmark = pytest.mark.live


def test_a_death_at_any_point_of_an_enactment_leaves_the_old_plan_or_the_new_one(tmp_path: Path) -> None:
    points = share_of(datetime.date.today().toordinal(), 5)
    enactments = Enactments(tmp_path, 600)
    try:
        enactments.begin()
        outcomes = [enactments.die_at(point) for point in points]
        found = enactments.finish()
    finally:
        enactments.running.end()
    assert all(outcome.good for outcome in outcomes), f"\n{told(outcomes)}"
    assert found["whole"], found
    assert found["left_behind"] == []
