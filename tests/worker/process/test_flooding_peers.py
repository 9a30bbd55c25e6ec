"""A worker whose peer has a good key and bad manners: what waits is bounded, others are heard, and it is said."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from queue import SimpleQueue

import msgspec
import pytest
from patience import until
from test_worker_state import FAR, ME, YOU, desired, thread

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.keys.curve import new_pair
from headgate.topology_runtime.keys.key_pairs import KeyGuard, contact_at, keyed
from headgate.topology_runtime.platform.kept_threads import KeptThread
from headgate.topology_runtime.wire.channels import PullChannel, PushChannel, Waker, encode
from headgate.topology_runtime.wire.messages import Acks, Frame, Ping, WireFrame, WorkerAt
from headgate.topology_runtime.worker.links.switchboard import (
    EARLY_MOST,
    WAITING_BYTES,
    PeerBytes,
    Receiver,
    Switchboard,
)
from headgate.topology_runtime.worker.orders.worker_state import WorkerState

SIZE = 1 << 20
PLACES = {1: (ME, 1), 2: (YOU, 1), 3: (FAR, 1)}


class Worker:
    """The receiving half of the worker in slot ME; nobody takes what is for its thread 1."""

    def __init__(self) -> None:
        own, self.pairs = new_pair(), {slot: new_pair() for slot in (YOU, FAR)}
        self.state, self.pings = WorkerState(ME, 1), SimpleQueue[Ping]()
        at = [WorkerAt(slot, 1, keyed("tcp://127.0.0.1:1", pair.public)) for slot, pair in self.pairs.items()]
        threads = [thread(number, slot=slot) for number, (slot, _) in PLACES.items()]
        self.state.on_desired(desired(threads, workers=(WorkerAt(ME, 1, ""), *at)))
        self.pull = PullChannel(KeyGuard(own, self.state.keys.get))
        self.board = Switchboard(ME, 1)
        self.receiver = Receiver(self.board, self.pull, self.state, self.pings, Waker())
        self.pushes = {
            slot: PushChannel(contact_at(self.pull.endpoint, pair)) for slot, pair in self.pairs.items()
        }

    def got(self, count: int) -> None:
        """So many messages."""
        for _ in range(count):
            data = self.pull.wait_for_bytes(20.0)
            assert data is not None
            self.receiver.take(data)

    def close(self) -> None:
        for push in self.pushes.values():
            push.watch.end(push.socket)
            push.close(linger_ms=0)
        self.pull.close(linger_ms=0)


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.close()


def frame(sender: int, slot: Slot, size: int = SIZE, incarnation: int = 1) -> bytes:
    rows = msgspec.Raw(encode(bytes(size)))
    return encode(WireFrame(Frame(0, sender, slot, incarnation, 1, [], [], [], 0, 0), 0, rows))


def test_what_a_peer_sends_and_nobody_takes_is_bounded_in_bytes_and_others_are_heard(worker: Worker) -> None:
    most, inbox = WAITING_BYTES // SIZE, worker.board.inbox(1)
    for _ in range(2 * most):
        worker.pushes[YOU].send_bytes(frame(2, YOU))
    worker.got(2 * most)
    assert most - 2 <= inbox.qsize() <= most
    (said,) = worker.receiver.dropped()
    assert said == f"peer {YOU}#1 sends more than is taken: {2 * most - inbox.qsize():,} frames dropped"
    before = inbox.qsize()
    worker.pushes[FAR].send_bytes(frame(3, FAR))
    worker.got(1)
    assert inbox.qsize() == before + 1, "it has room of its own"
    while not inbox.empty():
        inbox.get()
    worker.pushes[YOU].send_bytes(frame(2, YOU))
    worker.got(1)
    assert inbox.qsize() == 1, "what is taken makes room"


def test_small_frames_take_room_too(worker: Worker) -> None:
    peer = PeerBytes()
    held = [one for _ in range(100_000) if (one := peer.holds(100, WAITING_BYTES)) is not None]
    assert len(held) < WAITING_BYTES // 1000 and peer.dropped == 100_000 - len(held)
    held.clear()
    assert peer.holds(100, WAITING_BYTES) is not None


def test_nobody_speaks_for_another(worker: Worker) -> None:
    for data in (frame(3, FAR, 10), encode(Ping(FAR, 1, False)), encode(Acks(FAR, 1, []))):
        worker.pushes[YOU].send_bytes(data)
    worker.got(3)
    assert worker.board.inbox(1).empty() and worker.pings.empty() and worker.receiver.refused == 3


def test_words_are_bounded_in_number(worker: Worker) -> None:
    for _ in range(EARLY_MOST + 1000):
        worker.pushes[YOU].send_bytes(encode(Ping(YOU, 1, False)))
    worker.got(EARLY_MOST + 1000)
    assert worker.pings.qsize() == EARLY_MOST


@pytest.mark.parametrize("seed", range(4))
def test_whatever_a_valid_peer_sends_it_holds_little_and_stops_nothing(seed: int, worker: Worker) -> None:
    choose = random.Random(seed)
    good: list[Callable[[], bytes]] = [
        lambda: frame(choose.randrange(5), choose.choice((ME, YOU, FAR)), choose.randrange(1 << 18)),
        lambda: encode(Ping(YOU, choose.randrange(3), bool(choose.randrange(2)), choose.randrange(1 << 40))),
        lambda: encode(Acks(choose.choice((YOU, FAR)), 1, [])),
    ]
    for _ in range(300):
        data = bytearray(choose.choice(good)())
        for _ in range(choose.randrange(4)):
            data[choose.randrange(min(64, len(data)))] ^= 1 << choose.randrange(8)
        worker.pushes[YOU].send_bytes(bytes(data))
    worker.got(300)
    worker.pushes[FAR].send_bytes(frame(3, FAR, 10))
    before = worker.board.inbox(1).qsize()
    worker.got(1)
    assert worker.board.inbox(1).qsize() == before + 1
    assert sum(peer.waiting for peer in worker.receiver.peers.values()) <= WAITING_BYTES


class Failing(KeptThread):
    """Its first two turns fail."""

    def __init__(self) -> None:
        super().__init__("courier")
        self.turns = self.given_back = 0

    def turn(self) -> bool:
        self.turns += 1
        if self.turns < 3:
            raise ValueError(f"turn {self.turns}")
        return self.turns < 5

    def over(self) -> None:
        self.given_back += 1


def test_a_thread_that_all_need_goes_on_after_a_failure_and_says_so(
    capfd: pytest.CaptureFixture[str],
) -> None:
    thread = Failing()
    assert thread.trouble() == ""
    thread.start()
    until(lambda: not thread.is_alive(), lambda: "it goes on")
    assert (thread.turns, thread.given_back, thread.failures) == (5, 1, 2)
    assert (
        thread.trouble() == "thread courier failed (2 times so far) and was started again: ValueError: turn 2"
    )
    assert capfd.readouterr().err.count("thread courier failed and goes on") == 1, "one traceback is enough"
