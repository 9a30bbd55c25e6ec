"""Code that is on no host reaches it: real controller, real agents, workers that import from their agent's store."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec import to_builtins
from package_made import digest_of, package_of
from shipped_hosts import Hosts, headgate

from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.platform.addresses import is_loopback
from headgate.topology_runtime.wire.messages import BROUGHT_BYTES

pytestmark = pytest.mark.live


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(tmp_path)
    yield made
    made.close()


def test_workers_run_code_that_is_nowhere_but_in_their_agents_store(hosts: Hosts) -> None:
    """Whose code it runs stands in the agent's key."""
    shutil.copy(hosts.root / "ann" / "signing.pub", hosts.state / "keys")
    hosts.start_agent("vm1")
    hosts.wait(lambda: "vm1" in hosts.vms())
    made = hosts.packed()
    shutil.rmtree(hosts.code)
    done = hosts.submit("--package", made)
    assert done.returncode == 0, done.stderr
    hosts.wait(lambda: len(hosts.noted()) >= 20)
    assert hosts.ask("status").data["package"] == digest_of(made.read_bytes())
    store = hosts.root / "vm1" / "packages"
    assert {line.split()[0] for line in hosts.noted()} == {"ONE", "TWO"}
    assert all(line.split()[1].startswith(f"{store}/") for line in hosts.noted())

    agent_pid = hosts.processes[-1]
    agent_pid.send_signal(signal.SIGKILL)
    agent_pid.wait()
    before = len(hosts.noted())
    hosts.start_agent("vm1")
    hosts.wait(lambda: len(hosts.noted()) >= before + 20)
    assert (hosts.root / "agent.log").read_text().count("is here") == 1, "it was fetched again"


def test_a_package_that_its_signer_revokes_runs_on_with_an_alarm_and_no_host_starts_it_again(
    hosts: Hosts,
) -> None:
    shutil.copy(hosts.root / "ann" / "signing.pub", hosts.state / "keys")
    agent = hosts.start_agent("vm1")
    hosts.wait(lambda: "vm1" in hosts.vms())
    made = hosts.packed()
    assert hosts.submit("--package", made).returncode == 0
    hosts.wait(lambda: len(hosts.noted()) >= 20)
    sign = ("--set", f"sign={hosts.root / 'ann' / 'signing.key'}", "--controller", hosts.state)
    assert "is revoked; 1 VM" in hosts.headgate("package", "revoke", made, *sign)
    alarms = lambda: " ".join(one["text"] for one in hosts.status()["alarms"])  # noqa: E731
    hosts.wait(lambda: "was revoked" in alarms() and "it runs on until" in alarms())
    before = len(hosts.noted())
    hosts.wait(lambda: len(hosts.noted()) >= before + 20)
    agent.kill()
    agent.wait()
    hosts.start_agent("vm1")
    hosts.wait(lambda: "does not take package" in alarms() and "it runs on" not in alarms())
    stopped = len(hosts.noted())
    hosts.wait(lambda: "vm1" in hosts.vms())
    assert len(hosts.noted()) == stopped


def test_a_host_that_does_not_trust_the_signer_runs_nothing_and_is_named(hosts: Hosts) -> None:
    hosts.start_agent("vm1", "--trust-signer", hosts.root / "ann" / "signing.pub")
    hosts.start_agent("vm2", "--trust-signer", hosts.root / "eve" / "signing.pub")
    hosts.start_agent("vm3")
    hosts.wait(lambda: set(hosts.vms()) >= {"vm1", "vm2", "vm3"})
    signed = ("--ship", "--set", f"sign={hosts.root / 'ann' / 'signing.key'}")
    done = hosts.submit(hosts.code / "shipped_flow.py:flow", *signed)
    assert done.returncode == 3
    assert "- vm2 does not take package" in done.stderr and "- vm3 does not take package" in done.stderr
    assert "vm1" not in done.stderr and "--trust-signer" in done.stderr
    assert hosts.ask("status").data["stage"] == "idle", "nothing was submitted"
    for vm in ("vm2", "vm3"):
        assert [path.name for path in (hosts.root / vm / "packages").iterdir()] == ["parts"]
        assert list((hosts.root / vm / "packages" / "parts").iterdir()) == []


