"""The worker's mind: the highest token counts, threads start once, fences hold, leavers end when they may."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from examples import searching
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.keys.curve import new_pair
from headgate.topology_runtime.keys.key_pairs import keyed
from headgate.topology_runtime.wire.messages import (
    DesiredState,
    Frame,
    Phase,
    Ping,
    Route,
    SourceStart,
    SourceStatus,
    ThreadSpec,
    ThreadStatus,
    Token,
    VmHeard,
    WorkerAt,
)
from headgate.topology_runtime.worker.orders import worker_state as s
from headgate.topology_runtime.worker.orders.thread_orders import Orders, orders_of
from headgate.topology_runtime.worker.orders.worker_state import WorkerState

S = 1_000_000_000
ME, YOU, THIRD, FAR = Slot("vm1", 0), Slot("vm1", 1), Slot("vm1", 2), Slot("vm2", 0)
TOPOLOGY = Topology(
    "t",
    (
        Task("source", kind="source", static=Static()),
        Task("work"),
        Task("count", state="keyed", kind="keyed"),
        Task("end", exclusive=True),
    ),
    (Edge("source", "work"), Edge("work", "count", grouping="fields", key="id"), Edge("work", "end")),
)


def at(slot: Slot, incarnation: int = 1, endpoint: str = "tcp://127.0.0.1:1") -> WorkerAt:
    return WorkerAt(slot, incarnation, endpoint)


def thread(number: int, task: str = "work", slot: Slot = ME, leaving: bool = False) -> ThreadSpec:
    return ThreadSpec(number, task, slot, 0, leaving)


def desired(
    threads: Iterable[ThreadSpec],
    workers: Iterable[WorkerAt] = (at(ME), at(YOU)),
    counter: int = 1,
    phase: Phase = "committed",
    number: int = 1,
    **more: Any,
) -> DesiredState:
    return DesiredState(
        token=Token(1, 1, counter),
        phase=phase,
        run="r",
        topology=TOPOLOGY,
        user_paths=(),
        threads=tuple(threads),
        routes_number=number,
        routes=more.pop("routes", ()),
        workers=tuple(workers),
        **more,
    )


def state(*states: DesiredState) -> WorkerState:
    made = WorkerState(ME, 1)
    for one in states:
        made.on_desired(one)
        made.validate()
    return made


def of(kind: type[Any], instructions: Sequence[s.Instruction]) -> list[Any]:
    return [one for one in instructions if isinstance(one, kind)]


# ── tokens and threads ──────────────────────────────────────────────────────────────────────────────


def test_a_thread_starts_once_and_only_here() -> None:
    mind = WorkerState(ME, 1)
    first = desired([thread(1), thread(2, slot=YOU)])
    assert [one.desired.thread for one in of(s.StartThread, mind.on_desired(first))] == [1]
    assert of(s.StartThread, mind.on_desired(first)) == []
    assert of(s.StartThread, mind.on_desired(replace(first, token=Token(1, 1, 2)))) == []


@pytest.mark.parametrize("token", [Token(1, 1, 1), Token(1, 0, 9), Token(0, 9, 9)])
def test_a_lower_token_is_not_obeyed(token: Token) -> None:
    mind = state(desired([thread(1)], counter=2))
    assert mind.on_desired(replace(desired([]), token=token)) == []
    assert mind.token == Token(1, 1, 2) and list(mind.threads) == [1]


def test_the_same_state_again_is_obeyed_again() -> None:
    """Marks are sent again with every desired state."""
    mind = state(desired([thread(1)]))
    assert len(of(s.Obey, mind.on_desired(desired([thread(1)])))) == 1


@pytest.mark.parametrize("token", [Token(1, 1, 3), Token(1, 2, 0), Token(2, 0, 0)])
def test_a_higher_token_is_obeyed(token: Token) -> None:
    mind = state(desired([thread(1)], counter=2))
    assert of(s.Obey, mind.on_desired(replace(desired([thread(1)]), token=token)))
    assert mind.token == token


def test_a_thread_that_is_desired_no_more_ends_at_once_and_never_starts_again() -> None:
    mind = state(desired([thread(1), thread(2)]))
    assert of(s.EndThread, mind.on_desired(desired([thread(2)], counter=2))) == [s.EndThread(1)]
    assert of(s.StartThread, mind.on_desired(desired([thread(1), thread(2)], counter=3))) == []


# ── leaving ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("phase", "now", "task", "ends"),
    [
        ("committed", ThreadStatus(1, 2, 2, True), "work", True),
        ("committed", ThreadStatus(1, 2, 3, True), "work", True),
        ("committed", ThreadStatus(1, 2, 2, False), "work", False),
        ("committed", ThreadStatus(1, 2, 1, True), "work", False),
        ("switched", ThreadStatus(1, 2, 2, True), "work", False),
        ("prepared", ThreadStatus(1, 2, 2, True), "work", False),
        ("switched", ThreadStatus(1, 2, 2, True), "end", True),
        ("switched", ThreadStatus(1, 2, 2, False), "end", False),
        ("prepared", ThreadStatus(1, 2, 2, True), "end", False),
    ],
)
def test_a_leaver_ends_when_it_is_empty_marked_and_committed(
    phase: Phase, now: ThreadStatus, task: str, ends: bool
) -> None:
    mind = state(desired([thread(1, task, leaving=True)], phase=phase, number=2))
    assert (mind.on_threads([now], []) == [s.EndThread(1)]) == ends
    assert mind.threads[1].ended == ends
    assert mind.on_threads([now], []) == [], "once"


def test_a_leaver_ends_once_every_peer_has_answered_since_it_was_empty() -> None:
    mind = state(desired([thread(1, leaving=True), thread(2, slot=YOU)], number=2))
    mind.on_ping(Ping(YOU, 1, True))
    empty = ThreadStatus(1, 2, 2, True)
    assert mind.on_threads([empty], []) == [s.AskPeer(YOU)] and mind.ping(YOU, False).round == 1
    assert mind.on_threads([empty], []) == [], "asked again with the next tick"
    assert mind.on_ping(Ping(YOU, 1, True)) == [], "an answer to an older question"
    mind.on_threads([ThreadStatus(1, 2, 2, False)], [])
    mind.on_threads([empty], [])
    assert mind.on_ping(Ping(YOU, 1, True, seen=1)) == [], "it has sent something since"
    assert mind.on_ping(Ping(YOU, 1, True, seen=2)) == [s.EndThread(1)]
    mind.on_ping(Ping(YOU, 1, False, round=7))
    assert mind.ping(YOU, True).seen == 7


def test_a_thread_that_stays_does_not_end_however_empty_it_is() -> None:
    mind = state(desired([thread(1)], number=2))
    assert mind.on_threads([ThreadStatus(1, 2, 9, True)], []) == []


def test_an_ended_leaver_is_told_until_it_is_desired_no_more() -> None:
    mind = state(desired([thread(1, "source", leaving=True), thread(2)], number=2))
    now = SourceStatus("source", 0, 1, 9, 9, 0, 0, 0, stopped=True)
    mind.on_threads([ThreadStatus(1, 2, 2, True)], [now])
    assert mind.threads[1].ended and mind.sources == {1: now}
    mind.on_desired(desired([thread(2)], number=2, counter=2))
    assert list(mind.threads) == [2] and mind.sources == {}


def test_a_worker_leaves_when_no_thread_is_left_or_desired() -> None:
    mind = state(desired([thread(1, leaving=True), thread(2, slot=YOU)], number=2))
    assert of(s.Leave, mind.on_tick(0)) == []
    mind.on_threads([ThreadStatus(1, 2, 2, True)], [])
    assert of(s.Leave, mind.on_tick(0)) == [], "the controller does not know yet that it has ended"
    assert of(s.Leave, mind.on_desired(desired([thread(2, slot=YOU)], number=2, counter=2))) == [s.Leave()]
    assert of(s.Leave, WorkerState(ME, 1).on_tick(0)) == [], "nothing is known yet"


def test_a_worker_leaves_when_it_is_to_answer_in_the_place_of_a_thread_that_has_ended_there() -> None:
    """The next worker of its slot starts that thread; this one never would."""
    mind = state(desired([thread(1), thread(2)], number=2))
    mind.on_desired(desired([thread(2)], number=2, counter=2))
    answering = replace(thread(1, leaving=True), answers=True)
    assert of(s.Leave, mind.on_desired(desired([thread(2), answering], number=2, counter=3))) == []
    told = mind.on_desired(desired([answering], number=2, counter=4))
    assert not of(s.StartThread, told) and of(s.Leave, told) == [s.Leave()]
    here = state(desired([thread(1, leaving=True)], number=2))
    told = here.on_desired(desired([answering], number=2, counter=2))
    assert of(s.EndThread, told) == [s.EndThread(1)] and of(s.Leave, told) == [s.Leave()], (
        "it may not be built"
    )
    fresh = state(desired([answering], number=2, counter=4))
    assert list(fresh.threads) == [1] and of(s.Leave, fresh.on_tick(0)) == []


def test_a_worker_that_goes_says_once_more_what_it_lost_to_those_that_may_not_know() -> None:
    mind = linked()
    mind.on_started_again(1, s.ENDED)
    mind.on_ping(Ping(YOU, 1, True, heard=1))
    assert mind.last_words() == [s.AskPeer(THIRD)]


# ── peers ───────────────────────────────────────────────────────────────────────────────────────────


def test_peers_are_met_asked_and_ready_when_all_answered() -> None:
    mind = WorkerState(ME, 1)
    out = mind.on_desired(desired([thread(1), thread(2, slot=YOU)]))
    assert of(s.Connect, out) == [s.Connect(at(YOU))] and of(s.AskPeer, out) == [s.AskPeer(YOU)]
    assert of(s.Fault, out) == [], "nothing was on its way to a peer never met"
    assert not mind.ready and of(s.AskPeer, mind.on_tick(0)) == [s.AskPeer(YOU)]
    mind.on_ping(Ping(YOU, 1, True))
    assert mind.ready and mind.on_tick(0) == []


def test_a_peer_reads_columns_if_it_says_so_as_long_as_it_is_there() -> None:
    both = [thread(1), thread(2, slot=YOU)]
    mind = state(desired(both))
    assert mind.ping(YOU, False).columns
    mind.on_ping(Ping(YOU, 2, True, columns=True))
    assert not mind.by_columns, "another worker than the one that is named"
    mind.on_ping(Ping(YOU, 1, False, columns=True))
    assert mind.by_columns == {YOU}
    mind.on_ping(Ping(YOU, 1, True))
    assert not mind.by_columns, "a worker of a version before"
    mind.on_ping(Ping(YOU, 1, True, columns=True))
    mind.on_desired(desired(both, [at(ME), at(YOU, 3)], counter=2))
    assert not mind.by_columns, "its successor has not said so"


def test_not_ready_without_ones_own_name_in_the_state() -> None:
    """A state made before this worker came up holds positions that are stale."""
    threads = [thread(1)]
    assert not state(desired(threads, [])).ready
    assert not state(desired(threads, [at(ME, 9)])).ready
    assert state(desired(threads, [at(ME, 1)])).ready


def test_ready_when_all_threads_are_here_though_one_fails_and_all_peers_have_answered() -> None:
    mind = state(desired([thread(1)], [at(ME)]))
    mind.on_threads([ThreadStatus(1, failed="ImportError: no")], [])
    assert mind.ready
    assert not state(desired([thread(1), thread(2, slot=YOU)], [at(ME), at(YOU, endpoint="")])).ready


def test_a_vm_held_dead_blocks_nothing() -> None:
    mind = state(desired([thread(1), thread(2, slot=FAR)], [at(ME)], held_dead=("vm2",)))
    assert mind.ready


def test_a_replaced_worker_is_a_fault_and_is_fenced() -> None:
    mind = state(desired([thread(1), thread(2, slot=YOU)], [at(ME), at(YOU, 5)]))
    assert not mind.fenced(YOU, 5) and mind.fenced(YOU, 4)
    assert mind.fenced(YOU, 6), "not named yet"
    newer = desired([thread(1), thread(2, slot=YOU)], [at(ME), at(YOU, 7, "")], counter=2)
    out = mind.on_desired(newer)
    assert of(s.Disconnect, out) == [s.Disconnect(YOU)] and len(of(s.Fault, out)) == 1
    assert mind.fenced(YOU, 5) and not mind.ready
    out = mind.on_desired(replace(newer, token=Token(1, 1, 3), workers=(at(ME), at(YOU, 7))))
    assert of(s.Connect, out) == [s.Connect(at(YOU, 7))] and of(s.Fault, out) == []
    mind.on_ping(Ping(YOU, 5, True))
    assert not mind.ready, "the answer of the one before"
    mind.on_ping(Ping(YOU, 7, True))
    assert mind.ready


@pytest.mark.parametrize("stranger", [Ping(YOU, 6, False), Ping(YOU, 6, True, 9), Ping(THIRD, 1, False)])
def test_a_ping_teaches_no_incarnation(stranger: Ping) -> None:
    """Who is not named is not answered, and fences nobody."""
    mind = state(desired([thread(1), thread(2, slot=YOU)], [at(ME), at(YOU, 5)]))
    assert mind.on_ping(stranger) == [] and not mind.fenced(YOU, 5)
    assert of(s.Fault, mind.on_tick(0)) == [] and not mind.ready
    assert mind.on_ping(Ping(YOU, 5, False)) == [s.AnswerPeer(YOU)]


def test_a_peer_whose_slot_is_not_used_any_more_is_let_go() -> None:
    mind = state(desired([thread(1), thread(2, slot=YOU)]))
    out = mind.on_desired(desired([thread(1)], counter=2))
    assert of(s.Disconnect, out) == [s.Disconnect(YOU)] and of(s.Fault, out) == []


def test_a_vm_held_dead_is_one_fault_and_stays_away() -> None:
    """Its workers may live on behind a broken line and ping: they make no second fault."""
    threads = [thread(1), thread(2, slot=FAR)]
    mind = state(desired(threads, [at(ME), at(FAR, 5)]))
    dead = desired(threads, [at(ME), at(FAR, 6, "")], counter=2, held_dead=("vm2",))
    assert len(of(s.Fault, mind.on_desired(dead))) == 1 and mind.fenced(FAR, 5)
    for incarnation in (5, 6, 7):
        assert mind.on_ping(Ping(FAR, incarnation, False)) == []
    again = desired(threads, [at(ME), at(FAR, 8)], counter=3, held_dead=("vm2",))
    assert [one for one in mind.on_desired(again) if not isinstance(one, s.Obey)] == []
    mind.validate()


# ── losses ──────────────────────────────────────────────────────────────────────────────────────────


def linked(*more: ThreadSpec) -> WorkerState:
    """Two peers, both answered, both links up."""
    threads = [thread(1), thread(2, slot=YOU), thread(3, slot=THIRD), *more]
    mind = state(desired(threads, [at(ME), at(YOU), at(THIRD)]))
    for slot in (YOU, THIRD):
        mind.on_link(slot, True)
        mind.on_ping(Ping(slot, 1, True))
    assert mind.ready and mind.on_tick(0) == []
    return mind


def faults(mind: WorkerState, now_ns: int) -> int:
    return len(of(s.Fault, mind.on_tick(now_ns)))


def test_a_link_that_broke_is_a_fault_once_it_is_back_and_everybody_is_told() -> None:
    mind = linked()
    mind.on_link(YOU, False)
    assert mind.on_tick(S) == [], "sent again it would wait in the same line"
    mind.on_link(YOU, True)
    out = mind.on_tick(2 * S)
    assert len(of(s.Fault, out)) == 1 and of(s.AskPeer, out) == [s.AskPeer(YOU), s.AskPeer(THIRD)]
    assert mind.ping(YOU, False).losses == 1
    mind.on_ping(Ping(YOU, 1, True, heard=1))
    assert mind.on_tick(3 * S) == [s.AskPeer(THIRD)], "until it has heard"
    mind.on_ping(Ping(THIRD, 1, True, heard=1))
    assert mind.on_tick(4 * S) == [] and mind.ready


def test_a_peer_is_not_asked_over_a_link_that_is_broken() -> None:
    mind = linked()
    mind.on_link(YOU, False)
    mind.on_link(THIRD, False)
    mind.on_link(THIRD, True)
    assert of(s.AskPeer, mind.on_tick(S)) == [s.AskPeer(THIRD)]


def test_a_link_that_never_stood_cannot_break() -> None:
    mind = state(desired([thread(1), thread(2, slot=YOU)]))
    mind.on_link(YOU, False)
    mind.on_link(YOU, True)
    mind.on_link(FAR, False)
    mind.on_link(FAR, True)
    assert faults(mind, S) == 0


def test_losses_that_a_peer_tells_of_are_a_fault_each_once() -> None:
    mind = linked()
    for _ in range(3):
        assert mind.on_ping(Ping(YOU, 1, False, losses=2)) == [s.AnswerPeer(YOU)]
    assert faults(mind, S) == 1 and faults(mind, 30 * S) == 0
    assert mind.ping(YOU, True).heard == 2 and mind.ping(THIRD, True).heard == 0
    mind.on_ping(Ping(YOU, 1, False, losses=3))
    assert faults(mind, 31 * S) == 1


def test_a_link_that_flaps_makes_no_storm() -> None:
    mind, count = linked(), 0
    for step in range(600):  # a minute
        mind.on_link(YOU, step % 2 == 1)
        count += faults(mind, step * S // 10)
    assert 18 <= count <= 22
    assert faults(mind, 70 * S) == 1, "the last of them"
    mind.on_link(YOU, False)
    mind.on_link(YOU, True)
    assert faults(mind, 90 * S) == 1, "at once, after a calm while"


def test_a_worker_that_stops_for_a_while_is_answered_once_or_twice() -> None:
    """Its links all break, and all its peers tell of it in the second after."""
    mind, count = linked(), 0
    for step, slot in enumerate((YOU, THIRD, YOU, THIRD)):
        mind.on_ping(Ping(slot, 1, False, losses=1 + step // 2))
        count += faults(mind, S + step * S // 20)
    assert count + faults(mind, 2 * S) == 2


def frame(sender: int, target: int, slot: Slot = YOU, incarnation: int = 1) -> Frame:
    return Frame(0, sender, slot, incarnation, target, [], [], [], 0, 0)


def test_frames_come_from_threads_of_named_workers_to_threads_that_are_here() -> None:
    mind = state(desired([thread(1), thread(2, slot=YOU)], [at(ME), at(YOU)]))
    assert mind.admits(frame(2, 1))
    for forged in (frame(2, 1, incarnation=2), frame(2, 1, THIRD), frame(1, 1), frame(7, 1), frame(2, 2)):
        assert not mind.admits(forged)
    assert not WorkerState(ME, 1).admits(frame(2, 1)), "nobody is named yet"
    mind.on_desired(desired([thread(1)], [at(ME)], counter=2))
    assert mind.admits(frame(2, 1)), "it was on its way when its thread ended"


def test_what_came_before_its_sender_was_named_is_a_loss() -> None:
    threads = [thread(1), thread(2, slot=YOU)]
    mind = state(desired(threads, [at(ME), at(YOU, 5)]))
    for incarnation in (4, 6):
        mind.on_refused(YOU, incarnation, mind.token)
    assert faults(mind, S) == 0, "it may be a forgery"
    replaced = of(s.Fault, mind.on_desired(desired(threads, [at(ME), at(YOU, 6)], counter=2)))
    assert len(replaced) == 1 and faults(mind, S) == 1 and mind.losses == 2, "a death, and what came early"
    mind.on_refused(YOU, 6, Token(1, 1, 1))
    assert faults(mind, 20 * S) == 1, "refused by the state before"


def test_what_came_from_a_slot_that_is_new_to_this_worker_is_a_loss() -> None:
    """Its sender obeys a plan that this VM has not heard of yet."""
    mind = state(desired([thread(1), thread(2, slot=YOU)], [at(ME), at(YOU, 5)]))
    mind.on_refused(FAR, 6, mind.token)
    mind.on_desired(desired([thread(1), thread(3, slot=FAR)], [at(ME), at(FAR, 6)], counter=2))
    assert mind.losses == 1


def test_slots_that_are_invented_are_forgotten_and_those_in_use_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(s, "STRANGERS_MOST", 5)
    mind = state(desired([thread(1), thread(2, slot=YOU)], [at(ME), at(YOU, 5)]))
    mind.on_refused(YOU, 6, mind.token)
    for number in range(100):
        mind.on_refused(Slot("nowhere", number), 6, mind.token)
    assert len(mind.early) <= 6 and YOU in mind.early


def test_places_of_old_threads_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s, "PLACES_MOST", 10)
    mind = WorkerState(ME, 1)
    for number in range(100):
        mind.on_desired(desired([thread(1), thread(2 + number, slot=YOU)], counter=number))
        assert mind.places[1] == ME and mind.places[2 + number] == YOU
    assert len(mind.places) <= 14


ROUTES = (Route(0, ((2, 0.5), (3, 0.5))),)
THREADS = (thread(1, "source"), thread(2, slot=YOU), thread(3, slot=THIRD))


@pytest.mark.parametrize(
    ("workers", "after", "fault"),
    [
        ((at(ME), at(YOU, endpoint=""), at(THIRD)), (Route(0, ((3, 1.0),)),), True),
        ((at(ME), at(THIRD)), (Route(0, ((3, 1.0),)),), True),
        ((at(ME), at(YOU), at(THIRD)), (Route(0, ((3, 1.0),)),), False),
        ((at(ME), at(YOU, endpoint=""), at(THIRD)), ROUTES, False),
    ],
    ids=["quarantined", "gone", "moved away", "it comes back"],
)
def test_routes_that_leave_a_dead_worker_are_a_fault(
    workers: tuple[WorkerAt, ...], after: tuple[Route, ...], fault: bool
) -> None:
    """A worker that is not started again makes no new incarnation: what it had is sent again all the same."""
    mind = state(desired(THREADS, [at(ME), at(YOU), at(THIRD)], routes=ROUTES))
    out = mind.on_desired(desired(THREADS, workers, counter=2, number=2, routes=after))
    assert bool(of(s.Fault, out)) == fault
    same = desired(THREADS, workers, counter=3, number=2, routes=after)
    assert of(s.Fault, mind.on_desired(same)) == [], "once"


def test_routes_that_leave_a_thread_which_is_no_more_are_a_fault() -> None:
    """It could not be built and had no marks: what was sent there until now is lost, and the next plan that is heard of
    does not name it."""
    mind = state(desired(THREADS, [at(ME), at(YOU), at(THIRD)], routes=ROUTES))
    left = [one for one in THREADS if one.thread != 2]
    after = desired(left, [at(ME), at(THIRD)], counter=2, number=2, routes=(Route(0, ((3, 1.0),)),))
    mind.on_ping(Ping(THIRD, 1, True))
    assert of(s.Fault, mind.on_desired(after)) and mind.losses == 1, "once here, and peers are told"
    again = desired(left, [at(ME), at(YOU), at(THIRD)], counter=3, number=3, routes=(Route(0, ((3, 1.0),)),))
    assert of(s.Fault, mind.on_desired(again)) == []


# ── orders ──────────────────────────────────────────────────────────────────────────────────────────


def orders(one: DesiredState) -> Orders:
    return orders_of(one, ME, 1)


def test_who_marks_whom() -> None:
    threads = [thread(1, "source"), thread(2, leaving=True), thread(3), thread(4, "count"), thread(5, "end")]
    found = orders(desired(threads))
    assert found.barriers_to("source") == (2,), "leavers"
    assert found.barriers_to("work") == (4,), "keepers of keys"
    assert found.barriers_to("count") == ()
    assert found.upstream("count") == (2, 3) and found.upstream("source") == ()


def test_marks_of_threads_on_a_dead_vm_are_not_waited_for() -> None:
    found = orders(desired([thread(1, slot=FAR), thread(2), thread(3, "count")], held_dead=("vm2",)))
    assert found.upstream("count") == (2,)


def test_an_exclusive_thread_works_only_while_it_is_the_one() -> None:
    both = desired([thread(1, "end", leaving=True), thread(2, "end")])
    found = orders(replace(both, holders=(1,)))
    assert found.may_run(1) and not found.may_run(2)
    assert not orders(desired([thread(2, "end")])).may_run(2), "its predecessor may still be at it"
    assert orders(desired([thread(2, "end")], holders=(2,))).may_run(2)
    assert orders(desired([thread(1), thread(2)])).may_run(1), "others need no word"


def test_a_start_counts_only_in_a_state_made_for_this_worker() -> None:
    starts = (SourceStart("source", 0, 70),)
    fresh = desired([thread(1, "source")], [at(ME, 1)], starts=starts)
    start = orders(fresh).start_of("source", 0)
    assert start is not None and start.position == 70 and orders(fresh).start_of("source", 1) is None
    assert orders(replace(fresh, workers=(at(ME, 2),))).start_of("source", 0) is None


# ── any order of events ─────────────────────────────────────────────────────────────────────────────


@searching(150)
@given(st.integers(0, 2**32))
def test_any_order_of_events_keeps_the_rules(seed: int) -> None:
    """Old and new desired states, restarts of peers, reports in any order; each rule after each event."""
    choose = random.Random(seed)
    mind, started, ended, tokens = WorkerState(ME, 1), set[int](), set[int](), Token()
    connected: dict[Slot, int] = {}
    highest: dict[Slot, int] = {}
    history: list[DesiredState] = []
    for step in range(60):
        kind = choose.random()
        if kind < 0.35 or not history:
            history.append(random_desired(choose, step))
            out = mind.on_desired(choose.choice(history[-3:]))
        elif kind < 0.5:
            out = mind.on_link(choose.choice([YOU, THIRD, FAR]), choose.random() < 0.5)
        elif kind < 0.65:
            peer = choose.choice([YOU, THIRD, FAR])
            out = mind.on_ping(Ping(peer, choose.randint(1, 6), choose.random() < 0.5, choose.randint(0, 4)))
            out += mind.on_refused(peer, choose.randint(1, 6), choose.choice(history).token)
        elif kind < 0.9:
            now = ThreadStatus(choose.randint(1, 9), 3, choose.randint(0, 5), choose.random() < 0.5)
            out = mind.on_threads([now], [])
        else:
            out = mind.on_tick(step * S // 4)
        mind.validate()
        assert mind.token >= tokens
        tokens = mind.token
        for one in out:
            if isinstance(one, s.StartThread):
                assert one.desired.slot == ME and one.desired.thread not in started
                started.add(one.desired.thread)
            elif isinstance(one, s.EndThread):
                assert one.thread in started and one.thread not in ended
                ended.add(one.thread)
            elif isinstance(one, s.Connect):
                assert one.peer.slot not in connected and one.peer.slot != ME
                assert one.peer.incarnation >= highest.get(one.peer.slot, 0)
                connected[one.peer.slot] = highest[one.peer.slot] = one.peer.incarnation
            elif isinstance(one, s.Disconnect):
                del connected[one.slot]
            elif isinstance(one, s.Leave):
                assert started == ended
        assert {slot: peer.incarnation for slot, peer in mind.peers.items()} == connected
        assert mind.desired is not None
        here = {t.thread for t in mind.desired.threads if t.slot == ME}
        assert here <= started and started - ended <= here
        assert not connected.keys() & {Slot(vm, n) for vm in mind.desired.held_dead for n in range(9)}


def random_desired(choose: random.Random, counter: int) -> DesiredState:
    slots = [ME, YOU, THIRD, FAR]
    threads = [
        thread(n, choose.choice(["source", "work", "end"]), choose.choice(slots), choose.random() < 0.4)
        for n in range(1, 10)
        if choose.random() < 0.6
    ]
    workers = [
        at(slot, choose.randint(1, 6), choose.choice(["", "tcp://127.0.0.1:2"]))
        for slot in slots
        if choose.random() < 0.8
    ]
    phase: Phase = choose.choice(["prepared", "switched", "committed"])
    dead = ("vm2",) if choose.random() < 0.2 else ()
    return desired(threads, workers, counter, phase, choose.randint(1, 4), held_dead=dead)


def test_threads_that_have_ended_are_not_remembered_for_ever() -> None:
    mind = s.WorkerState(ME, 1)
    mind.ended = set(range(10 * s.ENDED_KEPT))
    mind.on_desired(desired([ThreadSpec(1, "work", ME)]))
    assert len(mind.ended) <= s.ENDED_KEPT and 10 * s.ENDED_KEPT - 1 in mind.ended


# ── Whose tuples a worker lets in: those of workers that desired states named, by their newest keys ─────

ONE, TWO = new_pair().public, new_pair().public
NAMED_THREADS = [thread(1), thread(2, slot=YOU), thread(3, slot=THIRD)]


def endpoint(public: str) -> str:
    return keyed("tcp://127.0.0.1:1", public)


def told(state: WorkerState, counter: int, *workers: tuple[object, int, str]) -> set[str]:
    """Whose keys count after this desired state."""
    named = [at(slot, incarnation, where) for slot, incarnation, where in workers]  # type: ignore[arg-type]
    state.on_desired(desired(NAMED_THREADS, [at(ME), *named], counter))
    state.validate()
    return {who.name for who in state.keys.values()}


def test_the_key_of_a_worker_that_was_replaced_counts_no_more() -> None:
    state = WorkerState(ME, 1)
    assert told(state, 1, (YOU, 5, endpoint(ONE))) == {"vm1/1#5"}
    assert told(state, 2, (YOU, 6, endpoint(TWO))) == {"vm1/1#6"}
    assert ONE not in state.keys


def test_of_a_worker_that_is_not_up_again_the_key_stays_until_it_is() -> None:
    """What it had written before it died may still arrive; its incarnation is fenced by the frames themselves."""
    state = WorkerState(ME, 1)
    told(state, 1, (YOU, 5, endpoint(ONE)))
    assert told(state, 2, (YOU, 6, "")) == {"vm1/1#5"}


def test_one_key_of_two_workers_as_a_lying_agent_may_tell_it_ends_nothing() -> None:
    state = WorkerState(ME, 1)
    told(state, 1, (YOU, 5, endpoint(ONE)), (THIRD, 5, endpoint(ONE)))
    assert told(state, 2, (YOU, 6, endpoint(TWO)), (THIRD, 6, endpoint(TWO))) <= {"vm1/1#6", "vm1/2#6"}


def test_an_endpoint_without_a_key_lets_nobody_in() -> None:
    state = WorkerState(ME, 1)
    assert told(state, 1, (YOU, 5, "tcp://127.0.0.1:1"), (THIRD, 5, "tcp://127.0.0.1:1#1700000000")) == set()


# ── Is the way to another VM open? ──────────────────────────────────────────────────────────────────────


def test_peers_on_other_vms_are_asked_every_second_and_their_silence_is_told() -> None:
    mind = WorkerState(ME, 1)
    mind.on_desired(
        desired([thread(1), thread(2, slot=YOU), thread(3, slot=FAR)], [at(ME), at(YOU), at(FAR)])
    )
    mind.on_tick(10 * S)
    for peer in (YOU, FAR):
        mind.on_ping(Ping(peer, 1, True, at_ms=10_000), 10 * S + S // 50)
    assert mind.heard(10 * S + S // 2) == (VmHeard("vm2", 480, 20),), "of other VMs only"
    assert of(s.AskPeer, mind.on_tick(10 * S + S // 2)) == []
    assert of(s.AskPeer, mind.on_tick(11 * S)) == [s.AskPeer(FAR)], "again, though it knows all"
    assert mind.ping(FAR, False).at_ms == 11_000
    mind.on_ping(Ping(FAR, 1, True, at_ms=11_000), 11 * S + S // 10)
    for second in range(12, 20):
        assert of(s.AskPeer, mind.on_tick(second * S)) == [s.AskPeer(FAR)]
    assert mind.heard(20 * S) == (VmHeard("vm2", 8900, 100),)
    mind.on_ping(Ping(FAR, 1, False), 20 * S + 5)
    assert mind.heard(20 * S) == (VmHeard("vm2", 0, 100),), (
        "what comes while a report is made is no time below 0"
    )
    mind.on_ping(Ping(FAR, 1, True, at_ms=15_000), 20 * S + S // 2)
    assert mind.heard(20 * S + S // 2) == (VmHeard("vm2", 0, 5500),), (
        "of the question that it answers, not of the last"
    )
    mind.on_ping(Ping(FAR, 1, False, at_ms=77), 20 * S + S // 2)
    assert mind.ping(FAR, True).at_ms == 77, "an answer says when it was asked"
    mind.on_link(FAR, up=True)
    mind.on_link(FAR, up=False)
    assert of(s.AskPeer, mind.on_tick(21 * S)) == [], "questions would pile up"
    mind.validate()


def test_a_thread_that_started_again_has_all_rows_sent_again_once() -> None:
    mind = state(desired([thread(1)], [at(ME)]))
    mind.on_started_again(1, 0)
    assert not of(s.Fault, mind.on_tick(S)) and not mind.losses
    mind.on_started_again(1, 1)
    assert len(of(s.Fault, mind.on_tick(S))) == 1 and mind.losses == 1, "peers are told of it"
    mind.on_started_again(1, 1)
    assert not of(s.Fault, mind.on_tick(100 * S)) and mind.losses == 1


def test_what_was_not_kept_for_a_peer_is_told_as_lost() -> None:
    mind = linked()
    mind.on_unsent(str(THIRD))
    assert of(s.Fault, out := mind.on_tick(S)) and s.AskPeer(YOU) in out and mind.ping(YOU, False).losses == 1


def test_rows_for_a_thread_that_has_ended_are_told_as_lost_whenever_some_come() -> None:
    """It was never built and its plan was taken back: who sent to it would have waited for their deadline."""
    mind = state(desired([thread(1), thread(2)], [at(ME)]), desired([thread(1)], [at(ME)], counter=2))
    mind.on_started_again(2, s.ENDED)
    mind.on_tick(S)
    for losses in (2, 3):
        mind.on_late(2)
        assert mind.losses == losses, "peers are told of it"
        assert len(of(s.Fault, mind.on_tick(losses * 10 * S))) == 1
