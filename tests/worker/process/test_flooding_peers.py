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
from headgate.topology_runtime.wire.channels import PullChannel, PushChannel, Waiter, Waker, encode
from headgate.topology_runtime.wire.messages import (
    Ack,
    Acks,
    Frame,
    Ping,
    RootKey,
    ThreadSpec,
    WireFrame,
    Word,
    WorkerAt,
)
from headgate.topology_runtime.wire.state_moves import Barrier
from headgate.topology_runtime.worker.links.switchboard import (
    EARLY_MOST,
    TOLD_NS,
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
        self.told([thread(number, slot=slot) for number, (slot, _) in PLACES.items()])
        self.pull = PullChannel(KeyGuard(own, self.state.keys.get))
        self.board = Switchboard(ME, 1)
        self.wake = Waker()
        self.receiver = Receiver(self.board, self.pull, self.state, self.pings, self.wake)
        self.pushes = {
            slot: PushChannel(contact_at(self.pull.endpoint, pair)) for slot, pair in self.pairs.items()
        }

    def told(self, threads: list[ThreadSpec], counter: int = 1, incarnation: int = 1) -> None:
        """A desired state; whoever replaced the peers has keys of its own."""
        keys = {
            slot: pair.public if incarnation == 1 else new_pair().public for slot, pair in self.pairs.items()
        }
        at = [WorkerAt(slot, incarnation, keyed("tcp://127.0.0.1:1", key)) for slot, key in keys.items()]
        self.state.on_desired(desired(threads, workers=(WorkerAt(ME, 1, ""), *at), counter=counter))

    def got(self, count: int) -> None:
        """So many messages."""
        for _ in range(count):
            data = self.pull.wait_for_bytes(20.0)
            assert data is not None
            self.receiver.take(data)

    def sent_and_got(self, count: int, data: bytes) -> None:
        """So many of YOU, one after the other: whose link holds more than is read is cut off."""
        for _ in range(count):
            self.pushes[YOU].send_bytes(data)
            self.got(1)

    def close(self) -> None:
        for push in self.pushes.values():
            push.close(linger_ms=0)
            push.watch.close(linger_ms=0)
        self.pull.close(linger_ms=0)
        self.wake.close()


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
    worker.sent_and_got(2 * most, frame(2, YOU))
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


def test_what_was_dropped_long_ago_is_told_no_more(worker: Worker) -> None:
    most = WAITING_BYTES // SIZE
    worker.sent_and_got(most + 1, frame(2, YOU))
    (peer,) = worker.receiver.peers.values()
    assert worker.receiver.dropped()
    peer.dropped_ns -= TOLD_NS
    assert not worker.receiver.dropped() and peer.dropped


@pytest.mark.parametrize(
    ("sources", "tasks", "times"),
    [(0, ("work",), 1), (2, ("work",), 2), (2, ("work", "work"), 2), (2, ("work", "count"), 4)],
)
def test_the_room_of_a_peer_is_for_all_that_sources_have_in_flight_on_all_ways(
    sources: int, tasks: tuple[str, ...], times: int, worker: Worker
) -> None:
    """Threads of one task share what comes on a way."""
    most, inbox = WAITING_BYTES // SIZE, worker.board.inbox(1)
    here = [thread(number, task) for number, task in zip((1, 5), tasks, strict=False)]
    more = [thread(10 + n, "source", FAR) for n in range(sources)]
    worker.told([*here, thread(2, slot=YOU), *more], counter=2)
    worker.sent_and_got(times * most, frame(2, YOU))
    assert inbox.qsize() >= times * most - 2 and not worker.receiver.dropped()[1:]
    worker.sent_and_got(3, frame(2, YOU))
    assert inbox.qsize() <= times * most


def test_what_was_dropped_is_told_as_lost_once_half_of_the_room_is_free(worker: Worker) -> None:
    """Then sources send it again at once, and not when a deadline passes."""
    most, inbox = WAITING_BYTES // SIZE, worker.board.inbox(1)
    worker.sent_and_got(most + 1, frame(2, YOU))
    worker.receiver.look_for_room()
    assert worker.receiver.lost.empty(), "it would be dropped again"
    while not inbox.empty():
        inbox.get()
    for _ in range(2):
        worker.receiver.look_for_room()
    (name,) = (worker.receiver.lost.get() for _ in range(worker.receiver.lost.qsize()))
    assert name == f"{YOU}#1" and worker.wake.fd in Waiter(fds=[worker.wake.fd]).wait(0)
    losses = worker.state.losses
    worker.state.on_dropped(name)
    assert worker.state.losses == losses + 1


def test_who_was_replaced_is_not_heard_whatever_it_says_and_the_worker_is_woken_for_it(
    worker: Worker,
) -> None:
    worker.pushes[YOU].send_bytes(frame(2, YOU, 10))
    worker.got(1)
    worker.board.inbox(1).get_nowait()
    worker.told([thread(number, slot=slot) for number, (slot, _) in PLACES.items()], counter=2, incarnation=2)
    acks = encode(Acks(YOU, 1, [Ack(RootKey(1, 1, 0, 0), 5, 0)]))
    barrier = encode(Word(YOU, 1, Barrier(2, 1, 1)))
    for count, data in enumerate((acks, barrier, frame(2, YOU, 10)), 1):
        worker.pushes[YOU].send_bytes(data)
        worker.got(1)
        assert worker.wake.fd in Waiter(fds=[worker.wake.fd]).wait(0)
        worker.wake.clear()
        assert worker.receiver.refused == worker.receiver.early.qsize() == count
    assert worker.board.inbox(1).empty()


@pytest.mark.parametrize(("sender", "target", "taken"), [(2, 1, 1), (3, 1, 0), (2, 3, 0), (2, 9, 0)])
def test_a_word_comes_from_a_thread_of_the_peer_for_one_of_this_worker(
    sender: int, target: int, taken: int, worker: Worker
) -> None:
    worker.pushes[YOU].send_bytes(encode(Word(YOU, 1, Barrier(sender, target, 1))))
    worker.got(1)
    assert (len(worker.board.inboxes), worker.receiver.refused) == (taken, 1 - taken)


def test_nobody_speaks_for_another(worker: Worker) -> None:
    for data in (frame(3, FAR, 10), encode(Ping(FAR, 1, False)), encode(Acks(FAR, 1, []))):
        worker.pushes[YOU].send_bytes(data)
    worker.got(3)
    assert worker.board.inbox(1).empty() and worker.pings.empty() and worker.receiver.refused == 3


def test_words_are_bounded_in_number(worker: Worker) -> None:
    worker.sent_and_got(EARLY_MOST + 1000, encode(Ping(YOU, 1, False)))
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
        worker.sent_and_got(1, bytes(data))
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


def test_small_frames_take_room_too(worker: Worker) -> None:
    peer = PeerBytes()
    held = [one for _ in range(100_000) if (one := peer.holds(100, WAITING_BYTES)) is not None]
    assert len(held) < WAITING_BYTES // 1000 and peer.dropped == 100_000 - len(held)
    held.clear()
    assert peer.holds(100, WAITING_BYTES) is not None
