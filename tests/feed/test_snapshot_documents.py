"""Snapshots, the patches between them, and the history that grows: what one side sends the other one has."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from examples import examples
from feed_made import NOW_S, example, plain
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headgate.controller.analyze.residuals import ThreadsInSlot, load_grows, loads
from headgate.controller.knowledge.diagnoses import TaskLoad
from headgate.controller.views.sentences import diff_of, figure, header_of, share
from headgate.controller.views.sentences import plain as flat
from headgate.topology_runtime.wire.run_snapshot import (
    FINE_S,
    HISTORY_S,
    HistoryRing,
    Snapshot,
    advanced,
    appended,
    patch_between,
    patched,
)

EXAMPLE = Path(__file__).parent / "example_snapshot.json"

leaves = st.one_of(
    st.booleans(), st.integers(-9, 9), st.text("ab", max_size=2), st.lists(st.integers(0, 3), max_size=2)
)
documents = st.recursive(
    st.dictionaries(st.text("xyz", min_size=1, max_size=2), leaves, max_size=4),
    lambda inner: st.dictionaries(
        st.text("xyz", min_size=1, max_size=2), st.one_of(leaves, inner), max_size=4
    ),
    max_leaves=12,
)
exact = examples(300)


def nulls(value: Any, where: str = "") -> list[str]:
    """Places of nulls in a document."""
    if isinstance(value, dict):
        return [place for key, part in value.items() for place in nulls(part, f"{where}/{key}")]
    if isinstance(value, list):
        return [place for n, part in enumerate(value) for place in nulls(part, f"{where}/{n}")]
    return [where] if value is None else []


def test_the_example_is_what_the_types_say() -> None:
    assert json.loads(EXAMPLE.read_bytes()) == plain(example())
    assert msgspec.json.decode(EXAMPLE.read_bytes(), type=Snapshot) == example()
    assert all(place.startswith("/history/") for place in nulls(plain(example()))), "only there"


@given(documents, documents)
@exact
def test_a_patch_between_two_documents_makes_the_one_of_the_other(
    a: dict[str, Any], b: dict[str, Any]
) -> None:
    before, after = json.dumps(a), json.dumps(b)
    assert patched(a, patch_between(a, b)) == b
    assert patch_between(a, json.loads(before)) == {}, "nothing new"
    assert (json.dumps(a), json.dumps(b)) == (before, after)  # neither was changed


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_patch_does_what_the_examples_of_its_standard_say(
    target: dict[str, Any], patch: dict[str, Any], result: dict[str, Any]
) -> None:
    """RFC 7386, appendix A: those whose documents are objects."""
    assert patched(target, patch) == result


def delta(number: int, boot: int = 1) -> dict[str, Any]:
    patch = {"header": "x", "plan": None}
    return {"number": number, "boot": boot, "now": "later", "patch": patch, "history": {}}


def test_a_delta_that_does_not_follow_is_refused() -> None:
    document = plain(example(number=7))
    after = advanced(document, delta(8))
    assert after is not None and "plan" not in after and (after["number"], after["now"]) == (8, "later")
    assert advanced(document, delta(9)) is None
    assert advanced(document, delta(7)) is None
    assert advanced(document, delta(8, boot=2)) is None


def test_history_grows_at_its_end_and_loses_what_is_too_old() -> None:
    history = plain(example())["history"]
    rows = {name: [1.0] for name in history} | {"time": [NOW_S + 500.0]}
    after = appended(history, rows)
    assert after["time"][-1] == NOW_S + 500.0 and after["time"][0] > NOW_S + 500.0 - HISTORY_S
    assert {len(column) for column in after.values()} == {len(after["time"])}


def row(second: int, **values: float) -> dict[str, float | None]:
    return {"time": float(second), "epoch": 1 + second // 300, **values}


def test_the_ring_keeps_ten_minutes_and_thins_what_is_old() -> None:
    ring = HistoryRing()
    for second in range(1000):
        ring.add(row(second, offered_tps=float(second % 2)))
    assert ring.columns()["time"] == []  # nobody was told yet
    ring.take()
    columns = ring.columns()
    fine = [time for time in columns["time"] if time is not None and time >= 999 - FINE_S]
    assert len(fine) == FINE_S + 1 and len(columns["time"]) == len(fine) + 120
    assert columns["time"][0] is not None and columns["time"][0] >= 1000 - HISTORY_S - 4
    assert set(columns["offered_tps"][5:100]) == {0.5}  # a mean
    assert set(columns["epoch"]) == {2, 3, 4}  # not a mean
    assert columns["p50_ms"] == [None] * len(columns["time"])
    assert ring.take() == {}, "rows are taken once"
    ring.add(row(1000))
    assert ring.columns()["time"][-1] == 999.0
    assert ring.take()["time"] == [1000.0]


def test_figures_are_short_and_what_is_no_number_is_not_known() -> None:
    assert [figure(v) for v in (211.437, 0.0123456, 123456.0, 0.0)] == [211, 0.0123, 123000, 0]
    assert json.dumps(figure(211.437)) == "211"
    assert json.dumps(share(-0.001)) == "0.0"
    for value in (math.nan, math.inf, -math.inf, None):
        assert figure(value) is None and share(value) is None
    assert flat({"a": {"b": 1.23456, "c": None}, "d": "x", "e": True}) == {"a.b": 1.235, "d": "x", "e": True}


def test_a_task_is_as_loaded_as_where_it_is_nearest_to_a_peak_or_a_full_slot() -> None:
    places = (
        ThreadsInSlot("vm1/0", {"source": None, "parse": 0.4}, 0.98),
        ThreadsInSlot("vm1/1", {"parse": 1.2, "score": 0.7}, 0.5),
        ThreadsInSlot("vm1/2", {"idle": None, "score": 0.6}, None),
    )
    assert loads(places) == {
        "source": TaskLoad(0.98, "vm1/0"),
        "parse": TaskLoad(1.2, "vm1/1"),
        "score": TaskLoad(0.7, "vm1/1"),
    }


@pytest.mark.parametrize(
    ("verdict", "growth", "expected"),
    [("stable", 50.0, False), ("unknown", 50.0, False), ("unstable", 50.0, True), ("unstable", 1.0, False)],
)
def test_rows_pile_up_only_where_the_run_does_not_keep_up(
    verdict: str, growth: float, expected: bool
) -> None:
    assert load_grows(verdict, growth, 100.0) is expected


def test_the_header_is_a_sentence_and_leaves_out_what_is_not_known() -> None:
    now = example()
    assert header_of(now, 8) == now.header
    idle = replace(now, plan=None, rates=type(now.rates)(), slope=None, next_bottleneck=None, stage="idle")
    assert header_of(idle, 0) == "idle"


def test_a_diff_goes_slot_by_slot() -> None:
    before = {("vm1/0", "a"): 2, ("vm1/1", "b"): 1}
    after = {("vm1/0", "a"): 1, ("vm1/0", "c"): 2, ("vm1/1", "b"): 1, ("vm2/0", "a"): 1}
    assert diff_of(before, after) == ("- vm1/0 a×1", "+ vm1/0 c×2", "+ vm2/0 a×1")
    assert diff_of(after, after) == ()
