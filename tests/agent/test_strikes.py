"""Which row is to blame when workers are lost in user code (agent/strikes.py), and what the agent does then."""

from __future__ import annotations

from pathlib import Path

from agent_world import NS, Mind, desired, only, slot, thread
from msgspec.structs import replace

from headgate.agent import events as e
from headgate.agent import struck_file
from headgate.agent.strikes import STRUCK_KEPT, TOLD_MOST, Strikes, UnderWay
from headgate.topology_runtime.channels import encode
from headgate.topology_runtime.struck import Struck, VmStrikes


def row(position: int, thread: int = 1, task: str = "work") -> UnderWay:
    return UnderWay(thread, 99, task, "source", 0, position, 0, "row", "a stack", "own.py:3 in work")


def read(position: int, thread: int = 2) -> UnderWay:
    return UnderWay(thread, 99, "source", "source", 0, position, 0, "read")


def lost(strikes: Strikes, *calls: UnderWay, hung: int = -1, slot: int = 0, at_s: int = 0) -> Struck | None:
    return strikes.lost(slot, calls, hung, "why", at_s * NS)


def test_the_third_time_a_row_is_poison_and_the_first_time_it_was_not_known() -> None:
    strikes = Strikes()
    assert lost(strikes) is None and not strikes.poison
    second = lost(strikes, row(5))
    assert second is not None and second.times == 2 and not strikes.poison
    third = lost(strikes, row(5))
    assert third is not None and strikes.poison == (third,)
    assert third.error == "why (3 tries), in own.py:3 in work" and third.traceback == "a stack"


def test_what_was_not_known_counts_for_one_row_only() -> None:
    strikes = Strikes()
    lost(strikes)
    lost(strikes, row(5))
    other = lost(strikes, row(6))
    assert other is not None and other.times == 1


def test_no_number_of_unknown_losses_buries_a_row_the_first_time_it_is_seen() -> None:
    strikes = Strikes()
    for _ in range(9):
        lost(strikes)
    first = lost(strikes, row(5))
    assert first is not None and first.times == 2 and not strikes.poison


def test_the_hung_thread_is_blamed_and_no_other() -> None:
    strikes = Strikes()
    assert lost(strikes, row(5, thread=1), hung=3) is None
    struck = lost(strikes, read(7, thread=2), row(5, thread=1), hung=2)
    assert struck is not None and (struck.kind, struck.position) == ("read", 7)


def test_a_death_is_the_named_rows_doing_and_a_reads_only_when_nothing_else_was_under_way() -> None:
    named = lost(Strikes(), read(7), row(5))
    assert named is not None and named.position == 5
    assert lost(Strikes(), read(7), read(8, thread=3)) is None
    alone = lost(Strikes(), read(7))
    assert alone is not None and alone.kind == "read"


def test_after_a_loss_the_slot_is_careful_for_a_minute_and_longer_while_nothing_is_found() -> None:
    strikes = Strikes()
    assert not strikes.careful(0, 0)
    lost(strikes)
    assert strikes.careful(0, 59 * NS) and not strikes.careful(0, 60 * NS) and not strikes.careful(1, 0)
    lost(strikes, at_s=100)
    assert strikes.careful(0, 219 * NS) and not strikes.careful(0, 220 * NS)


def test_the_list_is_bounded() -> None:
    strikes = Strikes()
    for position in range(2 * STRUCK_KEPT):
        lost(strikes, row(position))
    assert len(strikes.struck) == STRUCK_KEPT


# ── several VMs ─────────────────────────────────────────────────────────────────────────────────


def exchange(*vms: Strikes, at_s: int = 0) -> None:
    for vm in vms:
        vm.hear(tuple(other.told for other in vms if other is not vm), at_s * NS)


def test_a_row_that_goes_from_vm_to_vm_takes_three_workers_in_all() -> None:
    vms = Strikes(), Strikes(), Strikes()
    for number, vm in enumerate(vms):
        assert not any(other.poison for other in vms)
        struck = lost(vm, row(5))
        assert struck is not None and struck.times == number + 1
        exchange(*vms)
    assert [[(one.position, one.times) for one in vm.poison] for vm in vms] == [[(5, 3)]] * 3
    assert "3 tries" in vms[2].poison[0].error


def test_a_loss_that_was_not_known_counts_on_another_vm_for_one_row_and_has_all_be_careful() -> None:
    one, other = Strikes(), Strikes()
    lost(one)
    assert not other.careful(0, NS)
    exchange(one, other)
    assert other.careful(0, NS) and other.careful(1, NS) and not other.careful(0, 61 * NS)
    found = lost(other, row(5))
    assert found is not None and found.times == 2
    another = lost(other, row(6))
    assert another is not None and another.times == 1
    exchange(one, other)
    assert one.told.unknown == 0, "it was that row's doing"
    late = lost(one, row(7))
    assert late is not None and late.times == 1


