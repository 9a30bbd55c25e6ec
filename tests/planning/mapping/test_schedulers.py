"""One registry of schedulers: what is in it can be chosen everywhere, and nothing else can."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner
from worlds import chain, model_of, vms_of

from headgate.controller.knowledge.controller_config import ControllerSettings, TrafficTriggers
from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.controller.plan.schedulers import ALLOCATORS, MAPPERS, mapper_for, pair_faults, pair_of, pairs
from headgate.controller.plan.verifier import faults_of
from headgate.controller.planning_commands.plan_command import plan
from headgate.controller.replay.replay_policies import policies_of
from headgate.topology_runtime.commands import run_settings as settings
from headgate.topology_runtime.errors import InvalidInput, UsageError
from headgate.topology_runtime.wire.run_options import DEFAULT_TRIGGERS, parse_triggers

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


def test_comparing_takes_all_pairs_by_one_word():
    done = CliRunner().invoke(plan, ["linear", "--rates", "50", "--compare", "all", "-o", "csv"])
    assert done.exit_code == 0, done.output
    rows = [line.split(",")[0] for line in done.stdout.splitlines() if "+" in line.split(",")[0]]
    assert rows == list(pairs())


def test_what_few_need_of_mappers_is_a_setting_of_plan():
    """α, B and as printed: each makes another plan of the same request."""

    def slots(*words: str) -> list[tuple[str, ...]]:
        given = ["linear", "--rate", "50", "--mapper", "traffic", "--vms", "4,4,4", "-o", "csv"]
        done = CliRunner().invoke(plan, [*given, *(word for one in words for word in ("--set", one))])
        assert done.exit_code == 0, done.output
        return [tuple(line.split(",")) for line in done.stdout.splitlines()]

    plans = [
        slots(),
        slots("as-printed=true", "topology-spread=1,0.5"),
        slots("as-printed=true", "topology-spread=0.1,0.5"),
        slots("load-bound=1,vm1=0.1"),
    ]
    assert len({tuple(one) for one in plans}) == len(plans)


@pytest.mark.parametrize(
    "word", ["topology-spread=2,1", "topology-spread=1", "load-bound=0", "load-bound=vm1=x"]
)
def test_settings_of_mappers_are_refused_with_their_reason(word):
    done = CliRunner().invoke(plan, ["linear", "--rate", "50", "--set", word])
    assert isinstance(done.exception, UsageError)
    assert f"invalid {word.split('=')[0]}" in done.exception.what
    done = CliRunner().invoke(plan, ["linear", "--placement", "x.json", "--set", "load-bound=0.5"])
    assert "does not take --load-bound" in str(done.exception)


# ── `--traffic-triggers`, and the names of schedulers that `up` knows ───────────────────────────────────


def test_the_default_is_the_default_of_the_controller():
    assert TrafficTriggers(**parse_triggers(DEFAULT_TRIGGERS)) == TrafficTriggers()


def test_any_of_the_four_may_be_given():
    assert parse_triggers("saves=0.1, every=20,first=dsm") == {"saves": 0.1, "every_s": 20.0, "first": "dsm"}


def test_a_vm_may_have_a_load_of_its_own():
    found = parse_triggers("load=0.9,load@vm2=0.7,load@vm 3=1")
    assert found == {"load_bound": 0.9, "vm_bounds": {"vm2": 0.7, "vm 3": 1.0}}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("load@=0.5", "'load@=0.5': not one of every=S"),
        ("load@vm1=1.5", "'load@vm1=1.5': not a part from 0 to 1"),
        ("every=0", "'every=0': not a number of seconds from 1 on"),
        ("for=nan", "'for=nan': not a number of seconds"),
        ("saves=20", "'saves=20': not a part from 0 to 1"),
        ("load=-1", "'load=-1': not a part from 0 to 1"),
        ("load=0.5,load=0.6", "load is there twice"),
        ("often", "'often': not one of every=S"),
    ],
)
def test_what_is_no_trigger_is_refused_with_its_reason(text: str, fault: str):
    with pytest.raises(UsageError) as found:
        parse_triggers(text)
    assert fault in "; ".join(found.value.faults)


def test_up_names_every_scheduler_of_the_registry():
    assert list(ALLOCATORS) == settings.ALLOCATORS.split("|")
    assert list(MAPPERS) == settings.MAPPERS.split("|")