def test_what_would_not_be_found_on_other_hosts_is_refused_before_anything_is_sent(hosts: Hosts) -> None:
    signed = ("--ship", "--set", f"sign={hosts.root / 'ann' / 'signing.key'}")
    (hosts.code / "data" / "lines.txt").rename(hosts.elsewhere / "lines.txt")
    text = (hosts.code / "shipped_flow.py").read_text()
    (hosts.code / "shipped_flow.py").write_text(
        text.replace("data/lines.txt", str(hosts.elsewhere / "lines.txt"))
    )
    done = hosts.submit(hosts.code / "shipped_flow.py:flow", *signed)
    assert done.returncode == 3 and "lines.path names" in done.stderr, done.stderr
    assert not (hosts.state / "packages").exists()


def test_an_upload_goes_on_where_a_killed_controller_had_it_and_is_not_sent_twice(hosts: Hosts) -> None:
    data = package_of({"big.bin": os.urandom(5 * BROUGHT_BYTES), "a.py": b""})
    digest = digest_of(data)

    def put(offset: int) -> Any:
        reply = hosts.ask(
            "package_put", digest=digest, offset=offset, data=data[offset : offset + BROUGHT_BYTES]
        )
        assert reply.error is None, reply.error
        return reply.data

    assert put(0)["taken"] == BROUGHT_BYTES
    assert put(BROUGHT_BYTES)["taken"] == 2 * BROUGHT_BYTES
    hosts.controller.kill()
    hosts.controller.wait()
    hosts.start_controller()
    at = hosts.ask("package_put", digest=digest).data
    assert at == {"digest": digest, "taken": 2 * BROUGHT_BYTES, "whole": False}
    assert hosts.ask("package_at", digest=digest).error is not None, "half a package is none"
    assert hosts.ask("submit", package=digest).error is not None
    while not at["whole"]:
        at = put(at["taken"])
    assert hosts.ask("package_put", digest=digest).data["whole"]
    wrong = hosts.ask("package_put", digest="0" * 64, offset=0, data=data[:BROUGHT_BYTES])
    assert wrong.error is not None and "another package" in wrong.error[2]
    for bad in ({}, {"digest": "../x"}, {"digest": 7}, {"digest": digest, "offset": "x", "data": 3}):
        reply = hosts.ask("package_put", **bad)
        assert reply.error is not None or reply.data["whole"]


def test_who_may_command_but_not_sign_has_nothing_run(hosts: Hosts) -> None:
    """An operator's key, and a package that a trusted signer made for another topology."""
    hosts.start_agent("vm1", "--trust-signer", hosts.root / "ann" / "signing.pub")
    hosts.wait(lambda: "vm1" in hosts.vms())
    given = {"steps": [[0.0, 20.0]], "models": []}
    static, path = Static(threads=1, cpu=0.1, memory=0.1), {"path": str(hosts.code / "data" / "lines.txt")}
    lines = "headgate.topology_runtime.tasks.row_sources:FileLines"
    trace = hosts.rows / "evil"
    (hosts.code / "data" / "lines.txt").write_text(f"touch {trace}\n")
    evil = Topology(
        "evil",
        (
            Task("lines", run=lines, kind="source", params=path, static=static),
            Task("do", run="subprocess:getoutput", static=static),
        ),
        (Edge("lines", "do"),),
    )
    folders = [str(hosts.code)]
    reply = hosts.ask("submit", topology=to_builtins(evil), user_paths=folders, **given)
    assert reply.error is not None and "vm1 runs signed packages only" in reply.error[2]
    data = hosts.packed().read_bytes()
    digest, at = digest_of(data), {"whole": False, "taken": 0}
    while not at["whole"]:
        part = data[at["taken"] : at["taken"] + BROUGHT_BYTES]
        at = hosts.ask("package_put", digest=digest, offset=at["taken"], data=part).data
    reply = hosts.ask("submit", topology=to_builtins(evil), package=digest, user_paths=folders, **given)
    assert reply.error is not None and "not from both" in reply.error[2]
    assert hosts.ask("submit", topology=to_builtins(evil), package=digest, **given).error is None
    hosts.wait(lambda: "not the one that was signed" in str(hosts.ask("status").data))
    assert not trace.exists() and "worker-0.log" not in str(list((hosts.root / "vm1").rglob("*")))


ELSEWHERE = [
    address.address
    for addresses in psutil.net_if_addrs().values()
    for address in addresses
    if address.family == socket.AF_INET and not is_loopback(address.address)
]


