"""What the page works out by itself it works out as the Python side does."""

from __future__ import annotations

import json

import pytest
from feed_made import NOW_S, example, models, plain
from pages import Asked, MadeFeed, question, served

from headgate.controller.models.task_models import peak_rate
from headgate.dashboards.runs.live_view import moment
from headgate.topology_runtime.wire.run_snapshot import advanced, patched

pytestmark = pytest.mark.live


@pytest.fixture
def reading(page):
    """Call a function of one of the page's modules with JSON."""
    with served(MadeFeed(plain(example())), Asked()) as server:
        page.goto(server.address)

        def call(module, function, *arguments):
            script = f"async given => (await import('/static/{module}.js')).{function}(...given)"
            return page.evaluate(script, list(arguments))

        yield call


def test_merge_patches(reading):
    cases = [
        ({"a": 1}, {"a": None}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": None, "d": [1, {"e": 2}]}}),
        ({"a": [1, 2]}, {"a": {"b": {"c": 3}}}),
        ({"a": "x"}, {"a": {"b": None}}),
        ({}, {"a": {"b": {}}}),
        ({"a": {"b": 0}}, {"a": [0]}),
    ]
    for document, patch in cases:
        assert reading("core/server", "patched", document, patch) == patched(document, patch), (
            document,
            patch,
        )


def test_deltas_with_history_and_gaps(reading):
    before = plain(example())
    rows = {name: [None, 2.0] for name in before["history"]}
    rows["time"] = [NOW_S + 400, NOW_S + 402]
    delta = {
        "number": 482,
        "boot": 1,
        "now": "2026-09-21T14:17:21Z",
        "patch": {"header": "h"},
        "history": rows,
    }
    after = advanced(before, delta)
    assert reading("core/server", "advanced", before, delta) == json.loads(json.dumps(after))
    assert len(after["history"]["time"]) < len(before["history"]["time"]) + 2
    for other in ({"number": 483}, {"boot": 2}):
        assert reading("core/server", "advanced", before, {**delta, **other}) is None


def test_the_peak_of_a_bundle(reading):
    known = question().models
    for task, model in models().items():
        points = [list(point) for point in model.points]
        for threads in range(1, 40):
            found = reading("core/levels", "peakOf", points, threads)
            assert found == pytest.approx(peak_rate(known[task], threads)), (task, threads)


def test_event_time_is_written_as_a_terminal_has_it(reading):
    years = -62_135_596_800, 253_402_300_800  # the first moments of 1 and of 10000
    for seconds in (
        0,
        -0.5,
        7_200.25,
        1_790_000_000.999,
        1.79e12,
        years[0],
        years[0] - 1,
        years[1] - 1,
        years[1],
    ):
        assert reading("core/numbers", "moment", seconds).replace("\u2212", "-") == moment(seconds)
