"""A stream at its own pace, from a process of its own, is followed up and down: what the sender counts and measures
is what headgate says."""

from __future__ import annotations

import json
import os
import statistics
from itertools import pairwise

import pytest
from click.testing import CliRunner

from headgate.controller.replay_cli import replay
from headgate.topology_runtime.utc import utc_iso
from watched_runs.arrivals import Followed, S
from watched_runs.arrivals import followed as follow

pytestmark = [pytest.mark.live, pytest.mark.alone]  # what is told is held against a sender's own clock

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
    assert "rows of in are taken as they come: the first plan is for 20 tuples/s" in followed.said
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
