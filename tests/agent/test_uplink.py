"""The connection to the controller (agent/uplink.py) over real sockets; its clock is the test's."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
from keys_made import MadeKeys

from headgate.agent.uplink import Uplink
from headgate.topology_runtime import channels
from headgate.topology_runtime import messages as m
from headgate.topology_runtime.channels import ServerChannel, Waiter
from headgate.topology_runtime.errors import Unreachable

NS = 1_000_000_000
KEYS = MadeKeys("agent", "vm1")
Server = ServerChannel[m.FromController, m.FromAgent]


@pytest.fixture
def server() -> Iterator[Server]:
    server: Server = ServerChannel(channels.from_agent, KEYS.guard)
    yield server
    server.close(linger_ms=0)


@pytest.fixture
def uplink(server: Server) -> Iterator[Uplink]:
    uplink = Uplink(KEYS.contact(server.endpoint), 0)
    yield uplink
    uplink.channel.close(linger_ms=0)


def again_on(port: int) -> Server:
    """A server on a port that was closed just now: ZeroMQ lets go of it in a thread of its own."""
    end = time.monotonic() + 5.0
    while True:
        try:
            return ServerChannel(channels.from_agent, KEYS.guard, port=port)
        except Unreachable:
            if time.monotonic() > end:
                raise


def came(server: Server) -> tuple[bytes, m.FromAgent]:
    assert Waiter([server]).wait(5.0)
    found = server.receive()
    assert found is not None
    peer, who, message = found
    assert who == KEYS.who
    return peer, message


def test_both_ways_and_bytes_that_are_no_message_are_counted(server: Server, uplink: Uplink) -> None:
    uplink.send(m.Goodbye("vm1", 1))
    peer, message = came(server)
    assert message == m.Goodbye("vm1", 1)
    welcome = m.Welcome(1, "run", 5)
    for data in (b"\xc1", channels.encode(m.Quit()), channels.encode(welcome)):
        server.send(peer, data)
    got: list[tuple[m.FromController, bytes]] = []
    while not got:
        assert Waiter([uplink.channel]).wait(5.0)
        got = uplink.receive()
    assert got == [(welcome, channels.encode(welcome))] and uplink.bad == 2
    assert uplink.receive() == []


def test_after_three_silent_seconds_a_fresh_connection_and_nothing_stale(
    server: Server, uplink: Uplink
) -> None:
    assert not uplink.refresh(int(2.9 * NS))
    assert uplink.refresh(3 * NS)
    assert not uplink.refresh(int(5.9 * NS)), "the fresh one gets its time too"
    uplink.heard(6 * NS)
    assert not uplink.refresh(int(8.9 * NS))
    uplink.send(m.Goodbye("vm1", 2))
    assert came(server)[1] == m.Goodbye("vm1", 2)


@pytest.mark.live
@pytest.mark.alone  # on a busy machine ZeroMQ's own thread may find the controller before it has closed the old link
def test_what_was_queued_for_a_controller_that_is_away_is_dropped() -> None:
    with socket.socket() as held:  # bound, not listening: refuses, and no other test gets the port
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        uplink = Uplink(KEYS.contact(f"tcp://127.0.0.1:{port}"), 0)
        for n in range(100):
            uplink.send(m.Goodbye("vm1", n))
        assert uplink.refresh(4 * NS)
    back = again_on(port)
    uplink.send(m.Goodbye("vm1", 1000))
    try:
        assert came(back)[1] == m.Goodbye("vm1", 1000)
    finally:
        uplink.channel.close(linger_ms=0)
        back.close(linger_ms=0)


def test_a_silence_puts_in_doubt_what_was_sent_shortly_before_it(uplink: Uplink) -> None:
    assert uplink.heard(NS) is None
    assert uplink.heard(int(2.9 * NS)) is None
    assert uplink.heard(5 * NS) == int(0.9 * NS)
    assert uplink.heard(6 * NS) is None


def test_the_last_words_wait_only_for_a_controller_that_is_there(uplink: Uplink) -> None:
    uplink.close()  # never heard: nothing to wait for
    assert uplink.channel.socket.closed
