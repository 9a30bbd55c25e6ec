"""`headgate cluster check` on real hosts: namespaces with an sshd each, some of them with something wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from watched_runs.host_bed import Bed, bed, done, leftovers, missing

pytestmark = [
    pytest.mark.live,
    pytest.mark.alone,  # a dozen installations, each with limits of its own
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]

WITHOUT = '#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2\nexit 1\n'
AHEAD = "import time\nreal = time.time_ns\ntime.time_ns = lambda: real() + 3_600_000_000_000\n"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    folder = tmp_path_factory.mktemp("bed")
    with bed(folder) as made:
        made.add("good1")
        made.add("good2")
        made.add("small", size="100M")
        made.add("readonly", more="mount -o remount,ro /var/lib")
        made.add("python39", has={"python3": WITHOUT}, sees={"PATH": "/run/bed"})
        made.add("ahead", has={"sitecustomize.py": AHEAD}, sees={"PYTHONPATH": "/run/bed"})
        yield made
    assert leftovers() == []


def write_hosts(made: Bed, *names: str, **of_vm: str) -> Path:
    """A hosts file: the first is the controller's host, the others have a VM each."""
    address = {host.name: host.address for host in made.hosts}
    lines = ['schema = "headgate/hosts/v1"', "[defaults]", 'user = "root"', "slots = 1"]
    lines += ["[controller]", f'host = "{address.get(names[0], names[0])}"']
    for name in names[1:]:
        lines += ["[[vm]]", f'name = "{name}"', f'host = "{address.get(name, name)}"']
        lines += [f'{key} = "{value}"' for key, value in of_vm.items()]
    path = made.folder / "hosts.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def check(made: Bed, path: Path) -> tuple[int, dict[str, Any], str]:
    command = [
        sys.executable,
        "-P",
        "-m",
        "headgate",
        "cluster",
        "check",
        str(path),
        "-o",
        "json",
    ]
    ran = subprocess.run(command, env=made.environment(), capture_output=True, text=True, timeout=90)
    return ran.returncode, json.loads(ran.stdout) if ran.stdout else {}, ran.stderr


def faults(document: dict[str, Any]) -> dict[str, str]:
    return {one["host"]: one["what"] for one in document["findings"] if one["level"] == "fault"}


def test_good_hosts_are_told_as_they_are(hosts: Bed) -> None:
    code, found, said = check(hosts, write_hosts(hosts, "good1", "good2", "small"))
    by_name = {row["is"]: row for row in found["hosts"]}
    assert by_name["good2"]["root"] and by_name["good2"]["machine"] in ("x86_64", "aarch64")
    assert abs(by_name["good2"]["clock_ms"]) <= by_name["good2"]["clock_error_ms"] + 1
    reached = {row["from"]: {k: v for k, v in row.items() if k != "from"} for row in found["ports"]}
    good1, good2, small = (host.address for host in hosts.hosts[:3])
    assert reached[good2] == {f"{good1}:7311": "ok", f"{small}:any": "ok"}
    assert reached["here"] == {f"{good1}:7312": "ok", f"{good1}:7313": "ok"}
    assert code == 101 and "GB are free" in faults(found)[small], said  # the small one alone is at fault


def test_what_is_wrong_is_one_line_per_host_and_the_others_go_on(hosts: Bed) -> None:
    names = ("good1", "good2", "readonly", "python39", "ahead", f"{hosts.network}.99")
    code, found, said = check(hosts, write_hosts(hosts, *names))
    told = faults(found)
    address = {host.name: host.address for host in hosts.hosts}
    assert "Read-only file system" in told[address["readonly"]]
    assert "its clock is 3,60" in told[address["ahead"]] or "its clock is 3,599" in told[address["ahead"]]
    failed = {one["host"]: one for one in found["failures"]}
    assert "no Python that will do (Python 3.9.2)" in failed[address["python39"]]["what"]
    assert failed[f"{hosts.network}.99"]["see"] == f"ssh root@{hosts.network}.99"
    assert code == 104, said
    lines = [line for line in said.splitlines() if line.startswith("  - ")]
    assert len(lines) == 4 and all("try:" in line and "ssh root@" in line for line in lines), said


