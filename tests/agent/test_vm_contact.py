"""How long all threads of a VM may work: by the controller's answers, and without them as long as nobody has any."""

from __future__ import annotations

from agent_world import BOOT, NS, Mind, begun, sent

from headgate.controller.knowledge.membership import LOST_KEYED_NS, LOST_NS
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.messages import CONTACT_NS, FRESH_NS, NEWER_NS, VOUCHED_NS

MS = NS // 1000


def answered(mind: Mind, fenced: bool = False) -> int:
    """A report leaves and is answered a tenth of a second later; when it left."""
    mind.told()
    sent_ns = mind.now_ns
    mind.tell(m.Welcome(1, "run", BOOT, report=(BOOT, mind.state.sequence), fenced=fenced), 0.1)
    return sent_ns


def heard(mind: Mind, silent_ms: int, contact_ms: int | None, vm: str = "vm2") -> None:
    mind.report(0, heard=(m.VmHeard(vm, silent_ms, 1, contact_ms),))


def last_told(mind: Mind) -> m.Lease:
    lease = sent(mind.all, m.Lease)[-1].message
    assert isinstance(lease, m.Lease)
    return lease


def works(mind: Mind) -> bool:
    return mind.now_ns < last_told(mind).work_until_ns


def away(mind: Mind, seconds: float, contact_grows: bool) -> None:
    """No answer for so long; vm2 is heard all the time."""
    for step in range(int(seconds * 4)):
        mind.tick(0.25)
        heard(mind, 100, 200 if contact_grows else 1000 + step * 250)


def test_it_is_over_before_the_controller_may_take_the_vm_for_lost() -> None:
    assert CONTACT_NS * 105 // 100 < LOST_NS < LOST_KEYED_NS
    assert NEWER_NS + 2 * NS < CONTACT_NS, (
        "two heartbeats, a ping and a report tell of who hears the controller"
    )


def test_workers_are_told_until_when_counted_from_when_the_answered_report_left() -> None:
    mind = begun()
    sent_ns = answered(mind)
    assert last_told(mind) == m.Lease(0, sent_ns + CONTACT_NS, sent_ns)


def test_workers_hear_nothing_of_it_before_the_first_answer() -> None:
    assert not sent(begun().all, m.Lease)


def test_words_to_workers_are_few_while_reports_are_many() -> None:
    mind = begun()
    for _ in range(40):
        mind.tick(0.02)
        mind.report(0, troubles=(str(mind.now_ns),))
        mind.tell(m.Welcome(1, "run", BOOT, report=(BOOT, mind.state.sequence)), 0.005)
    assert len(sent(mind.all, m.Lease)) <= 4


def test_it_rests_when_another_vm_still_hears_the_controller() -> None:
    mind = begun()
    sent_ns = answered(mind)
    away(mind, 3.0, contact_grows=True)
    assert works(mind)
    away(mind, 1.0, contact_grows=True)
    assert not works(mind) and last_told(mind).work_until_ns == sent_ns + CONTACT_NS


def test_it_goes_on_while_nobody_hears_the_controller_and_rests_once_somebody_does() -> None:
    mind = begun()
    answered(mind)
    away(mind, 30.0, contact_grows=False)
    assert works(mind)
    heard(mind, 100, 200)
    mind.tick(VOUCHED_NS / NS)
    assert not works(mind)


def test_it_rests_when_a_vm_to_which_it_has_links_is_silent() -> None:
    mind = begun()
    answered(mind)
    heard(mind, 100, 100)
    mind.tick(FRESH_NS / NS + 1.5)
    assert not works(mind)


def test_a_vm_that_fell_silent_vouches_no_longer_than_it_is_fresh() -> None:
    """It may hear the controller and not reach this one: whoever is held dead is to rest in time."""
    mind = begun()
    sent_ns = answered(mind)
    last_ns = sent_ns + 2 * NS
    while mind.now_ns < sent_ns + CONTACT_NS + 3 * NS:
        mind.tick(0.25)
        heard(mind, max(0, mind.now_ns - last_ns) // MS, None)
    assert last_told(mind).work_until_ns <= max(sent_ns + CONTACT_NS, last_ns + FRESH_NS)


def test_it_goes_on_alone_when_it_has_links_to_nobody() -> None:
    mind = begun()
    answered(mind)
    for _ in range(40):
        mind.tick(0.25)
    assert works(mind)


def test_it_works_again_with_the_next_answer() -> None:
    mind = begun()
    answered(mind)
    away(mind, 5.0, contact_grows=True)
    assert not works(mind)
    answered(mind)
    assert works(mind)


def test_held_dead_it_rests_at_once_and_whoever_vouches_until_it_is_taken_back() -> None:
    mind = begun()
    answered(mind)
    answered(mind, fenced=True)
    assert not works(mind) and last_told(mind).work_until_ns == 0
    away(mind, 10.0, contact_grows=False)
    assert not works(mind)
    answered(mind)
    assert works(mind)


def test_an_answer_that_comes_late_grants_no_more_than_it_would_have() -> None:
    mind = begun()
    answered(mind)
    mind.told()
    sequence, sent_ns = mind.state.sequence, mind.now_ns
    heard(mind, 100, 100)
    mind.tick(6.0)
    mind.tell(m.Welcome(1, "run", BOOT, report=(BOOT, sequence)))
    assert not works(mind) and last_told(mind).work_until_ns == sent_ns + CONTACT_NS


def test_a_worker_that_starts_is_told_at_once() -> None:
    mind = begun(up=False)
    answered(mind)
    told = sent(mind.up(0), m.Lease)
    assert [one.message for one in told] == [last_told(mind)] and works(mind)
