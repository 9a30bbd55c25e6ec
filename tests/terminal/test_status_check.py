"""`headgate status --check`, and what a shell completes of the commands of the terminal."""

from __future__ import annotations

import pytest
from test_top_rows import FIRST, STABLE

from headgate.dashboards import cli
from headgate.dashboards.terminal.status import check_stable, print_status
from headgate.topology_runtime.errors import CheckFailed


def test_a_stable_topology_passes():
    check_stable(STABLE.status)


@pytest.mark.parametrize(
    "verdict", [{"verdict": "unstable", "text": "latency grows"}, {"verdict": "unknown"}, None]
)
def test_any_other_verdict_ends_8_and_says_why(verdict):
    with pytest.raises(CheckFailed) as caught:
        check_stable({**FIRST.status, "verdict": verdict})
    assert caught.value.exit_code == 8
    assert (verdict or {}).get("text") == caught.value.cause


def test_at_80_columns_every_task_has_a_line_with_all_its_figures(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    print_status(STABLE.status)
    lines = capsys.readouterr().out.splitlines()
    head = next(n for n, line in enumerate(lines) if line.startswith("task "))
    assert " ".join(lines[head].split()) == "task threads in/s out/s queue busy p50 ms p99 ms cores"
    for number, task in enumerate(STABLE.status["tasks"], start=1):
        words = lines[head + number].split()
        assert words[0] == task["task"]
        assert len(words) == 9


def completed(monkeypatch, capsys, words: str) -> str:
    for name, value in (
        ("_HEADGATE_COMPLETE", "bash_complete"),
        ("COMP_WORDS", words),
        ("COMP_CWORD", str(len(words.split(" ")) - 1)),
    ):
        monkeypatch.setenv(name, value)
    cli.main([])
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("headgate to", "plain,top"),
        ("headgate top --contr", "plain,--controller"),
        ("headgate status --ch", "plain,--check"),
        ("headgate up --metr", "plain,--metrics"),
        ("headgate controller run --metrics-p", "plain,--metrics-port"),
        ("headgate agent run --metrics-h", "plain,--metrics-host"),
    ],
)
def test_a_shell_completes_commands_and_options(monkeypatch, capsys, words, found):
    assert found in completed(monkeypatch, capsys, words).split()
