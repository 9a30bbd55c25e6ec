"""One very short scenario of `scripts/bench scenarios`, live: what sender, sink and processes say."""

from __future__ import annotations

import json
import os
import statistics
from itertools import pairwise

import pytest
from click.testing import CliRunner

from headgate.controller.replay.replay_command import replay
from headgate.topology_runtime.wording import utc_iso
from scenarios import live_scenario as live
from scenarios.scenario_course import area, row
from scenarios.scenario_shapes import Scenario, steps
from watched_runs.arrivals import Followed, S
from watched_runs.arrivals import followed as follow

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


# ── A stream at its own pace, from a process of its own, is followed up and down: what the sender counts
# and measures is what headgate says.

STEPS = ((20.0, 6.0), (100.0, 9.0), (50.0, 7.0))
RUN_S = 26.0
LOOK_S = 2.5  # a present rate is the mean of at most so long
LATE_S = 1.0  # a look is told so much later at most
SEEN_MS = {
    "p50": 5.0,
    "p95": 10.0,
}  # 1.5 beside a load of 8: its sink may lose the CPU between writing and telling


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Followed:
    return follow(tmp_path_factory.mktemp("arrivals"), STEPS, RUN_S, "4")


def test_what_comes_is_what_is_offered(followed: Followed) -> None:
    """In windows of two seconds, wherever the sender kept its rate."""
    judged = 0
    for asked_ns, status in followed.looks:
        begin_ns = asked_ns - int((LOOK_S + LATE_S) * S)
        if not any(begin_ns > begin and asked_ns < end for begin, end in pairwise(followed.steps_ns)):
            continue
        ends = [asked_ns - int(n * LATE_S / 20 * S) for n in range(21)]  # of a look that was told since
        came = [followed.came(end_ns - 2 * S, end_ns) for end_ns in ends]
        offered = 2 * status["rates"]["offered_now_tps"]
        print(f"offered {offered:.1f} in 2 s, {min(came)} to {max(came)} sent")
        assert min(came) - max(0.03 * min(came), 2) <= offered <= max(came) + max(0.03 * max(came), 2)
        judged += 1
    assert judged >= 3, [look["rates"] for _, look in followed.looks]
    tuples = followed.summary["tuples"]
    assert tuples["offered"] == tuples["emitted"] == tuples["acked"] == len(followed.sent)


def test_no_row_is_lost(followed: Followed) -> None:
    assert {row for row, _, _ in followed.stored} == set(range(len(followed.sent)))
    assert followed.summary["tuples"]["lost"] == 0


def test_a_step_is_planned_for_within_five_seconds(followed: Followed) -> None:
    _, up_ns, down_ns, _ = followed.steps_ns
    plans = [d for d in followed.decisions() if d["action"] in ("plan", "adopt")]
    first = min(d["time"] for d in plans if d["time"] > utc_iso(up_ns))
    assert first < utc_iso(up_ns + 5 * S), [(d["time"], d["text"]) for d in plans]
    highest = max(d["plan"]["rate_tps"] for d in plans if d["time"] < utc_iso(down_ns))
    print([(d["time"], d["text"]) for d in plans], utc_iso(up_ns))
    assert 100 <= highest <= 180, "for what comes, with headroom, and for what waits"
    assert any("come" in d["text"] for d in plans)


def test_latency_counts_from_the_arrival(followed: Followed) -> None:
    """As from the sender's clock to the sink's, one machine's."""
    waits_ms = followed.waits_ms()
    for name, share in (("p50", 0.5), ("p95", 0.95)):
        measured = waits_ms[int(share * (len(waits_ms) - 1))]
        reported = followed.summary["latency_ms"][name]
        print(f"latency {name}: reported {reported:.1f} ms, measured {measured:.1f} ms")
        assert abs(reported - measured) <= max(0.05 * measured, SEEN_MS[name]), (name, reported, measured)
    assert statistics.median(waits_ms) < 1000


def test_what_is_shown_says_that_rows_are_taken_as_they_come(followed: Followed) -> None:
    assert "rows of in are taken as they come: the first plan is for 20 rows/s" in followed.said
    kinds = {status["rates"]["source_kind"] for _, status in followed.looks}
    assert kinds == {"arriving"}
    assert all(status["rates"]["lag_s"] is not None for _, status in followed.looks)


def test_every_decision_can_be_made_again(followed: Followed) -> None:
    result = CliRunner().invoke(replay, [str(followed.trace), "-o", "json"])
    assert result.exception is None, result.output
    answer = json.loads(result.stdout)
    assert answer["equal"] and answer["decisions"] >= RUN_S / 2, answer["first_difference"]
    refused = CliRunner().invoke(replay, [str(followed.trace), "--policy", "static"])
    assert refused.exception is not None and "taken as they came" in str(refused.exception.cause)  # type: ignore[union-attr]


def test_nothing_is_left(followed: Followed) -> None:
    assert not list(followed.trace.parents[3].rglob("*.sock")) and os.path.exists(followed.trace)
