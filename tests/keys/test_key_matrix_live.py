"""A real run: whose key has which effect, and that another user of this machine has none.

What had an effect is asked of the controller by its own operator, and of the sink's file.
"""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from keys_made import agent, operator
from patience import PATIENCE_S, until, within

from headgate.topology_runtime.errors import Unreachable
from headgate.topology_runtime.keys import curve
from headgate.topology_runtime.keys.key_pairs import Contact, KeyGuard, Who, contact_at
from headgate.topology_runtime.keys.keyring import Keyring, read_key
from headgate.topology_runtime.wire import channels as c
from headgate.topology_runtime.wire import messages as m

pytestmark = pytest.mark.live

NOTHING_S = 0.5
NOBODY = "nobody"
STRANGER = """
import json, os, sys, time
from pathlib import Path
from headgate.topology_runtime.keys import curve
from headgate.topology_runtime.wire import channels as c, messages as m
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.keys.key_pairs import Contact, contact_at
where, state, uid, gid = json.loads(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
from headgate.topology_runtime.platform.containment import show
show((sys.prefix, sys.base_prefix, *filter(os.path.exists, sys.path)), uid, gid)  # what is root's alone
os.setgroups([]), os.setgid(gid), os.setuid(uid)
found = {"uid": os.getuid(), "read": [], "answers": []}
for path in (state, state / "keys", state / "keys" / "trust.json", state / "keys" / "operator.local.key"):
    try:
        found["read"].append(os.listdir(path) if path.is_dir() else path.read_text())
    except OSError:
        continue
own, server = curve.new_pair(), where["public"]  # the controller's public half is told him, all the same
for request in (m.Request("submit", {"topology": {}}), m.Request("rate_set", {"rate_tps": 1.0}), m.Request("stop")):
    try:
        found["answers"].append(str(c.ask(Contact(where["commands"], own, server), request, 60.0)))
    except HeadgateError as error:
        found["answers"].append(type(error).__name__)
agent = c.ClientChannel(c.from_controller, Contact(where["control"], own, server))
agent.send(m.Goodbye("vm1", 1 << 60))
frames = c.PushChannel(contact_at(where["frames"], own))
frames.send_bytes(b"junk")
time.sleep(1.0)
print(json.dumps(found))
os._exit(0)
"""


@dataclass
class Run:
    """`headgate up` of a small topology; `state`: its directory."""

    process: subprocess.Popen[str]
    state: Path

    @property
    def where(self) -> dict[str, Any]:
        return json.loads((self.state / "controller" / "endpoint").read_text())

    def ask(self, command: str, contact: Contact | None = None, **arguments: Any) -> m.Reply:
        return c.ask(contact or operator(self.state), m.Request(command, arguments), PATIENCE_S)

    def status(self) -> Any:
        return self.ask("status").data


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "flow.py").write_text(
        "from headgate.topology_runtime.api.builder import topology\n"
        "from headgate.topology_runtime.api.logic import Source\n"
        "class Ids(Source):\n"
        "    def read(self, position, limit):\n        return list(range(position, position + limit))\n"
        "def twice(row):\n    return row * 2\n"
        "def drop(row):\n    return None\n"
        "flow = topology('guarded')\n"
        "flow.source('ids', Ids) >> flow.task('twice', twice) >> flow.task('last', drop)\n"
    )
    words = [
        "up",
        "flow.py:flow",
        "--rates",
        "50",
        "--state-dir",
        "state",
        "--slot-cores",
        "0.2",
        "--seconds",
        "1200",
    ]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "headgate", *words],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    one = Run(process, folder / "state")
    try:
        endpoint = one.state / "controller" / "endpoint"
        until(lambda: endpoint.exists() and one.status()["tuples"]["acked"] > 0)
        yield one
    finally:
        process.send_signal(2)
        process.communicate(timeout=PATIENCE_S)


def key_of(run: Run, role: str, name: str) -> Contact:
    ring = Keyring(run.state / "keys")
    return read_key(ring.ensure(role, name)).contact(run.where["commands"])  # type: ignore[arg-type]


