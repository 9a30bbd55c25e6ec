"""`headgate deadletter`: of a controller's answers, and of a trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from headgate.controller.knowledge.dead_letters import DeadLetterQueue
from headgate.dashboards.terminal.deadletter_commands import (
    drop,
    from_trace,
    length,
    list_letters,
    replay,
    rows_from_trace,
    show,
)
from headgate.dashboards.up.up_run import check_dead, next_steps
from headgate.topology_runtime.errors import CheckFailed, HeadgateError
from headgate.topology_runtime.wire.dead_letter_messages import (
    AGAIN_PARTITION,
    END_PARTITION,
    DeadLetter,
    timed_partition,
)
from headgate.topology_runtime.wording import utc_of_us


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """As the recorder writes it: what the controller knew, twice over after a kill."""
    found = DeadLetterQueue()
    for task, partition, position in (("work", 0, 3), ("work", 0, 4), ("score", 0, 4), ("work", 1, 4)):
        found.add(
            DeadLetter(
                task, 1, "source", partition, position, f"row {position}", "ValueError: no", "Traceback\n"
            ),
            0,
        )
    found.drop(2)
    lines = [msgspec.json.encode(record) for record in (*found.news(), *found.whole())]
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "dead_letters.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    return tmp_path


def run(command: Any, *words: str) -> Result:
    return CliRunner().invoke(command, words)


def test_a_trace_tells_what_the_controller_told(trace: Path) -> None:
    found = from_trace(trace)
    assert (found["dead_lettered"], found["dropped"]) == (3, 1)
    assert found["tasks"] == [{"task": "score", "rows": 1, "kept": 1}, {"task": "work", "rows": 3, "kept": 2}]
    assert [(one["id"], one["task"], one["position"]) for one in found["letters"]] == [
        (1, "work", 3), (3, "score", 4), (4, "work", 4),
    ]  # fmt: skip


def test_list_in_every_form(trace: Path) -> None:
    where = ("--trace", str(trace))
    document = json.loads(run(list_letters, *where, "-o", "json").stdout)
    assert document["schema"] == "headgate/deadletters/v1" and document["dead_lettered"] == 3
    assert set(document["letters"][0]) == {
        "id", "time", "task", "of", "source", "partition", "position", "n", "error",
    }  # fmt: skip
    lines = run(list_letters, *where, "-o", "jsonl", "--task", "score").stdout.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [3]
    csv = run(list_letters, *where, "-o", "csv").stdout.splitlines()
    assert csv[0] == "id,time,task,of,source,partition,position,n,error" and len(csv) == 4
    table = run(list_letters, *where).stdout
    assert "3 rows are dead letters: score 1 (1 kept); work 3 (2 kept); 1 dropped" in table


def test_show_has_row_and_traceback(trace: Path) -> None:
    said = run(show, "3", "--trace", str(trace)).stdout
    assert "score failed on row 4 of source" in said and "row 4\n" in said and "Traceback" in said
    document = json.loads(run(show, "3", "--trace", str(trace), "-o", "json").stdout)
    assert (document["schema"], document["row"]) == ("headgate/deadletter/v1", "row 4")


def test_unknown_ids_and_what_is_no_trace_end_3(trace: Path, tmp_path: Path) -> None:
    for result in (run(show, "2", "--trace", str(trace)), run(list_letters, "--trace", str(tmp_path / "no"))):
        assert isinstance(result.exception, HeadgateError) and result.exception.exit_code == 3


def test_drop_wants_to_know_which() -> None:
    for words in ((), ("1", "--all"), ("--task", "work", "--all")):
        result = run(drop, *words)
        assert isinstance(result.exception, HeadgateError) and result.exception.exit_code == 2


def test_a_trace_of_letters_that_were_sent_again(tmp_path: Path) -> None:
    found = DeadLetterQueue()
    for position in range(4):
        found.add(
            DeadLetter("work", 1, "source", 0, position, "row", "ValueError: no", "T", 3, "before", 0, b"x"),
            0,
        )
    for number in (1, 2):
        found.ask(number)
    found.done_again(1)
    again = DeadLetter("work", 1, "source", AGAIN_PARTITION, 2, "", "ValueError: still", "T", again=2)
    found.add(again, 0)
    found.drop(3)
    lines = [msgspec.json.encode(record) for record in found.news()]
    (tmp_path / "dead_letters.jsonl").write_bytes(b"\n".join(lines))
    told = from_trace(tmp_path)
    assert (told["dead_lettered"], told["replayed"], told["dropped"]) == (4, 1, 1)
    assert [(one["id"], one["error"]) for one in told["letters"]] == [
        (2, "ValueError: still"), (4, "ValueError: no"),
    ]  # fmt: skip
    first = rows_from_trace(tmp_path)[0]
    assert (first["number"], first["feeder"], first["variant"], first["data"]) == (2, "before", 3, "eA==")


def test_replay_wants_to_know_which() -> None:
    for words in ((), ("1", "--all"), ("--task", "work", "--all"), ("--trace", "x", "1", "--all")):
        result = run(replay, *words)
        assert isinstance(result.exception, HeadgateError) and result.exception.exit_code == 2


@pytest.mark.parametrize(
    ("words", "what", "hint"),
    [
        (("9",), "unknown dead letter 9 in", "headgate deadletter list --trace"),
        (("--task", "nobody"), "there is no dead letter of nobody in", "leave --task out"),
        ((), "dead letter 1 of", "--skip-unreadable"),
    ],
)
def test_what_a_trace_has_not_is_refused(trace: Path, words: tuple[str, ...], what: str, hint: str) -> None:
    result = run(replay, "--trace", str(trace), *words)
    error = result.exception
    assert isinstance(error, HeadgateError) and error.exit_code == 3
    assert error.what.startswith(what) and hint in (error.hint or "")


def test_no_controller_is_exit_5(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(list_letters)
    assert isinstance(result.exception, HeadgateError) and result.exception.exit_code == 5


def test_the_length_of_intervals_that_overlap() -> None:
    assert length([]) == 0 and length([(0, 2), (1, 5), (3, 4), (9, 10), (5, 6)]) == 7


def summary(acked: int, dead: int) -> dict[str, Any]:
    return {"tuples": {"acked": acked, "dead_lettered": dead}, "trace": "traces/t/r"}


def test_a_run_of_dead_rows_alone_fails_its_check() -> None:
    check_dead(summary(0, 0), 1.0)
    check_dead(summary(1, 999), 1.0)
    with pytest.raises(CheckFailed, match="every row became a dead letter: 9 of 9") as failed:
        check_dead(summary(0, 9), 1.0)
    assert failed.value.exit_code == 8 and "--trace traces/t/r" in (failed.value.hint or "")
    check_dead(summary(6, 4), 0.41)
    with pytest.raises(CheckFailed, match="40% of the rows"):
        check_dead(summary(6, 4), 0.4)
    check_dead({**summary(0, 9), "letters": {"mended": 9}}, 1.0)

    def first(dead: int, keys: int) -> str:
        return next_steps(Path("x"), {"tuples": {"dead_lettered": dead}, "letters": {"keys": keys}})[0]

    assert first(4, 0) == "dead letters of 4 rows: headgate deadletter list --trace x"
    assert first(0, 1).startswith("dead letters of 1 call of `on_timer` or `finish`: ")
    assert first(1, 2).startswith("dead letters of 1 row and 2 calls of `on_timer` or `finish`: ")


def test_what_timers_and_ends_are_of_is_told_by_task_key_and_time_and_not_by_numbers(tmp_path: Path) -> None:
    found = DeadLetterQueue()
    timer = "timer at 2026-09-21T14:13:20.000000Z of key 'cart'"
    at = timed_partition(3, 500)
    found.add(DeadLetter("minutes", 1, "in", at, 1 << 32, timer, "ValueError: no", "T"), 0)
    found.add(DeadLetter("sums", 1, "in", END_PARTITION + 2, 7, "finish of key 'k'", "E: no", "T", 1), 0)
    given = DeadLetter("store", 1, "in", at, 5 << 32, "{'n': 1}", "E: no", "T", 0, "minutes", 0, b"x")
    found.add(given, 0)
    found.add(DeadLetter("parse", 1, "in", 0, 17, "x", "E: no", "T", 0, "in"), 0)
    (tmp_path / "dead_letters.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, found.news())))
    where = ("--trace", str(tmp_path))
    letters = json.loads(run(list_letters, *where, "-o", "json").stdout)["letters"]
    assert [one["of"] for one in letters] == [
        timer,
        "finish of key 'k'",
        "a row of minutes that came of a timer",
        "row 17 of in, partition 0",
    ]
    places = [(one["source"], one["partition"], one["position"]) for one in letters]
    assert places == [(None, None, None)] * 3 + [("in", 0, 17)]
    table = run(list_letters, *where).stdout
    assert str(at) not in table and str(1 << 32) not in table and "'cart'" in table
    said = run(show, "1", *where).stdout
    assert said.startswith(f"dead letter 1: minutes failed on {timer}, at ")


@pytest.mark.parametrize(
    ("at_us", "text"),
    [
        (1_790_000_000_500_000, "2026-09-21T14:13:20.500000Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (1 << 60, "1,152,921,504,606,846,976 µs since 1970"),
    ],
)
def test_the_time_of_a_timer_is_a_date_where_it_is_one(at_us: int, text: str) -> None:
    assert utc_of_us(at_us) == text
