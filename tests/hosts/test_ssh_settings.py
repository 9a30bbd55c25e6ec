"""ssh is called as its user has set it up: whatever its configuration may hold, ssh itself says what it means."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from headgate.dashboards.cluster.forwards import forward_fault, forward_words, ports_for, ports_of
from headgate.dashboards.cluster.host_facts import (
    HERE,
    HostFailed,
    PortReach,
    Target,
    ports_in_use,
    targets_from,
    unreached,
    wanted_ports,
)
from headgate.dashboards.cluster.hosts_file import ClusterHosts, Reached, parse
from headgate.dashboards.cluster.ssh_command import (
    SshSettings,
    command_words,
    read_settings,
    settings_of,
    why_not,
)

TWIN = Reached("twin")
QUIRKS = [  # (configuration, hostname, port, user, jump, checked)
    ("Host twin\n  HostName 10.0.0.9 # the second\n", "10.0.0.9", 22, None, "", True),
    ("Host twin\n  HostName=10.0.0.9\n  Port = 2222\n", "10.0.0.9", 2222, None, "", True),
    ("host TWIN twin\n\tHOSTNAME\t\"10.0.0.9\"\n", "10.0.0.9", 22, None, "", True),
    ("Host *\n  IdentityFile ~/.ssh/not_there\n  User ops\n", "twin", 22, "ops", "", True),
    ("Host twin\n  HostName fd00::9\n", "fd00::9", 22, None, "", True),
    ("Host tw?n !twine\n  HostName %h.example.org\n", "twin.example.org", 22, None, "", True),
    ("Include more\n", "10.0.0.9", 22, "of_more", "", True),
    ("Match host twin exec true\n  HostName 10.0.0.9\n", "10.0.0.9", 22, None, "", True),
    ("Match host twin exec false\n  HostName 10.0.0.9\n", "twin", 22, None, "", True),
    ("Host twin\n  ProxyJump ann@gate:24,inner\n", "twin", 22, None, "ann@gate:24,inner", True),
    ("Host twin\n  ProxyCommand nc %h %p\n", "twin", 22, None, "nc %h %p", True),
    ("Host twin\n  ProxyJump none\n", "twin", 22, None, "", True),
    ("Host twin\n  StrictHostKeyChecking no\n", "twin", 22, None, "", False),
    ("Host twin\n  StrictHostKeyChecking off\n", "twin", 22, None, "", False),
    ("Host twin\n  StrictHostKeyChecking accept-new\n", "twin", 22, None, "", True),
    ("Host twin\n  Port 24\nHost twin\n  Port 25\n", "twin", 24, None, "", True),
    ("IgnoreUnknown UseKeychain\nUseKeychain yes\nHost twin\n  Port 24\n", "twin", 24, None, "", True),
]  # fmt: skip


def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str, on: Reached = TWIN) -> SshSettings:
    """By the real ssh, with this configuration."""
    ssh = shutil.which("ssh")
    (tmp_path / "config").write_text(config.replace("Include more", f"Include {tmp_path}/more"))
    (tmp_path / "more").write_text("Host twin\n  HostName 10.0.0.9\n  User of_more\n")
    (tmp_path / "ssh").write_text(f'#!/bin/sh\nexec {ssh} -F {tmp_path}/config "$@"\n')
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return asyncio.run(settings_of(on))


@pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh")
@pytest.mark.parametrize("quirk", QUIRKS, ids=[str(number) for number in range(len(QUIRKS))])
def test_a_configuration_means_what_ssh_makes_of_it(
    quirk: tuple[str, str, int, str | None, str, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, hostname, port, user, jump, checked = quirk
    found = asked(tmp_path, monkeypatch, config)
    assert (found.hostname, found.port, found.jump, found.checked) == (hostname, port, jump, checked)
    assert user is None or found.user == user


@pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh")
def test_the_hosts_file_goes_before_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = asked(tmp_path, monkeypatch, "Host twin\n  User ann\n  Port 24\n", Reached("twin", "ops", 25))
    assert (found.user, found.port) == ("ops", 25)


@pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh")
def test_a_configuration_that_ssh_refuses_is_told_in_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(HostFailed, match="line 2: Bad configuration option: foo"):
        asked(tmp_path, monkeypatch, "Host twin\n  Foo bar\n")


def test_where_ssh_would_go_past_a_changed_key_it_is_told_not_to() -> None:
    words = command_words(TWIN, SshSettings("10.0.0.9", checked=False))
    assert "StrictHostKeyChecking=accept-new" in words
    assert not any("StrictHostKey" in word for word in command_words(TWIN, SshSettings("10.0.0.9")))
    assert words[-2:] == ["--", "twin"] and "BatchMode=yes" in words


def test_settings_are_read_as_ssh_prints_them() -> None:
    told = "host twin\nhostname 10.0.0.9\nport 2222\nuser ops\nproxyjump none\nproxycommand none\nidentityfile a\n"
    assert read_settings(told) == SshSettings("10.0.0.9", 2222, "ops", "", True)


CHANGED = """\
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!
Add correct host key in /home/ann/.ssh/known_hosts to get rid of this message.
Offending ED25519 key in /home/ann/.ssh/known_hosts:2
Host key for 10.0.0.9 has changed and you have requested strict checking.
Host key verification failed.
"""


def test_a_changed_key_of_an_alias_is_a_danger_and_nobody_is_told_to_accept_it() -> None:
    what, hint = why_not(TWIN, SshSettings("10.0.0.9"), CHANGED)
    assert what.startswith("DANGER: its host key has CHANGED, of 10.0.0.9") and "unknown" not in what
    assert "do not accept it" in hint
    assert "ssh-keygen -f /home/ann/.ssh/known_hosts -R 10.0.0.9" in hint


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ("Host key verification failed.\n", "its host key is unknown"),
        ("WARNING: RSA key found for host 10.0.0.9\nin known_hosts:1\nHost key verification failed.\n", "DANGER"),
        ("@       WARNING: REVOKED HOST KEY DETECTED!               @\nHost key verification failed.\n", "DANGER"),
        ("root@twin: Permission denied (publickey).\n", "it does not let this user in"),
        ("ssh: connect to host 10.0.0.9 port 22: Connection timed out\n", "no answer within 10 s"),
        ("ssh: connect to host 10.0.0.9 port 22: Connection refused\n", "nothing listens for ssh there"),
        ("ssh: Could not resolve hostname twin: Name or service not known\n", "nobody knows this name"),
        ("hello\nssh: connect to host 10.0.0.9 port 22: No route to host\n",
         "ssh: connect to host 10.0.0.9 port 22: No route to host"),
        ("", "ssh: it ended without a word"),
    ],
)  # fmt: skip
def test_why_ssh_did_not_get_in_is_told_with_a_remedy(said: str, what: str) -> None:
    found, hint = why_not(TWIN, SshSettings("10.0.0.9"), said)
    assert found.startswith(what) and hint
    assert "the way there: gate" in why_not(TWIN, SshSettings("10.0.0.9", jump="gate"), said)[0]


# ── Hosts that reach each other through ssh alone ───────────────────────────────────────────────────────

FILE = """\
schema = "headgate/hosts/v1"
only_ssh = true
[defaults]
slots = 2
[controller]
host = "gate"
[[vm]]
name = "a"
host = "a"
[[vm]]
name = "b"
host = "b"
slots = 3
[[vm]]
name = "c"
host = "gate"
"""


def hosts_of(text: str = FILE) -> ClusterHosts:
    hosts, faults = parse(text, "x")
    assert hosts is not None, faults
    return hosts


def test_each_slot_has_a_port_of_its_own_and_all_is_on_loopback() -> None:
    hosts = hosts_of()
    assert [vm.worker_ports for vm in hosts.vms] == [(7400, 7401), (7402, 7403, 7404), (7405, 7406)]
    assert {vm.address for vm in hosts.vms} == {hosts.controller.address} == {"127.0.0.1"}
    moved = hosts_of(FILE.replace("only_ssh = true", "only_ssh = true\nworker_port = 9000"))
    assert moved.vms[0].worker_ports == (9000, 9001)
    kept = hosts_of(
        FILE.replace('[[vm]]\nname = "a"\nhost = "a"\n', "").replace(
            '"b"\nslots', '"b"\nworker_port = 7402\nslots'
        )
    )
    assert [vm.worker_ports for vm in kept.vms] == [vm.worker_ports for vm in hosts.vms[1:]], (
        "one was taken out"
    )
    plain = hosts_of(FILE.replace("only_ssh = true\n", ""))
    assert plain.vms[0].worker_ports == () and plain.vms[0].address == "a"


def test_every_port_is_found_on_every_host_that_needs_it() -> None:
    hosts = hosts_of()
    for host in ("gate", "a", "b"):
        own, others = set(ports_of(hosts, host)), set(ports_for(hosts, host))
        assert not own & others
        assert own | others >= {7311, *range(7400, 7407)}, "agents and workers there find all"
    assert set(ports_of(hosts, "gate")) == {7311, 7312, 7313, 7405, 7406}
    words = forward_words(hosts, "a")
    assert words.count("-L") == 2 and words.count("-R") == 6
    assert words[words.index("-L") + 1] == "127.0.0.1:7400:127.0.0.1:7400"
    alone = hosts_of(FILE.replace('host = "gate"\n', 'host = "z"\n', 1))
    assert ports_for(alone, "z") == (), "a controller calls nobody"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("only_ssh = true", "only_ssh = 1", "only_ssh: expected true or false"),
        ("only_ssh = true", "worker_port = 7400", "worker_port: only with only_ssh"),
        ('host = "a"', 'host = "a"\naddress = "10.0.0.1"', "vm[0].address: not with only_ssh"),
        ('host = "gate"', 'host = "gate"\naddress = "10.0.0.1"', "controller.address: not with only_ssh"),
        (
            "only_ssh = true",
            "only_ssh = true\nworker_port = 65530",
            "vm[2]: its workers' ports end above 65535",
        ),
        (
            "only_ssh = true",
            "only_ssh = true\nworker_port = 7310",
            "vm[0]: port 7311 of its workers is of the controller",
        ),
        ('name = "b"', 'name = "b"\nworker_port = 7401', "vm[1]: port 7401 of its workers is of a"),
    ],
)
def test_what_cannot_be_forwarded_is_told(old: str, new: str, said: str) -> None:
    hosts, faults = parse(FILE.replace(old, new, 1), "x")
    assert hosts is None and any(fault.startswith(said) for fault in faults), faults


def test_a_port_that_is_not_carried_is_told_from_a_host_that_is_not_reached() -> None:
    there = forward_fault("Error: remote port forwarding failed for listen port 7402\n")
    here = forward_fault(
        "bind [127.0.0.1]:7312: Address already in use\nCould not request local forwarding.\n"
    )
    assert there is not None and "7402" in there[0] and "AllowTcpForwarding" in there[1]
    assert here is not None and here[0] == "port 7312 of this machine is taken"
    assert forward_fault(CHANGED) is None


def test_a_check_opens_the_ports_that_are_forwarded() -> None:
    hosts = hosts_of()
    assert wanted_ports(hosts, "a") == (7400,) and wanted_ports(hosts, "gate") == (7311, 7312, 7313, 7405)
    listening = {
        host: tuple(Target(host, "127.0.0.1", port, "w", port) for port in wanted_ports(hosts, host))
        for host in ("gate", "a", "b")
    }
    assert [t.name for t in targets_from(hosts, "a", listening)] == ["gate:7311", "gate:7405", "b:7402"]
    assert [t.name for t in targets_from(hosts, HERE, listening)] == ["gate:7312", "gate:7313"]
    assert ports_in_use(hosts, "gate", {"controller", "agent.c"}) == {
        7311: True, 7312: True, 7313: True, 7405: False, 7406: False,
    }  # fmt: skip
    (one,) = unreached([PortReach("a", listening["b"][0], "no answer")], hosts)
    assert "AllowTcpForwarding" in one.hint
