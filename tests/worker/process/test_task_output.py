"""What a task prints is its thread's, costs little however much it is, and never fails."""

from __future__ import annotations

import io
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.topology_runtime.wire.output_messages import CUT, LINE_MOST, OutputLine, lines_in, stands_for
from headgate.topology_runtime.worker.process.task_output import LastResort, TaskOutput, TaskStream


class Log:
    """A slot's log, and the two streams of its worker."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self.output = TaskOutput(self.fd)
        self.beneath = io.StringIO()
        self.out = TaskStream(self.output, "out", self.beneath)
        self.err = TaskStream(self.output, "err", self.beneath)

    @property
    def lines(self) -> list[OutputLine]:
        data = os.pread(self.fd, 1 << 26, 0)
        return [line for row in data.split(b"\n") for line in lines_in(row, 0, 1 << 61)]

    @property
    def said(self) -> list[tuple[str, str, str]]:
        return [(f"{line.task}/{line.thread}", line.level, line.text) for line in self.lines]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = Log(tmp_path / "worker-0.log")
    yield log
    os.close(log.fd)


def test_each_thread_says_its_own_lines_and_half_a_line_waits_for_its_end(log: Log) -> None:
    turns = threading.Barrier(2)

    def speak(task: str, thread: int) -> None:
        log.output.speak_as(task, thread)
        for piece in ("half of ", f"{task}'s line", "\n"):
            turns.wait(5)
            print(piece, end="", file=log.out, flush=True)
        log.output.over()

    threads = [threading.Thread(target=speak, args=one) for one in (("parse", 3), ("mean", 8))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    print("not of a task", file=log.out)
    assert sorted(log.said) == [
        ("mean/8", "out", "half of mean's line"),
        ("parse/3", "out", "half of parse's line"),
    ]
    assert log.beneath.getvalue() == "not of a task\n"


def test_what_a_thread_leaves_without_an_end_is_said_when_it_ends(log: Log) -> None:
    log.output.speak_as("parse", 3)
    print("no end", end="", file=log.err)
    assert log.said == []
    log.output.over()
    assert log.said == [("parse/3", "err", "no end")]


def test_lines_without_end_and_characters_of_all_kinds_are_taken(log: Log) -> None:
    log.output.speak_as("parse", 3)
    print("x" * 100_000, file=log.out)
    print("nul \x00, mark \x1e, half a pair \udcff, ä\r", file=log.out)
    for _ in range(10):
        print("y" * LINE_MOST, end="", file=log.out)
    print(file=log.out)
    texts = [text for _, _, text in log.said]
    assert texts[0] == "x" * (LINE_MOST - len(CUT)) + CUT
    assert texts[1] == "nul \x00, mark \x1e, half a pair \\udcff, ä"
    assert texts[2].startswith("y" * 3_000) and texts[2].endswith(CUT) and len(texts) == 4


def test_beyond_the_budget_every_line_is_counted(log: Log) -> None:
    log.output.speak_as("parse", 3)
    for number in range(30_000):
        print("line", number, file=log.out)
    log.output.over()
    lines = [{"level": line.level, "text": line.text} for line in log.lines]
    assert sum(map(stands_for, lines)) == 30_000
    assert len(lines) < 20_000
    assert [line["text"] for line in lines[:2]] == ["line 0", "line 1"]


def test_a_full_disk_costs_lines_which_are_counted_and_never_raises(log: Log) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    room, output = os.dup(log.fd), log.output
    os.dup2(full, log.fd)
    output.speak_as("parse", 3)
    for number in range(7):
        print(number, file=log.out)
    os.dup2(room, log.fd)
    print("room again", file=log.out)
    assert [text for _, _, text in log.said] == ["… 7 lines more", "room again"]
    os.close(full)
    os.close(room)


def test_a_line_lent_to_another_thread_is_the_tasks_own(log: Log) -> None:
    """A chained thread is run by the one that sends to it."""
    other = threading.Thread(target=lambda: speakers.append(log.output.speak_as("mean", 8)))
    speakers: list[object] = []
    other.start()
    other.join(5)
    log.output.speak_as("parse", 3)
    before = log.output.lend(speakers[0])  # type: ignore[arg-type]
    print("of mean", file=log.out)
    log.output.lend(before)
    print("of parse", file=log.out)
    assert log.said == [("mean/8", "out", "of mean"), ("parse/3", "out", "of parse")]


def test_warnings_without_a_handler_keep_their_level_and_traceback(log: Log) -> None:
    log.output.speak_as("parse", 3)
    try:
        raise ValueError("bad row")
    except ValueError:
        entry = logging.LogRecord(
            "user", logging.ERROR, "f.py", 1, "row %d", (7,), __import__("sys").exc_info()
        )
    LastResort(log.output).handle(entry)
    assert log.said[0] == ("parse/3", "error", "row 7")
    assert log.said[-1] == ("parse/3", "error", "ValueError: bad row")


def test_a_users_own_handler_writes_as_it_is_told(log: Log) -> None:
    log.output.speak_as("parse", 3)
    user = logging.Logger("user")
    handler = logging.StreamHandler(log.err)
    handler.setFormatter(logging.Formatter("%(levelname)s of %(name)s: %(message)s"))
    user.addHandler(handler)
    user.info("seen %d", 5)
    assert log.said == [("parse/3", "err", "INFO of user: seen 5")]


def test_what_is_no_text_is_refused_as_python_does(log: Log) -> None:
    log.output.speak_as("parse", 3)
    with pytest.raises(TypeError, match="argument must be str, not bytes"):
        log.out.write(b"bytes")  # type: ignore[arg-type]


def test_words_of_c_code_and_broken_records_are_the_slots(log: Log) -> None:
    os.write(log.fd, b"from C, no end")
    log.output.speak_as("parse", 3)
    print("from Python", file=log.out)
    os.write(log.fd, b"\x1e{broken\n\xff\n\n")
    assert log.said == [
        ("/0", "err", "from C, no end"),
        ("parse/3", "out", "from Python"),
        ("/0", "err", "{broken"),
        ("/0", "err", "\\xff"),
    ]
