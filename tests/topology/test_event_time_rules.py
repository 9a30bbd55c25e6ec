"""Windows and timers without a source that says when its rows happened: told before anything runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headgate import Exhausted, Source, Time, Timed, topology, windows
from headgate.topology_runtime.api.event_time_rules import time_warnings
from headgate.topology_runtime.api.loading import load
from headgate.topology_runtime.commands import topology_cli
from headgate.topology_runtime.errors import InvalidInput


class Rows(Source):
    def read(self, position: int, limit: int) -> Sequence[Any]:
        raise Exhausted


class Own(Timed):
    at = "made"

    def new(self, key: Any) -> int:
        return 0

    def process(self, key: Any, row: Any, state: int, time: Time) -> tuple[int, Iterable[Any]]:
        return state, ()


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


def keep(row: Any) -> None:
    """A sink."""


JOIN = {"left": "orders", "right": "prices", "at": "made"}
TASKS: list[tuple[Any, dict[str, Any]]] = [
    (windows.EventWindow, {"at": "made", "windows": windows.tumbling(60)}),
    (windows.DropRepeats, {"at": "made", "within_s": 60}),
    (windows.IntervalJoin, {**JOIN, "within_s": 60}),
    (windows.AsOfJoin, JOIN),
    (windows.WindowJoin, {**JOIN, "windows": windows.tumbling(60)}),
]


def flow_of(run: Any, params: dict[str, Any], *timed: str, between: bool = False, unit: str = "s") -> Any:
    """`orders` and `prices` into one task; those that are named have timestamps."""
    flow = topology("flow")
    task = flow.task("minutes", run, **params)
    for name in ("orders", "prices"):
        source = flow.source(name, Rows)
        if name in timed:
            source = source.timestamps("made", unit=unit)
        (source >> flow.task(f"of_{name}", same) if between else source) >> task.by("k")
    task >> flow.task("keep", keep)
    return flow


@pytest.mark.parametrize(("run", "params"), TASKS, ids=lambda one: getattr(one, "__name__", ""))
def test_a_task_of_windows_without_timestamps_is_refused_with_what_to_do(
    run: Any, params: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput) as refused:
        flow_of(run, params, between=True).build()
    (fault,) = refused.value.faults
    assert run.__name__ in fault and "no source before minutes has timestamps" in fault
    assert '.timestamps("made")' in fault and "orders, prices" in fault
    assert flow_of(run, params, "orders", "prices").build().timed == ("minutes",)


def test_the_global_window_needs_none() -> None:
    params = {"at": "made", "windows": windows.global_window(), "early": {"rows": 10}, "emit": "updates"}
    assert flow_of(windows.EventWindow, params).build().timed == ("minutes",)


def test_a_file_is_refused_where_its_code_is_looked_at(tmp_path: Path) -> None:
    file = tmp_path / "flow.json"
    tasks = [
        {"name": "in", "kind": "source", "run": "headgate.topology_runtime.tasks.row_sources:Counter"},
        {"name": "minutes", "run": "headgate.windows:EventWindow"}
        | {"params": {"at": "made", "windows": {"tumbling": {"size_s": 60}}}},
    ]
    edges = [{"from": "in", "to": "minutes", "grouping": "fields", "key": "k"}]
    document = {"schema": "headgate/topology/v1", "name": "file", "tasks": tasks, "edges": edges}
    file.write_text(json.dumps(document))
    with pytest.raises(InvalidInput) as refused:
        load(str(file), runs=True)
    assert any("no source before minutes has timestamps" in fault for fault in refused.value.faults)


def test_a_unit_that_is_not_that_of_the_source_is_refused_where_rows_come_as_they_are() -> None:
    run, params = TASKS[0]
    with pytest.raises(InvalidInput) as refused:
        flow_of(run, params, "orders", "prices", unit="ms").build()
    assert len(refused.value.faults) == 2
    assert 'its unit is "s"' in refused.value.faults[0] and '"ms"' in refused.value.faults[0]
    flow_of(run, params, "orders", "prices", unit="ms", between=True).build()  # that may make seconds of it
    flow_of(run, params | {"unit": "ms"}, "orders", "prices", unit="ms").build()


def test_a_timed_of_your_own_is_warned_of_for_it_may_have_timers_by_the_clock_alone() -> None:
    (warning,) = time_warnings(flow_of(Own, {}).build())
    assert "no source before minutes has timestamps" in warning and "set_clock" in warning
    assert time_warnings(flow_of(Own, {}, "orders", "prices").build()) == []


def test_a_source_without_timestamps_beside_one_with_them_is_warned_of() -> None:
    (warning,) = time_warnings(flow_of(*TASKS[0], "orders").build())
    assert "prices has no timestamps" in warning and "minutes" in warning and "late" in warning


def test_a_drift_that_waits_for_nobody_is_warned_of() -> None:
    flow = topology("alone")
    flow.source("orders", Rows).timestamps("made", max_drift=60) >> flow.task("count", "builtins:list")
    (warning,) = time_warnings(flow.build())
    assert "orders has a max_drift" in warning and "waits for nobody" in warning


def test_validate_says_warnings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "warned_flow.py").write_text(WARNED)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(topology_cli.validate, ["warned_flow.py"], catch_exceptions=False)
    assert done.exit_code == 0 and "\nwarning: prices has no timestamps" in done.stdout
    done = CliRunner().invoke(topology_cli.validate, ["warned_flow.py", "-o", "json"], catch_exceptions=False)
    assert len(json.loads(done.stdout)["warnings"]) == 1


WARNED = """
from headgate import topology, windows
from headgate.topology_runtime.tasks.row_sources import Counter

flow = topology("warned")
minutes = flow.task("minutes", windows.EventWindow, at="made", windows=windows.tumbling(60))
flow.source("orders", Counter).timestamps("made") >> minutes.by("k")
flow.source("prices", Counter) >> minutes.by("k")
"""
