"""Where frames, acks and words of one worker go: to its own threads, to a peer, or nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from patience import until

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.keys.curve import new_pair
from headgate.topology_runtime.keys.key_pairs import KeyGuard, Who
from headgate.topology_runtime.wire.channels import LinkWatch, PullChannel, Waiter, Waker
from headgate.topology_runtime.wire.messages import Ack, Frame, RootKey, RootPart, Tuples, WireFrame, WorkerAt
from headgate.topology_runtime.worker.links import switchboard
from headgate.topology_runtime.worker.links.frame_encoding import read
from headgate.topology_runtime.worker.links.peer_links import Links, taken
from headgate.topology_runtime.worker.links.switchboard import CLOSED_KEPT, Sender, Switchboard
from headgate.topology_runtime.worker.meters import meter as mt
from headgate.topology_runtime.worker.rows.columns import Columns, columns_in

HERE, YOU, FAR = Slot("vm", 0), Slot("vm", 1), Slot("vm", 2)
INCARNATION = 7


def board(*by_columns: Slot) -> Switchboard:
    """Thread 1 lives here, 2 and 3 with peers."""
    made = Switchboard(HERE, INCARNATION, frozenset(by_columns))
    made.slot_of = {1: HERE, 2: YOU, 3: FAR}
    return made


def waiting(made: Switchboard) -> list[tuple[Slot | None, Any]]:
    with made.out.taken(100) as items:
        return list(items)


# ── threads of this worker ──────────────────────────────────────────────────────────────────────────


def test_what_comes_for_a_thread_that_has_ended_is_dropped_and_takes_no_room() -> None:
    made = board()
    for thread in range(CLOSED_KEPT + 2):
        made.put(thread, "a frame")
        made.close_inbox(thread)
    for thread in range(CLOSED_KEPT - 100, CLOSED_KEPT + 2):
        made.put(thread, "late")
    assert not made.inboxes, "those that ended last are remembered"


def frame(target: int) -> Frame:
    part = RootPart(RootKey(1, 1, 0, 0), HERE, 0, 0, 0, 0, 0, 7)
    return Frame(0, 9, HERE, INCARNATION, target, [part], [(0, 0, 1, 0)], [1], 0, 0)


def test_rows_for_a_thread_that_has_ended_are_known_to_be_lost() -> None:
    made = board()
    made.slot_of[4] = HERE
    made.deliver([frame(1), frame(4)])
    made.close_inbox(1)
    made.put(1, None)
    made.put_acks([Ack(RootKey(1, INCARNATION, 0, 0), 5, 0)])
    assert not made.late, "its own acks and a wake are nobody's loss"
    made.deliver([frame(1), frame(4)])
    assert made.late == {1} and made.inbox(4).qsize() == 2


def test_rows_that_come_while_a_thread_ends_are_known_to_be_lost() -> None:
    """It had looked for the last time at what waits for it."""
    made = board()
    made.wakers[1] = lambda: made.close_inbox(1)
    made.deliver([frame(1)])
    assert made.late == {1} and 1 not in made.inboxes


def test_rows_for_a_thread_that_is_nowhere_any_more_are_known_to_be_lost() -> None:
    """Its plan was taken back while they were in a buffer: they leave by the routes that led to it."""
    made = board()
    assert made.deliver([frame(2), frame(9)]) > 0 and made.late == {9} and 9 not in made.inboxes


def test_a_thread_that_waits_elsewhere_is_woken_by_what_comes() -> None:
    made, woken = board(), list[str]()
    made.wakers[1] = lambda: woken.append("woken")
    made.put(1, "a frame")
    made.put(2, "another's")
    assert woken == ["woken"]


def test_acks_of_a_worker_before_are_nobodys() -> None:
    made = board()
    acks = [Ack(RootKey(1, incarnation, 0, 0), 5, 0) for incarnation in (6, INCARNATION, 8)]
    made.put_acks(acks)
    assert made.inbox(1).get_nowait() == acks[1:2] and made.inbox(1).empty()


# ── the way out ─────────────────────────────────────────────────────────────────────────────────────


def test_columns_go_as_rows_to_a_peer_that_does_not_read_them() -> None:
    made = board(YOU)
    columns = columns_in({"n": np.arange(3)})
    for target in (2, 3):
        part = RootPart(RootKey(1, 1, 0, 0), HERE, 0, 0, 0, 0, 0, 7)
        made.deliver([Frame(0, 1, HERE, INCARNATION, target, [part], [(0, 0, 3, 0)], columns, 0, 0)])
    found = {}
    for slot, data in waiting(made):
        message = msgspec.msgpack.Decoder(Tuples).decode(data)
        assert isinstance(message, WireFrame)
        frame = read(message)
        assert frame is not None
        found[slot] = frame.rows
    assert {slot: isinstance(rows, Columns) for slot, rows in found.items()} == {YOU: True, FAR: False}
    assert [list(rows) for rows in found.values()] == [[{"n": 0}, {"n": 1}, {"n": 2}]] * 2


def sender_of(made: Switchboard) -> Sender:
    return Sender(made, mt.Meter(mt.create()), {}, Waker(), new_pair())


def test_a_sender_that_is_to_stop_does_so_whatever_is_behind_the_order() -> None:
    made = board()
    sender = sender_of(made)
    sender.stop()
    made.out.put((YOU, b"behind it"))
    assert not sender.turn()


def peer() -> PullChannel:
    """A worker that lets everybody in."""
    return PullChannel(KeyGuard(new_pair(), lambda public: Who("worker", "one")))


class Linked:
    """The sending half of a worker, and its main thread's eyes on the links."""

    def __init__(self) -> None:
        self.board, self.peer, self.waiter = board(), peer(), Waiter()
        self.sender = sender_of(self.board)
        self.links = Links(self.sender.watches)
        self.made: list[LinkWatch] = []
        self.seen: list[tuple[Slot, bool]] = []

    def connect(self) -> None:
        self.sender.connect(WorkerAt(YOU, 1, self.peer.endpoint))
        self.sender.turn()
        self.made.append(self.board.out.peers[YOU].watch)

    def sees(self, *what: bool) -> None:
        """All that has been told of the link to the peer."""

        def all_of_it() -> bool:
            self.seen += self.links.changes(self.waiter, self.waiter.wait(0.05))
            assert self.seen == [(YOU, up) for up in what[: len(self.seen)]]
            return len(self.seen) == len(what)

        until(all_of_it)


