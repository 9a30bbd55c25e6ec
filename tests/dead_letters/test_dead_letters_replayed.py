"""Letters whose rows are sent again: gone when they are done, as before when they died again, whatever is repeated."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from headgate.controller.files.run_state_files import DeadLetterFile
from headgate.controller.knowledge.dead_letters import (
    DeadLetterDone,
    DeadLetterQueue,
    DiedAgain,
    KeptDeadLetter,
    ReplayAsked,
)
from headgate.topology_runtime.wire.dead_letter_messages import AGAIN_PARTITION, DeadLetter


def letter(position: int, task: str = "work", variant: int = 0) -> DeadLetter:
    return DeadLetter(
        task, 1, "source", 2, position, "row", "ValueError: no", "trace", variant, "before", 0, b"data"
    )


def again(number: int, task: str = "work", own: bool = True) -> DeadLetter:
    """The row of a letter of `work` dies once more; not `own`: what came of it, in a task below."""
    one = replace(letter(number, task), partition=AGAIN_PARTITION + 1, error="still")
    return replace(one, again=number if own else 0)


def told(found: DeadLetterQueue) -> object:
    return found.count, found.dropped, found.replayed, found.mended, found.kept, dict.fromkeys(found.asked)


def through_the_disk(found: DeadLetterQueue, path: Path, whole: bool) -> DeadLetterQueue:
    file = DeadLetterFile(path / f"{whole}")
    file.append(found.whole() if whole else found.news())
    later = DeadLetterQueue()
    later.recall(DeadLetterFile(path / f"{whole}").read())
    return later


def test_every_row_of_a_position_has_its_letter() -> None:
    found = DeadLetterQueue()
    assert found.add(letter(4), 0) and not found.add(letter(4, variant=9), 0) and not found.add(letter(4), 0)
    assert found.count == 1 and len(found.kept) == 2 and found.times == {1: 2}
    found.drop(2)
    found.add(letter(4, variant=9), 0)
    assert set(found.kept) == {1}, "a dropped one does not come back"


def test_the_next_life_knows_what_was_asked_for_and_what_became_of_it(tmp_path: Path) -> None:
    found = DeadLetterQueue()
    for position in range(5):
        found.add(letter(position), 0)
    assert found.ask(1) and found.ask(2) and found.ask(3) and not found.ask(3) and not found.ask(99)
    found.done_again(1)
    found.add(again(2), 0)
    found.drop(5)
    found.done_again(4)
    assert (found.replayed, found.mended, set(found.kept), set(found.asked)) == (1, 1, {2, 3, 4}, {3})
    assert found.kept[2].error == "still" and found.kept[2].data == b"data" and found.count == 5
    assert told(through_the_disk(found, tmp_path, whole=True)) == told(found)
    assert told(through_the_disk(found, tmp_path, whole=False)) == told(found)


def test_what_died_again_twice_or_late_changes_nothing_more() -> None:
    found = DeadLetterQueue()
    found.add(letter(1), 0)
    found.ask(1)
    found.add(again(1), 0)
    found.add(again(1), 0)
    assert [type(one) for one in found.news()[1:]] == [KeptDeadLetter, ReplayAsked, DiedAgain]
    found.ask(1)
    found.done_again(1)
    found.add(again(1), 0)
    assert not found.kept, "another copy of it was done"
    assert [type(one) for one in found.news()] == [ReplayAsked, DeadLetterDone]


def test_each_time_it_is_asked_for_is_another_sending() -> None:
    found = DeadLetterQueue()
    found.add(letter(1), 0)
    found.ask(1)
    first = found.asked[1]
    found.add(again(1), 0)
    found.ask(1)
    assert found.asked[1] != first


def test_what_came_of_a_row_and_died_below_is_a_letter_and_no_position(tmp_path: Path) -> None:
    found = DeadLetterQueue()
    found.add(letter(7), 0)
    found.ask(1)
    found.add(again(1, "score", own=False), 0)
    found.add(again(1, "score", own=False), 0)
    found.done_again(1)
    below = found.kept[2]
    assert (below.task, below.partition, below.position, below.of) == ("score", 2, 7, 1)
    assert (found.count, found.counts(), found.mended) == (1, {"work": 1}, 0)
    assert told(through_the_disk(found, tmp_path, whole=True)) == told(found)
    found.ask(2)
    found.done_again(2)
    assert (found.mended, found.replayed, found.kept) == (1, 2, {})


def test_what_did_not_get_to_the_disk_is_news_still() -> None:
    found = DeadLetterQueue()
    found.add(letter(1), 0)
    first = found.news()
    found.ask(1)
    found.put_back(first)
    assert found.news() == (*first, ReplayAsked(1)) and found.news() == ()