def test_a_changed_or_unknown_host_key_stops_that_host(hosts: Bed) -> None:
    good2 = hosts.hosts[1]
    path = write_hosts(hosts, "good1", "good2")
    other = hosts.folder / "other_key"
    done("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other))
    known = hosts.home / ".ssh" / "known_hosts"
    before = known.read_text()
    try:
        hosts.trust(good2, other.with_suffix(".pub"))
        code, found, _ = check(hosts, path)
        assert code == 101 and "CHANGED" in found["failures"][0]["what"]
        config = hosts.home / ".ssh" / "config"
        for checks in ("ask", "no"):
            config.write_text(
                f"Host second  # of two\n  HostName {good2.address}\n  StrictHostKeyChecking {checks}\n"
                f"  IdentityFile {hosts.home}/.ssh/not_there\n"
            )
            code, found, _ = check(hosts, write_hosts(hosts, "good1", "second"))
            (told,) = found["failures"]
            assert code == 101 and told["what"].startswith(
                f"DANGER: its host key has CHANGED, of {good2.address}"
            )
            assert f"-R {good2.address}" in told["hint"] and "do not accept it" in told["hint"]
        config.unlink()
        path = write_hosts(hosts, "good1", "good2")
        known.write_text("".join(line for line in before.splitlines(True) if good2.address not in line))
        code, found, _ = check(hosts, path)
        assert code == 101 and found["failures"][0]["what"] == "its host key is unknown"
    finally:
        known.write_text(before)


def test_two_names_of_one_host_are_noticed_and_the_users_own_settings_are_read(hosts: Bed) -> None:
    config = hosts.home / ".ssh" / "config"
    config.write_text(f"Host twin\n  HostName {hosts.hosts[1].address}\n")
    try:
        code, found, said = check(hosts, write_hosts(hosts, "good1", "good2", "twin"))
    finally:
        config.unlink()
    assert faults(found)["twin"] == f"it is the same host as {hosts.hosts[1].address}", said
    assert code == 102 and [row["is"] for row in found["hosts"] if row["host"] == "twin"] == ["twin"]
    assert (
        "twin:any (twin) is not reached from it" in said
    )  # the other hosts know no such name: `address` tells one


def test_a_taken_port_and_a_direction_that_is_cut_are_named(hosts: Bed) -> None:
    good1, good2, small = hosts.hosts[:3]
    path = write_hosts(hosts, "good1", "good2", "small")
    small.drop_from(good2)
    holder = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "nsenter", "-t", str(good1.pid), "-n", sys.executable, "-c",
         "import socket, time; s = socket.create_server(('', 7312)); time.sleep(60)"]
    )  # fmt: skip
    try:
        code, found, said = check(hosts, path)
    finally:
        holder.kill()
        holder.wait()
        small.heal()
    told = [one["what"] for one in found["findings"] if one["level"] == "fault"]
    assert any("port 7312 is taken" in what for what in told), said
    cut = next(row for row in found["ports"] if row["from"] == good2.address)
    assert cut[f"{small.address}:any"] == "no answer" and cut[f"{good1.address}:7311"] == "ok"
    assert code == 103


def test_a_user_without_root_is_told_what_he_can_do(hosts: Bed) -> None:
    path = write_hosts(hosts, "good1", "good2", user="ops")
    code, found, said = check(hosts, path)
    assert "cannot be written: Permission denied" in faults(found)[hosts.hosts[1].address], said
    assert code == 101 and "sudo without a password" in said
    assert check(hosts, write_hosts(hosts, "good1", "good2", user="ops", directory="/run/ops/x"))[0] == 0


def test_a_bed_leaves_nothing_behind_when_its_test_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom watched_runs.host_bed import bed\n"
        f"with bed(Path({str(tmp_path)!r})) as made:\n"
        " print(made.add('a').pid, made.switch, flush=True)\n time.sleep(60)\n"
    )
    ran = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2] / "scripts",
        stdout=subprocess.PIPE,
        text=True,
    )
    assert ran.stdout is not None
    pids = [int(word) for word in ran.stdout.readline().split()]
    ran.kill()
    ran.wait()
    ran.stdout.close()
    from watched_runs.host_bed import clear_leftovers, wait_for

    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the end of its processes")
    clear_leftovers()
    assert leftovers() == []
