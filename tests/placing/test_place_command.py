"""`headgate lab place`: the contract's shape, every fault of a problem with its place, and exit codes."""

from __future__ import annotations

import copy
import json

import pytest
from click.testing import CliRunner

from headgate.dashboards import headgate_command as cli
from headgate.lab.placing.place_command import place

SMALL = {
    "groups": [{"id": "a", "tasks": 10, "cost": 1.2}, {"id": "b", "tasks": 20, "cost": 0.6}],
    "edges": [{"from": "a", "to": "b", "traffic": 5.0}],
    "nodes": [{"id": "n1", "capacity": 1.0}, {"id": "n2", "capacity": 1.0}],
}


def run(tmp_path, capsys, problem, *words, code=0):
    path = tmp_path / "problem.json"
    path.write_text(problem if isinstance(problem, str) else json.dumps(problem))
    assert cli.main(["lab", "place", str(path), *words]) == code
    captured = capsys.readouterr()
    return captured.out, captured.err


@pytest.mark.parametrize("algorithm", ["task-level", "top-down", "refined", "optimal"])
def test_the_answer_has_the_shape_of_the_contract(tmp_path, capsys, algorithm):
    out, _ = run(tmp_path, capsys, SMALL, "--algorithm", algorithm, "-o", "json")
    found = json.loads(out)
    assert found["schema"] == "headgate/placement/v1" and found["complete"] is True
    assert found["total_traffic"] == 5.0 and 0 < found["saved_traffic"] <= found["bound"] <= 5.0
    assert found["gap"] == pytest.approx(1 - found["saved_traffic"] / found["bound"])
    assert found["seconds"] >= 0 and found["unplaced"] == {} and found["algorithm"] == algorithm
    for group, tasks in (("a", 10), ("b", 20)):
        assert sum(node.get(group, 0) for node in found["placement"].values()) == tasks


def test_top_down_splits_evenly(tmp_path, capsys):
    """A balanced split costs 0.12 + 2 × 0.03, and five of them fill n1."""
    out, _ = run(tmp_path, capsys, SMALL, "--algorithm", "top-down", "-o", "json")
    found = json.loads(out)
    assert found["placement"] == {"n1": {"a": 5, "b": 10}, "n2": {"a": 5, "b": 10}}
    assert found["saved_traffic"] == 2.5


def test_the_papers_algorithms_come_as_printed_and_by_another_priority(tmp_path, capsys):
    """By traffic b and c go first, which cost more than they say; as printed c's rest goes anywhere."""
    chain = {
        "groups": [{"id": "a", "tasks": 4, "cost": 0.5}, {"id": "b", "tasks": 4, "cost": 0.5},
                   {"id": "c", "tasks": 8, "cost": 4.0}],
        "edges": [{"from": "a", "to": "b", "traffic": 10.0}, {"from": "b", "to": "c", "traffic": 15.0}],
        "nodes": [{"id": f"n{n}", "capacity": 1.0} for n in range(6)],
    }  # fmt: skip
    found = {}
    for algorithm in ("task-level", "task-level:by-traffic", "top-down", "top-down:as-printed:by-traffic"):
        out, _ = run(tmp_path, capsys, chain, "--algorithm", algorithm, "-o", "json")
        found[algorithm] = json.loads(out)
        assert found[algorithm]["algorithm"] == algorithm and found[algorithm]["complete"]
    assert found["task-level"]["placement"] != found["task-level:by-traffic"]["placement"]
    assert found["top-down"]["placement"] != found["top-down:as-printed:by-traffic"]["placement"]
    for algorithm, fault in (
        ("refined:as-printed", "taken as it is"),
        ("top-down:as-told", "no way 'as-told'"),
    ):
        _, err = run(tmp_path, capsys, chain, "--algorithm", algorithm, code=3)
        assert fault in err


def test_a_balance_is_the_most_that_a_node_holds(tmp_path, capsys):
    wide = {**SMALL, "nodes": [{"id": n, "capacity": 2.0} for n in ("n1", "n2")]}
    assert len(json.loads(run(tmp_path, capsys, wide, "-o", "json")[0])["placement"]) == 1
    assert len(json.loads(run(tmp_path, capsys, {**wide, "balance": 1.1}, "-o", "json")[0])["placement"]) == 2
    _, err = run(tmp_path, capsys, {**SMALL, "balance": 0.9}, code=3)
    assert "balance: expected a number of at least 1, got 0.9" in err


def test_every_fault_is_told_with_its_place(tmp_path, capsys):
    wrong = {
        "groups": [
            {"id": "a", "tasks": 0, "cost": -1},
            {"id": "a", "tasks": 2, "cost": 1},
            {"id": "c", "tasks": 2, "cost": "much"},
            {"id": "d", "tasks": 2, "costs": [0.1]},
            {"id": "e", "tasks": 1.5, "cost": 1, "colour": "red"},
            7,
        ],
        "edges": [
            {"from": "a", "to": "b", "traffic": 1},
            {"from": "a", "to": "c"},
            {"from": "a", "to": "c", "traffic": -2},
            {"from": "c", "to": "c", "traffic": 1},
            {"from": ["a"], "to": "c", "traffic": 1},
        ],
        "nodes": [{"id": "n1", "capacity": 1}, {"id": "n1", "capacity": 1}, {"id": "n2"}, {"id": ""}],
        "node": [],
    }
    _, err = run(tmp_path, capsys, wrong, code=3)
    for fault in (
        "node: no such key; did you mean 'nodes'?",
        "groups[0].tasks: expected an integer from 1 to 1000000, got 0",
        "groups[0].cost: expected a finite number of at least 0, got -1",
        "groups[1].id: 'a' is there twice",
        "groups[2].cost: expected a finite number of at least 0, got 'much'",
        "groups[3].costs: expected a list with the cost of each of 2 tasks",
        "groups[4].colour: no such key",
        "groups[4].tasks: expected an integer",
        "groups[5]: expected an object, got 7",
        "edges[0].to: no group 'b'",
        "edges[1].traffic: expected a finite number of at least 0, there is none",
        "edges[2].traffic: expected a finite number of at least 0, got -2",
        "edges[2].to: 'a → c' is there twice",
        "edges[3].to: leads from 'c' to itself",
        "edges[4].from: no group ['a']",
        "nodes[1].id: 'n1' is there twice",
        "nodes[2].capacity: expected a finite number of at least 0, there is none",
        "nodes[3].id: expected a name, got ''",
    ):
        assert fault in err, fault


