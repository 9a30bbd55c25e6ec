"""What the controller does about letters that are to be sent again: who is told of which, until each is done."""

from __future__ import annotations

from typing import Any

import pytest
from enactment_world import FakeVm, World
from msgspec.structs import replace

from headgate.controller.execute.dead_letter_replay import sources_above
from headgate.controller.monitor.admission import check
from headgate.topology_runtime.api.topology import Edge, Task, Topology
from headgate.topology_runtime.errors import BadMessage
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.dead_letter_messages import (
    AGAIN_MOST,
    AGAIN_PARTITION,
    DeadLetter,
    DeadLetters,
    SendAgain,
    SentAgain,
)
from headgate.topology_runtime.worker.calls.dead_lettering import bytes_of
from headgate.topology_runtime.worker.sources.source_task import DeadLetterReplays

S = 1_000_000_000


class Replaying(World):
    """Its source threads take what they are told to send again; `have_done`: they are done with it."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.taken: dict[tuple[str, int, int], DeadLetterReplays] = {}
        self.told: list[SendAgain] = []
        self.deaf = 0  # so many of these words are lost
        self.buried = 0

    def deliver(self, name: str, message: m.FromController) -> None:
        super().deliver(name, message)
        if not isinstance(message, SendAgain):
            return
        self.told.append(message)
        if self.deaf:
            self.deaf -= 1
            return
        worker = self.vms[name].workers[message.slot]
        if worker.incarnation == message.incarnation:
            place = name, message.thread, message.incarnation
            self.taken.setdefault(place, DeadLetterReplays()).want(message)
            self._show(self.vms[name], message)

    def _show(self, one: FakeVm, message: SendAgain) -> None:
        now = self.taken[one.name, message.thread, message.incarnation].now(message.thread)
        one.again[message.slot, message.incarnation] = (now,) if now is not None else ()

    def bury(self, count: int, task: str = "work", **more: Any) -> None:
        """So many rows die in the first VM."""
        one, first = self.vms["vm1"], self.buried
        self.buried += count
        letters = tuple(replace(letter(n, task), **more) for n in range(first, first + count))
        self.do(t_from(DeadLetters(one.name, letters, one.boot, first, first)))

    def died_again(self, number: int) -> None:
        one, first = self.vms["vm1"], self.buried
        self.buried += 1
        again = replace(
            letter(number), partition=AGAIN_PARTITION + 1, again=number, error="ValueError: still"
        )
        self.do(t_from(DeadLetters(one.name, (again,), one.boot, first, first)))

    def have_done(self, *numbers: int) -> None:
        """These letters' rows are done, says the source thread that has them."""
        said = self.told[-1]
        serials = {row.number: row.serial for word in self.told for row in word.rows}
        done = {serials[number] for number in numbers}
        open_ = tuple(serial for serial in said.serials if serial not in done)
        now = SentAgain(said.thread, said.boot, open_, tuple(done))
        self.vms[said.slot.vm].again[said.slot, said.incarnation] = (now,)
        self.report_all()

    @property
    def known(self) -> Any:
        return self.loop.knowledge.counts.letters


def t_from(message: m.FromAgent) -> Any:
    from headgate.controller.knowledge import loop_events as t

    check(message)
    return t.FromVm(message)


def letter(position: int, task: str = "work") -> DeadLetter:
    shape, data = bytes_of((position, "row"))
    feeder = {"work": "source", "sink": "work"}.get(task, "source")
    text = repr((position, "row"))
    return DeadLetter(task, 1, "source", 0, position, text, "ValueError: no", "trace", 7, feeder, shape, data)


def running(count: int = 3, **settings: Any) -> Replaying:
    world = Replaying(**settings)
    world.start().until("committed").run(2)
    world.bury(count)
    return world


def ok(reply: m.Reply) -> Any:
    assert reply.error is None, reply.error
    return reply.data


def refused(reply: m.Reply) -> tuple[int, str]:
    assert reply.error is not None
    assert reply.error[3] or reply.error[4], "a cause, or what to try"
    return reply.error[1], reply.error[2]


