"""Who is asked for the state of a key, and what whoever wanted to know is told."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from headgate.controller.monitor.admission import check
from headgate.controller.monitor.state_questions import OPEN_MOST, WAIT_NS, StateQuestions
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import KEY_RANGES, Edge, Static, Task, Topology
from headgate.topology_runtime.errors import BadMessage, HeadgateError
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.state_questions import KEY_MOST, STATE_MOST
from headgate.topology_runtime.worker.calls.router import range_of
from headgate.topology_runtime.worker.keyed_state.state_snapshots import timers_written
from headgate.topology_runtime.worker.rows import row_values as wire

HALF = KEY_RANGES // 2
LEFT, RIGHT = Slot("vm1", 0), Slot("vm2", 3)
TOPOLOGY = Topology(
    "counted",
    (
        Task("source", kind="source", static=Static(1, 0.1, 0.1)),
        Task("count", kind="keyed", state="keyed", state_version=3),
        Task("quiet", kind="keyed", state="keyed", timed=True),
    ),
    (
        Edge("source", "count", grouping="fields", key=0),
        Edge("count", "quiet", grouping="fields", key=0),
    ),
)
THREADS = (
    m.ThreadSpec(1, "source", LEFT),
    m.ThreadSpec(4, "count", LEFT),
    m.ThreadSpec(5, "count", RIGHT),
    m.ThreadSpec(6, "quiet", RIGHT),
)
ROUTES = (
    m.Route(0, ((4, 0.5), (5, 0.5)), ((4, HALF), (5, HALF))),
    m.Route(1, ((6, 1.0),), ((6, KEY_RANGES),)),
)
DESIRED = m.DesiredState(m.Token(1, 1), "committed", "run", TOPOLOGY, (), THREADS, 2, ROUTES)
WORDS = [f"k{n}" for n in range(99)]
KEYS = {4: next(w for w in WORDS if range_of(w) < HALF), 5: next(w for w in WORDS if range_of(w) >= HALF)}


def questions(desired: m.DesiredState | None = DESIRED) -> StateQuestions:
    made = StateQuestions(100)
    made.desired = desired
    return made


def answered(
    question: m.StateQuestion, outcome: Any = "found", saved: Any = None, **more: Any
) -> m.StateAnswer:
    data = wire.write([saved], wire.NESTED) if outcome == "found" else b""
    slot = question.slot
    return m.StateAnswer(
        slot.vm, slot, 1, question.number, question.thread, outcome, data, wall_ns=10**18, **more
    )


def told(task: str, key: str, **how: Any) -> Any:
    asking = questions()
    ((_, question),) = asking.ask(7, {"task": task, "key": key}, 0)
    request, reply = asking.hear(answered(question, **how)) or (0, m.Reply())
    assert request == 7
    return reply


@pytest.mark.parametrize(("thread", "slot"), [(4, LEFT), (5, RIGHT)])
def test_the_thread_that_has_the_range_is_asked_and_its_answer_is_told(thread: int, slot: Slot) -> None:
    asking, key = questions(), KEYS[thread]
    ((vm, question),) = asking.ask(7, {"task": "count", "key": key}, 0)
    assert (vm, question.slot, question.thread, question.key_range) == (slot.vm, slot, thread, range_of(key))
    assert wire.read(question.key, wire.NESTED) == [key]
    assert asking.hear(answered(question, saved={"rows": 3, "by": {1: b"x"}})) == (
        7,
        m.Reply(
            {
                "schema": "headgate/state/v1", "task": "count", "key": key, "range": range_of(key),
                "thread": thread, "vm": slot.vm, "slot": slot.number, "asked": "2001-09-09T01:46:40.000000Z",
                "state_version": 3, "state": {"rows": 3, "by": [[1, "eA=="]]}, "timers": [],
            }
        ),
    )  # fmt: skip
    assert asking.hear(answered(question)) is None, "nobody waits any more"


def test_timers_are_told_the_earliest_first() -> None:
    saved = [5, timers_written([(20, "b"), (10, "")]), timers_written([(15, "c")])]
    data = told("quiet", "a", saved=saved).data
    assert data["state"] == 5 and [(t["at_us"], t["name"], t["by_clock"]) for t in data["timers"]] == [
        (10, "", False), (15, "c", True), (20, "b", False),
    ]  # fmt: skip
    assert "has no state" in told("quiet", "a", saved=None).error[2], "it is forgotten"


def test_a_key_is_json_and_a_text_that_is_none_is_itself() -> None:
    for text, key in (
        ("17", 17),
        ('"17"', "17"),
        ("a b", "a b"),
        ('["a", [1, null]]', ("a", (1, None))),
        ("1.0", 1.0),
    ):
        ((_, question),) = questions().ask(1, {"task": "quiet", "key": text}, 0)
        (found,) = wire.read(question.key, wire.NESTED)
        assert (found, type(found)) == (key, type(key))


def refused(
    desired: m.DesiredState | None, task: str = "count", key: str = "a", **more: Any
) -> HeadgateError:
    with pytest.raises(HeadgateError) as error:
        questions(desired).ask(1, {"task": task, "key": key, **more}, 0)
    return error.value


def test_what_cannot_be_asked_is_refused_in_words() -> None:
    for error, what, code in (
        (refused(DESIRED, "sum"), "there is no task sum", 3),
        (refused(DESIRED, "source"), "source has no state per key", 3),
        (refused(DESIRED, key='{"a": 1}'), "is no key", 3),
        (refused(DESIRED, key='{"date": "soon"}'), "is no key", 3),
        (refused(DESIRED, key=str(1 << 70)), "is no key", 3),
        (refused(DESIRED, key="x" * (KEY_MOST + 1)), "too long", 3),
        (refused(None), "nothing runs yet", 6),
        (refused(replace(DESIRED, routes=())), "nothing runs yet", 6),
        (refused(replace(DESIRED, threads=THREADS[:1])), "is moving right now", 6),
    ):
        assert what in error.what and error.exit_code == code and (error.cause or error.hint)


@pytest.mark.parametrize(
    ("how", "what", "code"),
    [
        ({"outcome": "none"}, "count has no state of key", 3),
        ({"outcome": "elsewhere"}, "is moving right now", 6),
        ({"outcome": "large"}, "too large", 3),
        ({"outcome": "failed", "why": "OSError: no"}, "cannot be saved", 1),
    ],
)
def test_what_is_not_to_be_had_is_said_with_its_exit_code(how: dict[str, Any], what: str, code: int) -> None:
    reply = told("count", "a", **how)
    assert what in reply.error[2] and reply.error[1] == code


def test_bytes_that_are_no_state_cost_the_answer_alone() -> None:
    asking = questions()
    for bad in (b"", b"\xc1", wire.write([3], wire.NESTED), wire.write([], wire.NESTED), b"\x91" * 100_000):
        ((_, question),) = asking.ask(1, {"task": "quiet", "key": "a"}, 0)
        _, reply = asking.hear(replace(answered(question), saved=bad)) or (0, m.Reply())
        assert reply.error is not None and "cannot be read" in reply.error[2]


def test_while_ranges_move_all_who_may_have_it_are_asked_and_the_owner_answers() -> None:
    key = KEYS[5]
    before = m.Keepers("count", 1, ((4, KEY_RANGES),), True)
    for first in (4, 5):
        asking = questions(replace(DESIRED, phase="switched", keepers=(before,)))
        found = {question.thread: question for _, question in asking.ask(7, {"task": "count", "key": key}, 0)}
        assert found.keys() == {4, 5}
        assert asking.hear(answered(found[9 - first], "elsewhere")) is None
        _, reply = asking.hear(answered(found[first], saved=1)) or (0, m.Reply())
        assert reply.data["thread"] == first
    asking = questions(replace(DESIRED, phase="switched", keepers=(before,)))
    found = {question.thread: question for _, question in asking.ask(7, {"task": "count", "key": key}, 0)}
    assert asking.hear(answered(found[4], "elsewhere")) is None
    _, reply = asking.hear(answered(found[5], "elsewhere")) or (0, m.Reply())
    assert reply.error is not None and "moving right now" in reply.error[2]


def test_who_does_not_answer_is_waited_for_no_longer_than_so_long() -> None:
    asking = questions()
    ((_, question),) = asking.ask(7, {"task": "count", "key": KEYS[5]}, 0)
    assert list(asking.over(WAIT_NS - 1)) == []
    ((request, reply),) = asking.over(WAIT_NS)
    assert request == 7 and reply.error is not None and reply.error[1] == 5
    assert "thread 5 in vm2/3 of count has not answered" in reply.error[2]
    assert asking.hear(answered(question)) is None and list(asking.over(10 * WAIT_NS)) == []


def test_nobody_answers_for_another_and_questions_are_few() -> None:
    asking = questions()
    ((_, question),) = asking.ask(7, {"task": "count", "key": KEYS[5]}, 0)
    right = answered(question, saved=1)
    for wrong in (
        replace(right, thread=4),
        replace(right, vm="vm1"),
        replace(right, slot=LEFT),
        replace(right, number=1),
    ):
        assert asking.hear(wrong) is None
    for _ in range(OPEN_MOST - 1):
        asking.ask(8, {"task": "count", "key": "a"}, 0)
    with pytest.raises(HeadgateError, match="are open"):
        asking.ask(9, {"task": "count", "key": "a"}, 0)
    assert asking.hear(right) is not None
    asking.ask(9, {"task": "count", "key": "a"}, 0)


def test_an_answer_that_cannot_be_is_not_let_in() -> None:
    good = m.StateAnswer("vm1", LEFT, 1, 1, 4, "found", b"x" * STATE_MOST)
    check(good)
    for bad in (
        replace(good, saved=b"x" * (STATE_MOST + 1)),
        replace(good, vm="vm2"),
        replace(good, slot=Slot("vm1", 5000)),
        replace(good, why="x" * 20_000),
    ):
        with pytest.raises(BadMessage):
            check(bad)
