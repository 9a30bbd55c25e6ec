"""The `headgate` command itself: help, errors, exit codes. Each case is what a user would type."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest

from headgate.dashboards import cli
from headgate.topology_runtime import errors

HEAVY = ("networkx", "zmq", "numpy", "rich", "click", "msgspec", "scipy", "pyarrow", "psutil")


def headgate(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "headgate.dashboards.cli", *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=30, env={**os.environ, **environment}, check=False
    )


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch):
    """Puts a command `boom` in the table that raises what it is told to."""

    def install(error: BaseException) -> None:
        @click.command()
        def boom() -> None:
            raise error

        monkeypatch.setitem(cli.COMMANDS, "boom", ("nowhere:boom", "raises"))
        monkeypatch.setattr(cli, "load", lambda name: boom)

    return install


def test_help_imports_nothing_heavy():
    command = [sys.executable, "-X", "importtime", "-P", "-m", "headgate.dashboards.cli", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    imported = {
        line.rsplit("|", 1)[1].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line
    }
    assert "headgate" in imported  # the listing was read
    assert imported.isdisjoint(HEAVY)


def test_a_controller_begins_without_what_its_first_plan_does_not_need():
    code = "import headgate.controller.controller, headgate.controller.core.loop, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "numpy" in loaded  # its samples are in arrays from the first one on
    assert loaded.isdisjoint({"pyarrow", "highspy", "networkx", "duckdb", "pandas"})


@pytest.mark.parametrize("words", [["plan", "linear", "--rate", "100"], ["topology", "validate", "linear"]])
def test_planning_and_validating_do_without_networkx_until_it_is_needed(words):
    command = [sys.executable, "-X", "importtime", "-P", "-m", "headgate.dashboards.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "headgate.topology_runtime.faults.graph" in done.stderr  # the topology was checked
    assert "networkx" not in done.stderr


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",), ("help",)])
def test_help_lists_every_command(words, capsys):
    assert cli.main(list(words)) == 0
    text = capsys.readouterr().out
    for name, (_, about) in cli.COMMANDS.items():
        assert name in text and about in text


def test_group_help_lists_its_commands(capsys):
    assert cli.main(["controller"]) == 0
    assert "controller run" in capsys.readouterr().out


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"headgate {cli.VERSION}\n"


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_entry_of_the_table_is_a_command_with_help(name, capsys):
    assert isinstance(cli.load(name), click.Command)
    assert cli.main([*name.split(), "--help"]) == 0
    assert f"headgate {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("statsu", "status"),
        ("rate sett", "rate set"),
        ("agnet run", "agent run"),
        ("topolgy show", "topology"),
    ],
)
def test_unknown_command_names_the_nearest(typed, meant, capsys):
    assert cli.main(typed.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[0].startswith("error[HG-USAGE]: there is no command")
    assert f"try: `headgate {meant}`" in captured.err


def test_unknown_command_without_a_near_one(capsys):
    assert cli.main(["xyzzy"]) == 2
    assert "`headgate --help` lists the commands" in capsys.readouterr().err


def test_usage_errors_have_the_form_of_all_errors(capsys):
    assert cli.main(["completion", "tcsh"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("error[HG-USAGE]: ")
    assert lines[-1] == "try: `headgate completion --help`"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.HeadgateError("x"), 1),
        (errors.UsageError("x"), 2),
        (errors.InvalidInput("x"), 3),
        (errors.Infeasible("x"), 4),
        (errors.Unreachable("x"), 5),
        (errors.Conflict("x"), 6),
        (errors.EnactmentFailed("x"), 7),
        (errors.CheckFailed("x"), 8),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes_of_the_contract(failing, error, code):
    failing(error)
    assert cli.main(["boom"]) == code


def test_an_error_lists_its_faults_cause_and_what_to_try(failing, capsys):
    failing(errors.InvalidInput("the topology is bad", cause="2 faults", hint="mend them", faults=["a", "b"]))
    assert cli.main(["boom"]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "error[HG-INVALID]: the topology is bad",
        "  - a",
        "  - b",
        "cause: 2 faults",
        "try: mend them",
    ]


def test_traceback_only_with_debug(failing, capsys):
    failing(ValueError("odd"))
    assert cli.main(["boom"]) == 1
    plain = capsys.readouterr().err
    assert plain.startswith("error[HG-FAILED]: unexpected failure: ValueError\ncause: odd\n")
    assert "Traceback" not in plain
    assert cli.main(["--debug", "boom"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_completion_finishes_commands_and_their_choices():
    words = {"_HEADGATE_COMPLETE": "bash_complete", "COMP_WORDS": "headgate comp", "COMP_CWORD": "1"}
    assert "plain,completion" in headgate(**words).stdout
    words = {"_HEADGATE_COMPLETE": "bash_complete", "COMP_WORDS": "headgate completion z", "COMP_CWORD": "2"}
    assert "plain,zsh" in headgate(**words).stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(shell, capsys):
    assert cli.main(["completion", shell]) == 0
    assert "_HEADGATE_COMPLETE" in capsys.readouterr().out
