"""Tasks' own metrics: what a name may be, what is told of them, and how threads are added up."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from scraped_metrics import full, samples_of, text_of

from headgate.agent.reports.sampler import USER_MOST, UserPart
from headgate.controller.monitor.user_totals import GAUGE_NS, UserTotals
from headgate.controller.recording.trace_writer import user_metrics
from headgate.controller.views.controller_metrics import families
from headgate.controller.views.run_documents import status
from headgate.controller.views.run_snapshots import topology_now
from headgate.topology_runtime.api.logic import Context
from headgate.topology_runtime.api.user_metrics import (
    BUCKETS,
    NAMES_MOST,
    UserCounter,
    UserGauge,
    UserHistogram,
    bound_of,
    bucket_of,
)
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.wire.messages import SampleBlock
from headgate.topology_runtime.wire.report_messages import UserMetric

NS = 1_000_000_000


def block(*user: UserMetric) -> SampleBlock:
    return SampleBlock("vm1", 1, 1, 2 * NS, NS, 1, (), {}, {}, {}, user=user)


def counted(value: float, thread: int = 1, name: str = "hits", task: str = "parse") -> UserMetric:
    return UserMetric(0, thread, task, name, "counter", value)


def set_to(value: float, thread: int) -> UserMetric:
    return UserMetric(0, thread, "parse", "cached", "gauge", value)


# ── in a task ───────────────────────────────────────────────────────────────────────────────────


def test_a_name_is_one_metric_of_one_kind() -> None:
    metrics = Context("parse", 1, 0, 1, "/tmp").metrics
    assert metrics.counter("hits") is metrics.counter("hits")
    with pytest.raises(InvalidInput, match="metric 'hits' is a counter, not a gauge"):
        metrics.gauge("hits")


@pytest.mark.parametrize("name", ["", "a b", "1st", "_x", "x" * 65, "a-b", "ä", "a\n", None, 7])
def test_an_invalid_name_is_said_at_first_use(name: Any) -> None:
    with pytest.raises(InvalidInput, match="invalid metric name"):
        Context("parse", 1, 0, 1, "/tmp").metrics.counter(name)


def test_names_are_few() -> None:
    metrics = Context("parse", 1, 0, 1, "/tmp").metrics
    for number in range(NAMES_MOST):
        metrics.counter(f"n{number}")
    metrics.counter("n0")
    with pytest.raises(InvalidInput, match="too many metrics: 'one_more' would be number 33"):
        metrics.counter("one_more")


def test_of_a_counter_what_was_added_is_told_once() -> None:
    hits = UserCounter()
    assert hits.take() == ("counter", 0.0, 0, ()) and hits.take() is None
    hits.add()
    hits.add(2.5)
    assert hits.take() == ("counter", 3.5, 0, ()) and hits.take() is None
    for wrong in (-1, math.nan):
        with pytest.raises(ValueError, match="a counter counts up"):
            hits.add(wrong)


def test_of_a_gauge_its_value_is_told_again_and_again_as_long_as_it_is_a_number() -> None:
    cached = UserGauge()
    assert cached.take() is None
    cached.set(-3)
    assert cached.take() == cached.take() == ("gauge", -3.0, 0, ())
    cached.set(math.inf)
    assert cached.take() is None


def test_of_a_histogram_sum_number_and_buckets_since_the_last_time() -> None:
    size = UserHistogram()
    for value in (1.0, 1.0, 100.0, math.nan, math.inf, -5.0, 0.0):
        size.observe(value)
    taken = size.take()
    assert taken is not None and (taken.value, taken.times) == (97.0, 5)
    assert dict(taken.buckets) == {0: 2, bucket_of(1.0): 2, bucket_of(100.0): 1}
    assert size.take() is None


@pytest.mark.parametrize("value", [1e-300, 1e-9, 0.5, 1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 1e6, 1e300])
def test_a_bucket_is_named_by_its_highest_value(value: float) -> None:
    bucket = bucket_of(value)
    assert 0 < bucket < BUCKETS
    if bound_of(1) < value <= bound_of(BUCKETS - 1):
        assert bound_of(bucket - 1) < value <= bound_of(bucket)


# ── on their way ────────────────────────────────────────────────────────────────────────────────


def test_reports_between_two_blocks_are_put_together() -> None:
    part = UserPart()
    first = UserMetric(0, 1, "parse", "size", "histogram", 3.0, 2, ((64, 1), (66, 1)))
    part.add([counted(1), set_to(4, 1), first])
    part.add([counted(2), set_to(5, 1), UserMetric(0, 1, "parse", "size", "histogram", 1.0, 1, ((66, 1),))])
    both = UserMetric(0, 1, "parse", "size", "histogram", 4.0, 3, ((64, 1), (66, 2)))
    assert part.take() == (counted(3), set_to(5, 1), both)
    assert part.take() == ()


def test_a_block_holds_so_many_and_the_rest_comes_with_the_next() -> None:
    part = UserPart()
    part.add(counted(1, thread) for thread in range(USER_MOST + 10))
    assert (len(part.take()), len(part.take()), len(part.take())) == (USER_MOST, 10, 0)


def test_threads_are_added_up_and_a_gauge_that_is_silent_counts_no_more() -> None:
    totals = UserTotals(("parse",))
    totals.add(block(counted(3, 1), counted(4, 2), set_to(10, 1), set_to(20, 2)), 0)
    totals.add(block(counted(5, 1), set_to(11, 1)), GAUGE_NS - 1)
    assert [(one.name, one.value) for one in totals.now(GAUGE_NS - 1)] == [("cached", 31.0), ("hits", 12.0)]
    assert [(one.name, one.value) for one in totals.now(GAUGE_NS)] == [("cached", 11.0), ("hits", 12.0)]
    assert [one.name for one in totals.now(3 * GAUGE_NS)] == ["hits"]


def test_what_makes_no_sense_is_passed_over() -> None:
    totals = UserTotals(("parse",))
    wrong = [
        counted(1, task="nobody"), counted(1, name="a b"), UserMetric(0, 1, "parse", "x", "sum", 1.0),
        UserMetric(0, 1, "parse", "x", "histogram", 1.0, 1, ((BUCKETS, 1),)),
    ]  # fmt: skip
    totals.add(block(*wrong, *(counted(1, name=f"n{number}") for number in range(100))), 0)
    totals.add(block(UserMetric(0, 1, "parse", "n0", "gauge", 9.0)), 0)
    found = totals.now(0)
    assert len(found) == NAMES_MOST and {one.value for one in found} == {1.0}


# ── as others see them ──────────────────────────────────────────────────────────────────────────


def test_in_prometheus_status_and_the_page_by_task() -> None:
    totals = UserTotals(("source", "work", "sink"))
    sizes = UserMetric(0, 1, "work", "size", "histogram", 21.0, 3, ((64, 1), (70, 2)))
    totals.add(block(counted(3, task="work"), counted(4, task="sink"), sizes), 0)
    totals.add(block(UserMetric(0, 5, "source", "hits", "gauge", 9.0)), 0)
    view = replace(full(), user_metrics=totals.now(0))
    told = samples_of(text_of(families(view)))
    mine = {name: value for name, value in told.items() if name[0].startswith("headgate_user_")}
    source = ("headgate_user_hits", (("task", "source"),))
    assert mine[source] == 9.0  # another kind under that name is left out, not mixed up with it
    assert ("headgate_user_hits_total", (("task", "work"),)) not in mine
    assert mine["headgate_user_size_bucket", (("le", "8"), ("task", "work"))] == 3.0
    assert mine["headgate_user_size_sum", (("task", "work"),)] == 21.0
    shown = {(one["task"], one["name"]): one for one in status(view)["user_metrics"]}
    assert shown["work", "hits"] == {"task": "work", "name": "hits", "kind": "counter", "value": 3.0}
    assert (shown["work", "size"]["count"], shown["work", "size"]["p99"]) == (3, 8.0)
    topology = topology_now(view)
    assert topology is not None and topology.tasks["work"].metrics["size"].p99 == 8.0


def test_in_a_trace_a_row_for_each_with_what_its_kind_has() -> None:
    sizes = UserMetric(2, 1, "parse", "size", "histogram", 21.0, 3, ((64, 1), (70, 2)))
    columns = user_metrics(block(counted(3), sizes))
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    assert [(row["name"], row["value"], row["count"], row["p50"], row["p99"]) for row in rows] == [
        ("hits", 3, None, None, None), ("size", 21.0, 3, 8.0, 8.0),
    ]  # fmt: skip
