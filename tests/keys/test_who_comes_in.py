"""Every kind of socket × every kind of key, over real sockets: what comes in is what may, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
import zmq

from headgate.topology_runtime import channels as c
from headgate.topology_runtime import curve
from headgate.topology_runtime import messages as m
from headgate.topology_runtime.errors import Refused, Unreachable
from headgate.topology_runtime.keys.pairs import Contact, KeyGuard, KeyPair, Who, contact_at

OWN, GOOD, GONE, STRANGER, OTHER = (curve.new_pair() for _ in range(5))
WAIT_S, NOTHING_S = 5.0, 0.3
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
    assert pull.receive_bytes(NOTHING_S) is None
    push = c.PushChannel(contact_at(pull.endpoint, GOOD))
    push.send_bytes(b"true")
    assert pull.receive_bytes(WAIT_S) == b"true" and pull.receive_bytes(0.05) is None
    push.watch.end(push.socket)
    push.close(0)
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
    assert pull.receive_bytes(NOTHING_S) is None
    known[STRANGER.public] = Who("worker", "vm1/0#7")
    assert pull.receive_bytes(WAIT_S) == b"early"
    push.watch.end(push.socket)
    push.close(0)
    pull.close(0)
