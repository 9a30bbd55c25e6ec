"""Data in every form: the same rows as JSON, JSON lines, CSV and a table."""

from __future__ import annotations

import csv
import io
import json

import click
import pytest
from click.testing import CliRunner

from headgate.topology_runtime import output
from headgate.topology_runtime.errors import UsageError
from headgate.topology_runtime.output import format_or_folder, split

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
