"""What cannot be is said when a topology is built, and in words; the same from Python and from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from windows_world import Events, counted, keep, row_of, rows_of

from headgate import testing, topology
from headgate import windows as w
from headgate.topology_runtime.api.loading import load
from headgate.topology_runtime.errors import InvalidInput

TUMBLING = w.tumbling(10)


def faults_of(task: Any = w.EventWindow, **params: Any) -> str:
    flow = topology("faults")
    events = flow.source("events", Events).timestamps("t")
    events >> flow.task("timed", task, **{"at": "t", **params}).by("k") >> flow.task("keep", keep)
    with pytest.raises(InvalidInput) as told:
        flow.build()
    return "\n".join([told.value.what, *told.value.faults])


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"windows": {"tumbling": {"size_s": 0}}}, "size_s: 0 is not a number of seconds, above 0"),
        ({"windows": {"tumbling": {"size_s": "60"}}}, "is not a number of seconds"),
        ({"windows": {"tumbling": {"size_s": 1e-7}}}, "size_s"),
        ({"windows": {"tumbling": {}}}, "windows 'tumbling' needs size_s"),
        ({"windows": {"tumbling": {"size_s": 1, "every": 1}}}, "takes no 'every'"),
        ({"windows": {"tumblin": {"size_s": 1}}}, "did you mean 'tumbling'"),
        ({"windows": {"sliding": {"size_s": 10, "every_s": 20}}}, "leave rows between them out"),
        ({"windows": {"sliding": {"size_s": 86400, "every_s": 1}}}, "86,400 windows"),
        ({"windows": {"session": {"gap_s": 100, "longest_s": 10}}}, "cannot end after a gap"),
        ({"windows": 60}, "windows: 60 is not one of tumbling"),
        ({"windows": TUMBLING, "aggregate": "median"}, "there is no 'median'"),
        ({"windows": TUMBLING, "aggregate": {"top": {"of": "v"}}}, "needs k"),
        ({"windows": TUMBLING, "aggregate": {"top": {"of": "v", "k": 0}}}, "k 0 is not a number from 1"),
        ({"windows": TUMBLING, "aggregate": {"quantile": {"at": 2}}}, "not a share from 0 to 1"),
        ({"windows": TUMBLING, "aggregate": {"distinct": {"error": 0.5}}}, "is not from 0.004"),
        ({"windows": TUMBLING, "aggregate": {"several": {}}}, "needs at least one"),
        ({"windows": TUMBLING, "aggregate": {"reduce": {"function": "windows_world:no"}}}, "no 'no'"),
        ({"windows": TUMBLING, "early": {"rows": 0}, "emit": "updates"}, "rows 0 is not a whole number"),
        ({"windows": TUMBLING, "early": {"rows": 5}}, "early results are not final"),
        ({"windows": TUMBLING, "early": 5, "emit": "updates"}, "early: 5 is not as in"),
        ({"windows": TUMBLING, "late": -1}, "late: -1 is not a number of seconds, 0 or more"),
        ({"windows": TUMBLING, "late": {"within": 1}}, "takes no 'within'"),
        ({"windows": TUMBLING, "emit": "all"}, "emit: 'all' is not one of final"),
        ({"windows": w.global_window(), "late": 5}, "the global window has no end"),
        ({"windows": TUMBLING, "unit": "min"}, "unit 'min': must be one of s, ms, us, ns"),
        ({"windows": TUMBLING, "at": None}, "does not say how to get the event time of a row"),
        ({}, "needs the param 'windows'"),
    ],
)  # fmt: skip
def test_windows_that_cannot_be(params, said):
    assert said in faults_of(**params)


@pytest.mark.parametrize(
    ("task", "params", "said"),
    [
        (w.IntervalJoin, {"within_s": [2, 1]}, "ends before it begins"),
        (w.IntervalJoin, {"within_s": [1, 2, 3]}, "neither a number nor two"),
        (w.IntervalJoin, {"within_s": 1, "how": "full"}, "how: 'full' is not one of inner"),
        (w.IntervalJoin, {"within_s": 1, "right": "left"}, "are both 'left'"),
        (w.AsOfJoin, {"how": "right"}, "neither left nor inner"),
        (w.AsOfJoin, {"longest_s": -1}, "longest_s"),
        (w.WindowJoin, {"windows": w.global_window()}, "needs windows that end"),
        (w.WindowJoin, {"windows": TUMBLING, "how": "left", "late": 5}, "rows that come late"),
    ],
)
def test_joins_that_cannot_be(task, params, said):
    assert said in faults_of(task, **{"left": "left", "right": "right", **params})


def test_a_row_of_a_task_that_is_no_side_of_the_join_is_a_dead_letter():
    flow = topology("sides")
    join = flow.task("join", w.IntervalJoin, left="events", right="other", at="t", within_s=1).by("k")
    flow.source("events", Events).timestamps("t") >> join
    flow.source("stray", Events).timestamps("t") >> join >> flow.task("keep", keep)
    result = testing.run(flow, {"events": [row_of(1)], "stray": [row_of(1)]})
    (letter,) = result.dead_letters
    assert "'stray'; this joins 'events' and 'other'" in letter.error


def test_constructors_refuse_at_once():
    for make in (lambda: w.tumbling(-1), lambda: w.sliding(1, 2), lambda: w.session(0), lambda: w.top(0)):
        with pytest.raises(InvalidInput):
            make()
    with pytest.raises(InvalidInput, match="lambda"):
        w.reduce(lambda a, b: a)


FILE = """
name: windows
tasks:
  - name: events
    kind: source
    run: windows_world:Events
    timestamps: {at: t}
  - name: counts
    run: headgate.windows:EventWindow
    params:
      at: t
      windows: {session: {gap_s: 5}}
      aggregate: {several: {n: count, most: {max: {of: v}}}}
      late: {within_s: 60, emit: true}
  - {name: keep, run: "windows_world:keep"}