@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"groups": {}, "nodes": 3}', "nonsense", '{"groups": [], "nodes": []}']
)
def test_what_is_no_problem_at_all_is_refused(tmp_path, capsys, text):
    _, err = run(tmp_path, capsys, text, code=3)
    assert err.startswith("error[HG-INVALID]")


def test_huge_and_odd_numbers_are_refused_or_stood(tmp_path, capsys):
    odd = copy.deepcopy(SMALL)
    odd["groups"][0]["cost"] = int("9" * 400)
    odd["nodes"][0]["capacity"] = True
    _, err = run(tmp_path, capsys, odd, code=3)
    assert "groups[0].cost" in err and "nodes[0].capacity" in err
    free = {**SMALL, "groups": [{**g, "cost": 0} for g in SMALL["groups"]]}
    out, _ = run(tmp_path, capsys, free, "-o", "json")
    assert json.loads(out)["saved_traffic"] == 5.0


def test_more_than_the_nodes_hold_is_exit_4_with_the_shortfall(tmp_path, capsys):
    small = {**SMALL, "nodes": [{"id": "n1", "capacity": 1.0}]}
    out, err = run(tmp_path, capsys, small, "-o", "json", code=4)
    found = json.loads(out)
    assert found["complete"] is False and found["unplaced"] and found["gap"] is None
    assert "the tasks cost 1.8, the nodes hold 1: 0.8 are missing" in err
    assert "nodes of 0.8 more" in err


def test_coarse_tasks_are_exit_4_and_fit_regrouped(tmp_path, capsys):
    coarse = {
        "groups": [{"id": "a", "tasks": 3, "cost": 1.8}],
        "edges": [],
        "nodes": [{"id": "n1", "capacity": 0.9}, {"id": "n2", "capacity": 0.9}],
    }
    _, err = run(tmp_path, capsys, coarse, code=4)
    assert "1 task of 'a' fit on no node" in err and "--regroup" in err
    out, _ = run(tmp_path, capsys, coarse, "--regroup", "-o", "json")
    found = json.loads(out)
    assert found["complete"] is True and found["regrouped"] == {"a": 2}


def test_a_task_larger_than_every_node_is_named(tmp_path, capsys):
    large = {**SMALL, "groups": [{"id": "a", "tasks": 1, "cost": 1.4}, SMALL["groups"][1]]}
    _, err = run(tmp_path, capsys, large, code=4)
    assert "a task of 'a' costs 1.4, the largest node holds 1" in err


def test_skewed_groups_say_which_tasks_are_where(tmp_path, capsys):
    skewed = {
        "groups": [{"id": "a", "tasks": 3, "costs": [0.1, 0.8, 0.1]}, {"id": "b", "tasks": 1, "cost": 0.3}],
        "edges": [{"from": "a", "to": "b", "traffic": 3.0}],
        "nodes": [{"id": "n1", "capacity": 0.8}, {"id": "n2", "capacity": 0.8}],
    }
    found = json.loads(run(tmp_path, capsys, skewed, "-o", "json")[0])
    tasks = sorted(number for groups in found["tasks"].values() for number in groups["a"])
    assert tasks == [0, 1, 2]
    assert [1] in [groups["a"] for groups in found["tasks"].values()]
    assert found["saved_traffic"] == pytest.approx(2.0)


def test_generated_problems_are_read_back_and_names_are_checked(tmp_path):
    runner = CliRunner()
    made = runner.invoke(place, ["--generate", "7"])
    path = tmp_path / "p.json"
    path.write_text(made.stdout)
    assert runner.invoke(place, [str(path), "-o", "json"]).exit_code == 0
    assert cli.main(["lab", "place", str(path), "--algorithm", "topdown"]) == 3
    assert cli.main(["lab", "place"]) == 2
    assert cli.main(["lab", "place", str(path), "--generate", "7"]) == 2


def test_a_solver_out_of_time_answers_with_what_it_has(tmp_path, capsys):
    hard = {
        "groups": [{"id": f"g{n}", "tasks": 3 + n % 3, "cost": 0.9 + 0.13 * n} for n in range(8)],
        "edges": [
            {"from": f"g{a}", "to": f"g{b}", "traffic": 5 + (a * 7 + b * 3) % 11}
            for a in range(8) for b in range(a + 1, 8)
        ],
        "nodes": [{"id": f"n{n}", "capacity": 1.0 + n / 100} for n in range(14)],
    }  # fmt: skip
    out, err = run(tmp_path, capsys, hard, "--algorithm", "optimal", "--search-seconds", "0.01", "-o", "json")
    found = json.loads(out)
    assert found["complete"] is True and found["timed_out"] is True and 0 < found["gap"] < 1
    assert "ran out of its 0.01 s" in err