def test_what_is_heard_again_counts_once() -> None:
    one, other = Strikes(), Strikes()
    lost(one, row(5))
    for _ in range(5):
        exchange(one, other)
    assert [struck.times for struck in other.elsewhere.values()] == [1] and not other.poison
    assert not other.hear((one.told,), 0), "nothing new"


def test_what_is_told_to_others_is_bounded() -> None:
    strikes = Strikes()
    for position in range(2 * TOLD_MOST):
        lost(strikes, row(position))
    told = strikes.told.struck
    assert [one.position for one in told] == list(range(TOLD_MOST, 2 * TOLD_MOST))
    assert not any(one.traceback for one in told)


def test_workers_are_told_at_once_of_a_row_that_was_struck_on_other_vms() -> None:
    mind = begun()
    falls(mind, row(5))
    assert mind.told().strikes.struck[0].times == 1
    elsewhere = VmStrikes((Struck("work", "source", 0, 5, 0, "row", 2, "why", ""),))
    mine = "vm1", mind.told().strikes
    state = replace(desired(thread(1, 0), counter=2), strikes=(mine, ("vm2", elsewhere)))
    out = mind.tell(e.WantedArrived(state, encode(state)))
    (told,) = only(out, e.SendPoisoned)
    assert [(one.position, one.times) for one in told.message.struck] == [(5, 3)]
    assert out.index(told) < out.index(only(out, e.ForwardWanted)[0]), "before rows come by new routes"


# ── the agent ───────────────────────────────────────────────────────────────────────────────────


def falls(mind: Mind, *calls: UnderWay, by_itself: bool = True, after_s: float = 1.0) -> list[e.Instruction]:
    """The worker of slot 0 dies and the next one says hello; what was ordered."""
    died = e.WorkerExited(slot(0), mind.incarnation(), "signal 11 (SIGSEGV)", False, by_itself, calls)
    return mind.tell(died, after_s) + mind.up()


def begun() -> Mind:
    mind = Mind()
    mind.want(thread(1, 0))
    mind.up()
    return mind


def test_a_row_that_kills_again_and_again_quarantines_nothing_and_is_told_to_the_workers() -> None:
    mind = begun()
    for _ in range(6):
        out = falls(mind, row(5))
    assert mind.state.slots[0].status == "running" and not mind.state.slots[0].crashed_ns
    (told,) = only(out, e.SendPoisoned)
    assert [(one.position, one.times) for one in told.message.struck] == [(5, 6)]
    assert out.index(told) < out.index(only(out, e.ForwardWanted)[0]), "before it may begin"
    assert only(out, e.SaveStruck)[0].struck == told.message.struck


def test_a_worker_of_another_slot_is_told_at_once() -> None:
    mind = Mind()
    mind.want(thread(1, 0), thread(2, 1))
    mind.up(0)
    mind.up(1)
    told = [only(falls(mind, row(5)), e.SendPoisoned) for _ in range(3)]
    assert [[one.slot.number for one in each] for each in told] == [[], [], [1, 0]]


def test_losses_of_which_nothing_is_known_quarantine_the_slot() -> None:
    mind = begun()
    for _ in range(4):
        falls(mind)
    assert mind.state.slots[0].status == "quarantined"


def test_a_worker_that_somebody_killed_blames_no_row() -> None:
    mind = begun()
    falls(mind, row(5), by_itself=False)
    assert not mind.state.strikes.struck and not mind.state.strikes.careful(0, mind.now_ns)


def test_a_hung_call_is_told_with_its_limit() -> None:
    mind = begun()
    mind.tell(e.WorkerHung(slot(0), mind.incarnation(), "a call has taken 6 s of at most 5 s", 1))
    falls(mind, row(5), by_itself=False)
    (struck,) = mind.state.strikes.struck.values()
    assert struck.error == "hung: no answer within max_call_s=5 (1 tries), in own.py:3 in work"


def test_an_agents_next_life_goes_on_counting(tmp_path: Path) -> None:
    struck = Struck("work", "source", 0, 5, 0, "row", 2, "why", "stack")
    struck_file.save(str(tmp_path), "run", (struck,))
    assert struck_file.load(str(tmp_path), "run") == (struck,)
    assert struck_file.load(str(tmp_path), "another") == ()
    strikes = Strikes()
    strikes.take_up((struck,))
    assert not strikes.poison
    assert [one.times for one in strikes.told.struck] == [2]
    lost(strikes, row(5))
    assert strikes.poison
    (tmp_path / struck_file.NAME).write_text("{")
    assert struck_file.load(str(tmp_path), "run") == ()