edges:
  - {from: events, to: counts, grouping: fields, key: k}
  - {from: counts, to: keep}
"""


def test_a_topology_file_says_the_same(tmp_path: Path):
    file = tmp_path / "windows.yaml"
    file.write_text(FILE, "utf-8")
    given = [row_of(1, v=3), row_of(4, v=9), row_of(20, v=1)]
    found = testing.run(load(str(file)).topology, {"events": given}).rows["keep"]
    several = w.several(n=w.count(), most=w.max_of("v"))
    assert found == rows_of(
        given, windows=w.session(5), aggregate=several, late={"within_s": 60, "emit": True}
    )
    assert [row["value"] for row in found] == [{"n": 2, "most": 9}, {"n": 1, "most": 1}]


def test_units_of_starts_and_ends():
    for unit, one in (("s", 1), ("ms", 1_000), ("us", 1_000_000), ("ns", 1_000_000_000)):
        (row,) = rows_of([row_of(3 * one)], windows=w.tumbling(2), unit=unit)
        assert (row["start"], row["end"]) == (2 * one, 4 * one)
        assert type(row["start"]) is (float if unit == "s" else int)


def test_sessions_that_never_end_are_cut_and_counted():
    rows = rows_of([row_of(t) for t in range(100)], windows=w.session(5, longest_s=30))
    assert [(row["start"], row["value"]) for row in rows] == [(0.0, 26), (26.0, 26), (52.0, 26), (78.0, 22)]
    assert counted("sessions_cut") == 3


def test_a_name_that_is_not_there_says_which_one_may_be_meant() -> None:
    with pytest.raises(AttributeError, match=r"has no attribute 'sum'; did you mean 'sum_of'\?"):
        _ = w.sum
    with pytest.raises(AttributeError, match="it has AsOfJoin, "):
        _ = w.zzz
