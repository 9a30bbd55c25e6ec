"""One very short scenario of `scripts/bench scenarios`, live: what sender, sink and processes say."""

from __future__ import annotations

import pytest

from scenarios import live
from scenarios.course import area, row
from scenarios.shapes import Scenario, steps

pytestmark = [
    pytest.mark.live,
    pytest.mark.alone,
]  # when a plan is in force is held against a sender's own clock


DEADLINE_S = 3.0  # a row that waited longer may be sent again, and is then here a second time (at least once)


def test_a_step_live_is_counted_by_sender_sink_and_processes() -> None:
    scenario = Scenario("step", "", steps((0, 20.0), (8, 50.0)))
    course = live.tried(scenario, 22)
    found = row("step", "live", course)
    print(found, course.carried, course.held[-5:])
    assert sum(course.came) == 8 * 20 + 14 * 50 and abs(course.came[3] - 20) <= 2
    twice = len(course.waits) - 860
    assert found["lost"] == 0 and 0 <= twice <= sum(wait_s > DEADLINE_S for wait_s, _ in course.waits)
    assert found["plans"] >= 1 and course.plans_s[0] + 1.5 > 8, "no plan before the step"
    assert course.carried[-1][1] >= 50 > course.carried[0][1]
    assert course.held[-1][1] > course.held[0][1] >= 2, "processes"
    assert 0 < found["of_static"] < 2 and 0 < found["short_share"] < 0.2
    assert found["pause_max_ms"] is not None
    (told,) = course.beside
    assert told["policy"] == "controller" and told["plans"] == found["plans"]
    after_s = told["seconds"] - course.seconds  # of the run, without a row
    held = area(course.held, course.seconds) + course.held[-1][1] * after_s
    assert told["slot_seconds"] == pytest.approx(held, rel=0.2), "processes take a while"
