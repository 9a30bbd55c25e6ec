"""The `headgate` command itself: help, errors, exit codes. Each case is what a user would type."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from headgate.dashboards import headgate_command as cli
from headgate.dashboards.headgate_command import PIPE_CLOSED
from headgate.topology_runtime import errors
from headgate.topology_runtime.commands import output
from headgate.topology_runtime.commands.output import format_or_folder, split
from headgate.topology_runtime.errors import UsageError
from made_traces.generate_trace import Wanted, generate

HEAVY = ("networkx", "zmq", "numpy", "rich", "click", "msgspec", "scipy", "pyarrow", "psutil")


def headgate(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "headgate", *words]
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
    command = [
        sys.executable,
        "-X",
        "importtime",
        "-P",
        "-m",
        "headgate",
        "--help",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    imported = {
        line.rsplit("|", 1)[1].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line
    }
    assert "headgate" in imported  # the listing was read
    assert imported.isdisjoint(HEAVY)


def test_a_controller_begins_without_what_its_first_plan_does_not_need():
    code = "import headgate.controller.controller_process, headgate.controller.core.loop, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "numpy" in loaded  # its samples are in arrays from the first one on
    assert loaded.isdisjoint({"pyarrow", "highspy", "networkx", "duckdb", "pandas"})


@pytest.mark.parametrize("words", [["plan", "linear", "--rate", "100"], ["topology", "validate", "linear"]])
def test_planning_and_validating_do_without_networkx_until_it_is_needed(words):
    command = [sys.executable, "-X", "importtime", "-P", "-m", "headgate", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "headgate.topology_runtime.api.validate" in done.stderr  # the topology was checked
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


# ── Whoever reads what a command prints may be gone before its end (`headgate … | head`): that is no error

HEADGATE = [sys.executable, "-P", "-m", "headgate"]
TRACE = "TRACE"  # stands for the folder of a run
PRINTING = [
    ["--help"],
    ["doctor"],  # a table
    ["completion", "bash"],  # lines
    ["sim", "--help"],
    ["sql", TRACE, "--tables"],
    ["sql", TRACE, "select * from samples", "-o", "csv"],
    ["sql", TRACE, "select * from samples", "-o", "json"],
    ["sql", TRACE, "select * from samples", "-o", "jsonl"],
]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("piped")
    generate(folder / "traces", Wanted(rows=4_000, threads=10, slots=4, epochs=1))
    return str(folder / "traces" / "made" / "run-1")


def ended(words: list[str], trace: str, errors_too: bool) -> tuple[int, str]:
    """What a command ends with, and says of it, whose reader is gone before the first byte."""
    if TRACE in words:
        pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'headgate[sql]'")
    reader, writer = os.pipe()
    os.close(reader)
    command = [*HEADGATE, *(trace if word == TRACE else word for word in words)]
    errors = writer if errors_too else subprocess.PIPE
    done = subprocess.run(command, stdout=writer, stderr=errors, text=True, timeout=60, check=False)
    os.close(writer)
    return done.returncode, done.stderr or ""


@pytest.mark.parametrize("words", PRINTING, ids=" ".join)
def test_a_reader_that_is_gone_is_no_error(words: list[str], trace: str) -> None:
    assert ended(words, trace, errors_too=False) == (PIPE_CLOSED, "")


@pytest.mark.parametrize("words", [["doctor"], ["nothing"], ["sql", TRACE, "select"]], ids=" ".join)
def test_nor_is_one_of_errors(words: list[str], trace: str) -> None:
    assert ended(words, trace, errors_too=True) == (PIPE_CLOSED, "")


def test_an_error_is_told_whoever_reads_the_rest(trace: str) -> None:
    code, said = ended(["nothing"], trace, errors_too=False)
    assert code == 2 and said.startswith("error[HG-USAGE]: there is no command `nothing`")


def test_a_reader_that_goes_in_between_has_the_first_lines(trace: str) -> None:
    pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'headgate[sql]'")
    command = [
        *HEADGATE,
        "sql",
        trace,
        "select s.* from samples s, range(200)",
        "-o",
        "csv",
    ]  # more than a pipe holds
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None and running.stderr is not None
        assert running.stdout.readline().startswith("run,time,")
        running.stdout.close()
        assert (running.wait(60), running.stderr.read()) == (PIPE_CLOSED, "")


def test_what_is_read_to_its_end_ends_well(trace: str, tmp_path: Path) -> None:
    done = subprocess.run([*HEADGATE, "completion", "bash"], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0 and done.stdout


# ── Data in every form: the same rows as JSON, JSON lines, CSV and a table ──────────────────────────────

ROWS = [
    {"vm": "vm1", "slot": 0, "cpu": 0.51234, "threads": {"parse": 2}, "ready": True},
    {"vm": "vm2", "slot": 1, "cpu": None, "threads": {}, "ready": False, "note": "a,b"},
]
DOCUMENT = {"schema": "headgate/status/v1", "slots": ROWS}


def test_json_is_the_whole_document(capsys):
    output.emit("json", DOCUMENT, ROWS)
    assert json.loads(capsys.readouterr().out) == DOCUMENT


def test_json_lines_are_the_rows(capsys):
    output.emit("jsonl", DOCUMENT, ROWS)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == ROWS


def test_csv_has_every_column_and_exact_numbers(capsys):
    output.emit("csv", DOCUMENT, ROWS)
    read = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert read[0]["cpu"] == "0.51234" and read[0]["note"] == ""
    assert (read[0]["ready"], read[1]["ready"]) == ("true", "false")
    assert read[1]["note"] == "a,b" and read[1]["cpu"] == ""
    assert json.loads(read[0]["threads"]) == {"parse": 2}


def test_table_says_na_and_never_nan(capsys):
    output.emit("table", DOCUMENT, ROWS)
    text = capsys.readouterr().out
    assert "N/A" in text and "0.5123" in text and "\x1b" not in text


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_refused_in_json(value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        output.to_json({"x": value})


def test_text_that_looks_like_markup_stays_as_it_is(capsys):
    output.emit("table", {}, [{"task": "[red]parse[/red]"}])
    assert "[red]parse[/red]" in capsys.readouterr().out


def test_no_rows_is_no_error(capsys):
    for form in ("jsonl", "csv", "table"):
        output.emit(form, {}, [])
    assert capsys.readouterr().out.strip() == ""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], ("table", None)),
        (["-o", "json"], ("json", None)),
        (["--output", "json"], ("json", None)),
        (["--json", "--output", "found"], ("json", "found")),
        (["--output", "a/found", "-o", "csv"], ("csv", "a/found")),
        (["-o", "jsonl", "--output", "found"], ("jsonl", "found")),
    ],
)
def test_a_format_or_a_folder_is_given_by_one_option(words, expected):
    @click.command()
    @format_or_folder
    def command(outputs):
        click.echo(repr(split(outputs, None)))

    told = CliRunner().invoke(command, words, standalone_mode=False, catch_exceptions=False)
    assert told.stdout.strip() == repr(expected)


def test_what_is_nearly_a_format_is_no_folder():
    with pytest.raises(UsageError, match="did you mean 'json'"):
        split(["jsn"], None)
