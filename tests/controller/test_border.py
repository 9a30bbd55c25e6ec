"""What agents may say, and when they are not heard any more."""

from __future__ import annotations

import pytest

from headgate.controller.monitor.border import (
    BAD_MOST,
    PEERS_MOST,
    REASONS_MOST,
    STRANGERS_AT_ONCE,
    VMS_MOST,
    BorderGate,
    Conduct,
    check,
)
from headgate.topology_runtime import messages as m
from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.errors import BadMessage

S = 1_000_000_000


def hello(
    vm: str = "vm1", slots: int = 4, cores: float = 0.2, memory: int = 1 << 28, boot: int = 3
) -> m.Hello:
    return m.Hello(vm, boot, slots, cores, memory, "cgroup1", 7)


def report(emitted: int = 5, acked: int = 3, in_flight: int = 2, partition: int = 0) -> m.Report:
    source = m.SourceStatus("source", partition, 1, emitted, acked, 0, in_flight, 0)
    return m.Report("vm1", 3, 1, m.Token(), (), (source,))


def worker(
    number: int = 0, incarnation: int = 1, endpoint: str = "", threads: tuple[m.ThreadStatus, ...] = ()
) -> m.WorkerStatus:
    return m.WorkerStatus(Slot("vm1", number), incarnation, "running", endpoint, threads=threads)


def letter(task: str = "work", position: int = 1, traceback: str = "") -> m.DeadLetter:
    return m.DeadLetter(task, 1, "source", 0, position, "row", "error", traceback)


def test_what_agents_say_is_let_in() -> None:
    for message in (
        hello(),
        report(),
        m.Goodbye("vm1", 3),
        m.DeadLetters("vm-1.a_b", (letter(),) * 30),
        m.PackageAt("vm1", 3, "ab" * 32, 1 << 26),
        m.PackageAt("vm1", 3, "ab" * 32, refused="no"),
    ):
        check(message)


@pytest.mark.parametrize(
    "message",
    [
        hello(vm="../../etc"),
        hello(vm=""),
        hello(vm="x" * 65),
        hello(slots=0),
        hello(slots=10**9),
        hello(cores=float("nan")),
        hello(cores=float("inf")),
        hello(cores=0.0),
        hello(memory=-1),
        hello(boot=0),
        report(emitted=-1),
        report(acked=1 << 63),
        report(in_flight=-4),
        report(partition=-1),
        hello(boot=(1 << 62) + 1),
        m.Hello("vm1", 3, 4, 0.2, 1 << 28, "none", 7, version="x" * 300),
        m.Hello("vm1", 3, 4, 0.2, 1 << 28, "none", 7, rack="../r1"),
        m.Hello("vm1", 3, 4, 0.2, 1 << 28, "none", 7, usd_per_hour=float("nan")),
        m.Hello("vm1", 3, 4, 0.2, 1 << 28, "none", 7, usd_per_hour=-0.1),
        m.Hello("vm1", 3, 4, 0.2, 1 << 28, "none", 7, usd_per_hour=float("inf")),
        m.Hello("vm1", 3, 4, 0.2, 1 << 28, "none", 7, bandwidth_mbps=-1.0),
        m.Hello("vm1", 3, 4, 0.2, 1 << 28, "none", 7, bandwidth_mbps=float("nan")),
        m.Hello("vm1", 3, 4, 0.2, 1 << 28, "none", 7, bandwidth_mbps=1e9),
        m.Hello("vm1", 3, 4, 0.2, 1 << 28, "none", 7, spools=(m.SpoolLeft("s", 0, 9, 8),)),
        m.Hello("vm1", 3, 4, 0.2, 1 << 28, "none", 7, spools=(m.SpoolLeft("s", 0, 8, 9),) * 5000),
        m.Report("vm1", 3, 1, m.Token(boot=(1 << 64) - 1)),
        m.Report("vm1", 3, -1, m.Token()),
        m.Report("vm1", 3, 1, m.Token(), (worker(number=5000),)),
        m.Report("vm1", 3, 1, m.Token(), (worker(incarnation=(1 << 64) - 1),)),
        m.Report("vm1", 3, 1, m.Token(), (worker(endpoint="tcp://" + "x" * 300),)),
        m.Report("vm1", 3, 1, m.Token(), (worker(threads=(m.ThreadStatus(-1),)),)),
        m.Report("vm1", 3, 1, m.Token(), (worker(threads=(m.ThreadStatus(1, failed="x" * 20_000),)),)),
        m.Report("vm1", 3, 1, m.Token(), (worker(),) * 1025),
        m.Report("vm1", 3, 1, m.Token(), troubles=("x" * 20_000,)),
        m.Report("vm1", 3, 1, m.Token(), spools=(m.SpoolLeft("s", 0, 9, 8),)),
        m.DeadLetters("vm1", (letter(),) * 257),
        m.DeadLetters("vm1", (letter(traceback="x" * 20_000),)),
        m.DeadLetters("vm1", (letter(position=-1),)),
        m.DeadLetters("vm1", (letter(task="x" * 300),)),
        m.SampleBlock("vm1", 3, 1, 0, 1, 0, (), {}, {}, {}, (("a", "b", (1 << 63,)),)),
        m.SampleBlock("vm1", 3, 1, -5, 1, 0, (), {}, {}, {}),
        m.SampleBlock("vm1", 3, 1, 0, 1, 0, (), {}, {}, {}, (), (m.FinishedRuns("a", 1, 1, -8, b""),)),
        m.Goodbye("vm1", (1 << 64) - 1),
        m.PackageAt("../vm1", 3, "ab" * 32),
        m.PackageAt("vm1", -1, "ab" * 32),
        m.PackageAt("vm1", 3, "ab" * 32, -1),
        m.PackageAt("vm1", 3, "ab" * 32, (1 << 63) + 1),
        m.PackageAt("vm1", 3, "ab" * 200),
        m.PackageAt("vm1", 3, "ab" * 32, refused="x" * 20_000),
        m.Report("vm1", 3, 1, m.Token(), (m.WorkerStatus(Slot("vm2", 0), 1, "running"),)),
        m.Report(
            "vm1",
            3,
            1,
            m.Token(),
            (m.WorkerStatus(Slot("vm1", 0), 1, "running", threads=(m.ThreadStatus(1),) * 5000),),
        ),
    ],
)
def test_what_cannot_be_meant_is_not(message: m.FromAgent) -> None:
    with pytest.raises(BadMessage):
        check(message)


