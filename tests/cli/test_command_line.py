"""The `headgate` command itself: help, errors, exit codes. Each case is what a user would type."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from headgate.dashboards import headgate_command as cli
from headgate.dashboards.headgate_command import PIPE_CLOSED
from headgate.topology_runtime import errors
from headgate.topology_runtime.commands import output
from headgate.topology_runtime.commands.rare_settings import SET, SettingsCommand, setting
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
    command = [sys.executable, "-X", "importtime", "-P", "-m", "headgate", "--help"]
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
def test_help_shows_groups_of_few_commands(words, capsys):
    assert cli.main(list(words)) == 0
    text = capsys.readouterr().out
    assert all(f"\n{heading}:\n" in text for heading in ("Run", "Look", "Operate", "Plan", "Data", "Lab"))
    listed = [line.split()[0] for line in text.splitlines() if line.startswith("  ") and line[2].islower()]
    commands = listed[listed.index("up") : listed.index("package") + 1]
    assert commands == [name for names in cli.SHOWN.values() for name in names] and len(commands) <= 32
    assert all(len(line) <= 110 for line in text.splitlines())
    assert all(name in cli.COMMANDS or (name in cli.GROUPS and cli.below(name)) for name in commands)


def test_help_all_lists_every_command_and_there_is_a_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"headgate {cli.VERSION}\n"
    assert cli.main(["--help-all"]) == 0
    text = capsys.readouterr().out
    for name, (_, about) in cli.COMMANDS.items():
        assert f"  {name} " in text and about in text


@pytest.mark.parametrize(
    "name", ["watch", "report", "sim", "backtest", "shadow", "advise", "place", "season learn"]
)
def test_old_names_are_gone(name, capsys):
    assert cli.main(name.split()) == 2
    assert "unknown command" in capsys.readouterr().err


def test_group_help_lists_its_commands(capsys):
    assert cli.main(["controller"]) == 0
    assert "controller run" in capsys.readouterr().out
    for words in (["lab"], ["lab", "--help"], ["lab", "season"], ["lab", "season", "-h"]):
        assert cli.main(words) == 0
        assert "lab season learn" in capsys.readouterr().out


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_entry_of_the_table_is_a_command_with_help(name, capsys):
    assert isinstance(cli.load(name), click.Command)
    assert cli.main([*name.split(), "--help"]) == 0
    assert f"headgate {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("statsu", "use `headgate status`"),
        ("rate sett", "use `headgate rate set`"),
        ("agnet run", "use `headgate agent run`"),
        ("topolgy show", "use `headgate topology show`"),
        ("lab sesaon learn", "use `headgate lab season learn`"),
        ("xyzzy", "see `headgate --help`"),
    ],
)
def test_unknown_command_names_the_nearest(typed, meant, capsys):
    assert cli.main(typed.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[0].startswith("error[HG-USAGE]: unknown command")
    assert f"try: {meant}" in captured.err


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
    ["lab", "sim", "--help"],
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
    assert code == 2 and said.startswith("error[HG-USAGE]: unknown command `nothing`")


def test_a_reader_that_goes_in_between_has_the_first_lines(trace: str) -> None:
    pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'headgate[sql]'")
    query = "select s.* from samples s, range(200)"  # more than a pipe holds
    command = [*HEADGATE, "sql", trace, query, "-o", "csv"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None and running.stderr is not None
        assert running.stdout.readline().startswith("run,time,")
        running.stdout.close()
        assert (running.wait(60), running.stderr.read()) == (PIPE_CLOSED, "")


# ── Data in every form: the same rows as JSON, JSON lines, CSV and a table ──────────────────────────────

ROWS = [
    {"vm": "vm1", "slot": 0, "cpu": 0.51234, "threads": {"parse": 2}, "ready": True},
    {"vm": "vm2", "slot": 1, "cpu": None, "threads": {}, "ready": False, "note": "a,b"},
]
DOCUMENT = {"schema": "headgate/status/v1", "slots": ROWS}


def test_the_same_rows_in_every_form(capsys):
    said = {}
    for form in ("json", "jsonl", "csv", "table"):
        output.emit(form, DOCUMENT, ROWS)
        said[form] = capsys.readouterr().out
    assert json.loads(said["json"]) == DOCUMENT
    assert [json.loads(line) for line in said["jsonl"].splitlines()] == ROWS
    read = list(csv.DictReader(io.StringIO(said["csv"])))
    assert read[0]["cpu"] == "0.51234" and read[0]["note"] == ""
    assert (read[0]["ready"], read[1]["ready"]) == ("true", "false")
    assert read[1]["note"] == "a,b" and read[1]["cpu"] == ""
    assert json.loads(read[0]["threads"]) == {"parse": 2}
    assert "N/A" in said["table"] and "0.5123" in said["table"] and "\x1b" not in said["table"]
    output.emit("table", {}, [{"task": "[red]parse[/red]"}])
    assert "[red]parse[/red]" in capsys.readouterr().out, "no markup"
    for form in ("jsonl", "csv", "table"):
        output.emit(form, {}, [])
    assert capsys.readouterr().out.strip() == ""


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_refused_in_json(value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        output.to_json({"x": value})


# ── One spelling per option, few options, and those that few need out of the way ────────────────────────

OPTIONS_MOST, UP_MOST = 343, 23
COMMANDS = {name: cli.load(name) for name in cli.COMMANDS}


def options_of(command: click.Command) -> list[click.Option]:
    return [one for one in command.params if isinstance(one, click.Option)]


def test_options_are_few_and_a_spelling_means_one_thing_everywhere():
    """`-f` is `--follow` wherever it is, no option has two long names, and none is a flag here and a number there."""
    kinds: dict[str, set[str]] = {}
    longs: dict[str, set[str]] = {}
    every = [one for command in COMMANDS.values() for one in options_of(command)]
    for one in every:
        long = [word for word in one.opts if word.startswith("--")]
        assert len(long) <= 1, one.opts
        for word in one.opts:
            kinds.setdefault(word, set()).add("flag" if one.is_flag else "value")
            longs.setdefault(word, set()).add(*long or ["-o"])
    assert len(every) <= OPTIONS_MOST
    assert {word for found in (kinds, longs) for word, meant in found.items() if len(meant) > 1} == set()
    assert all(one.type.choices == output.FORMATS for one in every if "-o" in one.opts)


def test_up_shows_its_usual_options_and_help_all_the_others(capsys):
    assert cli.main(["up", "--help"]) == 0
    short = capsys.readouterr().out
    assert sum(line.startswith("  -") for line in short.splitlines()) <= UP_MOST
    assert cli.main(["up", "--help-all"]) == 0
    long = capsys.readouterr().out
    up = COMMANDS["up"]
    assert all(one.opts[0] in long for one in options_of(up))
    assert all(one.key in long for one in up.settings) and "traffic-triggers" not in short


def settings_command():
    @click.command(cls=SettingsCommand, usual=("many", SET))
    @click.option("--many", type=int)
    @click.option("--rare", type=int, default=1)
    @setting("--gap", type=click.FloatRange(0, 10), default=2.0)
    @setting("--hide", is_flag=True)
    @setting("--path", "paths", multiple=True)
    def command(**given):
        click.echo(json.dumps(given))

    return command


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], {}),
        (["--rare", "3", "--set", "gap=0.5"], {"rare": 3, "gap": 0.5}),
        (
            ["--set", "hide=yes", "--set", "path=a=b", "--set", "path=c"],
            {"hide": True, "paths": ["a=b", "c"]},
        ),
    ],
)
def test_settings_are_given_as_name_and_value(words, expected):
    told = CliRunner().invoke(settings_command(), words, standalone_mode=False, catch_exceptions=False)
    usual = {"many": None, "rare": 1, "gap": 2.0, "hide": False, "paths": []}
    assert json.loads(told.stdout) == usual | expected


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("gpa=1", "unknown setting 'gpa'; did you mean 'gap'?"),
        ("gap", "no value for setting 'gap'"),
        ("gap=11", "Invalid value for --set gap"),
        ("many=1", "unknown setting 'many'"),
        ("--gap", "gap is a setting: write --set gap=VALUE"),
    ],
)
def test_a_wrong_setting_is_named(word, said):
    told = CliRunner().invoke(settings_command(), ["--gap", "1"] if word == "--gap" else ["--set", word])
    assert told.exit_code == 2 and said in told.output