def test_a_letter_goes_when_its_row_is_done_and_not_before() -> None:
    world = running()
    before = world.ask("summary").data["tuples"]
    assert ok(world.ask("deadletter_replay", ids=[1, 2])) == {"ids": [1, 2], "unreadable": [], "asked": 2}
    world.run(1)
    (said,) = world.told
    assert [(row.number, row.task, row.feeder) for row in said.rows] == [
        (1, "work", "source"),
        (2, "work", "source"),
    ]
    assert set(world.known.kept) == {1, 2, 3}
    assert ok(world.ask("deadletter_replaying", ids=[1, 2]))["waiting"] == 2
    world.have_done(1)
    assert set(world.known.kept) == {2, 3} and world.known.replayed == 1
    assert ok(world.ask("deadletter_replaying", ids=[1, 2])) == {
        "waiting": 1, "died_again": [], "done": 1, "stage": "running",
    }  # fmt: skip
    world.run(1)
    assert world.told[-1].serials == said.serials[1:] and not world.told[-1].rows, "and no row comes twice"
    world.have_done(2)
    world.run(1)
    assert world.told[-1].serials == () and not world.loop.again.lines
    told = ok(world.ask("deadletters"))
    assert (told["dead_lettered"], told["replayed"], told["replaying"]) == (3, 2, 0)
    after = world.ask("summary").data
    assert after["tuples"]["dead_lettered"] == before["dead_lettered"] == 3 and after["tuples"]["lost"] == 0
    assert after["letters"] == {"replayed": 2, "mended": 2, "keys": 0}


def test_what_is_lost_is_said_again_and_then_no_more() -> None:
    world = running(1)
    world.deaf = 1
    world.ask("deadletter_replay", all=True)
    world.run(1)
    assert len(world.told) == 1
    world.run(2)
    assert len(world.told) == 2 and world.told[0].rows == world.told[1].rows
    world.run(5)
    assert len(world.told) == 2


def test_a_row_that_dies_again_is_a_letter_with_its_new_traceback() -> None:
    world = running(2)
    world.ask("deadletter_replay", all=True)
    world.run(1)
    world.died_again(2)
    assert ok(world.ask("deadletter", id=2))["error"] == "ValueError: still"
    assert ok(world.ask("deadletter_replaying", ids=[1, 2]))["died_again"] == [2]
    first = {row.number: row.serial for row in world.told[0].rows}
    world.ask("deadletter_replay", ids=[2])
    world.run(1)
    assert set(world.told[-1].serials) == {first[1], world.told[-1].rows[0].serial}
    assert world.told[-1].rows[0].number == 2 and world.told[-1].rows[0].serial != first[2]
    assert world.known.count == 2, "nor is it counted twice"


def test_a_new_worker_is_told_anew() -> None:
    world = running(1)
    world.ask("deadletter_replay", all=True)
    world.run(1)
    world.vms[world.told[0].slot.vm].kill_worker(world.told[0].slot.number)
    world.run(3)
    assert world.told[-1].incarnation > world.told[0].incarnation
    assert [row.number for row in world.told[-1].rows] == [1]
    world.have_done(1)
    assert not world.known.kept


def test_the_next_life_goes_on_and_believes_nothing_that_the_last_one_said() -> None:
    world = running(2)
    world.ask("deadletter_replay", ids=[2])
    world.run(2)
    old = world.told[-1]
    world.restart_controller()
    world.have_done(2)  # by a word of the life before
    assert set(world.known.kept) == {1, 2} and set(world.known.asked) == {2}
    world.run(15)
    assert world.told[-1].boot > old.boot and [row.number for row in world.told[-1].rows] == [2]
    world.have_done(2)
    assert set(world.known.kept) == {1}


def test_letters_that_a_failing_journal_kept_from_the_disk_get_there_later() -> None:
    world = running(1)
    world.journal_fails = True
    world.ask("rate_set", rate_tps=90.0)
    world.run(3)
    world.journal_fails = False
    world.run(5)
    assert [one.number for one in world.letters if hasattr(one, "number")] == [1]


def test_many_go_in_parts() -> None:
    world = running(0)
    for _ in range(4):
        world.bury(250)
    world.ask("deadletter_replay", all=True)
    world.run(1)
    assert len(world.told[-1].serials) == AGAIN_MOST
    world.have_done(*range(1, 300))
    world.run(1)
    assert len(world.told[-1].serials) == AGAIN_MOST and len(world.known.kept) == 701


def test_nothing_is_sent_of_a_run_that_ends() -> None:
    world = running(1)
    world.ask("deadletter_replay", all=True)
    world.ask("stop")
    world.run(1)
    assert not world.told
    assert refused(world.ask("deadletter_replay", all=True))[0] == 6


def test_a_dropped_letter_is_sent_no_more() -> None:
    world = running(2)
    world.ask("deadletter_replay", all=True)
    world.run(1)
    world.ask("deadletter_drop", ids=[1])
    world.run(1)
    assert len(world.told[-1].serials) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ({"ids": [1, 99]}, 3, "no dead letter 99"),
        ({"ids": ["x"]}, 3, "whole numbers"),
        ({"task": "nobody"}, 3, "no task nobody in line"),
        ({"ids": list(range(200_000))}, 3, "at once"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    arguments: dict[str, Any], code: int, words: str
) -> None:
    world = running()
    found = refused(world.ask("deadletter_replay", **arguments))
    assert found[0] == code and words in found[1]
    assert not world.known.asked and len(world.known.kept) == 3


