"""Who is there: joined, silent, lost, back; our own stalls; too many gone at once; old boots."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from headgate.controller.knowledge.loop_events import Now
from headgate.controller.knowledge.membership import Membership, natural
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.wire.messages import Hello, Report, Token

S = 1_000_000_000


def at(seconds: float) -> Now:
    return Now(int(seconds * S), int(seconds * S) + 10**18)


def hello(vm: str = "vm1", boot: int = 5) -> Hello:
    return Hello(vm, boot, 4, 0.2, 1 << 28, "cgroup1", 77)


def report(vm: str, sequence: int, boot: int = 5) -> Report:
    return Report(vm, boot, sequence, Token())


def kinds(changes: object) -> list[str]:
    assert isinstance(changes, tuple)
    return [change.kind for change in changes]


def quarter_ticks(members: Membership, start: float, end: float) -> list[tuple[str, str]]:
    out: list[tuple[str, str]] = []
    now = start
    while now <= end:
        out += [(change.kind, change.vm) for change in members.tick(at(now))]
        now += 0.25
    return out


def test_a_vm_is_silent_after_two_seconds_and_lost_after_four() -> None:
    members = Membership()
    assert kinds(members.hello(hello(), at(0))) == ["joined"]
    assert quarter_ticks(members, 0.25, 1.75) == []
    assert quarter_ticks(members, 2.0, 3.75) == [("silent", "vm1")]
    assert members.members["vm1"].up
    assert quarter_ticks(members, 4.0, 6.0) == [("lost", "vm1")]
    assert members.gone() == ("vm1",)
    assert kinds(members.report(report("vm1", 1), at(7))) == ["back"]
    assert members.members["vm1"].up


def test_one_with_keyed_state_is_waited_for_longer() -> None:
    members = Membership()
    members.hello(hello(), at(0))
    members.keyed = frozenset({"vm1"})
    assert quarter_ticks(members, 0.25, 11.75) == [("silent", "vm1")]
    assert quarter_ticks(members, 12.0, 12.5) == [("lost", "vm1")]
    members.keyed = frozenset()
    members.hello(hello("vm2"), at(13))
    assert quarter_ticks(members, 13.25, 17.0) == [("silent", "vm2"), ("lost", "vm2")]


def test_no_load_is_judged_while_a_vm_stands_still_or_makes_up_for_that() -> None:
    members = Membership()
    members.hello(hello(), at(10))
    assert members.silent(at(11), 0) == ""
    assert members.silent(at(12), 0) == "vm1 is not heard"
    members.report(report("vm1", 1), at(13))
    for second in range(13, 29):
        members.heard("vm1", at(second))
        assert "3.0 s" in members.silent(at(second + 0.9), 0)
    assert members.silent(at(29), 0) == "" and members.silent(at(13), 14 * S) == "", (
        "before the plan in force"
    )
    quarter_ticks(members, 29.25, 34)
    members.report(report("vm1", 2), at(35))
    assert members.silent(at(36), 0) == "", "one that was lost is not waited for"


def test_a_stalled_controller_gives_no_verdict_for_two_heartbeats() -> None:
    members = Membership()
    members.hello(hello(), at(0))
    members.tick(at(0.25))
    assert members.tick(at(9)) == (), "nine seconds went by here, too"
    assert members.tick(at(9.5)) == ()
    members.report(report("vm1", 1), at(9.6))  # what it said meanwhile is read now
    assert quarter_ticks(members, 9.75, 11) == []


def test_a_stall_only_delays_the_verdict() -> None:
    members = Membership()
    members.hello(hello(), at(0))
    members.tick(at(0.25))
    members.tick(at(9))
    assert quarter_ticks(members, 9.25, 11) == [("lost", "vm1")]


def test_a_restarted_agent_is_not_a_lost_vm() -> None:
    members = Membership()
    members.hello(hello(boot=5), at(0))
    members.report(report("vm1", 1), at(1))
    assert kinds(members.hello(hello(boot=6), at(3))) == ["restarted"]
    assert members.members["vm1"].report is None, "its workers are gone"
    assert members.report(report("vm1", 2, boot=5), at(3.1)) is None, "words of the old agent"
    assert members.members["vm1"].report is None


def test_the_same_hello_again_is_no_restart() -> None:
    members = Membership()
    members.hello(hello(), at(0))
    members.report(report("vm1", 1), at(1))
    assert kinds(members.hello(hello(), at(2))) == []
    assert members.members["vm1"].report == report("vm1", 1)


def test_reports_out_of_order_are_dropped() -> None:
    members = Membership()
    members.hello(hello(), at(0))
    members.report(report("vm1", 3), at(1))
    assert members.report(report("vm1", 2), at(1.1)) is None
    assert members.members["vm1"].report == report("vm1", 3)


def test_older_agents_are_refused() -> None:
    members = Membership()
    members.hello(hello(boot=6), at(0))
    assert "newer agent" in members.refusal(hello(boot=5))
    assert members.refusal(hello(boot=6)) == ""


def three_and_a_bit(lost: tuple[str, ...]) -> Membership:
    members = Membership()
    for name in ("vm1", "vm2", "vm3", "vm4"):
        members.hello(hello(name), at(0))
    sequence, now = 0, 0.0
    while now < 6:
        now += 0.25
        sequence += 1
        for name in {"vm1", "vm2", "vm3", "vm4"} - set(lost):
            members.report(report(name, sequence), at(now))
        members.tick(at(now))
    return members


def test_one_lost_of_four_is_a_lost_vm() -> None:
    assert three_and_a_bit(("vm1",)).mass_loss == ()


def test_two_lost_of_four_is_an_alarm_until_they_are_back() -> None:
    members = three_and_a_bit(("vm1", "vm2"))
    assert members.mass_loss == ("vm1", "vm2")
    quarter_ticks(members, 50, 60)
    assert members.mass_loss == ("vm1", "vm2"), "it does not go away by itself"
    members.report(report("vm1", 99), at(61))
    assert list(members.mass_loss) == ["vm2"]
    members.report(report("vm2", 99), at(61))
    assert not members.mass_loss


def test_an_operator_clears_the_alarm() -> None:
    members = three_and_a_bit(("vm1", "vm2"))
    members.clear_alarm()
    members.tick(at(6.25))
    assert members.mass_loss == ()


def test_goodbye_is_no_loss() -> None:
    members = Membership()
    members.hello(hello(), at(0))
    assert kinds(members.goodbye("vm1", 5)) == ["left"]
    assert quarter_ticks(members, 1, 9) == []
    assert kinds(members.hello(hello(boot=9), at(10))) == ["joined"]


def test_a_known_vm_is_adopted_by_its_report_alone() -> None:
    members = Membership()
    members.expect((Vm("vm1", 4, 0.2),))
    assert members.report(report("vm7", 1), at(0)) is None, "nobody told how many slots it has"
    assert kinds(members.report(report("vm1", 1), at(0))) == ["joined"]
    assert members.members["vm1"].vm == Vm("vm1", 4, 0.2)


def test_vms_of_an_earlier_life_prove_lost_unless_heard() -> None:
    members = Membership()
    members.presume((Vm("vm1", 4), Vm("vm2", 4)), at(0))
    assert kinds(members.report(report("vm2", 1), at(1))) == []
    assert ("lost", "vm1") in quarter_ticks(members, 0.25, 4.5)
    assert [member.vm.vm for member in members.up()] == ["vm2"]


def test_names_sort_by_their_numbers() -> None:
    assert sorted(["vm10", "vm2", "b", "vm1"], key=natural) == ["b", "vm1", "vm2", "vm10"]


def test_who_only_ever_said_hello_is_forgotten_after_a_while() -> None:
    """Unless somebody told of it beforehand, or it has reported."""
    members = Membership()
    members.expect((Vm("told", 4),))
    for vm in ("told", "real", "invented"):
        members.hello(hello(vm), at(0))
    members.report(report("real", 1), at(1))
    roster = members.roster
    quarter_ticks(members, 1, 610)
    assert set(members.members) == {"told", "real"} and members.roster > roster


@pytest.mark.parametrize(
    ("rack", "usd", "known"),
    [("", 0.0, ("r7", 0.3)), ("r2", 0.0, ("r2", 0.3)), ("", 0.5, ("r7", 0.5)), ("r2", 0.5, ("r2", 0.5))],
)
def test_what_an_agent_tells_of_its_rack_and_price_counts_before_what_was_told_of_it(
    rack: str, usd: float, known: tuple[str, float]
) -> None:
    members = Membership()
    members.expect((Vm("vm1", 4, usd_per_hour=0.3, rack="r7"),))
    members.hello(replace(hello(), rack=rack, usd_per_hour=usd), at(0))
    vm = members.members["vm1"].vm
    assert (vm.rack, vm.usd_per_hour) == known


@pytest.mark.parametrize(("told", "known"), [(0.0, 500.0), (1000.0, 1000.0)])
def test_so_does_what_it_tells_of_its_link(told: float, known: float) -> None:
    members = Membership()
    members.expect((Vm("vm1", 4, bandwidth_mbps=500.0),))
    members.hello(replace(hello(), bandwidth_mbps=told), at(0))
    assert members.members["vm1"].vm.bandwidth_bytes_per_s == known * 125_000
    members.hello(replace(hello(), vm="vm2", bandwidth_mbps=0.0), at(0))
    assert members.members["vm2"].vm.bandwidth_bytes_per_s is None
