"""Where things listen and where others find them, as words and over real sockets of both families."""

from __future__ import annotations

import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keys_made import MadeKeys

from headgate.topology_runtime import channels as c
from headgate.topology_runtime import messages as m
from headgate.topology_runtime.addresses import Listening, is_loopback, listening, parted, tcp
from headgate.topology_runtime.errors import Unreachable, UsageError

NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?(\.[a-z]{2,5})?", fullmatch=True)
HOSTS = st.one_of(st.ip_addresses().map(str), NAMES)
NO_ENDPOINTS = (
    "10.0.0.1:1 tcp://:5 tcp://h:0 tcp://h:65536 tcp://h:5:6 ipc:///x tcp://::1:5 tcp://[h]:5 tcp://h:5#k"
)


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@given(HOSTS, st.integers(1, 65535))
def test_an_endpoint_is_read_back(host: str, port: int) -> None:
    assert parted(tcp(host, port)) == (host, port)


@pytest.mark.parametrize("bad", ["", *NO_ENDPOINTS.split()])
def test_what_is_no_endpoint_is_refused(bad: str) -> None:
    with pytest.raises(UsageError):
        parted(bad)


@given(st.ip_addresses())
def test_loopback_is_what_the_address_says(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    assert is_loopback(str(address)) == address.is_loopback


@pytest.mark.parametrize(
    ("listen", "advertise", "off"),
    [(None, None, False), ("127.0.0.1", None, False), ("::1", None, False), ("localhost", None, False),
     ("10.0.0.1", None, True), ("vm1.example", None, True), ("0.0.0.0", "10.0.0.1", True), ("::", "fd00::1", True)],
)  # fmt: skip
def test_off_loopback(listen: str | None, advertise: str | None, off: bool) -> None:
    found = listening(listen, advertise)
    assert found.off_loopback == off and found.advertise == (advertise or found.listen)


@pytest.mark.parametrize(
    ("listen", "advertise"),
    [("0.0.0.0", None), ("::", None), ("a b", None), ("-x", None), ("10.0.0.1", "0.0.0.0"), ("h", "x/"), ("h:5", None)],
)  # fmt: skip
def test_what_nobody_could_connect_to_is_refused(listen: str, advertise: str | None) -> None:
    with pytest.raises(UsageError):
        listening(listen, advertise)


@pytest.mark.parametrize(
    "at",
    [
        Listening(),
        Listening("0.0.0.0", "127.0.0.1"),
        pytest.param(
            Listening("::1", "::1"), marks=pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")
        ),
        pytest.param(Listening("::", "::1"), marks=pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")),
    ],
)
def test_who_is_told_the_advertised_endpoint_reaches_it(at: Listening) -> None:
    keys = MadeKeys()
    server: c.ServerChannel[m.Reply, m.Request] = c.ServerChannel(c.requests, keys.guard, at)
    client: c.ClientChannel[m.Request, m.Reply] = c.ClientChannel(c.replies, keys.contact(server.endpoint))
    publisher = c.PublisherChannel(keys.guard, at)
    listener = c.SubscriberChannel(keys.contact(publisher.endpoint))
    client.send(m.Request("ping"))
    assert c.Waiter([server]).wait(5.0) and server.receive() is not None
    while not publisher.heard:
        c.Waiter([publisher]).wait(5.0)
    publisher.send_bytes(b"one")
    assert c.Waiter([listener]).wait(5.0) and listener.receive_bytes() == b"one"
    for each in (client, listener, server, publisher):
        each.close(0)


def test_an_address_of_another_machine_is_told_apart_from_a_port_that_is_taken() -> None:
    with pytest.raises(Unreachable) as caught:
        c.ServerChannel(c.requests, MadeKeys().guard, Listening("192.0.2.7", "192.0.2.7"))
    assert caught.value.hint is not None and "ip addr" in caught.value.hint


def test_a_port_that_is_taken_is_named() -> None:
    keys = MadeKeys()
    server: c.ServerChannel[m.Reply, m.Request] = c.ServerChannel(c.requests, keys.guard)
    with pytest.raises(Unreachable, match=str(parted(server.endpoint)[1])):
        c.ServerChannel(c.requests, keys.guard, port=parted(server.endpoint)[1])
    server.close(0)