def test_rows_that_were_not_kept_are_refused_or_left_out() -> None:
    world = running(1)
    world.bury(1, data=b"")
    world.bury(1, data=b"\xc1")
    assert refused(world.ask("deadletter_replay", all=True)) == (
        3,
        "dead letter 2 (and 1 more) cannot be sent again",
    )
    assert not world.known.asked
    found = ok(world.ask("deadletter_replay", all=True, skip=True, dry=True))
    assert (found["ids"], found["unreadable"], found["asked"]) == ([1], [2, 3], 0) and not world.known.asked


def test_nothing_runs_nothing_is_sent_again() -> None:
    from headgate.controller.core.loop import Loop
    from headgate.controller.knowledge import loop_events as t
    from headgate.controller.knowledge.controller_config import ControllerSettings

    loop = Loop(ControllerSettings("idle"))
    loop.step(t.Started(), t.Now(S, S))
    out = loop.step(t.Command(1, m.Request("deadletter_replay", {"all": True})), t.Now(2 * S, 2 * S))
    (answer,) = [i for i in out if isinstance(i, t.Answer)]
    assert refused(answer.reply)[0] == 6


# ── of an earlier run ───────────────────────────────────────────────────────────────────────────


def traced(number: int, task: str = "work", **more: Any) -> dict[str, Any]:
    one = letter(number, task)
    names = (
        "task",
        "source",
        "partition",
        "position",
        "thread",
        "row",
        "error",
        "traceback",
        "variant",
        "feeder",
    )
    fields = {name: getattr(one, name) for name in names}
    return {"number": number, **fields, "shape": one.shape, "data": one.data, **more}


def test_letters_of_an_earlier_run_become_letters_but_no_positions() -> None:
    world = running(1)
    given = {"run": "before", "letters": [traced(5), traced(6)]}
    assert (
        ok(world.ask("deadletter_take_in", **given, dry=True)) == {"ids": []} and len(world.known.kept) == 1
    )
    assert ok(world.ask("deadletter_take_in", **given)) == {"ids": [2, 3]}
    assert ok(world.ask("deadletter_take_in", **given)) == {"ids": [2, 3]}, "not twice"
    assert world.known.count == 1
    world.ask("deadletter_replay", ids=[2, 3])
    world.run(1)
    world.have_done(2, 3)
    assert set(world.known.kept) == {1}
    tuples = world.ask("summary").data
    assert tuples["tuples"]["dead_lettered"] == 1 and tuples["letters"] == {
        "replayed": 2,
        "mended": 0,
        "keys": 0,
    }


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (traced(6, "nobody"), "no task nobody"),
        (traced(6, feeder="sink"), "dead letter 6 of before cannot be sent again"),
        (traced(6, data=b""), "dead letter 6 of before cannot be sent again"),
        ({"number": 6}, "invalid dead letters"),
    ],
)
def test_one_letter_that_does_not_fit_and_none_is_taken_in(bad: dict[str, Any], words: str) -> None:
    world = running(1)
    code, text = refused(world.ask("deadletter_take_in", run="before", letters=[traced(5), bad]))
    assert code == 3 and words in text and len(world.known.kept) == 1


# ── edges ───────────────────────────────────────────────────────────────────────────────────────


def test_sources_above_a_task() -> None:
    tasks = tuple(Task(name, kind="source" if name in "ab" else "map") for name in "abcde")
    topology = Topology("t", tasks, (Edge("a", "c"), Edge("b", "d"), Edge("c", "e")))
    assert sources_above(topology, "e") == {"a"} and sources_above(topology, "d") == {"b"}
    assert sources_above(topology, "nobody") == frozenset()


def test_what_source_threads_say_is_checked() -> None:
    world = running(1)
    report = world.vms["vm1"].report()
    (worker, *_) = report.workers
    for bad in (SentAgain(1, 1, tuple(range(AGAIN_MOST + 1))), SentAgain(1, -1), SentAgain(1, 1, (), (-1,))):
        with pytest.raises(BadMessage):
            check(replace(report, workers=(replace(worker, again=(bad,)),)))
    dead = DeadLetters("vm1", (letter(1),), 7, 3, 2)
    check(dead)
    for letter_ in (replace(letter(1), again=4), replace(letter(1), data=b"x" * 20_000)):
        with pytest.raises(BadMessage):
            check(replace(dead, letters=(letter_,)))


@pytest.mark.parametrize("command", ["deadletters", "deadletter_drop", "deadletter_replay"])
@pytest.mark.parametrize("task", [7, 1.5, True, ["work"], {}])
def test_a_task_that_is_not_named_by_text_is_refused_in_clear_words(command: str, task: object) -> None:
    reply = running().ask(command, task=task)
    assert reply.error is not None
    assert "a task is given by its name, not by" in reply.error[2]
