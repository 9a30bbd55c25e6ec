"""A hosts file becomes hosts, or every one of its faults."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from headgate.dashboards.cluster.bring_up import ClusterKeys, wanted_on
from headgate.dashboards.cluster.cluster_runs import running_of
from headgate.dashboards.cluster.host_changes import (
    HostWanted,
    agent_service,
    changes,
    controller_service,
    digest_of,
)
from headgate.dashboards.cluster.host_facts import (
    HERE,
    HostFacts,
    HostFailed,
    HostFinding,
    HostsFailed,
    PortReach,
    ServiceFacts,
    Target,
    findings,
    matrix,
    targets_from,
    unreached,
    wanted_ports,
)
from headgate.dashboards.cluster.hosts_file import ClusterHosts, parse
from headgate.dashboards.cluster.on_host.controller_runs import folder_of_run
from headgate.dashboards.cluster.on_host.host_side import ServicesHere, clean
from headgate.dashboards.cluster.wheels import WheelSet
from headgate.topology_runtime.api.cluster import SLOT_CORES
from headgate.topology_runtime.platform.run_ids import is_run_id

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
    assert (first.slots, first.slot_cores, first.rack, first.usd_per_hour) == (2, SLOT_CORES, "a", 1.0)
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
    assert "bandwidth-mbps=2500" in commands[0]
    assert not any("bandwidth" in word for word in commands[1])


@pytest.mark.parametrize("link", ["0", "-1", "nan", "inf", '"fast"', "true", "1e8"])
def test_a_link_that_cannot_be_is_told_by_its_place(link: str):
    (fault,) = faults_of(SMALL.replace("usd_per_hour = 1", f"bandwidth_mbps = {link}"))
    assert fault.startswith(
        "vm[0].bandwidth_mbps: expected a number of Mbit/s above 0 and at most 1e+07, got "
    )


def test_all_faults_are_told_at_once_each_with_its_place():
    text = SMALL.replace("slots = 2", 'slots = 0\nslotz = 1\ndirectry = "x"\nslot_memory = "32M"')
    text = text.replace("vm2", "vm1")
    text = text.replace('"10.0.0.12"', '"10.0.0.11"').replace("usd_per_hour = 1", "usd_per_hour = nan")
    assert faults_of(text) == [
        "defaults.slots: expected a whole number from 1 to 256, got 0",
        "defaults.slotz: unknown key; did you mean 'slots'?",
        "defaults.directry: unknown key; did you mean 'directory'?",
        "defaults.slot_memory: expected an amount of memory, for example 512M, at least 34M for a worker, got '32M'",
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


# ── What a host says of itself is judged: what stands in the way, and what to do about it ───────────────

HOSTS = hosts_of(SMALL)
WELL = HostFacts(
    python="3.11.2", executable="/usr/bin/python3", machine="x86_64", system="Linux", identity="a", cores=8,
    memory_bytes=8 << 30, uid=0, venv=True, ensurepip=True, cgroups="v2", systemd=True, free_bytes=50 * 10**9,
    writable="", versions=(), current="", wheels=(), files={}, services={}, others=(), cluster=False,
)  # fmt: skip


def found(**differs: Any) -> list[HostFinding]:
    facts = {on.host: replace(WELL, identity=on.host) for on in HOSTS.hosts()} | {
        "10.0.0.11": replace(WELL, **differs)
    }
    return list(findings(HOSTS, facts))


def test_nothing_is_said_of_good_hosts():
    assert found() == []


@pytest.mark.parametrize(
    ("differs", "level", "said"),
    [
        (
            {"writable": "Read-only file system"},
            "fault",
            "/srv/headgate cannot be written: Read-only file system",
        ),
        ({"free_bytes": 10**9}, "fault", "1.0 GB are free for /srv/headgate, 2 GB are needed"),
        ({"venv": False}, "fault", "no venv module"),
        ({"machine": "riscv64"}, "fault", "Linux on riscv64 is not supported"),
        ({"machine": "aarch64"}, "warning", "it is aarch64, most others x86_64"),
        (
            {"clock_offset_s": 3600.0, "clock_error_s": 0.002},
            "fault",
            "its clock is 3,600.000 s ahead (± 0.002 s)",
        ),
        ({"clock_offset_s": -0.5, "clock_error_s": 0.01}, "warning", "its clock is 0.500 s behind"),
        ({"cgroups": "none"}, "warning", "no control groups"),
        ({"uid": 1000}, "warning", "no root"),
        ({"identity": "10.0.0.1"}, "fault", "it is the same host as 10.0.0.1"),
        ({"cores": 0}, "warning", "its slots want 1 cores, it has 0"),
    ],
)
def test_what_is_wrong_is_told_with_a_remedy(differs: dict[str, Any], level: str, said: str):
    told = [one for one in found(**differs) if said in one.what]
    assert [(one.host, one.level) for one in told] == [("10.0.0.11", level)] and told[0].hint


def test_a_clock_that_cannot_be_told_well_is_not_blamed():
    assert found(clock_offset_s=0.9, clock_error_s=0.88) == []


def test_a_full_disk_does_not_stop_what_is_installed_already():
    assert found(free_bytes=10**9, versions=("0.1.0-abc",)) == []


def test_each_host_listens_where_it_is_reached_and_reaches_what_it_needs():
    assert wanted_ports(HOSTS, "10.0.0.1") == (7311, 7312, 7313) and wanted_ports(HOSTS, "10.0.0.11") == (0,)
    listening = {
        host: tuple(Target(host, host, port or 4000, "w", port) for port in wanted_ports(HOSTS, host))
        for host in ("10.0.0.1", "10.0.0.11", "10.0.0.12")
    }
    assert [t.name for t in targets_from(HOSTS, "10.0.0.11", listening)] == ["10.0.0.1:7311", "10.0.0.12:any"]
    assert [t.name for t in targets_from(HOSTS, HERE, listening)] == ["10.0.0.1:7312", "10.0.0.1:7313"]
    assert targets_from(HOSTS, "10.0.0.1", listening) == []


def test_what_is_not_reached_is_a_fault_of_where_it_is_reached_from():
    target = Target("10.0.0.12", "10.0.0.12", 4000, "w", 0)
    reached = [PortReach("10.0.0.11", target, "no answer"), PortReach("10.0.0.13", target, None)]
    (one,) = unreached(reached, HOSTS)
    assert one.host == "10.0.0.11" and "10.0.0.12:any" in one.what and "no answer" in one.what
    assert matrix(reached) == [
        {"from": "10.0.0.11", "10.0.0.12:any": "no answer"},
        {"from": "10.0.0.13", "10.0.0.12:any": "ok"},
    ]


def test_a_failure_is_one_line_and_the_exit_code_counts():
    failure = HostFailed("no answer", hint="is it up?", see="ssh ops@10.0.0.11")
    assert failure.line() == "no answer · try: is it up? · see: ssh ops@10.0.0.11"
    assert [HostsFailed("x", (), n).exit_code for n in (1, 3, 400)] == [101, 103, 125]


# ── What differs on a host is changed, in an order in which nothing is switched to that is not there;
# nothing else is

HOME = "/srv/headgate/plant"
VM = HOSTS.vms[0]
AGENT = agent_service(HOSTS, VM, HOME, "0.1.0-b", "k1", False)
WANTED = HostWanted(
    HOME, "0.1.0-b", {"a.whl": 2_000_000, "b.whl": 1_000_000}, {"agent.vm1.key": b"secret"}, (AGENT,)
)


def there(**differs: object) -> HostFacts:
    """A host on which all is as it should be, but for what is told."""
    well = replace(
        WELL, versions=("0.1.0-a", "0.1.0-b"), current="0.1.0-b", wheels=("a.whl", "b.whl"),
        files={"agent.vm1.key": digest_of(b"secret")},
        services={"agent.vm1": ServiceFacts(True, 7, 6, 0, AGENT.digest)},
    )  # fmt: skip
    return replace(well, **differs)


def lines(facts: HostFacts) -> list[str]:
    return [step.line() for step in changes(WANTED, facts)]


def test_a_bare_host_gets_all_of_it_in_order():
    assert lines(WELL) == [
        "+ wheels: 2, 3 MB",
        "+ version 0.1.0-b: into a virtual environment of its own",
        "+ file agent.vm1.key: for its owner alone",
        "+ current: none → 0.1.0-b",
        "+ service agent.vm1: start it",
    ]


def test_a_host_that_is_as_it_should_be_is_left_alone():
    assert lines(there()) == []


@pytest.mark.parametrize(
    ("differs", "said"),
    [
        ({"versions": ("0.1.0-a",)}, ["+ version 0.1.0-b: into a virtual environment of its own"]),
        ({"current": "0.1.0-a"}, ["~ current: 0.1.0-a → 0.1.0-b"]),
        ({"files": {}}, ["+ file agent.vm1.key: for its owner alone"]),
        ({"files": {"agent.vm1.key": digest_of(b"old")}}, ["~ file agent.vm1.key: for its owner alone"]),
        (
            {"files": {"agent.vm1.key": digest_of(b"secret").replace("600", "644")}},
            ["~ file agent.vm1.key: for its owner alone"],
        ),
        ({"services": {"agent.vm1": ServiceFacts(False)}}, ["+ service agent.vm1: start it"]),
        (
            {"services": {"agent.vm1": ServiceFacts(True, 7, 6, 0, "other")}},
            ["~ service agent.vm1: start it again, with other settings"],
        ),
        ({"wheels": (), "free_bytes": 1}, []),
    ],
)
def test_what_differs_is_changed_and_nothing_else(differs: dict[str, object], said: list[str]):
    assert lines(there(**differs)) == said


def test_wheels_are_brought_only_where_something_is_installed_from_them():
    assert lines(there(versions=(), wheels=("a.whl",)))[0] == "+ wheels: 1, 1 MB"


def test_another_version_key_or_size_means_another_digest():
    others = [
        agent_service(HOSTS, VM, HOME, "0.1.0-c", "k1", False),
        agent_service(HOSTS, VM, HOME, "0.1.0-b", "k2", False),
        agent_service(HOSTS, replace(VM, slots=9), HOME, "0.1.0-b", "k1", False),
        agent_service(HOSTS, VM, HOME, "0.1.0-b", "k1", True),
    ]
    assert len({AGENT.digest, *(one.digest for one in others)}) == 5


def test_a_keeper_ends_with_its_service_and_a_controller_is_not_told_to_end_its_run():
    agent = json.loads(AGENT.settings)
    controller = json.loads(controller_service(HOSTS, HOME, "v", "k", False).settings)
    assert agent["command"][-2:] == controller["command"][-2:] == ["--owner", "{keeper}"]
    assert (agent["signal"], controller["signal"]) == ("SIGTERM", "SIGKILL")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not there")
def test_units_are_units_for_systemd(tmp_path: Path):
    home = str(tmp_path)
    python = tmp_path / "current" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    for wanted in (
        controller_service(HOSTS, home, "v", "k", True),
        agent_service(HOSTS, VM, home, "v", "k", True),
    ):
        unit = tmp_path / f"headgate-plant-{wanted.name}.service"
        unit.write_text(wanted.unit)
        ran = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
        assert unit.name not in ran.stderr, ran.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not there")
@pytest.mark.parametrize(("name", "most"), [("controller", 2.5), ("agent.vm1", 4.0)])
def test_little_is_left_to_a_service_by_systemds_own_figure(name: str, most: float, tmp_path: Path):
    wanted = (controller_service(HOSTS, HOME, "v", "k", True), agent_service(HOSTS, VM, HOME, "v", "k", True))
    unit = tmp_path / f"headgate-plant-{name}.service"
    unit.write_text(next(one.unit for one in wanted if one.name == name))
    words = ["systemd-analyze", "security", "--offline=yes", f"--threshold={round(most * 10)}", str(unit)]
    ran = subprocess.run(words, capture_output=True, text=True)
    (told,) = re.findall(r"exposure level for \S+: ([\d.]+)", ran.stdout)
    assert ran.returncode == 0 and 0 < float(told) <= most, ran.stdout[-300:]


def test_a_service_is_bounded_and_gives_up_after_many_starts():
    for wanted in (
        controller_service(HOSTS, HOME, "v", "k", True),
        agent_service(HOSTS, VM, HOME, "v", "k", True),
    ):
        lines = wanted.unit.splitlines()
        assert {"StartLimitBurst=100", "StartLimitIntervalSec=600", "NoNewPrivileges=yes"} <= set(lines)
        assert any(line.startswith("MemoryMax=") for line in lines)
        assert ("Delegate=yes" in lines) == (wanted.name != "controller"), (
            "slots are control groups of an agent"
        )


def test_tasks_reach_devices_of_a_host_only_where_its_file_says_so():
    assert "PrivateDevices=yes" in agent_service(HOSTS, VM, HOME, "v", "k", True).unit
    own = hosts_of(SMALL.replace("usd_per_hour = 1", "devices = true")).vms[0]
    unit = agent_service(HOSTS, own, HOME, "v", "k", True).unit
    assert "PrivateDevices" not in unit and "ProtectClock" not in unit, "a list of clocks hides all others"


def test_a_service_gets_no_secrets_of_whoever_logged_in():
    login = {"PATH": "/bin", "LC_ALL": "C", "AWS_SECRET": "x", "SSH_AUTH_SOCK": "/s", "SUDO_USER": "ann"}
    assert clean(login) == {"PATH": "/bin", "LC_ALL": "C"}


def test_a_copied_file_makes_no_second_cluster_of_the_same_hosts(tmp_path: Path) -> None:
    (told,) = found(beside=("plant",))
    assert (told.host, told.level) == ("10.0.0.11", "fault")
    assert "cluster plant is there already" in told.what and 'name = "plant"' in told.hint
    assert found(beside=("plant",), cluster=True) == [], "it is there itself"
    facts = {on.host: replace(WELL, identity=on.host, beside=("other",)) for on in HOSTS.hosts()}
    second, _ = parse('name = "second"\n' + SMALL, "copy")
    assert second is not None and list(findings(second, facts)) == [], "it says that it is another"
    (tmp_path / "plant" / "services").mkdir(parents=True)
    (tmp_path / "down" / "services").mkdir(parents=True)
    (tmp_path / "plant" / "services" / "controller.json").touch()
    assert ServicesHere(tmp_path / "copy").beside() == ["plant"]
    assert ServicesHere(tmp_path / "plant").beside() == []


def test_a_controller_takes_over_a_run_that_goes_on_and_begins_anew_after_one_that_has_ended(tmp_path: Path):
    first = folder_of_run(tmp_path / "none")
    assert is_run_id(first) and folder_of_run(tmp_path / "none") != first, "no two runs have one id"
    for number in ("1", "2", "9", "10"):
        (tmp_path / number).mkdir()
    assert folder_of_run(tmp_path) == "10", "one that began before runs had ids"
    (tmp_path / "10" / "summary.json").touch()
    second = folder_of_run(tmp_path)
    assert is_run_id(second)
    (tmp_path / second).mkdir()
    assert folder_of_run(tmp_path) == second
    (tmp_path / second / "summary.json").touch()
    assert folder_of_run(tmp_path) not in (second, "10", "11")


SHARED = SMALL.replace('host = "10.0.0.1"\n', 'host = "10.0.0.1"\nshared = true\n', 1)


def test_a_shared_controller_gets_its_key_and_says_which_ports_its_topologies_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    keys = ClusterKeys("plant")
    hosts = hosts_of(SHARED)
    keys.make(hosts.vms, hosts.controller.shared)
    wheels = WheelSet("0.1.0-b", tmp_path / "h.whl")
    kept = replace(WELL, systemd=False)
    there = wanted_on(hosts, hosts.controller.on, kept, wheels, keys)
    assert {name for name in there.files if name.startswith("keys/operator")} == {"keys/operator.shared.key"}
    (controller,) = [json.loads(one.settings)["command"] for one in there.services]
    assert "shared=yes" in controller and "topology-port=7500" in controller
    vm = hosts.vms[0]
    (agent,) = [
        json.loads(one.settings)["command"] for one in wanted_on(hosts, vm.on, kept, wheels, keys).services
    ]
    assert "shared=yes" in agent and "topology-port=7500" not in agent
    alone = wanted_on(hosts_of(SMALL), hosts.controller.on, kept, wheels, keys)
    assert "keys/operator.shared.key" not in alone.files and "shared=yes" not in str(alone.services)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("topology_port = 7600", "only with shared = true"),
        ("shared = 1", "expected true or false"),
        ("shared = true\ntopology_port = 65500", "a lower topology_port"),
        ("shared = true\ntopology_port = 7200", "port 7311 is one of its topologies'"),
    ],
)
def test_ports_of_topologies_that_cannot_be_are_said(told: str, said: str) -> None:
    (fault,) = faults_of(SMALL.replace('host = "10.0.0.1"\n', f'host = "10.0.0.1"\n{told}\n', 1))
    assert said in fault


def test_what_runs_on_a_cluster_is_known_of_a_shared_controller_too() -> None:
    rows = [
        {"topology": name, "stage": stage}
        for name, stage in (("a", "running"), ("b", "over"), ("c", "starting"))
    ]
    assert running_of({"topologies": rows}) == ["a", "c"]
    assert running_of({"topology": "a"}) == ["a"] and running_of({"topology": None}) == []
