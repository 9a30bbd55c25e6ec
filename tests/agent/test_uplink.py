"""The connection to the controller (agent/reports/uplink.py) over real sockets; its clock is the test's."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keys_made import MadeKeys
from patience import until

from headgate.agent.core.clock_offset import KEPT_NS, ClockOffset
from headgate.agent.reports.uplink import Uplink
from headgate.topology_runtime.errors import Unreachable
from headgate.topology_runtime.keys import curve
from headgate.topology_runtime.keys.key_pairs import KeyGuard
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.channels import ServerChannel, Waiter

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
    uplink = Uplink([KEYS.contact(server.endpoint)], 0)
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


def test_a_new_key_takes_the_place_of_the_old_one_once_the_controller_answers_by_it(server: Server) -> None:
    """Until then the old connection goes on, and nothing that it brought is left behind."""
    new, known = curve.new_pair(), {KEYS.client.public: KEYS.who}
    two_keys = KeyGuard(KEYS.own, known.get)
    two: Server = ServerChannel(channels.from_agent, two_keys)
    contact = KEYS.contact(two.endpoint)
    uplink = Uplink([contact], 0)
    try:
        uplink.change_key([msgspec.structs.replace(contact, own=new)])
        first = uplink.channel
        uplink.send(m.Report("vm1", 1, 1, m.Token()))
        old, _ = came(two)
        assert not uplink.refresh(1) and uplink.channel is first, "nobody knows the new key yet"
        known[new.public] = KEYS.who
        links = {old}

        def by_both() -> bool:
            """An agent asks for it again and again: a connection that was refused is made anew."""
            uplink.change_key([msgspec.structs.replace(contact, own=new)])
            uplink.send(m.Report("vm1", 1, 2, m.Token()))
            while (found := two.receive()) is not None:
                links.add(found[0])
            return len(links) == 2

        until(by_both)
        (fresh,) = links - {old}
        two.send(old, m.Shutdown(m.Token(), "by the old"))
        two.send(fresh, m.Shutdown(m.Token(), "by the new"))
        until(lambda: uplink.refresh(2))
        assert uplink.channel is not first
        said: list[str] = []
        until(
            lambda: (
                said.extend(x.reason for x, _ in uplink.receive() if isinstance(x, m.Shutdown))
                or len(said) == 2
            )
        )
        assert said == ["by the old", "by the new"]
        last = m.Report("vm1", 1, 3, m.Token())
        uplink.send(last)
        until(lambda: (found := two.receive()) is not None and (found[0], found[2]) == (fresh, last))
    finally:
        uplink.channel.close(linger_ms=0)
        two.close(linger_ms=0)


def came(server: Server) -> tuple[bytes, m.FromAgent]:
    peer, who, message = until(server.receive)
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


def test_a_controller_that_has_moved_is_found_at_its_next_address_and_there_it_stays(server: Server) -> None:
    nowhere = KEYS.contact("tcp://127.0.0.1:9")
    uplink = Uplink([nowhere, KEYS.contact(server.endpoint)], 0)
    try:
        assert uplink.refresh(3 * NS)
        uplink.send(m.Goodbye("vm1", 7))
        assert came(server)[1] == m.Goodbye("vm1", 7)
        uplink.heard(4 * NS)
        assert not uplink.refresh(5 * NS)
    finally:
        uplink.channel.close(linger_ms=0)


@pytest.mark.live
@pytest.mark.alone  # on a busy machine ZeroMQ's own thread may find the controller before it has closed the old link
def test_what_was_queued_for_a_controller_that_is_away_is_dropped() -> None:
    with socket.socket() as held:  # bound, not listening: refuses, and no other test gets the port
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        uplink = Uplink([KEYS.contact(f"tcp://127.0.0.1:{port}")], 0)
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


# ── How far a clock is off, by answers that took their time: never further from the truth than the error
# that is told

S, MS = 1_000_000_000, 1_000_000
BEGAN_NS = 1_700_000_000 * S


class Machines:
    """A controller's and a machine's clock; both drift by half of what is allowed for. `off_ns`: of the machine."""

    def __init__(self, off_ns: int, seed: int) -> None:
        self.now_ns, self.off_ns = 1000 * S, off_ns
        self.chance = random.Random(seed)
        self.clock, self.number = ClockOffset(), 0

    @property
    def wall_ns(self) -> int:
        """By the machine."""
        return BEGAN_NS + self.now_ns + int((self.now_ns - 1000 * S) * 50e-6) + self.off_ns

    @property
    def true_ns(self) -> int:
        """What is to be added to that."""
        return BEGAN_NS + self.now_ns - self.wall_ns

    def ask(self, there_ms: float, back_ms: float, heard: bool = True) -> None:
        """One report and its answer; a way takes at least so long."""
        self.number += 1
        self.clock.sent((1, self.number), self.now_ns)
        self.now_ns += int((there_ms + self.chance.expovariate(1.0)) * MS)
        controller_ns = BEGAN_NS + self.now_ns
        self.now_ns += int((back_ms + self.chance.expovariate(1.0)) * MS)
        if heard:
            self.clock.answered((1, self.number), controller_ns, self.now_ns)
        self.now_ns += S // 2

    def off(self) -> tuple[int, int]:
        return self.clock.offset_ns(self.now_ns, self.wall_ns)


@given(
    st.integers(-(10**13), 10**13), st.integers(0, 1 << 30),
    st.lists(st.tuples(st.floats(0, 80), st.floats(0, 80), st.booleans()), min_size=1, max_size=30),
)  # fmt: skip
def test_it_is_never_further_off_than_it_says(
    off_ns: int, seed: int, ways: list[tuple[float, float, bool]]
) -> None:
    machines = Machines(off_ns, seed)
    for there_ms, back_ms, heard in ways:
        machines.ask(there_ms, back_ms, heard)
        found, error_ns = machines.off()
        if error_ns:
            assert abs(found - machines.true_ns) <= (error_ns if found else error_ns + max(error_ns, MS))


def test_the_least_round_trip_counts() -> None:
    machines = Machines(5 * S, 7)
    machines.ask(400.0, 1.0)
    _, slow_ns = machines.off()
    machines.ask(0.1, 0.1)
    _, quick_ns = machines.off()
    machines.ask(400.0, 1.0)
    assert slow_ns > 150 * MS and quick_ns < 10 * MS and machines.off()[1] < 10 * MS


def test_a_clock_that_is_right_is_left_alone() -> None:
    machines = Machines(0, 7)
    for _ in range(10):
        machines.ask(0.2, 0.2)
    assert machines.off()[0] == 0 and machines.off()[1] > 0


def test_a_clock_that_is_set_is_followed_with_the_next_look_and_the_controllers_with_the_next_answer() -> (
    None
):
    machines = Machines(0, 7)
    machines.ask(0.2, 0.2)
    machines.off_ns = -3600 * S
    assert abs(machines.off()[0] - 3600 * S) < 50 * MS
    other = ClockOffset()
    for number, controller_s in ((1, 0), (2, 90)):
        other.sent((1, number), number * S)
        other.answered((1, number), BEGAN_NS + number * S + controller_s * S, number * S + MS)
    assert abs(other.offset_ns(2 * S, BEGAN_NS + 2 * S)[0] - 90 * S) < 2 * MS


def test_answers_to_nothing_that_was_asked_and_old_ones_count_for_nothing() -> None:
    clock = ClockOffset()
    clock.answered((1, 5), BEGAN_NS, S)
    assert clock.offset_ns(S, BEGAN_NS + S) == (0, 0)
    clock.sent((2, 5), S)
    clock.answered((1, 5), BEGAN_NS, S + 1)
    assert clock.offset_ns(S, BEGAN_NS + S) == (0, 0), "of another life of this agent"
    clock.answered((2, 5), BEGAN_NS, S + MS)
    before = clock.offset_ns(S, BEGAN_NS)[1]
    assert clock.offset_ns(S + KEPT_NS, BEGAN_NS)[1] > before > 0
