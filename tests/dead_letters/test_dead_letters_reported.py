"""Dead letters from a VM to the controller: said until they are on its disk, none missed, none twice."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from headgate.agent.core import agent_state as letters
from headgate.agent.core.agent_state import AGAIN_NS, DeadLetterBox
from headgate.controller.knowledge import loop_events as t
from headgate.controller.knowledge.controller_config import ControllerSettings
from headgate.controller.knowledge.dead_letters import DeadLetterQueue
from headgate.controller.knowledge.knowledge import Knowledge, Turn
from headgate.controller.monitor import vm_reports as hearing
from headgate.controller.monitor.admission import check
from headgate.topology_runtime.errors import BadMessage
from headgate.topology_runtime.wire.dead_letter_messages import END_PARTITION
from headgate.topology_runtime.wire.messages import DeadLetter, DeadLetters, LettersTaken


def letter(position: int) -> DeadLetter:
    return DeadLetter("work", 1, "source", 0, position, "row", "ValueError: no", "trace")


def hear(k: Knowledge, *messages: DeadLetters) -> None:
    turn = Turn(k, t.Now(1, 1))
    for message in messages:
        check(message)
        hearing.dead_letters(turn, message)


def kept(k: Knowledge) -> list[LettersTaken]:
    """What the controller answers once they are on its disk."""
    turn = Turn(k, t.Now(1, 1))
    hearing.keep_dead_letters(turn)
    out = turn.instructions()
    assert all(isinstance(i, t.KeepDeadLetters | t.Send) for i in out)
    assert not any(isinstance(i, t.KeepDeadLetters) for i in out[1:]), "first the disk"
    return [i.message for i in out if isinstance(i, t.Send) and isinstance(i.message, LettersTaken)]


def test_letters_are_said_again_until_they_are_taken() -> None:
    box = DeadLetterBox("vm1", 7)
    (said,) = box.add([letter(1), letter(2)], 0)
    assert said == DeadLetters("vm1", (letter(1), letter(2)), 7, 0, 0)
    assert not box.overdue(AGAIN_NS - 1) and box.overdue(AGAIN_NS)
    assert box.again(AGAIN_NS) == [said]
    box.taken(LettersTaken(6, 2))
    assert box.again(AGAIN_NS) == [said], "of an earlier life of the agent"
    box.taken(LettersTaken(7, 1))
    (said,) = box.again(AGAIN_NS)
    assert (said.letters, said.first, said.waiting) == ((letter(2),), 1, 1)
    box.taken(LettersTaken(7, 2))
    assert box.again(0) == [] and not box.overdue(9 * AGAIN_NS)


def test_one_that_was_missed_is_said_again_however_many_follow() -> None:
    box = DeadLetterBox("vm1", 7)
    second_ns = 1_000_000_000
    for number in range(6):
        assert not box.overdue(number * second_ns - 1)
        box.add([letter(number)], number * second_ns)
    assert box.overdue(AGAIN_NS)
    box.taken(LettersTaken(7, 1))
    assert not box.overdue(AGAIN_NS) and not box.overdue(2 * AGAIN_NS - 1) and box.overdue(2 * AGAIN_NS)


def test_a_flood_goes_in_parts_and_is_bounded_while_the_controller_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(letters, "WHOLE_MOST", 150)
    box = DeadLetterBox("vm1", 7)
    said = box.add(map(letter, range(250)), 0)
    assert [(len(part.letters), part.first) for part in said] == [(30, n) for n in range(0, 240, 30)] + [
        (10, 240)
    ]
    rows = [one.row for part in said for one in part.letters]
    assert rows == ["row"] * 150 + [""] * 100


def test_the_disk_comes_before_the_word_that_they_are_taken() -> None:
    k, box = Knowledge(ControllerSettings("run")), DeadLetterBox("vm1", 7)
    hear(k, *box.add([letter(1), letter(2)], 0))
    (word,) = kept(k)
    assert word == LettersTaken(7, 2) and kept(k) == [], "once"


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_lost_or_comes_twice_in_the_end_all_are_known(seed: int) -> None:
    """A network that loses and repeats; controllers and agents that are killed. What an agent had not been
    told of as taken dies with it: the rows are tried again then, and die again."""
    chance = random.Random(seed)
    k, box, boot, position = Knowledge(ControllerSettings("run")), DeadLetterBox("vm1", 1), 1, 0
    disk: list[t.KeepDeadLetters] = []

    def say(parts: list[DeadLetters]) -> None:
        for part in parts:
            for _ in range(chance.choice((0, 1, 1, 2))):
                hear(k, part)

    def look() -> None:
        turn = Turn(k, t.Now(1, 1))
        hearing.keep_dead_letters(turn)
        for i in turn.instructions():
            if isinstance(i, t.KeepDeadLetters):
                disk.append(i)
            elif isinstance(i, t.Send) and isinstance(i.message, LettersTaken) and chance.random() < 0.7:
                box.taken(i.message)

    for _ in range(60):
        event = chance.random()
        if event < 0.6:
            new = [letter(position + n) for n in range(chance.randrange(4))]
            position += len(new)
            say(box.add(new, 0))
        elif event < 0.7:
            k = Knowledge(ControllerSettings("run"))
            k.counts.letters.recall([record for kept_ in disk for record in kept_.records])
            say(box.again(0))
        elif event < 0.75:
            look()
            again = [one for part in box.again(0) for one in part.letters]
            boot += 1
            box = DeadLetterBox("vm1", boot)
            say(box.add(again, 0))
        else:
            look()
    hear(k, *box.again(0))
    look()
    assert k.counts.letters.count == position
    later = Knowledge(ControllerSettings("run"))
    later.counts.letters.recall([record for kept_ in disk for record in kept_.records])
    assert later.counts.letters.count == position


def test_letters_that_cannot_be_are_refused() -> None:
    good = DeadLetters("vm1", (letter(1),), 7, 3, 2)
    check(good)
    for bad in (
        replace(good, waiting=4),
        replace(good, waiting=-1),
        replace(good, letters=(letter(1),) * 1001),
        replace(good, letters=(letter(-1),)),
        replace(good, letters=(letter(1 << 63),)),
    ):
        with pytest.raises(BadMessage):
            check(bad)


def test_the_first_letters_are_told_one_by_one_then_how_many_there_are() -> None:
    k = Knowledge(ControllerSettings("run"))
    box = DeadLetterBox("vm1", 7)
    hear(k, *box.add(map(letter, range(150)), 0))
    kinds = [event["kind"] for event in k.events]
    assert kinds == ["dead_letter"] * 20 + ["dead_letters"]
    assert "100 dead letters so far" in k.events[-1]["text"]


def test_a_task_of_which_no_more_is_kept_is_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    from headgate.controller.knowledge import dead_letters as kept_letters

    monkeypatch.setattr(kept_letters, "LETTERS_MOST", 5)
    k = Knowledge(ControllerSettings("run"))
    hear(k, *DeadLetterBox("vm1", 7).add(map(letter, range(9)), 0))
    assert k.alarms["dead letters work"].startswith("the first 5 dead letters of work are kept")
    assert k.counts.letters.count == 9


def test_a_key_whose_finish_failed_is_told_and_counted_beside_rows() -> None:
    k = Knowledge(ControllerSettings("r"))
    keys = tuple(
        DeadLetter("sums", 1, "source", END_PARTITION + 2, 7, f"finish of key 'k{n}'", "E: no", "trace", n)
        for n in (1, 2)  # of one key range
    )
    hear(k, DeadLetters("vm1", keys, 7, 0, 0), DeadLetters("vm1", (keys[0], letter(3)), 7, 0, 0))
    assert (k.counts.letters.count, k.counts.letters.keys) == (1, 2)
    told = [event["text"] for event in k.events]
    assert told[0] == "dead letter: sums failed on finish of key 'k1': E: no" and len(told) == 3
    again = DeadLetterQueue()
    again.recall(k.counts.letters.news())
    assert (again.count, again.keys) == (1, 2)
