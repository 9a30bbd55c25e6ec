"""A link that goes on breaking after its watch has ended: ZeroMQ's own thread waits for whoever reads what it tells of
a link, and with it every socket of the process, so there must be nobody to tell."""

from __future__ import annotations

import time

import pytest

from headgate.topology_runtime import channels as c
from headgate.topology_runtime import curve
from headgate.topology_runtime import messages as m
from headgate.topology_runtime.keys.pairs import Contact, KeyGuard, Who, contact_at

pytestmark = pytest.mark.live

OWN, STRANGER, KNOWN = (curve.new_pair() for _ in range(3))
BREAKS_S, WAIT_S = 2.5, 5.0  # refused after 0.7 s, and then again and again


def test_the_other_sockets_of_the_process_go_on() -> None:
    refusing = c.PullChannel(KeyGuard(OWN, {}.get, later=True))
    push = c.PushChannel(contact_at(refusing.endpoint, STRANGER))
    push.watch.end(push.socket)
    time.sleep(BREAKS_S)
    guard = KeyGuard(OWN, {KNOWN.public: Who("operator", "ann")}.get)
    server: c.ServerChannel[m.Reply, m.Request] = c.ServerChannel(c.requests, guard)
    client: c.ClientChannel[m.Request, m.Reply] = c.ClientChannel(
        c.replies, Contact(server.endpoint, KNOWN, OWN.public)
    )
    client.send(m.Request("ping"))
    assert c.Waiter([server]).wait(WAIT_S) and server.receive() is not None
    for each in (client, server, push, refusing):
        each.close(0)
