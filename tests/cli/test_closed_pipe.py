"""Whoever reads what a command prints may be gone before its end (`headgate … | head`): that is no error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from generate_trace import Wanted, generate
from headgate.dashboards.cli import PIPE_CLOSED

HEADGATE = [sys.executable, "-P", "-m", "headgate.dashboards.cli"]
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
