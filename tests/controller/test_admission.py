"""What agents may say, and when they are not heard any more."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from headgate.controller.knowledge.loop_events import Now
from headgate.controller.knowledge.membership import Membership
from headgate.controller.monitor.admission import (
    BAD_MOST,
    BYTES_A_SECOND,
    BYTES_AT_ONCE,
    MESSAGE_COSTS,
    PEERS_MOST,
    REASONS_MOST,
    STRANGERS_AT_ONCE,
    TROUBLES_MOST,
    VMS_MOST,
    AdmissionGate,
    Conduct,
    check,
)
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.errors import BadMessage, InvalidInput, Unreachable
from headgate.topology_runtime.keys.curve import new_pair
from headgate.topology_runtime.keys.key_pairs import Contact, contact_at
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.channels import PushChannel
from headgate.topology_runtime.wire.output_messages import OutputLine, OutputLines

S = 1_000_000_000


def hello(
    vm: str = "vm1", slots: int = 4, cores: float = 0.2, memory: int = 1 << 28, boot: int = 3
) -> m.Hello:
    return m.Hello(vm, boot, slots, cores, memory, "cgroup1", 7)


def report(
    emitted: int = 5, acked: int = 3, in_flight: int = 2, partition: int = 0, rests: int = 0
) -> m.Report:
    source = m.SourceStatus("source", partition, 1, emitted, acked, 0, in_flight, 0, rests=rests)
    return m.Report("vm1", 3, 1, m.Token(), (), (source,))


def worker(
    number: int = 0, incarnation: int = 1, endpoint: str = "", threads: tuple[m.ThreadStatus, ...] = ()
) -> m.WorkerStatus:
    return m.WorkerStatus(Slot("vm1", number), incarnation, "running", endpoint, threads=threads)


def letter(task: str = "work", position: int = 1, traceback: str = "") -> m.DeadLetter:
    return m.DeadLetter(task, 1, "source", 0, position, "row", "error", traceback)


def line(slot: int) -> OutputLine:
    return OutputLine(1, slot, "work", 1, "info", "text")


KEY = "k" * 40
UNREACHABLE = (
    f"inproc://zeromq.zap.01#{KEY}", f"ipc:///run/any#{KEY}", f"pgm://10.0.0.1:5#{KEY}", f"tcp://*:5#{KEY}",
    f"tcp://0.0.0.0:5#{KEY}", f"tcp://[::]:5#{KEY}", f"tcp://224.0.0.1:5#{KEY}", f"tcp://10.0.0.1:0#{KEY}",
    f"tcp://10.0.0.1:99999#{KEY}", f"tcp://10.0.0.1#{KEY}", f"tcp://eth0;10.0.0.1:5#{KEY}",
    "tcp://10.0.0.1:5", "tcp://10.0.0.1:5#short", "x",
)  # fmt: skip


@pytest.mark.parametrize("endpoint", UNREACHABLE)
def test_no_socket_connects_where_no_worker_can_be(endpoint: str) -> None:
    """An in-process address would lead into the very process that connects."""
    with pytest.raises(InvalidInput):
        contact_at(endpoint, new_pair())
    contact = Contact(endpoint.partition("#")[0], new_pair(), KEY)
    if not endpoint.startswith("tcp://10.0.0.1:5"):
        with pytest.raises(Unreachable):
            PushChannel(contact)


def told_of(*endpoints: str, vm: str = "vm1", address: str = "10.0.0.1") -> Membership:
    known = Membership()
    known.hello(replace(hello(vm), address=address), Now(S, S))
    workers = tuple(m.WorkerStatus(Slot(vm, n), 1, "running", one) for n, one in enumerate(endpoints))
    known.report(m.Report(vm, 3, 1, m.Token(), workers), Now(S, S))
    return known


def test_a_vm_tells_endpoints_of_its_own_address_and_workers_only() -> None:
    known = told_of(f"tcp://10.0.0.1:5#{KEY}")
    known.hello(replace(hello("vm2"), address="10.0.0.2"), Now(S, S))

    def fault(*endpoints: str, vm: str = "vm2") -> str:
        workers = tuple(m.WorkerStatus(Slot(vm, n), 1, "running", one) for n, one in enumerate(endpoints))
        return known.endpoint_fault(m.Report(vm, 3, 2, m.Token(), workers))

    assert fault("tcp://10.0.0.2:5#" + "m" * 40, "", "tcp://10.0.0.2:6#" + "n" * 40) == ""
    assert "vm2 is 10.0.0.2" in fault("tcp://10.0.0.3:22#" + "m" * 40)
    assert "with the key of worker vm1/0" in fault(f"tcp://10.0.0.2:5#{KEY}")
    assert "with the key of worker vm2/0" in fault(*["tcp://10.0.0.2:5#" + "m" * 40] * 2)
    assert fault(f"tcp://10.0.0.1:7#{KEY}", vm="vm1") == "", "its own, started again"


def test_what_agents_say_is_let_in() -> None:
    for message in (
        hello(),
        report(),
        report(rests=-4),  # rows were lost in step 4 of the end
        m.Goodbye("vm1", 3),
        m.DeadLetters("vm-1.a_b", (letter(),) * 30, first=3, waiting=2),
        OutputLines("vm1", 3, (line(1023),)),
        m.Report("vm1", 3, 1, m.Token(), (worker(threads=(m.ThreadStatus(1, lost=((0, 1024),)),)),)),
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
        report(rests=-(1 << 62) - 1),
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
        *(m.Report("vm1", 3, 1, m.Token(), (worker(endpoint=one),)) for one in UNREACHABLE),
        m.Report("vm1", 3, 1, m.Token(), (worker(threads=(m.ThreadStatus(-1),)),)),
        m.Report("vm1", 3, 1, m.Token(), (worker(threads=(m.ThreadStatus(1, lost=((1020, 5),)),)),)),
        m.Report("vm1", 3, 1, m.Token(), (worker(threads=(m.ThreadStatus(1, failed="x" * 20_000),)),)),
        m.Report("vm1", 3, 1, m.Token(), (worker(),) * 1025),
        m.Report("vm1", 3, 1, m.Token(), troubles=("x" * 20_000,)),
        m.Report("vm1", 3, 1, m.Token(), spools=(m.SpoolLeft("s", 0, 9, 8),)),
        m.DeadLetters("vm1", (letter(),) * 257),
        m.DeadLetters("vm1", (letter(),), first=2, waiting=3),
        OutputLines("vm1", 3, (line(1024),)),
        m.DeadLetters("vm1", (letter(traceback="x" * 20_000),)),
        m.DeadLetters("vm1", (letter(position=-1),)),
        m.DeadLetters("vm1", (letter(task="x" * 300),)),
        m.SampleBlock("vm1", 3, 1, 0, 1, 0, (), {}, {}, {}, (("a", "b", (1 << 63,)),)),
        m.SampleBlock("vm1", 3, 1, 0, 1, 0, (), {}, {}, {}, (("a", "b", (-1, 1)),)),
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


def heard(conduct: Conduct, who: str, at_ns: int, link: bytes = b"1", size: int = 100) -> bool:
    return conduct.hears(who, link, size, at_ns)


def test_ten_bad_messages_in_ten_seconds_are_a_ban_of_a_minute_over_whatever_link() -> None:
    conduct = Conduct()
    blamed = [conduct.blame("agent a", "why", n * S // 2) for n in range(BAD_MOST)]
    assert blamed == [False] * (BAD_MOST - 1) + [True]
    assert conduct.counted == {"why": BAD_MOST}
    assert not any(heard(conduct, "agent a", at_s * S, b"%d" % at_s) for at_s in (10, 30, 64)), (
        "nor over a new link"
    )
    assert heard(conduct, "agent b", 10 * S) and conduct.dropped == 3
    assert conduct.troubles(11 * S) == ("agent a is not heard for a minute: why",)
    assert heard(conduct, "agent a", 66 * S) and conduct.troubles(66 * S) == ()


def test_bad_messages_now_and_then_are_no_ban() -> None:
    conduct = Conduct()
    assert not any(conduct.blame("agent a", "why", n * 2 * S) for n in range(50))


def test_what_a_key_may_send_in_a_second_is_bounded_and_the_rest_is_dropped_and_counted() -> None:
    conduct, mib = Conduct(), 1 << 20
    flood = [heard(conduct, "agent a", S + n * S // 1000, b"%d" % (n // 100), mib) for n in range(4000)]
    at_most = (BYTES_AT_ONCE + 4 * BYTES_A_SECOND) // mib
    assert at_most // 2 < sum(flood) <= at_most and conduct.dropped == 4000 - sum(flood)
    assert conduct.troubles(5 * S) == (
        f"agent a sends more than is looked at: {conduct.dropped:,} messages dropped",
    )
    assert heard(conduct, "agent b", 5 * S, size=mib), "others are heard"
    assert heard(conduct, "agent a", 15 * S, size=mib), "and so is he when he has calmed down"
    tiny = [heard(conduct, "agent c", S + n, size=1) for n in range(50_000)]
    assert sum(tiny) <= BYTES_AT_ONCE // MESSAGE_COSTS, "small ones cost something too"


def test_an_agent_as_busy_as_any_is_always_heard() -> None:
    conduct = Conduct()
    assert all(heard(conduct, "agent a", S + n * S // 200, size=2000) for n in range(4000)), "reports"
    blocks = (heard(conduct, "agent b", S + n * S // 4, size=700_000) for n in range(400))
    assert all(blocks), "and blocks with all the finished rows that they may hold, while there are more"


def test_two_processes_with_one_key_are_told_and_one_that_comes_again_is_not() -> None:
    conduct = Conduct()
    for n in range(100):
        heard(conduct, "agent a", n * S, b"link %d" % (n // 7))
    heard(conduct, "agent a", 100 * S, b"new")
    heard(conduct, "agent a", 101 * S, b"link 14")
    assert conduct.troubles(101 * S) == (), "that was still on its way"
    for n in range(16):
        heard(conduct, "agent b", n * S, b"one" if n % 2 else b"other")
    assert conduct.troubles(16 * S) == ("two processes have the key of agent b",)
    clients = Conduct(alone=False)
    for n in range(16):
        heard(clients, "operator b", n * S, b"one" if n % 2 else b"other")
    assert clients.troubles(16 * S) == (), "a person may give two commands at once"


def test_what_waited_for_a_busy_controller_makes_no_second_process() -> None:
    """It looks at the messages of two links by turns, long after they were sent."""
    conduct = Conduct()
    heard(conduct, "agent a", S, b"before")
    heard(conduct, "agent a", 2 * S, b"now")
    for n in range(40):
        heard(conduct, "agent a", 9 * S + n * S // 1000, b"now" if n % 2 else b"before")
    for n in range(20):
        heard(conduct, "agent a", (10 + n) * S, b"now")
    assert conduct.troubles(30 * S) == ()


def test_peers_that_change_their_names_fill_no_memory() -> None:
    conduct = Conduct()
    for n in range(2 * PEERS_MOST):
        for _ in range(BAD_MOST):
            conduct.blame(f"agent {n}", f"why {n}", n)
    assert len(conduct.keys) <= PEERS_MOST and len(conduct.troubles(0)) == TROUBLES_MOST
    assert (
        len(conduct.counted) <= REASONS_MOST + 1
        and sum(conduct.counted.values()) == 2 * PEERS_MOST * BAD_MOST
    )


def test_who_comes_last_is_remembered_when_there_is_no_room_for_all() -> None:
    conduct = Conduct()
    for n in range(PEERS_MOST + 1):
        conduct.blame(f"agent {n}", "why", n)
    for _ in range(BAD_MOST):
        conduct.blame("agent z", "why", S)
    assert conduct.banned("agent z", S) and not heard(conduct, "agent z", S)


def test_a_vm_that_was_let_in_and_is_known_takes_one_place() -> None:
    gate = AdmissionGate()
    gate.know(frozenset(), VMS_MOST - 2)
    assert gate.admits(hello("x"), 9 * S)
    gate.know(frozenset({"x"}), VMS_MOST - 1)
    assert gate.admits(hello("y"), 10 * S) and not gate.admits(hello("z"), 11 * S)


def test_strangers_are_let_in_slowly_and_who_is_known_at_once() -> None:
    gate, known = AdmissionGate(), frozenset({"vm1"})
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
    gate = AdmissionGate()
    gate.know(frozenset({"vm1"}), 1)
    heard = sum(gate.admits(hello(), S + n * S // 1000) for n in range(1000))
    assert heard == 8
    assert all(gate.admits(report(), 3 * S) for _ in range(100))
