"""A key that most rows of a task have is said: an alarm that names it, in `status` and in `explain`."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from enactment_world import World, replace

from headgate.controller.knowledge import loop_events as t
from headgate.controller.knowledge.knowledge import Turn
from headgate.controller.knowledge.loop_events import Now
from headgate.controller.monitor import admission, vm_reports
from headgate.controller.monitor.admission import foreign
from headgate.controller.views.run_documents import explain, status
from headgate.topology_runtime.errors import BadMessage, Conflict
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.dead_letter_messages import Struck, VmStrikes
from headgate.topology_runtime.wire.messages import from_here
from headgate.topology_runtime.wire.report_messages import KeyCount, KeysSeen
from headgate.topology_runtime.wire.wire_version import OLDEST, WIRE

S = 1_000_000_000


class Told:
    """A run whose VMs tell of the keys that they saw, once a second."""

    def __init__(self) -> None:
        self.world = World().start().until("committed")
        self.knowledge = self.world.loop.knowledge
        topology = self.knowledge.topology
        assert topology is not None
        self.task = topology.edges[0].target
        self.now_ns = self.world.now.mono_ns

    def hear(self, *vms: tuple[KeysSeen, ...], seconds: int = 1) -> str:
        """The alarm after so many seconds of this."""
        for _ in range(seconds):
            self.now_ns += S
            for number, keys in enumerate(vms, 1):
                report = replace(self.world.vms[f"vm{number}"].report(), keys=keys)
                admission.check(report)
                vm_reports.hear_hot_keys(Turn(self.knowledge, Now(self.now_ns, self.now_ns)), report)
        return self.knowledge.alarms.get(f"hot key {self.task}", "")

    def events(self) -> list[str]:
        return [e["kind"] for e in self.knowledge.events if e.get("what") == f"hot key {self.task}"]


def seen(rows: int, hot: int, looked_at: int = 0, key: str = "'X'", thread: int = 1) -> KeysSeen:
    top = (KeyCount(key, 17, hot),) if hot else ()
    return KeysSeen(0, thread, rows, looked_at or rows, top)


def test_the_hot_key_is_named_within_three_seconds_and_the_alarm_ends_with_it() -> None:
    told = Told()
    assert told.hear((seen(1000, 800),)) == "", "one second may be chance"
    alarm = told.hear((seen(1000, 800),), seconds=2)
    assert f"80% of the rows of {told.task} are of key 'X' (range 17)" in alarm
    view = told.world.loop.view(told.world.now)
    assert status(view)["hot_keys"] == [{"task": told.task, "key": "'X'", "key_range": 17, "share": 0.8}]
    assert explain(view, 1)["hot_keys"] == [f"80% of the rows of {told.task} are of key 'X' (range 17)"]
    assert "45% of the rows" in told.hear((seen(1000, 450),)), "it is not over before it is clearly less"
    assert told.hear((seen(1000, 300),)) == ""
    assert told.events() == ["alarm", "alarm_over"]


def test_what_threads_looked_at_stands_for_all_that_they_sent() -> None:
    told = Told()
    big, small = seen(9000, 90, looked_at=100, thread=1), seen(1000, 0, thread=2)
    assert "81% of the rows" in told.hear((big,), (small,), seconds=3)


def test_a_vm_that_tells_nothing_any_more_is_forgotten() -> None:
    told = Told()
    told.hear((seen(1000, 1000),), (seen(1000, 0, thread=2),), seconds=2)
    assert "100% of the rows" in told.hear((seen(1000, 1000),), seconds=5)
    assert "100% of the rows" not in told.hear((), seconds=5)


def test_another_key_is_named_anew_and_a_hidden_one_by_its_range() -> None:
    told = Told()
    told.hear((seen(1000, 800),), seconds=3)
    assert "key 'Y' (range 17)" in told.hear((seen(1000, 800, key="'Y'"),), seconds=3)
    assert "of a key of range 17" in told.hear((seen(1000, 800, key=""),), seconds=3)
    assert told.events() == ["alarm"], "told once"


def test_what_cannot_be_is_refused_or_passed_over() -> None:
    told = Told()
    assert told.hear((KeysSeen(99, 1, 1000, 1000, (KeyCount("'X'", 1, 1000),)),), seconds=3) == ""
    assert told.hear((KeysSeen(0, 1, 10, 1000, (KeyCount("'X'", 1, 1000),)),), seconds=3) == ""
    for bad in (seen(-1, 0, 1), seen(10, 5, key="x" * 1000), seen(10, 5, thread=-1)):
        with pytest.raises(BadMessage):
            told.hear((bad,))


# ── Rows that workers did not survive on one VM: all others are told, as long as the run lasts ──────────

STRUCK = Struck("work", "source", 0, 5, 0, "row", 2, "why", "")
TOLD = VmStrikes((STRUCK,), 1)


def test_what_a_vm_counted_is_in_the_desired_state_of_all() -> None:
    world = World().start().until("committed")
    name = world.rollout.threads[0].slot.vm
    before = world.loop.knowledge.desired
    assert before is not None and before.strikes == ()
    world.do(t.FromVm(replace(world.vms[name].report(), strikes=TOLD)))
    now = world.loop.knowledge.desired
    assert now is not None and now.strikes == ((name, TOLD),) and now.token > before.token


@pytest.mark.parametrize(
    "strikes",
    [
        VmStrikes((STRUCK,) * 21),
        VmStrikes((), -1),
        VmStrikes((replace(STRUCK, position=-1),)),
        VmStrikes((replace(STRUCK, times=1 << 63),)),
        VmStrikes((replace(STRUCK, error="x" * 20_000),)),
    ],
)
def test_strikes_that_cannot_be_are_refused(strikes: VmStrikes) -> None:
    world = World().start().until("committed")
    report = world.vms[world.rollout.threads[0].slot.vm].report()
    admission.check(replace(report, strikes=TOLD))
    with pytest.raises(BadMessage):
        admission.check(replace(report, strikes=strikes))


# ── Agents and clients of other versions: which are taken, how those that are not are told and shown ────

OURS = "1.4.0"


def world_of() -> World:
    return World(version=OURS).start()


def says_hello(world: World, vm: str, wire: int, version: str, boot: int = 7) -> m.Welcome:
    hello = msgspec.structs.replace(
        world.vms["vm1"].hello(), vm=vm, protocol=wire, version=version, boot=boot
    )
    world.do(t.FromVm(hello))
    told = [message for name, message in world.sent if name == vm and isinstance(message, m.Welcome)]
    return told[-1]


def status_told(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.ask("status").data
    return found


def events(world: World, kind: str) -> list[str]:
    return [event["text"] for event in world.ask("events").data["events"] if event["kind"] == kind]


def test_every_welcome_tells_what_the_controller_speaks() -> None:
    told = says_hello(world_of(), "vm9", WIRE, OURS)
    assert (told.protocol, told.version, told.refused) == (WIRE, OURS, "")


@pytest.mark.parametrize("wire", [0, OLDEST - 1, WIRE + 1, 99])
def test_an_agent_of_a_version_that_is_not_understood_is_refused_by_name(wire: int) -> None:
    world = world_of()
    refused = says_hello(world, "vm9", wire, "0.0.7").refused
    for part in (f"headgate 0.0.7 (wire version {wire})", f"headgate {OURS} (wire version {WIRE})",
                 f"takes {OLDEST} and {WIRE}", "`headgate cluster upgrade HOSTS.toml`"):  # fmt: skip
        assert part in refused
    [alarm] = [alarm for alarm in status_told(world)["alarms"] if alarm["what"] == "version"]
    assert alarm["text"] == f"the agent of vm9 is refused: {refused}"
    assert "vm9" not in [vm["vm"] for vm in status_told(world)["vms"]]
    world.do(t.FromVm(m.SampleBlock("vm9", 7, 1, 1, 1, 1, (), {}, {}, {})))
    assert "vm9" not in [vm["vm"] for vm in status_told(world)["vms"]]


def test_the_alarm_is_told_once_and_goes_when_the_agent_was_upgraded_or_is_no_more() -> None:
    world = world_of()
    for boot in (7, 8, 9):
        says_hello(world, "vm8", OLDEST - 1, "0.0.7", boot)
        says_hello(world, "vm9", OLDEST - 1, "0.0.7", boot)
    assert len([text for text in events(world, "alarm") if "vm9" in text]) == 1
    says_hello(world, "vm9", WIRE, OURS, 10)
    [alarm] = [alarm for alarm in status_told(world)["alarms"] if alarm["what"] == "version"]
    assert "vm8" in alarm["text"] and "vm9" not in alarm["text"]
    world.run(110)
    assert [alarm for alarm in status_told(world)["alarms"] if alarm["what"] == "version"]
    world.run(15)
    assert not [alarm for alarm in status_told(world)["alarms"] if alarm["what"] == "version"]
    assert events(world, "alarm_over") == ["no agent is refused for its version any more"]


def test_an_agent_that_is_a_version_behind_works_and_is_marked() -> None:
    world = world_of()
    assert says_hello(world, "vm8", OLDEST, "1.3.2").refused == ""
    assert says_hello(world, "vm9", WIRE, OURS).refused == ""
    says_hello(world, "vm8", OLDEST, "1.3.2")
    found = status_told(world)
    assert (found["headgate"], found["wire"]) == (OURS, WIRE)
    shown = {vm["vm"]: (vm["headgate"], vm["wire"], vm["skew"]) for vm in found["vms"]}
    assert shown["vm8"] == ("1.3.2", OLDEST, True) and shown["vm9"] == (OURS, WIRE, False)
    [told] = [text for text in events(world, "skew") if "vm8" in text]
    assert "headgate 1.3.2 (wire version 2)" in told and "cluster upgrade" in told
    assert [alarm for alarm in found["alarms"] if alarm["what"] == "version"] == []


def test_another_headgate_of_the_same_wire_version_is_marked_too() -> None:
    world = world_of()
    assert says_hello(world, "vm9", WIRE, "1.4.1").refused == ""
    assert {vm["vm"]: vm["skew"] for vm in status_told(world)["vms"]}["vm9"] is True


@pytest.mark.parametrize(
    ("wire", "answered"),
    [(OLDEST - 1, False), (OLDEST, True), (WIRE, True), (WIRE + 1, True), (WIRE + 2, False)],
)
def test_which_clients_are_answered(wire: int, answered: bool) -> None:
    found = foreign(m.Request("status", protocol=wire, version="0.0.7"), OURS)
    assert (found is None) is answered
    if found is not None:
        assert isinstance(found, Conflict) and f"headgate 0.0.7 (wire version {wire})" in found.what
        assert "headgate cluster upgrade" in str(found.hint)


def test_clients_tell_what_they_speak() -> None:
    said = from_here(m.Request("status", {"a": 1}))
    assert (said.command, said.arguments, said.protocol) == ("status", {"a": 1}, WIRE) and said.version


def test_dead_letters_of_a_task_that_there_is_not_count_nothing() -> None:
    told = Told()
    turn = Turn(told.knowledge, told.world.now)
    for task in ("invented", told.task):
        before = told.knowledge.counts.letters.count
        letter = m.DeadLetter(task, 1, "source", 0, 5, "row", "error", "")
        vm_reports.dead_letters(turn, m.DeadLetters("vm1", (letter,), boot=1))
        assert told.knowledge.counts.letters.count - before == (task == told.task)
