"""A cluster that topologies share, as decisions: random histories of controllers, VMs and deaths, in which no slot is
ever used by two; and what is told, refused and kept."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from headgate.controller.sharing.shared_cluster import (
    Admitted,
    RunShare,
    SharedCluster,
    SharedFile,
    settings_of,
    share_of,
)
from headgate.dashboards.terminal.status_commands import empty_line
from headgate.topology_runtime.errors import Conflict, HeadgateError, InvalidInput

S = 1_000_000_000


class Controllers:
    """Controllers and agents that obey, late: what each uses, and what of that is left where it should be gone."""

    def __init__(self, cluster: SharedCluster) -> None:
        self.cluster = cluster
        self.granted: dict[str, set[str]] = {}  # run → what its controller knows to be granted
        self.inside: dict[str, set[str]] = {}  # run → slots with threads of it
        self.agents: dict[str, set[str]] = {}  # VM → runs with an agent there
        self.needs: dict[str, int] = {}

    def share(self, one: Admitted) -> RunShare:
        granted, inside = self.granted[one.run], self.inside[one.run]
        every = {f"{vm}/{n}" for vm, slots in self.cluster.vms.items() for n in range(slots)}
        return RunShare(
            "running", one.name, tuple(sorted(granted)), tuple(sorted(inside)), tuple(sorted(every - granted - inside)),
            self.needs[one.name],
        )  # fmt: skip

    def check(self) -> None:
        every = [slot for inside in self.inside.values() for slot in inside]
        assert len(set(every)) == len(every), f"two are in one slot: {sorted(every)}"


def submit(cluster: SharedCluster, name: str, run: str, needs: int = 1, **asked: int) -> Admitted:
    one = replace(cluster.admitted(name, asked), run=run)
    cluster.put(one)
    cluster.heard_share(name, RunShare("running", name, (), (), (), needs))
    return one


@pytest.mark.parametrize("seed", range(40))
def test_no_slot_is_ever_used_by_two_whoever_dies_or_says_nothing(seed: int) -> None:
    chance = random.Random(seed)
    world = Controllers(SharedCluster(SharedFile(), 0))
    now_ns, runs = 0, 0
    for _ in range(300):
        cluster = world.cluster
        now_ns += chance.randrange(S, 3 * S)
        match chance.randrange(8):
            case 0 if len(cluster.running) < 4:
                name, runs = f"t{chance.randrange(4)}", runs + 1
                if name not in {one.name for one in cluster.running}:
                    asked = {"priority": chance.randrange(3), "weight": chance.randrange(1, 3)}
                    one = replace(cluster.admitted(name, asked), run=f"run{runs}")
                    cluster.put(one)
                    world.granted[one.run], world.inside[one.run] = set(), set()
                    world.needs[name] = chance.randrange(6)
            case 1 if cluster.running and chance.random() < 0.3:
                one = chance.choice(cluster.running)
                cluster.put(replace(one, over="it was stopped"))
            case 2:  # the process dies; what was kept is all that is left
                world.cluster = SharedCluster(cluster.kept(), now_ns)
            case 3 if cluster.running:
                world.needs[chance.choice(cluster.running).name] = chance.randrange(7)
            case 4 | 5:
                vm = f"vm{chance.randrange(1, 3)}"
                listed = {
                    one.run for one in cluster.heard_vm(vm, 3, sorted(world.agents.get(vm, ())), now_ns)
                }
                for run in world.agents.get(vm, set()) - listed:  # these agents end, with their workers
                    world.inside[run] = {slot for slot in world.inside[run] if not slot.startswith(f"{vm}/")}
                world.agents[vm] = listed
            case _:
                for one in cluster.running:
                    if chance.random() < 0.7:  # its threads come and go, and its controller is heard
                        usable = {s for s in world.granted[one.run] if one.run in world.agents.get(s[:3], ())}
                        leaving = world.inside[one.run] - world.granted[one.run]
                        stays = {slot for slot in leaving if chance.random() < 0.5}
                        world.inside[one.run] = {s for s in usable if chance.random() < 0.8} | stays
                        cluster.heard_share(one.name, world.share(one))
                    else:
                        cluster.heard_share(one.name, None)
                for name, slots in cluster.decide(now_ns).items():
                    one = cluster.topologies[name]
                    if chance.random() < 0.8:  # else it is not heard by the controller
                        world.granted[one.run] = set(map(str, slots))
                    cluster.heard_share(name, world.share(one) if chance.random() < 0.8 else None)
        world.check()
    assert runs > 5


def two(first: int, second: int, **asked: int) -> SharedCluster:
    cluster = SharedCluster(SharedFile(), 0)
    cluster.heard_vm("vm1", 4, [], 0)
    cluster.heard_vm("vm2", 4, [], 0)
    submit(cluster, "shop", "run1", first)
    submit(cluster, "fraud", "run2", second, **asked)
    cluster.decide(0)
    return cluster


def test_each_is_told_what_it_gets_and_why_it_gets_fewer() -> None:
    cluster = two(6, 4, priority=2)
    shop, fraud = cluster.document()["topologies"]
    assert (shop["needs"], shop["gets"], shop["text"]) == (
        6,
        4,
        "needs 6 slots, gets 4: fraud has priority 2",
    )
    assert (fraud["needs"], fraud["gets"], fraud["text"]) == (4, 4, "")
    assert len(shop["slots"]) == len(fraud["slots"]) == 4 and not set(shop["slots"]) & set(fraud["slots"])


def test_slots_that_one_in_mode_advise_does_not_empty_are_said_with_why() -> None:
    cluster = SharedCluster(SharedFile(), 0)
    cluster.heard_vm("vm1", 4, [], 0)
    shop = submit(cluster, "shop", "run1", 4)
    granted = tuple(map(str, cluster.decide(0)["shop"]))
    stays = RunShare("running", "shop", granted, granted, (), 4, stays="it runs in mode advise")
    submit(cluster, "fraud", "run2", 2, priority=2)
    cluster.heard_share("shop", stays)
    cluster.decide(0)
    assert "2 wanted by others, and not emptied: it runs in mode advise" in cluster.row(shop)["text"]
    cluster.heard_share("shop", replace(stays, stays=""))
    assert "2 being emptied for others" in cluster.row(shop)["text"]


def test_a_vm_is_joined_from_when_it_is_heard_in_this_life() -> None:
    cluster = SharedCluster(SharedFile(vms={"vm1": 4}), 0)
    cluster.decide(0)
    assert [(one["state"], one["pid"]) for one in cluster.document()["vms"]] == [("silent", None)]
    cluster.heard_vm("vm1", 4, [], 0, 17)
    cluster.decide(0)
    assert [(one["state"], one["pid"]) for one in cluster.document()["vms"]] == [("joined", 17)]
    assert "4 slots on 1 VM" in empty_line(cluster.document())


def test_slots_of_one_that_is_over_are_free_once_its_agents_are_gone() -> None:
    cluster = two(8, 8)
    cluster.heard_vm("vm1", 4, ["run1", "run2"], S)
    cluster.heard_vm("vm2", 4, ["run1", "run2"], S)
    shop, fraud = cluster.running
    cluster.put(replace(fraud, over="it was stopped"))
    assert len(cluster.decide(S)["shop"]) == 4, "its agents may still end its workers"
    cluster.heard_vm("vm2", 4, ["run1"], 2 * S)
    cluster.heard_vm("vm1", 4, ["run1", "run2"], 2 * S)
    half = len(cluster.decide(2 * S)["shop"])
    assert 4 <= half < 8
    cluster.heard_vm("vm1", 4, ["run1"], 2 * S)
    assert len(cluster.decide(2 * S)["shop"]) == 8 and shop in cluster.running


def test_a_run_of_the_same_name_does_not_inherit_slots_that_are_not_empty() -> None:
    cluster = two(4, 4)
    for vm in ("vm1", "vm2"):
        cluster.heard_vm(vm, 4, ["run1", "run2"], 0)
    before = set(cluster.held)
    _, fraud = cluster.running
    cluster.put(replace(fraud, over="it was stopped"))
    submit(cluster, "fraud", "run3", 8)
    assert cluster.decide(S)["fraud"] == () and set(cluster.held) == before


def test_who_comes_second_is_refused_and_who_never_submitted_may_come_again() -> None:
    cluster = two(1, 1)
    with pytest.raises(Conflict, match="runs here already"):
        cluster.admitted("shop", {})
    cluster.put(replace(cluster.admitted("late", {}), run="run9"))
    cluster.heard_share("late", RunShare("waiting", None, (), (), (), 0))
    again = cluster.admitted("late", {"priority": 7})
    assert (again.run, again.priority) == ("run9", 7)
    assert cluster.decide(0)["late"] == (), "what nobody submitted needs nothing"
    assert cluster.document()["topologies"][-1]["stage"] == "waiting"


@pytest.mark.parametrize("bad", [{"quota": 0}, {"priority": "high"}, {"priority": -1}, {"weight": 0}, {"quota": True},
                                 {"weight": 1.5}])  # fmt: skip
def test_bad_shares_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(InvalidInput) as refused:
        settings_of(bad)
    assert refused.value.exit_code == 3 and len(refused.value.faults) == 1
    assert settings_of({"priority": 3, "weight": None, "by": "ann"}) == {"priority": 3}


def test_an_unknown_name_is_refused_with_the_names_there_are() -> None:
    cluster = two(1, 1)
    with pytest.raises(InvalidInput) as refused:
        cluster.named("shopp")
    assert "shop" in (refused.value.hint or "")
    cluster.put(replace(cluster.running[0], over="it was stopped"))
    with pytest.raises(InvalidInput, match="is over: it was stopped"):
        cluster.named("shop")


def test_a_vm_that_says_nothing_has_nothing_to_give_and_keeps_what_is_in_it() -> None:
    cluster = two(8, 0)
    cluster.heard_vm("vm1", 4, [], 30 * S)
    found = cluster.decide(30 * S)
    assert {slot.vm for slots in found.values() for slot in slots} == {"vm1"}
    assert {slot.vm for slot in cluster.held} == {"vm1", "vm2"}


@pytest.mark.parametrize("said", [("vm1", 0, []), ("vm1", True, []), ("vm1", 4, "run1"), ("../x", 4, [])])
def test_a_vm_that_says_nonsense_is_refused(said: tuple[str, object, object]) -> None:
    with pytest.raises(HeadgateError):
        SharedCluster(SharedFile(), 0).heard_vm(*said, 0)


SOUND: dict[str, Any] = {
    "stage": "running",
    "topology": "a",
    "granted": ["vm1/0"],
    "used": ["vm1/0"],
    "empty": [],
    "needs": 1,
}


@pytest.mark.parametrize(
    "name", ["vm1", "vm1/", "vm1/x", "/3", "vm 1/0", "vm1/-1", "vm1/99999999999", 7, None]
)
@pytest.mark.parametrize("of", ["granted", "used", "empty"])
def test_what_a_controller_says_of_slots_that_are_none_counts_as_nothing(of: str, name: object) -> None:
    assert share_of(SOUND) is not None and share_of({**SOUND, "granted": None}) is not None
    assert share_of({**SOUND, of: [name]}) is None


def test_a_file_that_names_slots_that_are_none_is_refused_with_each() -> None:
    with pytest.raises(InvalidInput) as refused:
        SharedCluster(SharedFile(held={"vm1/0": "run", "vm1": "run", "vm2/x": "run"}), 0)
    assert len(refused.value.faults) == 2


def test_a_controller_that_was_told_of_no_slots_yet_is_told_that_it_has_none() -> None:
    cluster = SharedCluster(SharedFile(), 0)
    cluster.put(replace(cluster.admitted("a", {}), run="run-a"))
    assert not cluster.knows("a", ())
    both = "vm1/0", "vm1/1"
    for granted, slots, known in (
        (None, (), False),
        ((), (), True),
        (both, both[::-1], True),
        (both, both[:1], False),
    ):
        cluster.heard_share("a", RunShare("running", "a", granted, (), (), 1))
        assert cluster.knows("a", slots) is known


def test_a_topology_is_only_let_be_while_its_controller_cannot_run() -> None:
    """Between a death and the next start it is as alive as ever: what is in flight is not given up for a `stop`."""
    cluster = SharedCluster(SharedFile(), 0)
    one = submit(cluster, "a", "run-a")
    cluster.heard_share("a", None)
    with pytest.raises(Conflict, match="is starting"):
        cluster.refuse_to_let_be(one)
    cluster.troubles["a"] = "its controller cannot run"
    cluster.refuse_to_let_be(one)
