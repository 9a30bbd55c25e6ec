"""A process dies at points of an enactment: ten seconds later the plan is the old or the new one, no third.

Two of the 36 points, others each day; `scripts/test full` and `scripts/bench failpoints` have them all.
"""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from watched_runs.failpoints import Enactments, share_of, told

pytestmark = pytest.mark.live


PARTS = 18
TODAY = datetime.date.today().toordinal() % PARTS


@pytest.mark.parametrize(
    "part", [pytest.param(n, marks=() if n == TODAY else pytest.mark.full) for n in range(PARTS)]
)
def test_a_death_at_a_point_of_an_enactment_leaves_the_old_plan_or_the_new_one(
    tmp_path: Path, part: int
) -> None:
    points = share_of(part, PARTS)
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
