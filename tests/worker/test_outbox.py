"""What leaves a worker keeps the order in which each thread gave it, whoever writes it to the socket: real sockets, and
threads that give at once."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator

import pytest

from headgate.topology_runtime.channels import PullChannel, PushChannel
from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.curve import new_pair
from headgate.topology_runtime.keys.pairs import KeyGuard, Who, contact_at
from headgate.topology_runtime.worker.outbox import Outbox

PEER, NOBODY = Slot("vm", 1), Slot("vm", 2)
GIVERS, EACH = 4, 2000


@pytest.fixture
def ends() -> Iterator[tuple[Outbox, PullChannel]]:
    own, mine = new_pair(), new_pair()
    pull = PullChannel(KeyGuard(own, {mine.public: Who("worker", "one")}.get))
    out = Outbox()
    out.peers[PEER] = push = PushChannel(contact_at(pull.endpoint, mine))
    yield out, pull
    push.watch.end(push.socket)
    push.close(linger_ms=0)
    pull.close(linger_ms=0)


def waiting(out: Outbox) -> list[object]:
    with out.taken(100) as items:
        return [what for _, what in items]


def test_what_finds_nothing_waiting_leaves_at_once(ends: tuple[Outbox, PullChannel]) -> None:
    out, pull = ends
    out.send(PEER, "at once", str.encode)
    assert pull.receive_bytes(5.0) == b"at once" and waiting(out) == []
    out.put((PEER, b"waits"))
    out.send(PEER, "behind it", str.encode)
    out.put((None, "an order"))
    assert waiting(out) == [b"waits", "behind it", "an order"]
    out.send(NOBODY, b"nobody is connected")
    assert waiting(out) == [b"nobody is connected"]


def test_what_a_thread_gives_while_others_write_waits(ends: tuple[Outbox, PullChannel]) -> None:
    out, _ = ends
    with out.taken(100):
        out.send(PEER, b"meanwhile")
    assert waiting(out) == [b"meanwhile"]


def test_more_than_is_taken_at_once_wakes_the_sender_again(ends: tuple[Outbox, PullChannel]) -> None:
    out, _ = ends
    for n in range(3):
        out.put((PEER, n))
    seen: list[object] = []

    def take() -> None:
        for _ in range(2):
            out.wait()
            with out.taken(2) as items:
                seen.extend(what for _, what in items)

    taker = threading.Thread(target=take, daemon=True)
    taker.start()
    taker.join(5.0)
    assert seen == [0, 1, 2]


def test_each_threads_order_is_kept_by_threads_that_give_at_once(ends: tuple[Outbox, PullChannel]) -> None:
    """Every seventh is put, so others come while some wait."""
    out, pull = ends

    def give(giver: int) -> None:
        for n in range(EACH):
            data = giver.to_bytes(1, "big") + n.to_bytes(4, "big")
            if n % 7 == giver:
                out.put((PEER, data))
            else:
                out.send(PEER, data)

    def write() -> None:
        over = False
        while not over:
            out.wait()
            with out.taken(16) as items:
                for slot, what in items:
                    over = over or slot is None
                    if slot is not None:
                        out.peers[slot].send_bytes(what)

    sender = threading.Thread(target=write)
    givers = [threading.Thread(target=give, args=(n,)) for n in range(GIVERS)]
    for thread in (sender, *givers):
        thread.start()
    for thread in givers:
        thread.join()
    out.put((None, None))
    sender.join()
    came: dict[int, list[int]] = defaultdict(list)
    for _ in range(GIVERS * EACH):
        data = pull.receive_bytes(5.0)
        assert data is not None
        came[data[0]].append(int.from_bytes(data[1:5], "big"))
    assert came == {giver: list(range(EACH)) for giver in range(GIVERS)}
