"""`headgate explain` explains a run, and with a topology or the planner's options a plan."""

from __future__ import annotations

import pytest

from headgate.dashboards import cli


@pytest.mark.parametrize(
    "words",
    [
        "", "--all", "--last 5", "--last=5", "--trace traces/x", "--controller 127.0.0.1:1", "-o json",
        "--output=csv --json", "--help", "--all --last 3 -o table",
    ],
)  # fmt: skip
def test_what_a_run_is_asked(words):
    assert not cli.explains_a_plan(words.split())


@pytest.mark.parametrize(
    "words",
    ["linear", "linear --help", "-o json linear", "--models DIR", "--rate 5 linear", "--last 5 flow.json"],
)
def test_what_a_plan_is_asked(words):
    assert cli.explains_a_plan(words.split())


def test_each_help_names_the_other(capsys):
    assert cli.main(["explain", "--help"]) == 0
    assert "TOPOLOGY" in capsys.readouterr().out
    assert cli.main(["explain", "linear", "--help"]) == 0
    assert "TOPOLOGY" in capsys.readouterr().out


def test_a_plan_is_explained(capsys):
    assert cli.main(["explain", "linear", "--rate", "100"]) == 0
    assert "blob" in capsys.readouterr().out