def test_a_viewer_looks_and_changes_nothing(run: Run) -> None:
    viewer = key_of(run, "viewer", "eve")
    for command in ("ping", "status", "events", "plans", "snapshot", "deadletters"):
        assert run.ask(command, viewer).error is None, command
    for command in (
        "rate_set",
        "stop",
        "submit",
        "plan",
        "apply",
        "resume",
        "rollback",
        "deadletter_drop",
        "nonsense",
    ):
        error = run.ask(command, viewer, rate_tps=7.0).error
        assert error is not None and error[0] == "HG-REFUSED", command
    acked = run.status()["tuples"]["acked"]
    until(lambda: run.status()["tuples"]["acked"] > acked + 50)
    until(
        lambda: run.status()["rates"]["offered_tps"] > 10
    )  # and not 7: of the last seconds, which may be none yet


def test_a_viewer_gets_the_stream(run: Run) -> None:
    viewer = key_of(run, "viewer", "eve")
    stream = c.SubscriberChannel(viewer.to(run.ask("snapshot", viewer).data["stream"]))
    assert c.Waiter([stream]).wait(PATIENCE_S) and stream.receive_bytes()
    stream.close(0)


def test_an_agents_key_asks_nothing_and_reads_nobodys_samples(run: Run) -> None:
    own = agent(run.state, "vm9")
    for command in ("status", "stop"):
        with pytest.raises(c.Refused):
            c.ask(own.contact(run.where["commands"]), m.Request(command), PATIENCE_S)
    stream = c.SubscriberChannel(own.contact(run.ask("snapshot").data["stream"]))
    assert not c.Waiter([stream]).wait(2.0)
    stream.close(0)


@pytest.mark.parametrize("role", ["operator", "viewer"])
def test_a_persons_key_is_no_agents(role: str, run: Run) -> None:
    contact = key_of(run, role, "ann").to(run.where["control"])
    with false_agent(contact) as channel:
        channel.send(hello("vm7"))
        assert not c.Waiter([channel]).wait(NOTHING_S)
    assert "vm7" not in vms(run)


def test_an_agent_speaks_for_its_own_vm_only(run: Run) -> None:
    before = next(vm for vm in run.status()["vms"] if vm["vm"] == "vm1")
    with false_agent(agent(run.state, "vm9").contact(run.where["control"])) as channel:
        for message in (
            hello("vm1", 1 << 61),
            m.Goodbye("vm1", 1 << 61),
            m.Report("vm1", 1 << 61, 1, m.Token()),
        ):
            channel.send(message)
        time.sleep(NOTHING_S)
    after = next(vm for vm in run.status()["vms"] if vm["vm"] == "vm1")
    assert (vms(run), after["pid"], after["state"]) == ({"vm1"}, before["pid"], before["state"])
    acked = run.status()["tuples"]["acked"]
    until(lambda: run.status()["tuples"]["acked"] > acked + 50)


