"""The folder of keys: who has one, who may read it, and what two who change it at once leave."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq
from click.testing import CliRunner
from patience import until

from headgate.dashboards.terminal import access_commands as command
from headgate.topology_runtime.errors import Conflict, InvalidInput, Refused, Unreachable, UsageError
from headgate.topology_runtime.keys import curve
from headgate.topology_runtime.keys.key_pairs import Contact, KeyGuard, KeyPair, Who, contact_at
from headgate.topology_runtime.keys.keyring import TRUST, Keyring, Trust, read_key
from headgate.topology_runtime.wire import channels as c
from headgate.topology_runtime.wire import messages as m

ADD = "import sys; from pathlib import Path; from headgate.topology_runtime.keys.keyring import Keyring; " + (
    "[Keyring(Path(sys.argv[1])).add('agent', f'{sys.argv[2]}-{n}') for n in range(20)]"
)


@pytest.fixture
def ring(tmp_path: Path) -> Keyring:
    return Keyring.make(tmp_path / "keys")


def test_nobody_else_may_read_any_of_it(ring: Keyring) -> None:
    ring.add("agent", "vm1")
    assert stat.S_IMODE(ring.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in ring.folder.iterdir()} == {0o600}


def test_a_secret_half_stands_in_its_own_file_and_is_never_printed(ring: Keyring) -> None:
    key = read_key(ring.add("agent", "vm1"))
    where = [path.name for path in ring.folder.iterdir() if key.secret in path.read_text()]
    assert where == ["agent.vm1.key"]
    assert key.secret not in repr(key) + repr(key.pair) + repr(key.contact("tcp://h:1")) + str(key)


def test_a_name_has_one_key_until_it_is_rotated_or_revoked(ring: Keyring) -> None:
    first = read_key(ring.add("agent", "vm1")).public
    with pytest.raises(Conflict):
        ring.add("agent", "vm1")
    assert read_key(ring.ensure("agent", "vm1")).public == first
    second = read_key(ring.rotate("agent", "vm1", overlap_s=0)).public
    known = {key.public: bool(key.revoked) for key in ring.trust().keys}
    assert known == {first: True, second: False}
    ring.revoke("agent", "vm1")
    assert all(key.revoked for key in ring.trust().keys) and not ring.path("agent", "vm1").exists()
    with pytest.raises(InvalidInput):
        ring.revoke("agent", "vm1")
    assert read_key(ring.add("agent", "vm1")).public not in known


def test_a_rotated_key_counts_until_its_overlap_ends_and_only_the_last_one_does(
    ring: Keyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = [time.time_ns()]
    monkeypatch.setattr(time, "time_ns", lambda: now_ns[0])
    first = read_key(ring.add("agent", "vm1")).public
    second = read_key(ring.rotate("agent", "vm1", overlap_s=60)).public
    trust = Trust(ring)
    admits = trust.admits("agent")
    assert {str(admits(key)) for key in (first, second)} == {"agent vm1"} and not trust.look()
    now_ns[0] += 61 * 10**9
    assert trust.look() and admits(first) is None and admits(second) is not None and not trust.look()
    third = read_key(ring.rotate("agent", "vm1")).public
    read_key(ring.rotate("agent", "vm1"))
    assert trust.look() and admits(second) is None, "it ended with its overlap"
    assert admits(third) is not None
    ring.revoke("agent", "vm1")
    assert trust.look() and admits(third) is None, "revoked with all that overlap"


def test_until_the_overlap_ends_a_file_names_both_keys_of_the_controller(ring: Keyring) -> None:
    ring.add("agent", "vm1")
    before = ring.controller().public
    ring.rotate("controller", "controller")
    ring.add("agent", "vm2")
    for vm in ("vm1", "vm2"):
        contact = ring.key("agent", vm).contact("tcp://127.0.0.1:1")
        assert (contact.server, contact.before) == (ring.controller().public, before)
    ring.rotate("controller", "controller", overlap_s=0)
    assert ring.key("agent", "vm1").contact("tcp://127.0.0.1:1").before == ""


@pytest.mark.parametrize("started_again", [False, True])
def test_who_knows_both_keys_of_a_controller_reaches_it_before_and_after_it_changed(
    ring: Keyring, started_again: bool
) -> None:
    """The controller that runs has the old one; once started again, the new one."""
    ring.add("operator", "ann")
    old = ring.controller()
    ring.rotate("controller", "controller")
    guard = KeyGuard(ring.controller() if started_again else old, Trust(ring).admits("operator"))
    server: c.ServerChannel[m.Reply, m.Request] = c.ServerChannel(c.requests, guard)
    try:
        client: c.ClientChannel[m.Request, m.Reply] = c.ClientChannel(
            c.replies, ring.key("operator", "ann").contact(server.endpoint)
        )
        until(lambda: client.send(m.Request("status")))
        until(lambda: server.receive(), lambda: "nothing came")
        client.close(0)
    finally:
        server.close(0)


def test_a_new_key_of_the_controller_stands_in_every_file(ring: Keyring) -> None:
    names = [read_key(ring.add("agent", "vm1")).name, read_key(ring.add("operator", "ann")).name]
    before = ring.controller().public
    ring.rotate("controller", "controller")
    after = ring.controller().public
    assert after != before and ring.trust().controller == after
    assert {ring.key("agent", names[0]).controller, ring.key("operator", names[1]).controller} == {after}


@pytest.mark.parametrize("name", ["", "..", "a/b", "a b", "x" * 65, "../agent"])
def test_names_that_would_be_paths_are_refused_and_leave_nothing(name: str, ring: Keyring) -> None:
    before = sorted(path.name for path in ring.folder.iterdir())
    with pytest.raises(InvalidInput):
        ring.add("agent", name)
    assert sorted(path.name for path in ring.folder.iterdir()) == before and not ring.trust().keys


def test_a_second_init_and_a_folder_without_keys_are_refused(ring: Keyring, tmp_path: Path) -> None:
    with pytest.raises(Conflict):
        Keyring.make(ring.folder)
    for asked in (lambda ring: ring.add("agent", "vm1"), lambda ring: ring.trust()):
        with pytest.raises(InvalidInput) as caught:
            asked(Keyring(tmp_path / "none"))
        assert caught.value.hint == f"headgate keys init {tmp_path / 'none'}"


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"schema": 1}', "\x00" * 50])
def test_a_damaged_file_is_named(damage: str, ring: Keyring) -> None:
    path = ring.add("agent", "vm1")
    path.write_text(damage)
    with pytest.raises(InvalidInput, match=path.name):
        read_key(path)


def test_a_key_that_others_may_read_is_not_taken(ring: Keyring) -> None:
    path = ring.add("agent", "vm1")
    path.chmod(0o640)
    with pytest.raises(InvalidInput) as caught:
        read_key(path)
    assert caught.value.hint == f"chmod 600 {path}"


def test_two_who_add_at_once_lose_nothing(ring: Keyring) -> None:
    words = [sys.executable, "-P", "-c", ADD, str(ring.folder)]
    both = [subprocess.Popen([*words, name], env=os.environ) for name in ("a", "b")]
    assert [one.wait(60) for one in both] == [0, 0]
    assert sorted(key.name for key in ring.trust().keys) == sorted(
        f"{n}-{k}" for n in "ab" for k in range(20)
    )


def test_a_running_controller_sees_who_came_and_who_is_gone(ring: Keyring) -> None:
    trust = Trust(ring)
    agents, viewers = trust.admits("agent"), trust.admits("viewer")
    public = read_key(ring.add("agent", "vm1")).public
    who = agents(public)
    assert who is not None and (who.role, who.name) == ("agent", "vm1"), "at once: no look in between"
    assert viewers(public) is None and not trust.look()
    ring.revoke("agent", "vm1")
    assert trust.look() and agents(public) is None and not trust.look()


def test_a_file_that_is_broken_lets_nobody_in_anew_and_throws_nobody_out(ring: Keyring) -> None:
    public = read_key(ring.add("agent", "vm1")).public
    trust = Trust(ring)
    whole = (ring.folder / TRUST).read_text()
    (ring.folder / TRUST).write_text(whole[: len(whole) // 2])
    assert not trust.look() and trust.trouble and trust.admits("agent")(public) is not None
    (ring.folder / TRUST).unlink()
    assert not trust.look() and trust.admits("agent")(public) is not None
    ring = Keyring.make(ring.folder)
    assert trust.look() and trust.admits("agent")(public) is None and not trust.trouble


def test_what_the_commands_print_holds_no_secret(tmp_path: Path) -> None:
    folder, out = str(tmp_path / "k"), str(tmp_path / "vm1.key")
    said = ""
    for words in (
        [command.init, [folder]],
        [command.add, ["agent", "vm1", "--keys", folder]],
        [command.export, ["agent", "vm1", "--output", out, "--keys", folder]],
        [command.rotate, ["agent", "vm1", "--keys", folder]],
        [command.list_keys, ["--keys", folder]],
        [command.list_keys, ["--keys", folder, "-o", "json"]],
        [command.revoke, ["agent", "vm1", "--keys", folder]],
    ):
        done = CliRunner().invoke(*words)  # type: ignore[arg-type]
        assert done.exit_code == 0, done.output
        said += done.output
    files = [Path(out), *(tmp_path / "k").glob("*.key")]
    secrets = {json.loads(path.read_text())["secret"] for path in files}
    assert len(secrets) == 4 and not any(secret in said for secret in secrets)
    listed = json.loads(CliRunner().invoke(command.list_keys, ["--keys", folder, "-o", "json"]).output)
    assert [bool(key["revoked"]) for key in listed["keys"]] == [False, True, True]
    assert stat.S_IMODE(Path(out).stat().st_mode) == 0o600


def test_an_agents_key_names_whose_code_it_runs_and_others_name_nobody(tmp_path: Path) -> None:
    made = CliRunner().invoke(command.init, [str(tmp_path / "keys")], catch_exceptions=False)
    assert made.exit_code == 0
    ring = Keyring(tmp_path / "keys")
    signer = json.loads((ring.folder / "signing.pub").read_text())["public"]
    assert stat.S_IMODE((ring.folder / "signing.key").stat().st_mode) == 0o600
    assert read_key(ring.add("agent", "vm1")).signers == (signer,)
    assert read_key(ring.add("viewer", "eve")).signers == ()
    assert ring.key("operator", "local").signers == ()
    (ring.folder / "signing.pub").unlink()
    assert read_key(ring.rotate("agent", "vm1")).signers == ()
    written = json.loads(ring.path("agent", "vm1").read_text())
    del written["signers"]  # as one that was made before
    ring.path("agent", "vm1").write_text(json.dumps(written))
    assert ring.key("agent", "vm1").signers == ()
    (ring.folder / "signing.pub").write_text("{}")
    with pytest.raises(InvalidInput, match=r"signing\.pub"):
        ring.add("agent", "vm2")


def test_whose_key_is_rotated_has_to_be_said(tmp_path: Path) -> None:
    folder = str(tmp_path / "k")
    CliRunner().invoke(command.init, [folder])
    done = CliRunner().invoke(command.rotate, ["agent", "--keys", folder])
    assert isinstance(done.exception, UsageError) and "which agent?" in str(done.exception)
    assert CliRunner().invoke(command.rotate, ["controller", "--keys", folder]).exit_code == 0


# ── Every kind of socket × every kind of key, over real sockets: what comes in is what may, and nothing
# else

OWN, GOOD, GONE, STRANGER, OTHER = (curve.new_pair() for _ in range(5))
WAIT_S, NOTHING_S = 60.0, 0.3
BAD = {
    "no key at all": None,
    "another server's key": Contact("", GOOD, OTHER.public),
    "a key that nobody knows": Contact("", STRANGER, OWN.public),
    "a revoked key": Contact("", GONE, OWN.public),
    "a right public and a wrong secret half": Contact("", KeyPair(GOOD.public, STRANGER.secret), OWN.public),
}


@pytest.fixture
def known() -> dict[str, Who]:
    return {GOOD.public: Who("operator", "ann")}


@pytest.fixture
def guard(known: dict[str, Who]) -> KeyGuard:
    return KeyGuard(OWN, known.get)


@pytest.fixture
def sockets() -> Iterator[Callable[..., zmq.Socket[bytes]]]:
    """Plain ZeroMQ, by another context and without any of our own code."""
    context, made = zmq.Context(), list[zmq.Socket[bytes]]()

    def plain(kind: int, endpoint: str, contact: Contact | None) -> zmq.Socket[bytes]:
        socket = context.socket(kind)
        made.append(socket)
        socket.linger = 0
        if contact is not None:
            socket.curve_serverkey = contact.server.encode()
            socket.curve_publickey = contact.own.public.encode()
            socket.curve_secretkey = contact.own.secret.encode()
        if kind == zmq.SUB:
            socket.subscribe(b"")
        socket.connect(endpoint.partition("#")[0])
        return socket

    yield plain
    for socket in made:
        socket.close()
    context.term()


def good(endpoint: str) -> Contact:
    return Contact(endpoint.partition("#")[0], GOOD, OWN.public)


@pytest.mark.parametrize("key", BAD)
def test_a_server_hears_nobody_else(
    key: str, guard: KeyGuard, sockets: Callable[..., zmq.Socket[bytes]]
) -> None:
    server: c.ServerChannel[m.Reply, m.Request] = c.ServerChannel(c.requests, guard)
    sockets(zmq.DEALER, server.endpoint, BAD[key]).send(c.encode(m.Request("stop")))
    assert not c.Waiter([server]).wait(NOTHING_S)
    client: c.ClientChannel[m.Request, m.Reply] = c.ClientChannel(c.replies, good(server.endpoint))
    client.send(m.Request("ping"))
    assert c.Waiter([server]).wait(WAIT_S), "and who may is heard beside him"
    found = server.receive()
    assert found is not None and found[1:] == (Who("operator", "ann"), m.Request("ping"))
    assert server.receive() is None
    client.close(0)
    server.close(0)


@pytest.mark.parametrize("key", BAD)
def test_a_publisher_tells_nobody_else(
    key: str, guard: KeyGuard, sockets: Callable[..., zmq.Socket[bytes]]
) -> None:
    publisher = c.PublisherChannel(guard)
    false, true = (
        sockets(zmq.SUB, publisher.endpoint, BAD[key]),
        c.SubscriberChannel(good(publisher.endpoint)),
    )
    end = time.monotonic() + WAIT_S
    while not publisher.heard:
        assert time.monotonic() < end
    publisher.send_bytes(b"one")
    assert c.Waiter([true]).wait(WAIT_S) and true.receive_bytes() == b"one"
    assert not false.poll(int(NOTHING_S * 1000))
    true.close(0)
    publisher.close(0)


@pytest.mark.parametrize("key", BAD)
def test_a_worker_takes_tuples_of_nobody_else(
    key: str, guard: KeyGuard, sockets: Callable[..., zmq.Socket[bytes]]
) -> None:
    pull = c.PullChannel(guard)
    sockets(zmq.PUSH, pull.endpoint, BAD[key]).send(b"forged")
    assert pull.wait_for_bytes(NOTHING_S) is None
    push = c.PushChannel(contact_at(pull.endpoint, GOOD))
    push.send_bytes(b"true")
    assert pull.wait_for_bytes(WAIT_S) == b"true" and pull.wait_for_bytes(0.05) is None
    push.close(0)
    push.watch.close(0)
    pull.close(0)


def test_a_key_that_is_revoked_is_heard_no_more_on_a_link_that_stands(
    guard: KeyGuard, known: dict[str, Who]
) -> None:
    server: c.ServerChannel[m.Reply, m.Request] = c.ServerChannel(c.requests, guard)
    client: c.ClientChannel[m.Request, m.Reply] = c.ClientChannel(c.replies, good(server.endpoint))
    client.send(m.Request("ping"))
    assert c.Waiter([server]).wait(WAIT_S) and server.receive() is not None
    known.clear()
    client.send(m.Request("stop"))
    assert c.Waiter([server]).wait(WAIT_S) and server.receive() is None and server.unknown == 1
    client.close(0)
    server.close(0)


def test_a_listener_whose_key_is_revoked_hears_no_more_and_the_others_do(
    guard: KeyGuard, known: dict[str, Who]
) -> None:
    known[GONE.public] = Who("viewer", "eve")
    publisher = c.PublisherChannel(guard)
    stays = c.SubscriberChannel(good(publisher.endpoint))
    goes = c.SubscriberChannel(Contact(publisher.endpoint, GONE, OWN.public))
    heard = until_heard(publisher, stays, b"a")
    until_heard(publisher, goes, b"b")
    del known[GONE.public]
    publisher.ask_again()
    heard = until_heard(publisher, stays, b"c")
    assert heard == b"c"
    while (data := goes.receive_bytes()) is not None:
        assert data != b"c"
    for each in (stays, goes):
        each.close(0)
    publisher.close(0)


def until_heard(publisher: c.PublisherChannel, listener: c.SubscriberChannel, data: bytes) -> bytes:
    """Sent again and again, until the listener hears it."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        publisher.send_bytes(data)
        c.Waiter([listener]).wait(0.02)
        while (found := listener.receive_bytes()) is not None:
            if found == data:
                return found
    raise AssertionError(f"{data!r} was not heard")


