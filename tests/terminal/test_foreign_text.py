"""What others wrote – user code, services, files – as people see it, and numbers and encodings that are none."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable

import click
import pytest
from click.testing import CliRunner

from headgate.controller.knowledge.knowledge import ControllerSettings, Knowledge, Turn
from headgate.controller.knowledge.loop_events import Now
from headgate.dashboards.report.report_page import safe_json
from headgate.dashboards.report.report_wording import seen
from headgate.topology_runtime.commands import output
from headgate.topology_runtime.commands.number_options import Number
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.platform.containment import explained
from headgate.topology_runtime.wording import one_line, visible
from headgate.topology_runtime.worker.calls.attempts import failure, shown

NASTY = "a\x1b[2J\r\x07\x9b1m\u202eb\u2028c\ud800\x00"
SAFE = set("\n\t")


def is_seen(text: str) -> bool:
    return all(letter in SAFE or letter.isprintable() for letter in text) and text.encode() != b""


class Nasty:
    def __repr__(self) -> str:
        return NASTY


def printed(show: Callable[[], object]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        show()
    return out.getvalue()


ROWS = [{"what": NASTY + "\nd"}]
BORDERS: dict[str, Callable[[], str]] = {
    "visible": lambda: visible(NASTY),
    "a line": lambda: one_line(NASTY + "\n\t"),
    "an error": lambda: "\n".join(InvalidInput(NASTY, cause=NASTY, hint=NASTY, faults=[NASTY]).lines()),
    "a dead letter": lambda: failure(0, ValueError(NASTY)).error + failure(0, ValueError(NASTY)).traceback,
    "a row": lambda: shown(Nasty(), 100),
    "an open that fails": lambda: explained(ValueError(NASTY)),
    "a table": lambda: printed(lambda: output.emit("table", {}, ROWS)),
    "csv": lambda: printed(lambda: output.emit("csv", {}, ROWS)),
    "json": lambda: printed(lambda: output.emit("json", {"what": NASTY}, [])),
    "json lines": lambda: printed(lambda: output.emit("jsonl", {}, ROWS)),
    "an answer": lambda: printed(lambda: output.answer("table", "", {}, NASTY)),
    "the report": lambda: str(seen(NASTY)),
    "a figure of the report": lambda: safe_json([NASTY]),
}


@pytest.mark.parametrize("border", BORDERS.values(), ids=BORDERS)
def test_nothing_moves_a_cursor_or_turns_text_round(border: Callable[[], str]) -> None:
    text = border()
    assert "a" in text and is_seen(text), repr(text)


def test_what_programs_read_is_what_was_said() -> None:
    said = printed(lambda: output.emit("json", {"what": NASTY + "é"}, []))
    assert json.loads(said) == {"what": NASTY + "é"}
    assert list(csv.DictReader(io.StringIO(BORDERS["csv"]()))) == [{"what": visible(ROWS[0]["what"])}]


def test_events_alarms_and_decisions_are_lines() -> None:
    turn = Turn(Knowledge(ControllerSettings("run")), Now(1, 1))
    turn.event("disk", NASTY + "\nd")
    turn.alarm("task", NASTY + "\nd")
    turn.decided({"action": "plan", "text": NASTY + "\nd"})
    k = turn.knowledge
    assert k.last_decision is not None
    texts = [k.last_decision["text"], *k.alarms.values(), *(event["text"] for event in k.events)]
    assert len(texts) == 4 and all(is_seen(text) and "\n" not in text for text in texts)


ERRORS = [lambda line: failure(0, ValueError(line)).error, lambda line: explained(OSError(line))]


@pytest.mark.parametrize("make", ERRORS, ids=["row", "call"])
def test_a_message_of_several_lines_stays_one(make: Callable[[str], str]) -> None:
    assert "\n" not in make("one\ntwo") and "one\\ntwo" in make("one\ntwo")


# ── any encoding ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("more", [["100"], ["1e6", "--vms", "1"]], ids=["fits", "does not"])
@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_every_encoding_of_stdout_will_do(more: list[str], form: str) -> None:
    env = {
        **os.environ,
        "PYTHONIOENCODING": "ascii",
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
    }
    command = [sys.executable, "-P", "-m", "headgate", "plan", "linear", "--rate", *more, "-o", form]
    done = subprocess.run(command, capture_output=True, env=env, check=False)
    assert done.returncode in (0, 4) and (done.stdout + done.stderr).isascii()
    assert b"UnicodeEncodeError" not in done.stderr
    if form == "json" and done.stdout:
        json.loads(done.stdout)


# ── numbers ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("text", ["nan", "NaN", "-nan", "inf", "-inf", "1e999"])
@pytest.mark.parametrize("kind", [Number(), Number(0), Number(0, 9), Number(0, min_open=True)])
def test_what_is_not_finite_is_no_number(kind: Number, text: str) -> None:
    with pytest.raises(click.BadParameter):
        kind.convert(text, None, None)
    assert kind.convert("2.5", None, None) == 2.5


def test_infinity_where_it_means_something() -> None:
    kind = Number(0, infinite=True)
    assert math.isinf(kind.convert("inf", None, None))
    with pytest.raises(click.BadParameter):
        kind.convert("nan", None, None)


def test_a_number_without_bounds_tells_none() -> None:
    @click.command()
    @click.option("--x", type=Number(), help="It.")
    def command(x: float) -> None:
        click.echo(x)

    told = CliRunner().invoke(command, ["--help"]).output
    assert "--x FLOAT" in told and "None" not in told