@pytest.mark.skipif(not ELSEWHERE, reason="this machine has no address but loopback")
def test_to_a_controller_on_another_address_code_is_shipped_without_being_asked(tmp_path: Path) -> None:
    """By the keys that `keys init` makes, and those that it gives agents; folders are not taken there."""
    hosts = Hosts(tmp_path, listen=ELSEWHERE[0])
    try:
        hosts.start_agent("vm1")
        hosts.wait(lambda: "vm1" in hosts.vms())
        reply = hosts.ask("submit", topology={}, models=[], steps=[], user_paths=[str(hosts.code)])
        assert reply.error is not None and "not from folders" in reply.error[2]
        signed = ("--set", f"sign={hosts.state / 'keys' / 'signing.key'}")
        done = hosts.submit(hosts.code / "shipped_flow.py:flow", *signed)
        assert done.returncode == 0 and "packed" in done.stderr, done.stderr
        shutil.rmtree(hosts.code)
        hosts.wait(lambda: len(hosts.noted()) >= 20)
    finally:
        hosts.close()


# ── A running topology gets its code from another signed package, then from the one before; not from a
# stranger's


def replaced(hosts: Hosts, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        headgate("replace", "--controller", hosts.state, *words),
        cwd=hosts.elsewhere, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def words_from(hosts: Hosts, since: int) -> set[tuple[str, str]]:
    """(row, the digest of the package that the code of its task lies in)."""
    store = str(hosts.root / "vm1" / "packages")
    found = set()
    for line in hosts.noted()[since:]:
        word, _, path = line.partition(" ")
        assert path.startswith(store), line
        found.add((word, path.removeprefix(store).split("/")[1]))
    return found


def test_other_packages_take_over_where_their_signer_is_trusted(hosts: Hosts) -> None:
    hosts.start_agent("vm1", "--trust-signer", hosts.root / "ann" / "signing.pub")
    hosts.wait(lambda: "vm1" in hosts.vms())
    first = hosts.packed().rename(hosts.root / "first.package")
    done = hosts.submit("--package", first)
    assert done.returncode == 0, done.stderr
    hosts.wait(lambda: len(hosts.noted()) >= 20)
    one = digest_of(first.read_bytes())

    (hosts.code / "shipped_words.py").write_text("def loud(text):\n    return text.upper() + '!'\n")
    second = hosts.packed()
    two = digest_of(second.read_bytes())
    shutil.rmtree(hosts.code)
    done = replaced(hosts, "--package", second)
    assert done.returncode == 0, done.stderr
    since = len(hosts.noted())
    hosts.wait(lambda: len(hosts.noted()) >= since + 20)
    assert words_from(hosts, since) == {("ONE!", two), ("TWO!", two)}
    assert hosts.ask("status").data["package"] == two

    done = replaced(hosts, "--back")
    assert done.returncode == 0, done.stderr
    since = len(hosts.noted())
    hosts.wait(lambda: len(hosts.noted()) >= since + 20)
    assert words_from(hosts, since) == {("ONE", one), ("TWO", one)}


def test_a_strangers_package_changes_nothing(hosts: Hosts) -> None:
    hosts.start_agent("vm1", "--trust-signer", hosts.root / "ann" / "signing.pub")
    hosts.wait(lambda: "vm1" in hosts.vms())
    made = hosts.packed()
    assert hosts.submit("--package", made).returncode == 0
    hosts.wait(lambda: len(hosts.noted()) >= 20)
    assert "what runs already" in replaced(hosts, "--package", made).stderr
    (hosts.code / "shipped_words.py").write_text("def loud(text):\n    return 'eve was here'\n")
    signed = ("--set", f"sign={hosts.root / 'eve' / 'signing.key'}", "--set", "on-every-host=note.folder")
    done = replaced(hosts, hosts.code / "shipped_flow.py:flow", "--ship", *signed)
    assert done.returncode == 3 and "vm1 does not take package" in done.stderr, done.stderr
    unsigned = hosts.ask(
        "replace", topology={"name": "shipped", "tasks": [], "edges": []}, user_paths=["/tmp"]
    )
    assert unsigned.error is not None and "signed packages only" in unsigned.error[2]
    before = len(hosts.noted())
    hosts.wait(lambda: len(hosts.noted()) >= before + 20)
    assert hosts.ask("status").data["code"] == {"number": 0, "slots_before": 0}
