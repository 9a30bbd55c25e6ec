"""The shipped examples: named by a bare word, valid, and planned as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.controller.files.planning_inputs import read_models
from headgate.controller.plan.planner import PlanRequest, plan_acquiring
from headgate.controller.plan.verifier import faults_of
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.loading import load
from headgate.topology_runtime.api.shipped_examples import DEMO, MODELS, NAMES, example, logic_alone
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import InvalidInput

PUBLISHED = read_models(MODELS)
SIZES = tuple(Vm(f"D{slots}", slots, usd_per_hour=0.098 * slots) for slots in (4, 2, 1))
APPLICATIONS = ("finance", "traffic", "smart-grid")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def rates(name: str) -> dict[str, float]:
    return load(name).topology.rates(100.0)


def models_of(topology: Topology) -> list[str]:
    return [task.model_name for task in logic_alone(topology).tasks]


@pytest.mark.parametrize("rate", [50.0, 100.0, 200.0])
@pytest.mark.parametrize("name", NAMES)
def test_every_example_is_planned_soundly(name, rate):
    topology = load(name).topology
    assert topology.name == name
    plan = plan_acquiring(PlanRequest(topology, PUBLISHED, rate, ()), SIZES)
    assert faults_of(plan, topology, PUBLISHED) == []
    assert plan.prediction.rate_tps == pytest.approx(rate, rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_every_example_has_one_source_and_one_sink_of_the_papers_size(name):
    topology = load(name).topology
    (source,), (sink,) = topology.sources, topology.sinks
    assert source.static is not None and sink.static is not None
    assert (source.name, source.static.threads, source.static.cpu, source.static.memory) == (
        "source", 1, 0.10, 0.15,
    )  # fmt: skip
    assert (sink.name, sink.static.threads, sink.static.cpu, sink.static.memory) == ("sink", 1, 0.10, 0.20)


def test_the_micro_topologies_have_the_papers_rates():
    assert set(rates("linear").values()) == {100.0}
    diamond, star = rates("diamond"), rates("star")
    assert diamond["pi"] == 400.0
    assert {diamond[task] for task in ("blob", "xml", "table", "file")} == {100.0}
    assert (star["blob"], star["table"]) == (100.0, 100.0)
    assert {star[task] for task in ("xml", "pi", "file")} == {200.0}


@pytest.mark.parametrize("name", APPLICATIONS)
def test_the_applications_are_as_the_paper_describes_them(name):
    topology = load(name).topology
    assert 7 <= len(logic_alone(topology).tasks) <= 15
    assert {edge.selectivity for edge in topology.edges} == {1.0}
    assert 2.0 <= topology.rates(1.0)["sink"] <= 4.0
    assert set(models_of(topology)) == set(PUBLISHED)


@pytest.mark.parametrize(("name", "rate"), [("finance", 200.0), ("traffic", 100.0), ("smart-grid", 300.0)])
def test_the_table_task_has_the_papers_rate(name, rate):
    """Section 8.4.2: 100, 200 and 300 rows/s in Traffic, Finance and Smart grid."""
    topology = load(name).topology
    (table,) = [task.name for task in topology.tasks if task.model_name == "table"]
    assert topology.rates(100.0)[table] == rate


def test_logic_alone_drops_source_and_sink_and_keeps_the_rates():
    whole = load("star").topology
    logic = logic_alone(whole)
    assert [task.name for task in logic.tasks] == ["blob", "table", "xml", "pi", "file"]
    assert logic.rates(100.0) == {name: rate for name, rate in whole.rates(100.0).items() if name[0] != "s"}


def test_the_published_models_say_where_they_come_from():
    assert sorted(PUBLISHED) == ["blob", "file", "pi", "table", "xml"]
    for model in PUBLISHED.values():
        assert model.slot.cores == 1.0 and model.slot.memory_bytes == 3_758_096_384
        assert model.more["source"].startswith("paper 0")


def test_an_unknown_word_is_answered_with_the_examples():
    with pytest.raises(InvalidInput) as caught:
        load("linaer")
    assert caught.value.what == "'linaer' names no topology; did you mean 'linear'?"
    assert caught.value.cause == f"the examples are {', '.join((*NAMES, DEMO))}"


@pytest.mark.parametrize(
    "reference", ["", "./linear", "linear.yaml", "linear.", "smart\\grid", "x" * 5000, "\0"]
)
def test_what_is_no_bare_word_is_no_example(reference):
    with pytest.raises(InvalidInput):
        load(reference)


def test_a_file_of_that_name_is_not_passed_over():
    Path("linear").write_text("mine")
    with pytest.raises(InvalidInput, match="'linear' names no topology"):
        load("linear")
    Path("star").mkdir()  # a folder is no topology anyway
    assert load("star").topology.name == "star"


def test_no_example_has_another_name_than_its_file():
    files = {path.stem for path in MODELS.parent.glob("*.yaml")}
    assert files == set(NAMES)
    assert [example(name) for name in ("", "models", "linear.yaml", "../examples/linear")] == [None] * 4