def test_who_is_not_let_in_is_told_so_at_once_and_who_finds_another_server_is_not_answered(
    guard: KeyGuard,
) -> None:
    server: c.ServerChannel[m.Reply, m.Request] = c.ServerChannel(c.requests, guard)
    with pytest.raises(Refused, match="does not let this key in"):
        c.ask(Contact(server.endpoint, STRANGER, OWN.public), m.Request("ping"), WAIT_S)
    with pytest.raises(Unreachable, match="no answer"):
        c.ask(Contact(server.endpoint, GOOD, OTHER.public), m.Request("ping"), NOTHING_S)
    server.close(0)


def test_what_a_link_does_not_take_is_no_error_of_zeromq(guard: KeyGuard) -> None:
    """Nothing more is queued for a server that has refused, now and then at once: `ask` says so, as before."""
    server: c.ServerChannel[m.Reply, m.Request] = c.ServerChannel(c.requests, guard)
    client: c.ClientChannel[m.Request, m.Reply] = c.ClientChannel(
        c.replies, Contact(server.endpoint, STRANGER, OWN.public)
    )
    try:
        assert False in [client.send(b"ping") for _ in range(100_000)]
    finally:
        client.close(0)
        server.close(0)


def test_a_worker_whose_peer_is_named_a_moment_later_gets_what_was_sent_before(known: dict[str, Who]) -> None:
    pull = c.PullChannel(KeyGuard(OWN, known.get, later=True))
    push = c.PushChannel(contact_at(pull.endpoint, STRANGER))
    push.send_bytes(b"early")
    assert pull.wait_for_bytes(NOTHING_S) is None
    known[STRANGER.public] = Who("worker", "vm1/0#7")
    assert pull.wait_for_bytes(WAIT_S) == b"early"
    push.close(0)
    push.watch.close(0)
    pull.close(0)


def test_a_file_where_a_folder_of_keys_is_due_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for ask in (lambda ring: ring.trust(), lambda ring: ring.ensure("operator", "ann")):
        for name, hint in (("file", "name the folder of keys"), ("none", "headgate keys init")):
            with pytest.raises(InvalidInput, match="holds no keys") as raised:
                ask(Keyring(tmp_path / name))
            assert raised.value.hint is not None and raised.value.hint.startswith(hint)