@within(1.0)
def test_a_revoked_key_soon_has_no_effect_on_a_link_that_stands(run: Run, within_s: float) -> None:
    viewer = key_of(run, "viewer", "gone")
    client: c.ClientChannel[m.Request, m.Reply] = c.ClientChannel(c.replies, viewer)
    client.send(m.Request("ping"))
    assert c.Waiter([client]).wait(PATIENCE_S) and client.receive() is not None
    Keyring(run.state / "keys").revoke("viewer", "gone")
    revoked_s = time.monotonic()

    def refused() -> bool:
        try:
            return c.ask(viewer, m.Request("ping"), 5.0) is None
        except c.Refused:
            return True
        except Unreachable:  # it was revoked while it waited
            return False

    def silent() -> bool:
        client.send(m.Request("ping"))
        return not c.Waiter([client]).wait(NOTHING_S) or client.receive() is None

    until(refused)
    until(silent, lambda: "it is answered still")
    client.close(0)
    assert time.monotonic() - revoked_s < within_s + NOTHING_S


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_another_user_of_this_machine_has_no_effect(run: Run) -> None:
    """He knows every address and every public key, and has headgate's own code to speak with."""
    frames = endpoints_of_workers(run)
    where = {**run.where, "public": Keyring(run.state / "keys").trust().controller, "frames": frames[0]}
    user = pwd.getpwnam(NOBODY)
    words = [json.dumps(where), str(run.state), str(user.pw_uid), str(user.pw_gid)]
    done = subprocess.run(
        [sys.executable, "-P", "-c", STRANGER, *words],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["uid"] == user.pw_uid
    assert found["answers"] == ["Refused"] * 3
    assert not any("trust.json" in str(one) or "secret" in str(one) for one in found["read"])
    after = run.status()
    assert after["stage"] not in ("draining", "settling", "ended") and vms(run) == {"vm1"}
    assert after["plan"]["reason"] != "operator"
    until(lambda: run.status()["tuples"]["acked"] > after["tuples"]["acked"] + 50)
    assert run.status()["tuples"]["lost"] == 0 and not run.status()["troubles"]


def test_no_secret_is_seen_in_argv_environments_logs_or_the_trace(run: Run) -> None:
    secrets = [read_key(path).secret for path in (run.state / "keys").glob("*.key")]
    assert secrets
    seen = until(lambda: "PAR1" in (found := all_that_is_seen(run)) and found)  # with some of the trace
    assert not any(secret in seen for secret in secrets)


def all_that_is_seen(run: Run) -> str:
    """What processes were started with, and every file but keys; empty where one was renamed or ended meanwhile."""
    own = psutil.Process(run.process.pid)
    files = [p for p in run.state.parent.rglob("*") if p.is_file() and (run.state / "keys") not in p.parents]
    assert len(files) > 5
    try:
        started = [
            " ".join(one.cmdline()) + json.dumps(one.environ())
            for one in (own, *own.children(recursive=True))
        ]
        return "".join((*started, *(path.read_bytes().decode("latin-1") for path in files)))
    except (FileNotFoundError, psutil.NoSuchProcess):
        return ""


def endpoints_of_workers(run: Run) -> list[str]:
    """By the operating system: ports on which worker processes listen, with the key that a stranger would have made."""
    found = []
    for process in psutil.Process(run.process.pid).children(recursive=True):
        if "headgate.topology_runtime.worker" in " ".join(process.cmdline()):
            for one in process.net_connections(kind="tcp"):
                if one.status == psutil.CONN_LISTEN:
                    found.append(f"tcp://127.0.0.1:{one.laddr.port}#{curve.new_pair().public}")
    assert found
    return found


def vms(run: Run) -> set[str]:
    return {vm["vm"] for vm in run.status()["vms"]}


def hello(vm: str, boot: int = 3) -> m.Hello:
    return m.Hello(vm, boot, 4, 0.2, 1 << 28, "none", 7)


class false_agent:
    """A channel to the control port."""

    def __init__(self, contact: Contact) -> None:
        self.channel: c.ClientChannel[m.FromAgent, m.FromController] = c.ClientChannel(
            c.from_controller, contact
        )

    def __enter__(self) -> c.ClientChannel[m.FromAgent, m.FromController]:
        return self.channel

    def __exit__(self, *_: object) -> None:
        self.channel.close(0)


# ── A link that goes on breaking after its watch has ended: ZeroMQ's own thread waits for whoever reads
# what it tells of a link, and with it every socket of the process, so there must be nobody to tell.

OWN, STRANGE_PAIR, KNOWN = (curve.new_pair() for _ in range(3))
BREAKS_S = 2.5  # refused after 0.7 s, and then again and again


def test_the_other_sockets_of_the_process_go_on() -> None:
    refusing = c.PullChannel(KeyGuard(OWN, {}.get, later=True))
    push = c.PushChannel(contact_at(refusing.endpoint, STRANGE_PAIR))
    push.watch.end()
    push.watch.close(0)
    time.sleep(BREAKS_S)
    guard = KeyGuard(OWN, {KNOWN.public: Who("operator", "ann")}.get)
    server: c.ServerChannel[m.Reply, m.Request] = c.ServerChannel(c.requests, guard)
    client: c.ClientChannel[m.Request, m.Reply] = c.ClientChannel(
        c.replies, Contact(server.endpoint, KNOWN, OWN.public)
    )
    client.send(m.Request("ping"))
    assert c.Waiter([server]).wait(PATIENCE_S) and server.receive() is not None
    for each in (client, server, push, refusing):
        each.close(0)
