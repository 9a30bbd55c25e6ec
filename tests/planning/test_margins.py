"""How much more than the rate is planned for: by the models' spread, or as asked for, and told in the plan."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace
from worlds import chain, model_of, vms_of

from headgate.controller.knowledge.certainty import Sure
from headgate.controller.knowledge.models import Model, Point, Spread
from headgate.controller.knowledge.plan_data import plan_data, plan_of
from headgate.controller.plan.carrying import carrying_plan
from headgate.controller.plan.margins import MOST, by_spread
from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.controller.plan.verify import faults_of
from headgate.dashboards import cli
from headgate.topology_runtime.errors import InvalidInput

TOPOLOGY = chain("a", "b", ends=True)


def spread(name: str, **half: float) -> Model:
    """A slot of a or b carries 100 tuples/s with two threads, give or take."""
    model = model_of(name, (1, 60.0, 0.5, 0.2), (2, 100.0, 0.9, 0.3))
    points = tuple(replace(point, spread=Spread(**half)) if half else point for point in model.points)
    return replace(model, points=points)


def asked(models: dict[str, Model], **more) -> PlanRequest:
    given = {"allocator": "optimal", "mapper": "optimal", **more}
    return PlanRequest(TOPOLOGY, models, 215.0, vms_of(4, 4), **given)


def test_without_spread_there_is_no_margin_and_the_plan_says_so():
    plan = make_plan(asked({name: spread(name) for name in "ab"}))
    assert (plan.allocation.margin, plan.allocation.margin_why) == (1.0, "the models have no spread")


def test_the_peak_that_may_be_least_of_what_it_is_gives_the_margin():
    """a may carry a twentieth less, b a tenth: 100 / 90, not both."""
    models = {"a": spread("a", relative=0.05), "b": spread("b", rate_tps=10.0)}
    plan = make_plan(asked(models))
    assert plan.allocation.margin == pytest.approx(100 / 90, abs=1e-4)
    assert plan.allocation.margin_why == "by its spread a slot of b may carry 10.0% less than its model says"
    assert plan.prediction.rate_tps >= 215 * 100 / 90 * (1 - 1e-4) and plan.rate_tps == 215.0
    assert faults_of(plan, TOPOLOGY, models) == []
    assert plan.slots.used > make_plan(asked({name: spread(name) for name in "ab"})).slots.used


def test_the_low_end_is_that_of_every_point():
    """The best point is off by far more than the other one, which is then the best."""
    points = (Point(1, 90.0, 0.5, 0.2, Spread(relative=0.0)), Point(2, 100.0, 0.9, 0.3, Spread(relative=0.5)))
    models = {"a": replace(spread("a"), points=points), "b": spread("b")}
    assert by_spread(TOPOLOGY, models)[0] == pytest.approx(100 / 90, abs=1e-4)
    lost = replace(spread("a"), points=(Point(1, 90.0, 0.5, 0.2, Spread(relative=0.99)),))
    assert by_spread(TOPOLOGY, {"a": lost, "b": spread("b")})[0] == MOST


def test_what_is_asked_for_goes_before_the_spread_and_holds_for_any_allocator():
    models = {"a": spread("a", relative=0.05), "b": spread("b", relative=0.1)}
    for pair in (("optimal", "optimal"), ("mba", "sam")):
        plan = make_plan(asked(models, allocator=pair[0], mapper=pair[1], margin=1.3))
        assert (plan.allocation.margin, plan.allocation.margin_why) == (1.3, "it was asked for")
        assert plan.allocation.rate_tps == pytest.approx(215 * 1.3)
        assert faults_of(plan, TOPOLOGY, models) == []
    none = make_plan(asked(models, margin=1.0))
    assert none.allocation.margin == 1.0 and none.slots.used <= make_plan(asked(models)).slots.used
    usual = make_plan(asked(models, allocator="mba", mapper="sam"))
    assert (usual.allocation.margin, usual.allocation.margin_why) == (1.0, "")
    for wrong in (0.9, float("nan"), 100.0):
        with pytest.raises(InvalidInput, match="cannot be planned"):
            make_plan(asked(models, margin=wrong))


def test_a_plan_that_is_to_be_sure_has_the_margin_that_this_takes():
    models = {name: spread(name, relative=0.1) for name in "ab"}
    plan = make_plan(asked(models, sure=Sure(0.9, strict=False)))
    assert plan.prediction.sure is not None and plan.allocation.margin == 1.0
    assert faults_of(plan, TOPOLOGY, models) == []


def test_a_plan_that_is_raised_until_it_carries_keeps_its_margin():
    models = {name: spread(name, relative=0.1) for name in "ab"}
    for pair in (("optimal", "dsm"), ("optimal", "optimal"), ("lsa", "dsm")):
        plan, _ = carrying_plan(asked(models, allocator=pair[0], mapper=pair[1], margin=1.1))
        assert [fault for fault in faults_of(plan, TOPOLOGY, models) if "sees" in fault] == []


def test_the_margin_is_in_the_file_and_read_back():
    plan = make_plan(asked({name: spread(name, relative=0.1) for name in "ab"}))
    data = json.loads(json.dumps(plan_data(plan)))
    assert data["margin"] == {"factor": plan.allocation.margin, "why": plan.allocation.margin_why}
    assert plan_of(data) == plan
    with pytest.raises(InvalidInput) as refused:
        plan_of({**data, "margin": {"factor": 0.5}})
    assert any("margin.factor" in fault for fault in refused.value.faults)


def test_the_option_is_told_in_words(capsys):
    line = ["plan", "linear", "--rate", "50", "--planner", "optimal"]
    assert cli.main([*line, "--margin", "0.2"]) == 0
    assert "Margin 20.0%: it was asked for." in capsys.readouterr().out
    assert cli.main(line) == 0
    assert "Margin 0.0%: the models have no spread." in capsys.readouterr().out
    assert cli.main([*line, "--margin", "0.2", "--sure", "0.9"]) == 2
