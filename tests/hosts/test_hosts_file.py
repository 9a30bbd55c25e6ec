"""A hosts file becomes hosts, or every one of its faults."""

from __future__ import annotations

import json

import pytest

from headgate.dashboards.cluster.hosts_file import ClusterHosts, parse
from headgate.dashboards.cluster.services import agent_service

SMALL = """\
schema = "headgate/hosts/v1"
[defaults]
user = "ops"
slots = 2
directory = "/srv/headgate"
[controller]
host = "10.0.0.1"
[[vm]]
name = "vm1"
host = "10.0.0.11"
rack = "a"
usd_per_hour = 1
[[vm]]
name = "vm2"
host = "10.0.0.12"
user = "root"
slots = 8
slot_cores = 0.5
"""


def hosts_of(text: str) -> ClusterHosts:
    hosts, faults = parse(text, "plant")
    assert hosts is not None, faults
    return hosts


def faults_of(text: str) -> list[str]:
    hosts, faults = parse(text, "plant")
    assert hosts is None
    return faults


def test_defaults_hold_where_nothing_else_is_said():
    hosts = hosts_of(SMALL)
    first, second = hosts.vms
    assert (
        hosts.name == "plant" and hosts.controller.on.user == "ops" and hosts.controller.command_port == 7312
    )
    assert (first.slots, first.slot_cores, first.rack, first.usd_per_hour) == (2, 1.0, "a", 1.0)
    assert (second.slots, second.slot_cores, second.on.user) == (8, 0.5, "root")
    assert {vm.on.directory for vm in hosts.vms} == {"/srv/headgate"}
    assert first.on.login == "ops@10.0.0.11" and first.address == "10.0.0.11"


def test_the_controllers_host_may_be_a_vms_host_too():
    hosts = hosts_of(SMALL.replace('"10.0.0.12"', '"10.0.0.1"'))
    assert [on.host for on in hosts.hosts()] == ["10.0.0.1", "10.0.0.11"]
    assert [vm.name for vm in hosts.vms_on("10.0.0.1")] == ["vm2"]


def test_a_hosts_link_gets_to_its_agent():
    hosts = hosts_of(SMALL.replace("usd_per_hour = 1", "bandwidth_mbps = 2500"))
    assert [vm.bandwidth_mbps for vm in hosts.vms] == [2500.0, 0.0]
    commands = [
        json.loads(agent_service(hosts, vm, "/home", "1", "", False).settings)["command"] for vm in hosts.vms
    ]
    assert [
        words[words.index("--bandwidth-mbps") + 1] for words in commands if "--bandwidth-mbps" in words
    ] == ["2500"]
    assert "--bandwidth-mbps" in commands[0]


@pytest.mark.parametrize("link", ["0", "-1", "nan", "inf", '"fast"', "true", "1e8"])
def test_a_link_that_cannot_be_is_told_by_its_place(link: str):
    (fault,) = faults_of(SMALL.replace("usd_per_hour = 1", f"bandwidth_mbps = {link}"))
    assert fault.startswith(
        "vm[0].bandwidth_mbps: expected a number of Mbit/s above 0 and at most 1e+07, got "
    )


def test_all_faults_are_told_at_once_each_with_its_place():
    text = SMALL.replace("slots = 2", 'slots = 0\nslotz = 1\ndirectry = "x"').replace("vm2", "vm1")
    text = text.replace('"10.0.0.12"', '"10.0.0.11"').replace("usd_per_hour = 1", "usd_per_hour = nan")
    assert faults_of(text) == [
        "defaults.slots: expected a whole number from 1 to 256, got 0",
        "defaults.slotz: unknown key; did you mean 'slots'?",
        "defaults.directry: unknown key; did you mean 'directory'?",
        "vm[0].usd_per_hour: expected a number from 0 to 100000, got nan",
        "vm[1].name: 'vm1' is there twice, also as vm[0]",
        "vm[1].host: '10.0.0.11' is there twice, also as vm[0]",
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('schema = "headgate/hosts/v1"', "", "schema: missing"),
        ("hosts/v1", "hosts/v9", "schema: expected headgate/hosts/v1"),
        ('[controller]\nhost = "10.0.0.1"', "", "controller: missing"),
        ('host = "10.0.0.1"', "", "controller.host: missing"),
        ('host = "10.0.0.1"', 'host = "10.0.0.1"\nport = 0', "controller.port: expected a whole number"),
        ('host = "10.0.0.1"', 'host = "10.0.0.1"\nport = 7312', "controller.port: 7312 is used twice"),
        ('name = "vm1"', "", "vm[0].name: missing"),
        ('name = "vm1"', 'name = ".."', "vm[0].name: expected a name"),
        ("slot_cores = 0.5", "slot_cores = 1.5", "vm[1].slot_cores: expected a number above 0 and at most 1"),
        ("slot_cores = 0.5", "slot_cores = true", "vm[1].slot_cores: expected a number"),
        ('"10.0.0.12"', '"-oProxyCommand=x"', "vm[1].host: expected a host's name"),
        ('"/srv/headgate"', '"srv; rm -r"', "defaults.directory: expected an absolute path"),
        ('user = "root"', 'user = "a b"', "vm[1].user: expected a user's name"),
        ("[[vm]]", "[vm]", "it is no TOML"),
    ],
)
def test_what_is_wrong_is_said_where_it_is(old: str, new: str, said: str):
    assert any(fault.startswith(said) for fault in faults_of(SMALL.replace(old, new))), faults_of(
        SMALL.replace(old, new)
    )


def test_a_file_of_other_things_is_refused_whole():
    assert faults_of("vm = 3\ncontroller = []\n[[defaults]]\n")[0].startswith("schema: missing")
    assert faults_of("")[-1].startswith("vm: missing")


def test_random_values_are_faults_never_errors():
    for value in ("1", "1.5", "true", '"x"', "[]", "{}", "[{}]", "inf", "1979-05-27"):
        for place in ('"10.0.0.1"', '"ops"', "2\n", '"vm1"', '"a"', "0.5"):
            hosts, faults = parse(SMALL.replace(place, value + "\n" * place.count("\n"), 1), "plant")
            assert (hosts is None) == bool(faults)
