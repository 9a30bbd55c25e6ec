"""What tasks print, as a controller keeps it and gives it to whoever asks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headgate.controller.files import output_log
from headgate.controller.files.output_log import OutputLog
from headgate.controller.monitor.admission import check, refused_to
from headgate.topology_runtime.errors import BadMessage
from headgate.topology_runtime.keys.key_pairs import Who
from headgate.topology_runtime.wire.messages import Request
from headgate.topology_runtime.wire.output_messages import OutputLine, OutputLines, stands_for

WALL = 1_700_000_000 * 10**9


def said(
    *texts: str, vm: str = "vm1", slot: int = 0, task: str = "parse", thread: int = 3, at_s: int = 0
) -> OutputLines:
    lines = (OutputLine(WALL + at_s * 10**9, slot, task, thread, "out", text) for text in texts)
    return OutputLines(vm, 1, tuple(lines))


def answer(log: OutputLog, **arguments: Any) -> Any:
    reply = log.answer(Request("logs", arguments))
    assert reply is not None
    return reply.data if reply.error is None else reply.error


def texts(log: OutputLog, **arguments: Any) -> list[str]:
    return [line["text"] for line in answer(log, **arguments)["lines"]]


def test_lines_after_the_last_one_seen_come_once() -> None:
    log = OutputLog()
    log.take(said("one", "two"))
    first = answer(log)
    log.take(said("three"))
    assert [line["text"] for line in first["lines"]] == ["one", "two"]
    assert texts(log, after=first["last"]) == ["three"]
    assert texts(log, after=answer(log)["last"]) == []


def test_they_are_of_a_task_a_thread_a_vm_or_a_slot() -> None:
    log = OutputLog()
    log.take(said("a", task="parse", thread=3))
    log.take(said("b", task="parse", thread=4, slot=1))
    log.take(said("c", task="", vm="vm2"))
    found = {
        who: texts(log, who=who) for who in ("parse", "parse/4", "vm1", "vm1/1", "vm2/0", "", "x", "parse/")
    }
    assert found == {
        "parse": ["a", "b"], "parse/4": ["b"], "vm1": ["a", "b"], "vm1/1": ["b"], "vm2/0": ["c"], "": ["a", "b", "c"],
        "x": [], "parse/": [],
    }  # fmt: skip


def test_since_and_last() -> None:
    log = OutputLog()
    for second in range(5):
        log.take(said(str(second), at_s=second))
    assert texts(log, since_ns=WALL + 3 * 10**9) == ["3", "4"]
    assert texts(log, last=2) == ["3", "4"]


def test_many_are_given_page_by_page() -> None:
    log = OutputLog()
    log.take(said(*map(str, range(2_500))))
    found, after = list[str](), 1
    for _ in range(3):
        page = answer(log, after=after)
        found, after = found + [line["text"] for line in page["lines"]], page["last"]
    assert found == list(map(str, range(2_500))) and texts(log, after=after) == []


def test_what_is_kept_is_bounded_and_a_flood_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_log, "monotonic_ns", lambda: 10**18)
    kept: list[Any] = []
    log = OutputLog()
    log.record(lambda rows: kept.extend(map(json.loads, rows)))
    for _ in range(20):
        log.take(said(*["x" * 50] * 2_000))
    monkeypatch.setattr(output_log, "monotonic_ns", lambda: 2 * 10**18)
    log.take(said("after it"))
    assert sum(map(stands_for, kept)) == 40_001
    assert len(kept) < 30_000
    assert len(texts(log)) == output_log.ANSWER_LINES


def test_a_trace_that_begins_late_gets_all_that_came_before() -> None:
    log, kept = OutputLog(), list[Any]()
    log.take(said("early"))
    log.record(lambda rows: kept.extend(map(json.loads, rows)))
    log.take(said("later"))
    assert [line["text"] for line in kept] == ["early", "later"]
    assert kept[0] == {
        "number": kept[0]["number"], "time": "2023-11-14T22:13:20.000000Z", "vm": "vm1", "slot": 0, "task": "parse",
        "thread": 3, "level": "out", "text": "early",
    }  # fmt: skip


def test_what_cannot_be_is_refused_at_the_border() -> None:
    with pytest.raises(BadMessage, match="a slot that cannot be"):
        check(said("x", slot=5_000))
    with pytest.raises(BadMessage, match="too many"):
        check(said(*["x"] * 5_000))
    with pytest.raises(BadMessage, match="too long"):
        check(said("x" * 20_000))
    assert "not understood" in answer(OutputLog(), last="many")[2]
    assert OutputLog().answer(Request("status")) is None
    assert refused_to(Who("viewer", "ann"), "logs") is None
