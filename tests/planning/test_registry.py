"""One registry of schedulers: what is in it can be chosen everywhere, and nothing else can."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner
from worlds import chain, model_of, vms_of

from headgate.controller.knowledge.config import ControllerSettings
from headgate.controller.offline.compare import compare
from headgate.controller.offline.plan import plan
from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.controller.plan.schedulers import ALLOCATORS, MAPPERS, mapper_for, pair_faults, pair_of, pairs
from headgate.controller.plan.verify import faults_of
from headgate.controller.replaying.policies import policies_of
from headgate.topology_runtime.errors import InvalidInput

TOPOLOGY = chain("a", "b", ends=True)
MODELS = {
    "a": model_of("a", (1, 10, 0.1, 0.05), (8, 60, 0.5, 0.2)),
    "b": model_of("b", (1, 100, 0.6, 0.1), (2, 90, 0.7, 0.2)),
}


def test_every_pair_plans_and_its_plan_is_sound():
    for pair in pairs():
        allocator, mapper = pair_of(pair)
        found = make_plan(
            PlanRequest(TOPOLOGY, MODELS, 250.0, vms_of(4, 4, 4), allocator=allocator, mapper=mapper)
        )
        assert (found.allocator, found.mapper) == (allocator, mapper)
        assert faults_of(found, TOPOLOGY, MODELS) == [], pair


def test_every_scheduler_is_in_a_pair_and_says_where_it_comes_from():
    assert {pair.split("+")[0] for pair in pairs()} == set(ALLOCATORS)
    assert {pair.split("+")[1] for pair in pairs()} == set(MAPPERS)
    assert all(one.source and one.words for one in MAPPERS.values())
    assert all(one.source for one in ALLOCATORS.values())
    assert all(not pair_faults(allocator, mapper_for(allocator)) for allocator in ALLOCATORS)


@pytest.mark.parametrize("text", ["lsa+sam", "mba", "mba+smm", "mbb+sam", "+", ""])
def test_what_is_no_pair_is_refused_as_pair_and_as_policy(text):
    with pytest.raises(InvalidInput):
        pair_of(text)
    if text not in ("", "+"):
        with pytest.raises(InvalidInput):
            policies_of([text], ControllerSettings("run"))


def test_help_and_completion_name_them_all():
    shown = CliRunner().invoke(plan, ["--help"]).output
    assert "|".join(ALLOCATORS) in shown
    assert all(mapper in shown for mapper in MAPPERS)
    option = next(param for param in plan.params if param.name == "mapper")
    found = option.type.shell_complete(click.Context(plan), option, "r")
    assert [item.value for item in found] == [name for name in MAPPERS if name.startswith("r")]


def test_compare_takes_all_pairs_by_one_word():
    done = CliRunner().invoke(compare, ["linear", "--rates", "50", "--pairs", "all", "-o", "csv"])
    assert done.exit_code == 0, done.output
    rows = [line.split(",")[0] for line in done.stdout.splitlines() if "+" in line.split(",")[0]]
    assert rows == list(pairs())