def test_ten_bad_messages_in_ten_seconds_are_a_ban_of_a_minute() -> None:
    conduct = Conduct()
    assert [conduct.blame(b"a", "why", n * S // 2) for n in range(BAD_MOST)] == [False] * (BAD_MOST - 1) + [
        True
    ]
    assert conduct.banned(b"a", 10 * S) and not conduct.banned(b"b", 10 * S)
    assert conduct.banned(b"a", 64 * S)
    assert not conduct.banned(b"a", 66 * S)
    assert conduct.counted == {"why": BAD_MOST}


def test_bad_messages_now_and_then_are_no_ban() -> None:
    conduct = Conduct()
    assert not any(conduct.blame(b"a", "why", n * 2 * S) for n in range(50))


def test_peers_that_change_their_names_fill_no_memory() -> None:
    conduct = Conduct()
    for n in range(3 * PEERS_MOST):
        conduct.blame(b"%d" % n, f"why {n}", n)
        for _ in range(BAD_MOST):
            conduct.blame(b"banned %d" % n, "why", n)
    assert len(conduct.bad) <= PEERS_MOST and len(conduct.banned_until) <= PEERS_MOST
    assert len(conduct.counted) <= REASONS_MOST + 1 and sum(conduct.counted.values()) == 33 * PEERS_MOST


def test_strangers_are_let_in_slowly_and_who_is_known_at_once() -> None:
    gate, known = BorderGate(), frozenset({"vm1"})
    gate.know(known, 2)
    let_in = [gate.admits(hello(f"x{n}"), 9 * S) for n in range(1000)]
    assert let_in == [True] * STRANGERS_AT_ONCE + [False] * (1000 - STRANGERS_AT_ONCE)
    assert gate.admits(hello("vm1"), 9 * S) and gate.admits(report(), 9 * S)
    assert sum(gate.admits(hello(f"y{n}"), 10 * S) for n in range(1000)) == 16
    assert gate.ignored == 2000 - STRANGERS_AT_ONCE - 16
    assert gate.admits(hello("x0"), 11 * S), "it was let in and is no stranger now"
    gate.know(known, VMS_MOST)
    assert not gate.admits(hello("z"), 99 * S), "there is no room"
    assert gate.admits(report(), 99 * S)


def test_a_vm_that_says_hello_again_and_again_is_heard_eight_times_a_second() -> None:
    gate = BorderGate()
    gate.know(frozenset({"vm1"}), 1)
    heard = sum(gate.admits(hello(), S + n * S // 1000) for n in range(1000))
    assert heard == 8
    assert all(gate.admits(report(), 3 * S) for _ in range(100))
