"""The agent's mind (agent/core/agent_state.py), in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest
from agent_world import BOOT, NS, VM, Mind, begun, desired, only, sent, slot, thread
from msgspec.structs import replace

from headgate.agent.core import agent_events as e
from headgate.agent.core.agent_state import VmLease
from headgate.agent.process.agent_files import left_over
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.channels import encode
from headgate.topology_runtime.wire.dead_letter_messages import SendAgain, SentAgain
from headgate.topology_runtime.wire.messages import (
    CONTACT_NS,
    LEASE_NS,
    MARGIN_NS,
    OVER_NS,
    OffsetsKept,
    is_over,
    may_begin,
)
from headgate.topology_runtime.wire.wire_version import WIRE
from headgate.topology_runtime.worker.sources.source_spool import Owner, Spool, folder_of


def source_now(number: int, emitted: int, acked: int, **more: int | bool) -> m.SourceStatus:
    given = {"acked_above": 0, "in_flight": emitted - acked, "replayed": 0, **more}
    return m.SourceStatus("source", 0, number, emitted, acked, **given)  # type: ignore[arg-type]


# ── hello ───────────────────────────────────────────────────────────────────────────────────────


def test_hello_is_said_until_welcomed() -> None:
    mind = Mind(welcomed=False)
    assert only(mind.tick(), m.Hello)
    assert not only(mind.tick(0.4), m.Hello)
    assert only(mind.tick(0.1), m.Hello)
    out = mind.tell(m.Welcome(1, "run", BOOT))
    assert only(out, m.Report) and not only(out, m.Hello)
    assert not only(mind.tick(0.5), m.Hello)


def test_nothing_is_reported_to_a_controller_that_has_not_welcomed() -> None:
    mind = Mind(welcomed=False)
    mind.want(thread(1, 0))
    assert not only(mind.tick(2.0), m.Report)


def test_a_new_life_of_the_controller_gets_hello_report_and_the_dead_letters_again() -> None:
    mind = begun()
    letter = m.DeadLetter("work", 1, "source", 0, 7, "7", "ValueError", "…")
    mind.report(letters=(letter,))
    out = mind.tell(m.Welcome(2, "run", BOOT), 0.1)
    assert only(out, m.Hello) and only(out, m.Report)
    assert only(out, e.ControllerChanged) == [e.ControllerChanged(2)]
    assert only(out, m.DeadLetters)[0].letters == (letter,)


def test_a_silent_controller_is_told_again_who_is_here() -> None:
    mind = Mind()
    assert not only(mind.tick(1.4), m.Hello)
    assert only(mind.tick(0.2), m.Hello)
    mind.tell(m.Welcome(1, "run", BOOT))
    assert not only(mind.tick(1.4), m.Hello)


def test_an_older_controller_is_not_obeyed() -> None:
    mind = Mind()
    mind.tell(m.Welcome(3, "run", BOOT))
    mind.want(thread(1, 0), boot=2)
    mind.tell(m.Shutdown(m.Token(2, 9, 9)))
    assert not only(mind.all, e.SpawnWorker) and not mind.state.stopping


def test_a_refused_agent_ends_with_the_reason_and_no_goodbye() -> None:
    mind = Mind(welcomed=False)
    out = mind.tell(m.Welcome(1, "run", BOOT, refused="a newer agent of vm1 is here already"))
    assert only(out, e.Exit)[0].error == "a newer agent of vm1 is here already"
    assert not only(out, m.Goodbye)


@pytest.mark.parametrize(
    ("wire", "obeyed"), [(WIRE - 2, False), (WIRE - 1, True), (WIRE + 1, True), (WIRE + 2, False)]
)
def test_a_controller_of_a_version_too_far_away_is_not_obeyed(wire: int, obeyed: bool) -> None:
    mind = Mind(welcomed=False)
    mind.tell(m.Welcome(1, "run", BOOT, protocol=wire, version="9.9.9"))
    mind.want(thread(1, 0))
    assert bool(only(mind.all, e.SpawnWorker)) is obeyed
    if not obeyed:
        error = only(mind.all, e.Exit)[0].error
        assert f"headgate 9.9.9 (wire version {wire})" in error and "headgate cluster upgrade" in error


def test_a_controller_that_is_replaced_by_one_too_new_is_left_with_all_that_runs() -> None:
    mind = begun(up=False)
    mind.tell(m.Welcome(2, "run", BOOT, protocol=WIRE + 2, version="9.9.9"))
    mind.want(thread(2, 1), boot=2)
    assert mind.state.stopping and len(only(mind.all, e.SpawnWorker)) == 1


# ── desired states ───────────────────────────────────────────────────────────────────────────────


def test_slots_with_desired_threads_get_workers_and_those_get_the_desired_state() -> None:
    mind = Mind()
    out = mind.want(thread(1, 0), thread(2, 0), thread(3, 2))
    assert [s.slot for s in only(out, e.SpawnWorker)] == [slot(0), slot(2)]
    assert not sent(out, bytes)
    forwarded = sent(mind.up(0), bytes)
    assert [f.slot for f in forwarded] == [slot(0)] and forwarded[0].message


def test_only_the_highest_token_counts_and_an_equal_one_is_told_again() -> None:
    mind = Mind()
    mind.want(thread(1, 0), epoch=2)
    mind.up()
    assert len(sent(mind.want(thread(1, 0), epoch=2), bytes)) == 1
    out = mind.want(thread(1, 1), epoch=1, counter=9)
    assert not only(out, e.SpawnWorker) and not sent(out, bytes)
    assert mind.state.token == m.Token(1, 2, 1)
    assert only(mind.want(thread(1, 0), thread(2, 1), epoch=2, counter=2), e.SpawnWorker)


def test_threads_in_slots_that_this_vm_does_not_have_are_noted_once() -> None:
    mind = Mind(slots=2)
    threads = (thread(1, 0), thread(2, 7), m.ThreadSpec(3, "work", m.Slot("vm2", 9)))
    assert [n.text for n in only(mind.want(*threads), e.Note)] == [
        "threads are desired in slot vm1/7, which this VM does not have"
    ]
    assert not only(mind.want(*threads), e.Note)
    assert [s.slot.number for s in only(mind.all, e.SpawnWorker)] == [0]


def test_a_later_incarnation_is_higher_than_all_that_were_heard_of() -> None:
    mind = Mind()
    far = BOOT + 10**15
    mind.want(thread(1, 0), workers=(m.WorkerAt(slot(0), far, ""),))
    assert mind.incarnation() == far + 1
    mind.dies(after_s=1.0)
    assert mind.incarnation() == far + 2


def test_incarnations_are_utc_by_the_agents_own_clock() -> None:
    mind = Mind()
    mind.want(thread(1, 0), after_s=2.5)
    assert mind.incarnation() == BOOT + int(2.5 * NS)


# ── deaths ──────────────────────────────────────────────────────────────────────────────────────


def test_a_dead_worker_is_replaced_at_once_and_told() -> None:
    mind = begun()
    mind.report(threads=(m.ThreadStatus(1, switched=1),))
    first = mind.incarnation()
    out = mind.dies(after_s=1.0)
    assert only(out, e.SpawnWorker)[0].incarnation > first
    now = only(out, m.Report)[0].workers[0]
    assert (now.state, now.crashes, now.endpoint, now.threads) == ("starting", 1, "", ())
    assert now.last_exit == "signal 9 (SIGKILL)"


def test_words_of_a_replaced_worker_do_not_count() -> None:
    mind = begun(up=False)
    first = mind.incarnation()
    mind.dies(after_s=1.0)
    mind.tell(m.WorkerHello(slot(0), first, 1, "tcp://old"))
    mind.tell(m.WorkerReport(slot(0), first, m.Token(9, 9, 9), True))
    mind.tell(e.WorkerExited(slot(0), first, "again"))
    assert mind.state.slots[0].status == "starting" and mind.state.slots[0].crashes == 1


def test_the_fourth_crash_in_a_minute_quarantines_the_slot() -> None:
    mind = begun(up=False)
    for _ in range(3):
        assert only(mind.dies(after_s=10.0), e.SpawnWorker)
    out = mind.dies(after_s=10.0)
    assert not only(out, e.SpawnWorker) and "quarantined" in only(out, e.Note)[0].text
    assert mind.told().workers[0].state == "quarantined"
    assert not only(mind.want(thread(1, 0), counter=2), e.SpawnWorker)


def test_crashes_more_than_a_minute_apart_do_not_add_up() -> None:
    mind = begun(up=False)
    for _ in range(8):
        assert only(mind.dies(after_s=21.0), e.SpawnWorker)


def test_a_later_epoch_that_names_the_slot_ends_its_quarantine() -> None:
    mind = begun(up=False)
    for _ in range(4):
        mind.dies(after_s=1.0)
    assert not only(mind.want(thread(1, 0, leaving=True), epoch=2), e.SpawnWorker)
    assert only(mind.want(thread(2, 0), epoch=3), e.SpawnWorker)
    assert only(mind.dies(after_s=1.0), e.SpawnWorker), "its crashes are counted anew"


def test_a_slot_whose_threads_nothing_else_took_is_tried_again_after_a_minute() -> None:
    """It may be the only one, and what it crashed for may be over."""
    mind = begun(up=False)
    for _ in range(4):
        mind.dies(after_s=1.0)
    assert not only(mind.tick(59.0), e.SpawnWorker)
    out = mind.tick(1.0)
    assert only(out, e.SpawnWorker) and "tried again" in only(out, e.Note)[0].text
    for _ in range(3):
        assert only(mind.dies(after_s=1.0), e.SpawnWorker), "its crashes are counted anew"
    assert not only(mind.dies(after_s=1.0), e.SpawnWorker)
    mind.want(thread(1, 0, leaving=True), epoch=2)
    assert not only(mind.tick(120.0), e.SpawnWorker), "they are elsewhere now"


def test_what_answers_for_snapshots_lives_in_a_quarantined_slot_too() -> None:
    """The controller goes on to take the slot for one without use."""
    mind = begun(up=False)
    for _ in range(4):
        mind.dies(after_s=1.0)
    answering = replace(thread(1, 0, leaving=True), answers=True)
    assert not only(mind.want(answering, epoch=2), e.SpawnWorker), "once a second"
    assert only(mind.tick(1.0), e.SpawnWorker)
    mind.up()
    (now,) = mind.told().workers
    assert (now.state, now.endpoint) == ("quarantined", "tcp://w0")
    out = mind.dies(after_s=1.0)
    assert not only(out, e.SpawnWorker) and not only(out, e.Note)
    assert only(mind.tick(1.0), e.SpawnWorker)
    mind.up()
    mind.want(epoch=3)
    mind.dies(clean=True)
    assert not only(mind.tick(2.0), e.SpawnWorker) and mind.told().workers[0].state == "quarantined"
    assert only(mind.want(thread(2, 0), epoch=4), e.SpawnWorker), "a later epoch puts threads there"


def test_a_worker_that_cannot_be_started_counts_as_crashed() -> None:
    mind = begun(up=False)
    mind.tell(e.WorkerExited(slot(0), mind.incarnation(), "it cannot be started: no memory"))
    now = mind.told().workers[0]
    assert now.crashes == 1 and now.last_exit == "it cannot be started: no memory"


def test_a_worker_that_never_says_hello_is_killed_after_a_minute() -> None:
    mind = begun(up=False)
    assert not only(mind.tick(59.9), e.KillWorker)
    killed = only(mind.tick(0.2), e.KillWorker)
    assert killed and killed[0].why == "no word from it for 60 s"
    mind.dies()
    assert mind.told().workers[0].last_exit == "no word from it for 60 s: signal 9 (SIGKILL)"


def test_a_hung_worker_writes_its_stacks_then_is_killed() -> None:
    mind = begun()
    out = mind.tell(e.WorkerHung(slot(0), mind.incarnation(), "a call has taken 11 s"))
    assert only(out, e.DumpWorker) and not only(out, e.KillWorker)
    assert not only(mind.tell(e.WorkerHung(slot(0), mind.incarnation(), "still"), 0.1), e.DumpWorker)
    assert only(mind.tick(0.1), e.KillWorker)[0].why == "hung, a call has taken 11 s"
    assert not only(mind.tick(0.5), e.KillWorker)
    assert only(mind.tick(0.6), e.KillWorker), "again, while it lives"


# ── leaving ─────────────────────────────────────────────────────────────────────────────────────


def test_a_worker_without_desired_threads_leaves_and_that_is_no_crash() -> None:
    mind = begun()
    mind.want(counter=2)
    mind.report(leaving=True)
    out = mind.dies(clean=True)
    assert not only(out, e.SpawnWorker)
    now = mind.told().workers[0]
    assert (now.state, now.crashes, now.last_exit) == ("exited", 0, "exit code 0")


def test_a_worker_that_leaves_while_it_is_desired_again_is_replaced_without_blame() -> None:
    mind = begun()
    mind.report(leaving=True)
    mind.want(thread(2, 0), counter=2)
    assert only(mind.dies(clean=True), e.SpawnWorker)
    assert mind.told().workers[0].crashes == 0


def test_a_worker_that_left_before_its_report_of_it_came_has_not_crashed() -> None:
    mind = begun()
    assert only(mind.dies(clean=True), e.SpawnWorker)
    assert mind.told().workers[0].crashes == 0


def test_a_worker_that_says_it_leaves_because_a_thread_crashed_has_crashed() -> None:
    mind = begun()
    mind.report(leaving=True)
    assert only(mind.dies(clean=False), e.SpawnWorker)
    assert mind.told().workers[0].crashes == 1


def test_a_worker_that_says_it_leaves_and_does_not_is_killed() -> None:
    mind = begun()
    mind.want(counter=2)
    mind.report(leaving=True)
    assert not only(mind.tick(4.9), e.KillWorker)
    assert only(mind.tick(0.2), e.KillWorker)


def test_leaving_threads_that_have_ended_bring_no_worker_back_and_stay_told() -> None:
    mind = begun(thread(1, 0, leaving=True))
    mind.report(threads=(m.ThreadStatus(1, ended=True),))
    assert not only(mind.dies(), e.SpawnWorker)
    assert mind.told().workers[0].threads == (m.ThreadStatus(1, ended=True),)
    mind.want(counter=2)
    assert mind.told().workers[0].threads == ()


def test_a_thread_that_has_ended_and_is_to_answer_for_snapshots_brings_a_worker() -> None:
    """It left, and what it had on this VM is asked for at once: seed 913112 waited for ever."""
    mind = begun(thread(1, 0, leaving=True))
    mind.report(threads=(m.ThreadStatus(1, ended=True),))
    mind.dies(clean=True)
    assert only(mind.want(replace(thread(1, 0, leaving=True), answers=True), epoch=2), e.SpawnWorker)


def test_a_leaving_thread_that_has_not_ended_is_still_desired() -> None:
    mind = begun(thread(1, 0, leaving=True), up=False)
    assert only(mind.dies(), e.SpawnWorker)


# ── reports ─────────────────────────────────────────────────────────────────────────────────────


def test_every_change_is_reported_at_once_and_numbered() -> None:
    mind = Mind()
    mind.want(thread(1, 0), after_s=0.1)
    mind.up(after_s=0.1)
    mind.report(threads=(m.ThreadStatus(1),))
    mind.tick(0.005)
    reports = only(mind.all, m.Report)
    assert [r.sequence for r in reports] == list(range(1, len(reports) + 1))
    assert reports[-1].workers[0].threads == (m.ThreadStatus(1),)
    assert reports[-1].workers[0].ready and reports[-1].token == m.Token(1, 1, 1)


def test_changes_closer_than_five_milliseconds_share_a_report() -> None:
    mind = Mind()
    mind.want(thread(1, 0), after_s=1.0)
    before = len(only(mind.all, m.Report))
    for n in range(50):
        mind.up() if n == 0 else mind.report(threads=(m.ThreadStatus(n),))
    assert len(only(mind.all, m.Report)) == before
    assert mind.state.wake_ns <= mind.now_ns + 5_000_000
    report = only(mind.tick(0.005), m.Report)[0]
    assert report.workers[0].threads == (m.ThreadStatus(49),)


def test_without_changes_a_report_goes_out_every_half_second() -> None:
    mind = Mind()
    mind.tick(0.5)
    count = len(only(mind.all, m.Report))
    for _ in range(100):
        mind.tick(0.05)
    assert len(only(mind.all, m.Report)) - count == 10


def test_wake_names_the_time_of_the_next_word_and_the_next_kill() -> None:
    mind = begun()
    mind.tick(0.01)
    assert mind.state.wake_ns == mind.now_ns + NS // 2
    mind.tell(e.WorkerHung(slot(0), mind.incarnation(), "x"))
    assert mind.state.wake_ns == mind.now_ns + NS // 5


def test_dead_letters_are_passed_on() -> None:
    mind = begun()
    letter = m.DeadLetter("work", 1, "source", 0, 7, "7", "ValueError", "…")
    assert only(mind.report(letters=(letter,)), m.DeadLetters) == [
        m.DeadLetters(VM, (letter,), BOOT, run="run")
    ]
    assert only(mind.tick(5.0), m.DeadLetters), "again, as nobody took it"
    mind.tell(m.LettersTaken(BOOT, 1))
    assert not only(mind.tick(6.0), m.DeadLetters)


def test_what_an_earlier_life_left_is_told_and_goes_once_it_is_taken() -> None:
    letter = m.DeadLetter("work", 1, "source", 0, 7, "7", "ValueError", "…")
    mind = Mind(letters=(letter,))
    (said,) = only(mind.all, m.DeadLetters)
    assert (said.letters, said.boot) == ((letter,), BOOT)
    assert only(mind.tick(5.0), m.DeadLetters) and not only(mind.all, e.DropDeadLetters)
    assert only(mind.tell(m.LettersTaken(BOOT, 1)), e.DropDeadLetters)
    mind.tick(6.0)
    assert len(only(mind.all, e.DropDeadLetters)) == 1


def test_what_a_dead_worker_left_goes_once_it_is_taken() -> None:
    mind = begun()
    assert len(only(mind.all, e.DropDeadLetters)) == 1, "there was nothing"
    letter = m.DeadLetter("work", 1, "source", 0, 7, "7", "ValueError", "…")
    mind.report(letters=(letter,))
    other = m.DeadLetter("work", 1, "source", 0, 8, "8", "ValueError", "…")
    mind.tell(e.WorkerExited(slot(0), mind.incarnation(), "signal 9", letters=(other,)))
    mind.tell(m.LettersTaken(BOOT, 1))
    assert len(only(mind.all, e.DropDeadLetters)) == 1
    mind.tell(m.LettersTaken(BOOT, 2))
    assert len(only(mind.all, e.DropDeadLetters)) == 2


# ── sources ─────────────────────────────────────────────────────────────────────────────────────


def read(mind: Mind, *sources: m.SourceStatus) -> None:
    mind.tell(e.SourcesRead(slot(0), mind.incarnation(), sources))


def positions(mind: Mind) -> tuple[m.SourceStatus, ...]:
    """What is reported of sources, but for how old it is."""
    return tuple(replace(now, age_ms=0) for now in mind.told().sources)


def test_positions_are_reported_with_their_age() -> None:
    mind = begun(thread(1, 0, "source"))
    read(mind, source_now(1, emitted=100, acked=80))
    assert mind.told().sources[0].age_ms == 1000
    assert mind.told().sources[0].age_ms == 2000
    read(mind, source_now(1, emitted=120, acked=90))
    assert mind.told().sources[0].age_ms == 1000


def test_what_a_killed_source_had_acked_is_told_until_its_successor_has_begun() -> None:
    mind = begun(thread(1, 0, "source"))
    read(mind, source_now(1, emitted=100, acked=80))
    mind.dies()
    assert positions(mind) == (source_now(1, 100, 80),)
    mind.up()
    read(mind, source_now(1, 0, 0))
    assert positions(mind) == (source_now(1, 0, 80, in_flight=0),)
    read(mind, source_now(1, emitted=90, acked=79, acked_above=3))
    assert positions(mind) == (source_now(1, 90, 79, acked_above=3),)


def test_a_late_reading_of_a_dead_worker_does_not_hide_the_present_one() -> None:
    mind = begun(thread(1, 0, "source"), up=False)
    first = mind.incarnation()
    mind.dies(after_s=1.0)
    read(mind, source_now(1, 90, 85))
    mind.tell(e.SourcesRead(slot(0), first, (source_now(1, 100, 80),)))
    assert positions(mind) == (source_now(1, 90, 85),)


def test_an_older_word_that_comes_later_takes_no_position_back() -> None:
    """Meters are read by the agent, words of the worker are queued: else a run without faults had read rows again."""
    mind = begun(thread(1, 0, "source"))
    read(mind, source_now(1, emitted=36, acked=0))
    read(mind, source_now(1, emitted=35, acked=0))
    assert positions(mind) == (source_now(1, 36, 0),)


def test_a_source_that_stops_is_reported_at_once() -> None:
    mind = begun(thread(1, 0, "source"))
    read(mind, source_now(1, 10, 10))
    mind.tick(0.1)
    out = mind.tell(e.SourcesRead(slot(0), mind.incarnation(), (source_now(1, 10, 10, stopped=True),)), 0.1)
    assert only(out, m.Report)[0].sources[0].stopped


def test_sources_that_are_not_desired_here_any_more_are_not_told() -> None:
    mind = begun(thread(1, 0, "source"), up=False)
    read(mind, source_now(1, 10, 10))
    mind.want(thread(2, 0), counter=2)
    assert mind.told().sources == ()


# ── the end ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "event", [m.Shutdown(m.Token(1, 1, 1), "done"), e.StopAsked("SIGTERM"), e.OwnerGone()]
)
def test_the_end_quits_workers_then_says_goodbye(event: e.Event) -> None:
    mind = begun(thread(1, 0), thread(2, 1), up=False)
    mind.up(0)
    out = mind.tell(event)
    assert {q.slot.number for q in sent(out, m.Quit)} == {0, 1}
    assert not only(mind.dies(0, clean=True), e.SpawnWorker)
    assert sent(mind.up(1), m.Quit), "a worker that is up only now is told too"
    out = mind.dies(1, clean=True)
    assert [type(i).__name__ for i in out] == ["DropDeadLetters", "Report", "Goodbye", "Exit"]
    assert only(out, m.Report)[0].workers[0].crashes == 0
    assert mind.tick(10.0) == []


def test_a_worker_that_does_not_quit_is_killed_after_a_second() -> None:
    mind = begun()
    mind.tell(e.StopAsked("SIGTERM"))
    assert not only(mind.tick(0.9), e.KillWorker)
    assert only(mind.tick(0.1), e.KillWorker)
    assert only(mind.dies(), e.Exit)


def test_asked_twice_it_kills_at_once() -> None:
    mind = begun()
    mind.tell(e.StopAsked("SIGINT"))
    assert only(mind.tell(e.StopAsked("SIGINT"), 0.1), e.KillWorker)


def test_an_owner_that_is_gone_and_the_signal_that_its_end_sends_are_one_reason_to_end() -> None:
    mind = begun()
    assert sent(mind.tell(e.OwnerGone()), m.Quit)
    assert not only(mind.tell(e.StopAsked("SIGTERM"), 0.1), e.KillWorker)
    assert only(mind.tell(e.StopAsked("SIGTERM"), 0.1), e.KillWorker)


def test_what_no_kill_ends_is_left_behind_loudly() -> None:
    mind = begun(up=False)
    mind.tell(e.StopAsked("SIGTERM"))
    out = mind.tick(5.0)
    assert "does not end even when killed" in only(out, e.Note)[0].text and only(out, e.Exit)


def test_without_workers_the_end_is_at_once() -> None:
    out = Mind().tell(m.Shutdown(m.Token(1, 1, 1)))
    assert only(out, m.Goodbye) and only(out, e.Exit)


def test_a_shutdown_with_an_old_token_is_not_obeyed() -> None:
    mind = Mind()
    mind.want(thread(1, 0), epoch=3)
    mind.tell(m.Shutdown(m.Token(1, 2, 50)))
    assert not mind.state.stopping


def test_what_the_disk_does_not_take_is_told_of_agent_and_workers() -> None:
    mind = begun()
    mind.report(troubles=("spool",), unlogged=3)
    mind.tell(e.DiskSeen(("log",)))
    told = mind.told()
    assert told.troubles == ("log", "spool") and told.unlogged == 3
    mind.tell(e.WorkerExited(slot(0), mind.incarnation(), "signal 9", unlogged=1))  # a sink was at a row
    mind.up()
    mind.report(unlogged=2)
    told = mind.told()
    assert told.troubles == ("log",) and told.unlogged == 6, "also of the worker that is gone"


def test_sources_that_are_desired_no_more_are_forgotten() -> None:
    mind = Mind()
    for number in range(1, 50):
        mind.want(thread(number, 0, "source"), counter=number)
        mind.up()
        mind.report(sources=(m.SourceStatus("source", 0, number, 10, 5, 0, 5, 0),))
    assert [now.thread for now in mind.told().sources] == [49]


# ── The lease of a VM: from when the answered report was sent, told to workers with exclusive threads ───


def test_it_lasts_from_when_the_answered_report_was_sent() -> None:
    lease = VmLease()
    for sequence in (1, 2, 3):
        lease.sent(sequence, sequence * NS)
    assert lease.answered(2, True) == 2 * NS and lease.until_ns == 2 * NS + LEASE_NS
    assert not lease.answered(1, True) and not lease.answered(2, True), (
        "an answer that was overtaken, or came twice"
    )
    assert lease.answered(3, False) == 3 * NS, "answered, and no lease granted"
    assert lease.until_ns == 2 * NS + LEASE_NS
    assert not lease.answered(7, True), "a report that was never sent"
    assert lease.until_ns == 2 * NS + LEASE_NS


def test_reports_older_than_a_lease_are_forgotten() -> None:
    lease = VmLease()
    for sequence in range(1, 10_001):
        lease.sent(sequence, sequence * NS // 200)
    assert len(lease.unanswered) == LEASE_NS // (NS // 200)
    assert not lease.answered(1, True)


def test_at_its_very_end_nothing_may_begin_and_it_is_not_over_a_moment_early() -> None:
    until_ns = 20 * NS
    assert may_begin(until_ns - MARGIN_NS - 1, until_ns) and not may_begin(until_ns - MARGIN_NS, until_ns)
    assert is_over(7 + OVER_NS, 7) and not is_over(6 + OVER_NS, 7)
    assert OVER_NS - LEASE_NS * 105 // 100 == NS // 10


def exclusive(mind: Mind, *threads: m.ThreadSpec) -> m.DesiredState:
    """A desired state in which `work` is exclusive, obeyed."""
    state = mind.state.desired
    assert state is not None
    tasks = tuple(replace(task, exclusive=task.name == "work") for task in state.topology.tasks)
    topology = replace(state.topology, tasks=tasks)
    return replace(state, token=m.Token(1, 1, state.token.counter + 1), topology=topology, threads=threads)


def granted(mind: Mind, boot: int = BOOT) -> list[e.Instruction]:
    return mind.tell(m.Welcome(1, "run", BOOT, leased=(boot, mind.state.sequence)))


def test_workers_with_exclusive_threads_are_told_after_the_desired_state() -> None:
    mind = begun(thread(1, 0), thread(2, 1, "store"), up=False)
    state = exclusive(mind, thread(1, 0), thread(2, 1, "store"))
    mind.tell(e.WantedArrived(state, encode(state)))
    mind.up(0)
    mind.up(1)
    mind.tell(e.Tick(), 1.0)
    sent_ns = mind.now_ns
    mind.now_ns += NS // 4
    work_until_ns = sent_ns + CONTACT_NS
    told = {one.slot.number: one.message for one in sent(granted(mind), m.Lease)}
    assert told[0] == m.Lease(sent_ns + LEASE_NS, work_until_ns, sent_ns)
    assert told[1] == m.Lease(0, work_until_ns, sent_ns), "store needs none"
    again = mind.tell(e.WantedArrived(state, encode(state)))
    assert [type(one.message) for one in sent(again, object)] == [bytes, m.Lease, bytes, m.Lease]


def test_an_answer_to_an_earlier_life_of_this_agent_grants_nothing() -> None:
    mind = begun(up=False)
    mind.tell(e.Tick(), 1.0)
    granted(mind, BOOT - 1)
    assert mind.state.lease.until_ns == 0


def test_a_worker_that_comes_up_later_is_told_too() -> None:
    mind = begun(up=False)
    state = exclusive(mind, thread(1, 0))
    mind.tell(e.WantedArrived(state, encode(state)))
    mind.tell(e.Tick(), 1.0)
    assert not sent(granted(mind), m.Lease), "it is not there yet"
    assert len(sent(mind.up(0), m.Lease)) == 1


# ── What a controller has a source thread send again passes through its agent, and what comes of it ─────


def test_what_is_to_be_sent_again_goes_to_the_worker_that_it_is_for() -> None:
    mind = begun()
    boot, here = mind.state.controller_boot, mind.incarnation()
    said = SendAgain(boot, slot(0), here, 1, (3,))
    assert sent(mind.tell(said), SendAgain) == [e.ToWorker(slot(0), here, said)]
    for other in (SendAgain(boot - 1, slot(0), here, 1, ()), SendAgain(boot, slot(0), here - 1, 1, ())):
        assert not sent(mind.tell(other), SendAgain)


def test_what_became_of_it_is_told_with_the_worker_and_gone_with_it() -> None:
    mind = begun()
    again = (SentAgain(1, 7, (3,), (4,)),)
    (report,) = only([*mind.report(again=again), *mind.tick(0.1)], m.Report)
    assert report.workers[0].again == again and report.boot == BOOT
    mind.dies()
    assert not mind.told().workers[0].again


# ── What is left in a VM's spools when a worker ends: a controller must know before it has somebody else
# read on

LEFT = (m.SpoolLeft("source", 0, 40, 42, "run", 1),)


def test_a_report_tells_of_them_from_the_moment_a_worker_ended() -> None:
    mind = begun()
    assert mind.told().spools == ()
    mind.tell(e.WorkerExited(slot(0), mind.incarnation(), "signal 9", spools=LEFT))
    assert mind.told().spools == LEFT
    mind.tell(e.WorkerExited(slot(0), mind.incarnation(), "it cannot be started: no memory"))
    assert mind.told().spools == LEFT, "nobody has read it since"


def test_they_are_read_from_the_disk(tmp_path: Path) -> None:
    assert left_over(str(tmp_path)) == ()
    Spool(folder_of(str(tmp_path), Owner("source", 0, "run", 1)), 40).append([1, 2])
    (tmp_path / "spools" / "source~0~run~1" / "acked").write_text("40")
    assert left_over(str(tmp_path)) == LEFT


def test_a_spool_that_cannot_be_read_ends_no_agent(tmp_path: Path) -> None:
    (tmp_path / "spools" / "source~0~run~1" / "acked").mkdir(parents=True)
    assert left_over(str(tmp_path)) == ()


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("word", ["desired", "welcome"])
def test_a_controller_of_another_run_ends_this_life_without_last_words_to_it(word: str) -> None:
    """Its boots begin at 1 again, its threads have the numbers of these."""
    mind = Mind()
    mind.tell(m.Welcome(3, "run", BOOT))
    mind.want(thread(1, 0), boot=3)
    mind.up(0)
    other = replace(desired(thread(1, 0)), run="another")
    out = mind.tell(
        e.WantedArrived(other, encode(other)) if word == "desired" else m.Welcome(1, "another", BOOT)
    )
    assert [one.message.reason for one in sent(out, m.Quit)] == [
        "the controller runs another, this was of run"
    ]
    out = mind.dies(0, clean=True)
    assert only(out, e.Exit)[0].error == "" and not only(out, m.Report) and not only(out, m.Goodbye)


def test_all_that_is_counted_names_its_run() -> None:
    mind = Mind()
    mind.want(thread(1, 0))
    mind.up(0)
    letter = m.DeadLetter("work", 1, "source", 0, 7, "7", "ValueError", "…")
    assert only(mind.report(letters=(letter,)), m.DeadLetters)[0].run == "run"
    assert mind.told().run == "run"


def test_a_slot_that_was_given_up_and_is_in_no_plan_may_be_used_again_later_each_time() -> None:
    """When no other slot is left, what could not run there for a while is not lost for ever."""
    mind = begun(up=False)
    for minutes in (2, 4, 8):
        for _ in range(4):
            mind.dies(after_s=1.0)
        mind.want(epoch=2 * minutes)
        assert mind.told().workers[0].state == "quarantined"
        mind.tick(minutes * 60.0 - 6.0)
        assert mind.told().workers[0].state == "quarantined"
        assert "plans may use it" in only(mind.tick(6.0), e.Note)[0].text
        assert mind.told().workers[0].state == "exited" and not only(mind.tick(1.0), e.SpawnWorker)
        mind.want(thread(1, 0), epoch=2 * minutes + 1)


def test_what_sources_go_on_from_goes_to_the_workers_that_read_them() -> None:
    mind = begun(thread(1, 0, "source"), thread(2, 1))
    said = OffsetsKept(mind.state.controller_boot, ((1, 70), (9, 5)))
    assert sent(mind.tell(said), OffsetsKept) == [e.ToWorker(slot(0), mind.incarnation(), said)]
    counted = OffsetsKept(mind.state.controller_boot, (), ((0, 0, 70),))
    assert len(sent(mind.tell(counted), OffsetsKept)) == 2, "any may count keyed state"
    older = OffsetsKept(mind.state.controller_boot - 1, ((1, 70),))
    assert not sent(mind.tell(older), OffsetsKept)
