"""What one key may have on its way to a server socket, and what a listener keeps that nobody takes: by real sockets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from patience import until

from headgate.topology_runtime.keys.curve import new_pair
from headgate.topology_runtime.keys.key_pairs import Contact, KeyGuard, Who
from headgate.topology_runtime.keys.link_limits import LINKS_MOST, SILENT_LOOK_S, UNREAD_MOST
from headgate.topology_runtime.wire import channels as c
from headgate.topology_runtime.wire import messages as m

OWN, EVE, ANN = new_pair(), new_pair(), new_pair()
GUARD = KeyGuard(OWN, {EVE.public: Who("operator", "eve"), ANN.public: Who("viewer", "ann")}.get)
Server = c.ServerChannel[m.Reply, m.Request]


@pytest.fixture
def server() -> Iterator[Server]:
    made: Server = c.ServerChannel(c.requests, GUARD)
    yield made
    made.close(0)


def client(server: Server, pair: Any, stack: ExitStack) -> c.ClientChannel[Any, Any]:
    made: c.ClientChannel[Any, Any] = c.ClientChannel(c.replies, Contact(server.endpoint, pair, OWN.public))
    stack.callback(made.close, 0)
    return made


def takes(server: Server) -> list[str]:
    """Who was heard now."""
    found = []
    while (came := server.receive()) is not None:
        found.append(str(came[1]))
    return found


def test_who_sends_faster_than_is_read_is_cut_off_and_others_are_heard(server: Server) -> None:
    with ExitStack() as stack:
        eve, ann = client(server, EVE, stack), client(server, ANN, stack)
        one = m.Request("ping", {"x": bytes(c.REQUEST_MAX_BYTES // 2)})
        eve.send(one)
        until(lambda: takes(server) == ["operator eve"])
        for _ in range(8 * UNREAD_MOST // c.REQUEST_MAX_BYTES):
            eve.send(one)  # and nobody reads
        until(lambda: server.links.cut, lambda: str(server.links.unread()))
        assert server.links.troubles() == ("operator eve sends faster than it is read: its links were cut",)
        assert not server.links.may_come(EVE.public) and server.links.may_come(ANN.public)
        ann.send(m.Request("ping"))
        until(lambda: "viewer ann" in takes(server))


def test_who_is_read_may_send_what_he_likes_in_the_long_run(server: Server) -> None:
    with ExitStack() as stack:
        eve = client(server, EVE, stack)
        one = m.Request("ping", {"x": bytes(c.REQUEST_MAX_BYTES // 2)})
        eve.send(one)
        eve.send(one)
        for _ in range(6 * UNREAD_MOST // c.REQUEST_MAX_BYTES):
            eve.send(one)  # there is always more
            until(server.receive, every_s=0.001)
            server.links.look()
        assert not server.links.cut


def test_more_links_than_a_key_may_have_are_cut(server: Server) -> None:
    server.links.links_most = 4
    with ExitStack() as stack:
        for _ in range(6):
            client(server, EVE, stack).send(m.Request("ping"))
        until(lambda: [takes(server)] and server.links.cut, lambda: str(server.links.links))
        assert "has more than 4 links" in server.links.troubles()[0] and LINKS_MOST > 4


def test_looking_at_links_leaves_no_file_open(server: Server) -> None:
    with ExitStack() as stack:
        eve = client(server, EVE, stack)
        eve.send(m.Request("ping"))
        until(lambda: takes(server))
        for _ in range(80):  # so many that silent ones are looked for
            read, write = os.pipe()
            stack.callback(os.close, read)
            stack.callback(os.close, write)
        before = len(os.listdir("/proc/self/fd"))
        for n in range(5):
            server.links.look_at_silent(n * SILENT_LOOK_S)
        assert len(os.listdir("/proc/self/fd")) <= before + 2


def test_a_listener_keeps_the_oldest_and_counts_the_rest() -> None:
    """What comes while it is read has room again, and is later than what was dropped."""
    with closing(c.PublisherChannel(GUARD)) as publisher:
        contact, sent, kept = Contact(publisher.endpoint, ANN, OWN.public), 0, list[int]()

        def full() -> bool:
            nonlocal sent
            sent += 1
            publisher.send_bytes(b"%d" % sent)
            return listener.dropped > 10

        with closing(c.SubscriberChannel(contact)) as listener:
            until(full, every_s=0.002)
            while (data := listener.receive_bytes()) is not None:
                kept.append(int(data))
    assert kept == sorted(kept) and len(kept) >= c.BEHIND_MOST
    oldest, later = kept[: c.BEHIND_MOST], kept[c.BEHIND_MOST :]
    assert sent > oldest[-1] + 10 and all(number > oldest[-1] + 10 for number in later)