@pytest.fixture
def linked() -> Iterator[Linked]:
    made = Linked()
    yield made
    made.peer.close(linger_ms=0)
    for channel in made.board.out.peers.values():
        channel.close(linger_ms=0)
    for watch in made.made:
        watch.close(linger_ms=0)


def test_what_waited_for_a_peer_is_sent_once(linked: Linked) -> None:
    linked.board.out.put((YOU, b"early"))
    linked.sender.turn()
    came: list[bytes | None] = []
    for data in (b"first", b"second"):
        linked.connect()
        linked.board.out.put((YOU, data))
        linked.sender.turn()
        while not came or came[-1] not in (data, None):
            came.append(linked.peer.wait_for_bytes(20.0))
    assert came == [b"early", b"first", b"second"]


def test_what_was_not_kept_for_a_peer_is_known_to_be_lost_once_it_is_there(
    linked: Linked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switchboard, "PENDING_MOST", 1)
    for slot, data in ((YOU, b"kept"), (YOU, b"one too many"), (FAR, b"kept")):
        linked.board.out.put((slot, data))
    linked.sender.turn()
    assert list(taken(linked.sender.lost)) == [], "it would be lost again"
    linked.connect()
    assert linked.peer.wait_for_bytes(20.0) == b"kept" and list(taken(linked.sender.lost)) == [str(YOU)]
    linked.connect()
    assert list(taken(linked.sender.lost)) == [], "once"


def test_a_peer_that_lets_this_worker_in_no_more_costs_the_others_nothing(linked: Linked) -> None:
    deaf, out = PullChannel(KeyGuard(new_pair(), lambda public: None)), linked.board.out
    linked.connect()
    linked.sender.connect(WorkerAt(FAR, 1, deaf.endpoint))
    linked.sender.turn()
    linked.made.append(out.peers[FAR].watch)
    until(lambda: not out.peers[FAR].send_bytes(b"rows"))
    out.send(FAR, b"rows")
    assert waiting(linked.board) == [(FAR, b"rows")], "no thread of a task fails of it"
    for slot in (FAR, YOU):
        out.put((slot, b"rows"))
    linked.sender.turn()
    assert linked.peer.wait_for_bytes(20.0) == b"rows" and list(taken(linked.sender.lost)) == []
    linked.sender.connect(WorkerAt(FAR, 2, linked.peer.endpoint))
    linked.sender.turn()
    linked.made.append(out.peers[FAR].watch)
    assert list(taken(linked.sender.lost)) == [str(FAR)], "to whoever is in its place it can be sent again"
    deaf.close(linger_ms=0)


def test_what_a_failure_of_the_sender_costs_is_known_to_be_lost(linked: Linked) -> None:
    """It is started again, without what it had taken."""
    linked.board.out.put((YOU, object()))
    with pytest.raises(TypeError):
        linked.sender.turn()
    assert len(list(taken(linked.sender.lost))) == 1


def test_the_end_of_a_link_that_was_replaced_is_not_told_of_the_one_in_its_place(linked: Linked) -> None:
    """A worker died, and the one in its place was there before anybody looked."""
    linked.connect()
    linked.sees(True)
    linked.peer.close(linger_ms=0)
    assert Waiter(linked.made).wait(20.0)
    linked.peer = peer()
    linked.connect()
    linked.sees(True, True)
    linked.peer.close(linger_ms=0)
    linked.sees(True, True, False)
