"""Profiles in free slots, in the agent's mind: started, told, and gone before anything needs their slots."""

from __future__ import annotations

from agent_world import BOOT, Mind, begun, only, slot, thread
from msgspec.structs import replace

from headgate.agent.core import agent_events as e
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.channels import encode
from headgate.topology_runtime.wire.report_messages import Profiled, ProfileSpec

Desired = ProfileSpec | tuple[ProfileSpec, ...] | None
PROFILE = ProfileSpec("work", slot(3), 70, 20.0)


def profile(mind: Mind, *threads: m.ThreadSpec, desired: Desired = PROFILE) -> list[object]:
    """A newer desired state with these threads and this profile, or these."""
    from agent_world import desired as state_of

    wanted = {"profiles": desired} if isinstance(desired, tuple) else {"profile": desired}
    state = replace(state_of(*threads, counter=mind.state.token.counter + 1), **wanted)
    return list(mind.tell(e.WantedArrived(state, encode(state))))


def profiling() -> Mind:
    mind = Mind()
    out = profile(mind, thread(1, 0))
    assert [start.profile for start in only(out, e.StartProfile)] == [PROFILE]
    return mind


def test_it_is_started_once_however_often_it_is_told() -> None:
    mind = profiling()
    assert not only(profile(mind, thread(1, 0)), e.StartProfile)


def test_it_is_gone_before_a_worker_is_started_in_its_slot() -> None:
    mind = profiling()
    out = profile(mind, thread(1, 0), thread(2, 3), desired=None)
    kinds = [type(i) for i in out if isinstance(i, e.EndProfile | e.SpawnWorker)]
    assert kinds == [e.EndProfile, e.SpawnWorker]


def test_threads_win_even_while_the_profile_is_still_named() -> None:
    mind = profiling()
    out = profile(mind, thread(1, 0), thread(2, 3))
    assert only(out, e.EndProfile) and only(out, e.SpawnWorker)


def test_it_ends_when_it_is_named_no_more_or_another_is() -> None:
    assert only(profile(profiling(), thread(1, 0), desired=None), e.EndProfile) == [e.EndProfile(70)]
    out = profile(profiling(), thread(1, 0), desired=ProfileSpec("store", slot(2), 71, 20.0))
    assert [type(i) for i in out if isinstance(i, e.EndProfile | e.StartProfile)] == [
        e.EndProfile,
        e.StartProfile,
    ]


def test_it_ends_with_its_budget_and_what_it_measured_is_told() -> None:
    mind = profiling()
    assert not only(mind.tick(19.9), e.EndProfile)
    assert mind.state.wake_ns <= mind.now_ns + 100_000_001
    assert only(mind.tick(0.2), e.EndProfile) == [e.EndProfile(70)]
    out = mind.tell(e.ProfileEnded(70, b"{}"))
    assert only(out, Profiled) == [Profiled("vm1", 70, b"{}")]


def test_the_result_is_told_again_until_nobody_asks_for_it() -> None:
    mind = profiling()
    mind.tell(e.ProfileEnded(70, b"{}", "no rows"))
    said = [Profiled("vm1", 70, b"{}", "no rows")]
    assert only(profile(mind, thread(1, 0)), Profiled) == said
    assert not only(profile(mind, thread(1, 0), desired=None), Profiled)


def test_what_was_ended_for_others_tells_nothing() -> None:
    mind = profiling()
    profile(mind, thread(1, 0), desired=None)
    assert not only(mind.tell(e.ProfileEnded(70, b"{}")), Profiled)


def test_it_waits_for_a_worker_that_is_still_in_the_slot() -> None:
    mind = begun(thread(1, 3))
    assert not only(profile(mind, thread(2, 0)), e.StartProfile)
    mind.report(3, leaving=True)
    mind.dies(3, clean=True)
    assert only(profile(mind, thread(2, 0)), e.StartProfile)


def test_other_vms_and_slots_that_are_not_there_are_not_for_this_agent() -> None:
    mind = Mind()
    for place in (Slot("vm2", 3), slot(99)):
        assert not only(profile(mind, desired=ProfileSpec("work", place, 70, 20.0)), e.StartProfile)


def test_it_ends_with_the_agent() -> None:
    mind = profiling()
    out = mind.tell(e.StopAsked("signal SIGTERM"))
    assert isinstance(out[0], e.EndProfile)
    assert not only(profile(mind, thread(1, 0)), e.StartProfile)


def test_a_new_life_of_the_controller_ends_it_whatever_that_wants() -> None:
    mind = profiling()
    assert only(mind.tell(m.Welcome(2, "run", BOOT)), e.EndProfile) == [e.EndProfile(70)]
    assert not only(mind.want(thread(1, 0), boot=2), e.EndProfile)


# ── several at once ─────────────────────────────────────────────────────────────────────────────

OTHER = ProfileSpec("store", slot(2), 71, 30.0, samples=True)


def test_two_slots_measure_at_once_each_with_a_budget_of_its_own() -> None:
    mind = Mind()
    out = profile(mind, thread(1, 0), desired=(PROFILE, OTHER))
    assert [start.profile for start in only(out, e.StartProfile)] == [PROFILE, OTHER]
    assert only(mind.tick(20.1), e.EndProfile) == [e.EndProfile(70)]
    mind.tell(e.ProfileEnded(70, b"{}"))
    assert only(mind.tick(10.0), e.EndProfile) == [e.EndProfile(71)]


def test_one_that_is_named_no_more_ends_alone_and_one_is_in_a_slot_at_most() -> None:
    mind = Mind()
    profile(mind, desired=(PROFILE, OTHER))
    third = ProfileSpec("more", slot(2), 72, 30.0)
    out = profile(mind, desired=(OTHER, third))
    assert only(out, e.EndProfile) == [e.EndProfile(70)] and not only(out, e.StartProfile)
    assert [start.profile for start in only(profile(mind, desired=(third,)), e.StartProfile)] == [third]


def test_reports_say_how_far_they_are_and_whose_fault_it_was_is_told() -> None:
    mind = Mind()
    profile(mind, desired=(PROFILE, OTHER))
    mind.tell(e.ProfileStands(71, 2, 5))
    mind.tell(e.ProfileStands(99, 1, 1))  # of one that is over
    (report, *_) = only(mind.tick(0.6), m.Report)
    assert report.profiles == (m.ProfileAt(70, 0, 0), m.ProfileAt(71, 2, 5))
    (said,) = only(mind.tell(e.ProfileEnded(71, error="it raises", of_task=True)), Profiled)
    assert said == Profiled("vm1", 71, b"", "it raises", True)
