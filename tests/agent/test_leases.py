"""The lease of a VM: from when the answered report was sent, told to workers with exclusive threads."""

from __future__ import annotations

from agent_world import BOOT, NS, Mind, only, thread
from msgspec.structs import replace

from headgate.agent import events as e
from headgate.agent.lease import VmLease
from headgate.topology_runtime import messages as m
from headgate.topology_runtime.channels import encode
from headgate.topology_runtime.lease import LEASE_NS, MARGIN_NS, OVER_NS, is_over, may_begin


def test_it_lasts_from_when_the_answered_report_was_sent() -> None:
    lease = VmLease()
    for sequence in (1, 2, 3):
        lease.sent(sequence, sequence * NS)
    assert lease.answered(2) and lease.until_ns == 2 * NS + LEASE_NS
    assert not lease.answered(1) and not lease.answered(2), "an answer that was overtaken, or came twice"
    assert lease.until_ns == 2 * NS + LEASE_NS
    assert not lease.answered(7), "a report that was never sent"
    assert lease.until_ns == 2 * NS + LEASE_NS


def test_reports_older_than_a_lease_are_forgotten() -> None:
    lease = VmLease()
    for sequence in range(1, 10_001):
        lease.sent(sequence, sequence * NS // 200)
    assert len(lease.unanswered) == LEASE_NS // (NS // 200)
    assert not lease.answered(1)


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
    mind = Mind()
    mind.want(thread(1, 0), thread(2, 1, "store"))
    state = exclusive(mind, thread(1, 0), thread(2, 1, "store"))
    mind.tell(e.WantedArrived(state, encode(state)))
    mind.up(0)
    mind.up(1)
    mind.tell(e.Tick(), 1.0)
    sent_ns = mind.now_ns
    mind.now_ns += NS // 4
    (told,) = only(granted(mind), e.SendLease)
    assert (told.slot.number, told.until_ns) == (0, sent_ns + LEASE_NS), "store needs none"
    again = mind.tell(e.WantedArrived(state, encode(state)))
    kinds = [type(one) for one in again if isinstance(one, e.ForwardWanted | e.SendLease)]
    assert kinds == [e.ForwardWanted, e.SendLease, e.ForwardWanted]


def test_an_answer_to_an_earlier_life_of_this_agent_grants_nothing() -> None:
    mind = Mind()
    mind.want(thread(1, 0))
    mind.tell(e.Tick(), 1.0)
    granted(mind, BOOT - 1)
    assert mind.state.lease.until_ns == 0


def test_a_worker_that_comes_up_later_is_told_too() -> None:
    mind = Mind()
    mind.want(thread(1, 0))
    state = exclusive(mind, thread(1, 0))
    mind.tell(e.WantedArrived(state, encode(state)))
    mind.tell(e.Tick(), 1.0)
    assert not only(granted(mind), e.SendLease), "it is not there yet"
    assert len(only(mind.up(0), e.SendLease)) == 1
