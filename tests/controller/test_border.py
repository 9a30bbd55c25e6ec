"""What agents may say, and when they are not heard any more."""

from __future__ import annotations

import pytest

from controller.monitor.border import BAD_MOST, Conduct, check
from topology_runtime import messages as m
from topology_runtime.cluster import Slot
from topology_runtime.errors import BadMessage

S = 1_000_000_000


def hello(
    vm: str = "vm1", slots: int = 4, cores: float = 0.2, memory: int = 1 << 28, boot: int = 3
) -> m.Hello:
    return m.Hello(vm, boot, slots, cores, memory, "cgroup1", 7)


def report(emitted: int = 5, acked: int = 3, in_flight: int = 2, partition: int = 0) -> m.Report:
    source = m.SourceNow("source", partition, 1, emitted, acked, 0, in_flight, 0)
    return m.Report("vm1", 3, 1, m.Token(), (), (source,))


def test_what_agents_say_is_let_in() -> None:
    for message in (hello(), report(), m.Goodbye("vm1", 3), m.DeadLetters("vm-1.a_b", ())):
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
        m.Report("vm1", 3, 1, m.Token(), (m.WorkerNow(Slot("vm2", 0), 1, "running"),)),
        m.Report(
            "vm1",
            3,
            1,
            m.Token(),
            (m.WorkerNow(Slot("vm1", 0), 1, "running", threads=(m.ThreadNow(1),) * 5000),),
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
