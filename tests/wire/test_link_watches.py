"""A watch on a link may be closed once its channel is. ZeroMQ's own threads wait for whoever is told of a link, and all
sockets of the process wait for them."""

from __future__ import annotations

import errno
import socket

import pytest
from patience import until

from headgate.topology_runtime.errors import Unreachable
from headgate.topology_runtime.keys.curve import new_pair
from headgate.topology_runtime.keys.key_pairs import Contact, KeyGuard, Who, contact_at
from headgate.topology_runtime.platform.addresses import parted
from headgate.topology_runtime.wire import channels as c

TIMES = 20  # once is nearly always enough to see it


def peer() -> c.PullChannel:
    return c.PullChannel(KeyGuard(new_pair(), lambda public: Who("worker", "one")))


def sockets_are_given_back() -> None:
    """By ZeroMQ's own thread, which closes what was given up: the port is free then."""
    given_up = peer()
    port = parted(contact_at(given_up.endpoint, new_pair()).endpoint)[1]
    given_up.close(linger_ms=0)

    def free() -> bool:
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            return other.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED

    until(free, lambda: "ZeroMQ's thread that closes sockets hangs")


def test_a_channel_that_could_not_be_made_holds_up_no_other() -> None:
    for _ in range(TIMES):
        contact = Contact("tcp://10.0.0.1:0", new_pair(), new_pair().public)
        with pytest.raises(Unreachable):
            c.PushChannel(contact)
        with pytest.raises(Unreachable):
            c.ClientChannel(c.replies, contact)
    sockets_are_given_back()


@pytest.mark.parametrize("connected", [False, True])
def test_a_watch_that_is_closed_after_its_channel_holds_up_no_other(connected: bool) -> None:
    there = peer()
    for _ in range(TIMES):
        push = c.PushChannel(contact_at(there.endpoint, new_pair()))
        if connected:
            until(lambda push=push: True in push.watch.changes())
        push.close(linger_ms=0)
        push.watch.close(linger_ms=0)
    there.close(linger_ms=0)
    sockets_are_given_back()


def test_who_reads_a_watch_late_hears_all_and_then_that_it_is_over() -> None:
    there = peer()
    push = c.PushChannel(contact_at(there.endpoint, new_pair()))
    assert c.Waiter([push.watch]).wait(60.0)
    push.close(linger_ms=0)
    assert push.watch.changes() == [True, None]
    for channel in (push.watch, there):
        channel.close(linger_ms=0)
