"""What a worker loses with a thread that had to end is told to its peers: a real worker, whose turns the test
performs in the place of its main thread, a peer with real sockets, and an agent's port."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from patience import until
from test_worker_state import ME, THIRD, YOU, desired, thread

from headgate.topology_runtime.keys.curve import new_pair
from headgate.topology_runtime.keys.key_pairs import KeyGuard, contact_at
from headgate.topology_runtime.keys.worker_keys import WorkerKeys
from headgate.topology_runtime.platform.addresses import Listening
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.channels import LinkWatch, PullChannel, PushChannel, ServerChannel, encode
from headgate.topology_runtime.worker.links import switchboard
from headgate.topology_runtime.worker.meters import meter as mt
from headgate.topology_runtime.worker.process.worker_process import Worker, WorkerPlace


class Surroundings:
    """An agent, and the worker YOU, which sends rows to thread 1 of the worker ME."""

    def __init__(self, directory: Path) -> None:
        keys = WorkerKeys()
        mine, his = keys.make("vm1", 0, 1), keys.make("vm1", 1, 1)
        self.port: ServerChannel[m.FromAgentToWorker, m.FromWorker] = ServerChannel(
            channels.from_worker, keys.guard
        )
        self.pull = PullChannel(KeyGuard(his, keys.guard.admits))
        self._read = msgspec.msgpack.Decoder(m.Tuples)
        self.fd = mt.create()
        agent = contact_at(keys.endpoint(self.port.endpoint), mine)
        self.worker = Worker(WorkerPlace(agent, ME, 1, self.fd, str(directory), Listening(), os.getppid()))
        self.worker.startup()
        self.push = PushChannel(contact_at(self.worker.endpoint, his))
        self._worker_is = until(self.port.receive)[0]

    def tell(self, *threads: m.ThreadSpec, counter: int, more: Sequence[m.WorkerAt] = ()) -> None:
        at = m.WorkerAt(ME, 1, self.worker.endpoint), m.WorkerAt(YOU, 1, self.pull.endpoint), *more
        self.port.send(self._worker_is, desired(threads, at, counter=counter))
        until(lambda: self.turn() and self.worker.state.token.counter == counter)

    def turn(self) -> bool:
        self.worker.on_turn(self.worker.waiter.wait(0.01))
        return True

    def send_rows(self) -> None:
        frame = m.Frame(0, 2, YOU, 1, 1, [], [], [], 0, 0)
        self.push.send_bytes(encode(m.WireFrame(frame, 0, msgspec.Raw(encode([1])))))

    def told(self) -> int:
        """Of how many losses the peer has heard."""
        while (data := self.pull.wait_for_bytes(0.01)) is not None:
            message = self._read.decode(data)
            assert isinstance(message, m.Ping)
            self.losses = max(self.losses, message.losses)
        return self.losses

    losses, ended = 0, False

    def end(self) -> None:
        if not self.ended:
            self.ended = True
            self.worker.shutdown()
            self.worker.waiter.remove(self.worker.agent)

    def close(self) -> None:
        self.end()
        until(self._links_are_over)
        self.push.close(linger_ms=0)
        self.push.watch.close(linger_ms=0)
        self.pull.close(linger_ms=0)
        self.port.close(linger_ms=0)
        os.close(self.fd)

    def _links_are_over(self) -> bool:
        """A process that ends closes them; here nobody does."""
        worker = self.worker
        worker.links.changes(worker.waiter, worker.waiter.wait(0.01))
        watches = [
            one for one in gc.get_objects() if isinstance(one, LinkWatch) and one is not self.push.watch
        ]
        return all(one.socket.closed for one in watches)


@pytest.fixture
def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Surroundings]:
    monkeypatch.setattr(mt, "HELD", {})
    interval_s = sys.getswitchinterval()
    made = Surroundings(tmp_path)
    yield made
    made.close()
    sys.setswitchinterval(interval_s)


def test_rows_that_come_for_a_thread_that_has_ended_are_told_to_peers(around: Surroundings) -> None:
    around.tell(thread(1), thread(2, slot=YOU), thread(3), counter=1)
    around.tell(thread(2, slot=YOU), thread(3), counter=2)
    until(lambda: around.turn() and not around.worker.closing)
    around.send_rows()
    until(lambda: around.turn() and around.told())
    before = around.told()
    around.send_rows()
    until(lambda: around.turn() and around.told() > before)
    assert around.worker.stop is None


def test_rows_of_the_last_thread_of_a_worker_are_told_to_peers_as_it_leaves(around: Surroundings) -> None:
    around.tell(thread(1), thread(2, slot=YOU), counter=1)
    around.send_rows()
    until(lambda: around.turn() and around.worker.board.inbox(1).qsize())
    around.tell(thread(2, slot=YOU), counter=2)
    until(lambda: around.turn() and around.worker.stop)
    assert around.worker.stop == "no thread is left" and around.worker.leaves
    around.end()
    until(around.told)


def test_what_was_not_kept_for_a_peer_that_was_not_there_is_told_to_all(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switchboard, "PENDING_MOST", 0)
    threads = thread(1), thread(2, slot=YOU), thread(3, slot=THIRD)
    around.tell(*threads, counter=1)
    around.worker.board.out.put((THIRD, b"rows"))
    third = PullChannel(KeyGuard(new_pair(), lambda public: None))
    around.tell(*threads, counter=2, more=(m.WorkerAt(THIRD, 1, third.endpoint),))
    until(lambda: around.turn() and around.told())
    third.close(linger_ms=0)
