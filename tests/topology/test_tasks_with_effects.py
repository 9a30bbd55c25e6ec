"""Which tasks are not run on sample rows: sinks, tasks that are marked, and what is behind them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.topology_runtime.builder import topology
from headgate.topology_runtime.loading import load
from headgate.topology_runtime.logic import effects, effects_of, flat_map, no_effects
from headgate.topology_runtime.topology import Edge, Static, Task, Topology

CODE = """
from headgate.topology_runtime.builder import topology
from headgate.topology_runtime.logic import Source, effects, no_effects

class Numbers(Source):
    def read(self, position, limit):
        return range(position, position + limit)

def plain(row):
    return row

@effects
def pay(row):
    return row

@no_effects
class Count:
    def __call__(self, row):
        return row

flow = topology("flow")
flow.source("numbers", Numbers) >> flow.task("before", plain) >> flow.task("pay", pay) >> flow.task("after", plain)
"""


def chained(*tasks: Task) -> Topology:
    edges = tuple(Edge(a.name, b.name) for a, b in zip(tasks, tasks[1:], strict=False))
    return Topology("t", tasks, edges)


def test_a_sink_has_effects_unless_it_says_otherwise():
    numbers, work = Task("numbers", "source", static=Static()), Task("work")
    assert chained(numbers, work, Task("store")).unsampled == ("store",)
    assert chained(numbers, work, Task("store", effects=False)).unsampled == ()
    assert chained(numbers, Task("alone", effects=False)).unsampled == ()
    assert chained(numbers).unsampled == ()  # a source is read


def test_samples_go_no_further_than_a_task_with_effects():
    numbers = Task("numbers", "source", static=Static())
    found = chained(numbers, Task("a"), Task("pay", effects=True), Task("b"), Task("c", effects=False))
    assert found.unsampled == ("pay", "b", "c")


def test_a_mark_stays_beside_others():
    @effects
    @flat_map
    def both(row):
        return [row]

    assert effects_of(both) is True and effects_of(no_effects(lambda row: row)) is False
    assert effects_of(lambda row: row) is None
    assert both.__headgate_kind__ == "flat_map"


@pytest.mark.parametrize("form", ["python", "json"])
def test_marks_of_the_code_are_found_however_the_topology_is_written(tmp_path: Path, form: str):
    (tmp_path / "shop.py").write_text(CODE)
    reference = f"{tmp_path / 'shop.py'}:flow"
    if form == "json":
        tasks = [{"name": "numbers", "kind": "source", "run": "shop:Numbers"}, {"name": "before", "run": "shop:plain"},
                 {"name": "pay", "run": "shop:pay"}, {"name": "after", "run": "shop:Count"}]  # fmt: skip
        edges = [{"from": a["name"], "to": b["name"]} for a, b in zip(tasks, tasks[1:], strict=False)]
        document = {"schema": "headgate/topology/v1", "name": "flow", "tasks": tasks, "edges": edges}
        (tmp_path / "flow.json").write_text(json.dumps(document))
        reference = str(tmp_path / "flow.json")
    found = load(reference, runs=True).topology
    assert found.by_name["pay"].effects is True and found.by_name["before"].effects is None
    assert found.unsampled == ("pay", "after")


def test_a_task_says_so_itself():
    flow = topology("flow")
    flow.source("numbers") >> flow.task("work").effects() >> flow.task("sink").effects(False)
    assert flow.build().unsampled == ("work", "sink")
    assert flow.build().digest == chained_again().digest  # what it is, not what it does


def chained_again() -> Topology:
    flow = topology("flow")
    flow.source("numbers") >> flow.task("work") >> flow.task("sink")
    return flow.build()
