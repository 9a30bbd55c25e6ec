"""`finish` of keyed tasks: the word that the input has ended is a row of its range, and counts once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from keyed_rows_made import HERE, keyed_rows, sent

from headgate.topology_runtime.api.logic import Keyed
from headgate.topology_runtime.api.topology import KEY_RANGES
from headgate.topology_runtime.wire.dead_letter_messages import END_PARTITION
from headgate.topology_runtime.wire.messages import Ack, Frame, RootKey, RootPart
from headgate.topology_runtime.worker.calls.router import range_of
from headgate.topology_runtime.worker.keyed_state.key_ranges import Standing
from headgate.topology_runtime.worker.keyed_state.keyed_rows import KeyedRows

TASK, EDGE, ID = 2, 3, 0xF00


class Sums(Keyed):
    def __init__(self) -> None:
        self.finished: list[Any] = []

    def new(self, key: Hashable) -> int:
        return 0

    def process(self, key: Hashable, row: Any, state: int) -> tuple[int, Iterable[Any]]:
        return state + row[1], ()

    def finish(self, key: Hashable, state: int) -> Iterable[Any]:
        self.finished.append(key)
        if key == "bad":
            raise ValueError("no")
        return [(key, state)]


def made(logic: Sums) -> KeyedRows:
    return keyed_rows(logic, lambda row: row[0])


def rows(task: KeyedRows, *some: tuple[str, int], position: int = 0) -> None:
    root = RootPart(RootKey(1, 1, position, 0), HERE, 0, 0, position, 0, 0, ID)
    task.take(Frame(EDGE, 1, HERE, 1, 5, [root], [(0, 0, len(some), 0)], list(some), 0, 0), 0)


def end(task: KeyedRows, key_range: int, attempt: int = 0, thread: int = 1) -> list[Ack]:
    """The word for one range."""
    key = RootKey(thread, 1, 1_000 + key_range, attempt)
    root = RootPart(key, HERE, 0, END_PARTITION + TASK, key_range, 0, 0, ID)
    frame = Frame(EDGE, 1, HERE, 1, 5, [root], [(0, 0, 1, 0)], [key_range], 0, 0)
    return [ack for _, ack in task.take(frame, 0)]


def test_every_key_gives_its_last_rows_once_however_often_the_word_comes() -> None:
    task = made(logic := Sums())
    rows(task, ("a", 1), ("b", 2), ("a", 3))
    for attempt, thread in ((0, 1), (1, 1), (0, 7)):  # again, and of another source thread
        for key_range in range(KEY_RANGES):
            end(task, key_range, attempt, thread)
        assert sorted(sent(task)) == [("a", 4), ("b", 2)], "what came of it goes out again"
    assert sorted(logic.finished) == ["a", "b"], "and no key is finished twice"


def test_the_word_stays_open_until_a_snapshot_has_what_came_of_it() -> None:
    task = made(Sums())
    rows(task, ("a", 1))
    (ack,) = end(task, range_of("a"))
    (frame,) = task.results.outputs.flush(0, everything=True)
    assert ack.value not in (ID, ID ^ frame.roots[0].id), "its own share is open beside that of its rows"
    assert ack.held == 1


def test_the_word_for_a_range_that_another_has_goes_there() -> None:
    task = made(logic := Sums())
    rows(task, ("a", 1))
    at = range_of("a")
    owner = tuple(9 if n == at else 5 for n in range(KEY_RANGES))
    task.ranges.stand(Standing(2, owner, (), frozenset({5, 9}), {}))
    task.ranges.owned.discard(at)
    (ack,) = end(task, at)
    (frame,) = task.results.outputs.flush(0, everything=True)
    assert not logic.finished and (frame.target, frame.rows) == (9, [at])
    assert ack.value == ID ^ frame.roots[0].id, "and is not done before it is there"


def test_a_key_whose_finish_fails_is_a_dead_letter_and_the_others_go_on() -> None:
    task = made(Sums())
    rows(task, ("bad", 1), ("a", 2), ("b", 3))
    for key_range in range(KEY_RANGES):
        end(task, key_range)
    assert sorted(sent(task)) == [("a", 2), ("b", 3)]
    (letter,) = task.results.letters
    assert (letter.row, letter.error, letter.of) == ("finish of key 'bad'", "ValueError: no", 0)


def test_words_and_rows_in_one_frame_go_their_own_ways() -> None:
    task = made(logic := Sums())
    key_range = range_of("a")
    roots = [
        RootPart(RootKey(1, 1, 5, 0), HERE, 0, 0, 5, 0, 0, ID),
        RootPart(RootKey(1, 1, 9, 0), HERE, 0, END_PARTITION + TASK, key_range, 0, 0, ID),
    ]
    task.take(Frame(EDGE, 1, HERE, 1, 5, roots, [(0, 0, 1, 0), (1, 0, 1, 0)], [("b", 4), key_range], 0, 0), 0)
    assert task.states.of(range_of("b")) == {"b": 4} and not logic.finished
