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
def test_help_shows_groups_of_few_commands(words, capsys):
    assert cli.main(list(words)) == 0
    text = capsys.readouterr().out
    assert all(f"\n{heading}:\n" in text for heading in ("Run", "Look", "Operate", "Plan", "Data", "Lab"))
    listed = [line.split()[0] for line in text.splitlines() if line.startswith("  ") and line[2].islower()]
    commands = listed[listed.index("up") : listed.index("package") + 1]
    assert commands == [name for names in cli.SHOWN.values() for name in names] and len(commands) <= 30
    assert all(len(line) <= 110 for line in text.splitlines())


def test_help_all_lists_every_command(capsys):
    assert cli.main(["--help-all"]) == 0
    text = capsys.readouterr().out
    for name, (_, about) in cli.COMMANDS.items():
        assert f"  {name} " in text and about in text


def test_what_the_help_shows_is_there():
    for name in (name for names in cli.SHOWN.values() for name in names):
        assert name in cli.COMMANDS or (name in cli.GROUPS and cli.below(name))


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
        ("topolgy show", "topology show"),
        ("lab sesaon learn", "lab season learn"),
    ],
)
def test_unknown_command_names_the_nearest(typed, meant, capsys):
    assert cli.main(typed.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[0].startswith("error[HG-USAGE]: unknown command")
    assert f"try: use `headgate {meant}`" in captured.err


def test_unknown_command_without_a_near_one(capsys):
    assert cli.main(["xyzzy"]) == 2
    assert "see `headgate --help`" in capsys.readouterr().err


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


# ── One spelling per option, few options, and those that few need out of the way ────────────────────────

OPTIONS_MOST, UP_MOST = 300, 20
REPLACED = (
    "predict",
    "compare",
    "whatif",
    "controller capacity",
    "ledger list",
    "ledger models",
    "ledger show",
)
COMMANDS = {name: cli.load(name) for name in cli.COMMANDS}


def options_of(command: click.Command) -> list[click.Option]:
    return [one for one in command.params if isinstance(one, click.Option)]


def test_there_are_few_options():
    assert sum(len(options_of(one)) for name, one in COMMANDS.items() if name not in REPLACED) <= OPTIONS_MOST


def test_an_option_has_one_kind_of_value_everywhere():
    """A flag here and a number there would be two meanings under one name."""
    kinds: dict[str, set[str]] = {}
    for command in COMMANDS.values():
        for one in options_of(command):
            for word in one.opts:
                kinds.setdefault(word, set()).add("flag" if one.is_flag else "value")
    assert {word: found for word, found in kinds.items() if len(found) > 1} == {}


def test_every_spelling_belongs_to_one_option():
    """`-f` is `--follow` wherever it is, and no option has two long names."""
    longs: dict[str, set[str]] = {}
    for command in COMMANDS.values():
        for one in options_of(command):
            long = [word for word in one.opts if word.startswith("--")]
            assert len(long) <= 1, one.opts
            for word in one.opts:
                longs.setdefault(word, set()).add(*long or ["-o"])
    assert all(len(found) == 1 for found in longs.values())


def test_what_prints_data_has_its_formats():
    for name, command in COMMANDS.items():
        formats = [one for one in options_of(command) if "-o" in one.opts]
        assert all(one.type.choices == output.FORMATS for one in formats), name


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
        ([], {"many": None, "rare": 1, "gap": 2.0, "hide": False, "paths": []}),
        (
            ["--rare", "3", "--set", "gap=0.5"],
            {"many": None, "rare": 3, "gap": 0.5, "hide": False, "paths": []},
        ),
        (
            ["--set", "hide=yes", "--set", "path=a=b", "--set", "path=c"],
            {"many": None, "rare": 1, "gap": 2.0, "hide": True, "paths": ["a=b", "c"]},
        ),
    ],
)
def test_settings_are_given_as_name_and_value(words, expected):
    told = CliRunner().invoke(settings_command(), words, standalone_mode=False, catch_exceptions=False)
    assert json.loads(told.stdout) == expected


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("gpa=1", "unknown setting 'gpa'; did you mean 'gap'?"),
        ("gap", "no value for setting 'gap'"),
        ("gap=11", "Invalid value for --set gap"),
        ("many=1", "unknown setting 'many'"),
    ],
)
def test_a_wrong_setting_is_named(word, said):
    told = CliRunner().invoke(settings_command(), ["--set", word])
    assert told.exit_code == 2 and said in told.output


def test_a_setting_that_is_given_as_an_option_is_explained():
    told = CliRunner().invoke(settings_command(), ["--gap", "1"])
    assert told.exit_code == 2 and "gap is a setting: write --set gap=VALUE" in told.output
