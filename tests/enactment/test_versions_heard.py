"""Agents and clients of other versions: which are taken, how those that are not are told and shown."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from enactment_world import World

from headgate.controller.knowledge import turns as t
from headgate.controller.monitor.roles import foreign
from headgate.topology_runtime import messages as m
from headgate.topology_runtime.errors import Conflict
from headgate.topology_runtime.requests import from_here
from headgate.topology_runtime.wire_version import OLDEST, WIRE

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


def status(world: World) -> dict[str, Any]:
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
    [alarm] = [alarm for alarm in status(world)["alarms"] if alarm["what"] == "version"]
    assert alarm["text"] == f"the agent of vm9 is refused: {refused}"
    assert "vm9" not in [vm["vm"] for vm in status(world)["vms"]]
    world.do(t.FromVm(m.SampleBlock("vm9", 7, 1, 1, 1, 1, (), {}, {}, {})))
    assert "vm9" not in [vm["vm"] for vm in status(world)["vms"]]


def test_the_alarm_is_told_once_and_goes_when_the_agent_was_upgraded_or_is_no_more() -> None:
    world = world_of()
    for boot in (7, 8, 9):
        says_hello(world, "vm8", OLDEST - 1, "0.0.7", boot)
        says_hello(world, "vm9", OLDEST - 1, "0.0.7", boot)
    assert len([text for text in events(world, "alarm") if "vm9" in text]) == 1
    says_hello(world, "vm9", WIRE, OURS, 10)
    [alarm] = [alarm for alarm in status(world)["alarms"] if alarm["what"] == "version"]
    assert "vm8" in alarm["text"] and "vm9" not in alarm["text"]
    world.run(110)
    assert [alarm for alarm in status(world)["alarms"] if alarm["what"] == "version"]
    world.run(15)
    assert not [alarm for alarm in status(world)["alarms"] if alarm["what"] == "version"]
    assert events(world, "alarm_over") == ["no agent is refused for its version any more"]


def test_an_agent_that_is_a_version_behind_works_and_is_marked() -> None:
    world = world_of()
    assert says_hello(world, "vm8", OLDEST, "1.3.2").refused == ""
    assert says_hello(world, "vm9", WIRE, OURS).refused == ""
    says_hello(world, "vm8", OLDEST, "1.3.2")
    found = status(world)
    assert (found["headgate"], found["wire"]) == (OURS, WIRE)
    shown = {vm["vm"]: (vm["headgate"], vm["wire"], vm["skew"]) for vm in found["vms"]}
    assert shown["vm8"] == ("1.3.2", OLDEST, True) and shown["vm9"] == (OURS, WIRE, False)
    [told] = [text for text in events(world, "skew") if "vm8" in text]
    assert "headgate 1.3.2 (wire version 2)" in told and "cluster upgrade" in told
    assert [alarm for alarm in found["alarms"] if alarm["what"] == "version"] == []


def test_another_headgate_of_the_same_wire_version_is_marked_too() -> None:
    world = world_of()
    assert says_hello(world, "vm9", WIRE, "1.4.1").refused == ""
    assert {vm["vm"]: vm["skew"] for vm in status(world)["vms"]}["vm9"] is True


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
