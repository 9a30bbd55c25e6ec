"""Random, cut short, flipped and bloated bytes on every channel: an error of ours or a message that can be
meant; never more than 64 MiB, nor much time; and no message that is let in stops the controller."""

from __future__ import annotations

import contextlib
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from patience import timed

from headgate.controller.core.loop import Loop
from headgate.controller.knowledge import loop_events as t
from headgate.controller.knowledge.controller_config import ControllerSettings
from headgate.controller.knowledge.journal_records import Submitted
from headgate.controller.monitor.admission import check
from headgate.lab.simulation.simulated_topologies import SHAPES
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.errors import BadMessage
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.report_messages import Profiled

MIB = 1 << 20
MEMORY_MOST, SECONDS_MOST = 64 * MIB, 0.25  # of CPU; 50 ms is the promise, on a free machine
SEEDS = range(6)

WORKER = m.WorkerStatus(
    Slot("vm1", 0),
    5,
    "running",
    "tcp://127.0.0.1:5#" + "k" * 40,
    m.Token(1, 1, 1),
    True,
    (m.ThreadStatus(1, 1),),
)
GOOD: tuple[m.FromAgent, ...] = (
    m.Hello("vm1", 3, 4, 0.2, 1 << 28, "none", 7, spools=(m.SpoolLeft("source", 0, 3, 9),)),
    m.Report("vm1", 3, 1, m.Token(1, 1, 1), (WORKER,), (m.SourceStatus("source", 0, 1, 9, 3, 0, 6, 0),)),
    m.SampleBlock("vm1", 3, 1, 10**18, 10**9, 1, ("work",), {n: bytes(8) for n in m.SAMPLE_COLUMNS}, {}, {}),
    m.DeadLetters("vm1", (m.DeadLetter("work", 1, "source", 0, 5, "row", "error", "traceback"),)),
    Profiled("vm1", 1, b"{}"),
    m.Goodbye("vm1", 3),
    m.PackageAt("vm1", 3, "ab" * 32, 9),
)


def mangled(data: bytes, choose: random.Random) -> bytes:
    """The bytes of a good message, made worse."""
    worse = bytearray(data)
    for _ in range(choose.randint(1, 4)):
        place = choose.randrange(len(worse))
        match choose.randrange(4):
            case 0:
                worse[place] ^= 1 << choose.randrange(8)
            case 1:
                worse[place : place + 1] = choose.choice(NUMBERS)
            case 2:
                worse[place:place] = choose.randbytes(choose.randint(1, 9))
            case 3:
                del worse[place : place + choose.randint(1, 5)]
    return bytes(worse[: choose.randint(1, len(worse))] if choose.random() < 0.2 else worse)


NUMBERS = [
    msgspec.msgpack.encode(n)
    for n in (
        -1,
        0,
        (1 << 62) + 1,
        (1 << 64) - 1,
        -(1 << 63),
        1e308,
        float("nan"),
        float("inf"),
        None,
        "",
        [],
    )
]


def a_loop() -> Callable[[m.FromAgent], None]:
    take = a_loop_of()[1]

    def take_in(message: m.FromAgent) -> None:
        take(t.FromVm(message))

    return take_in


def a_loop_of() -> tuple[Loop, Callable[[t.Event], list[t.Instruction]]]:
    """A controller that runs a topology on two VMs, and what takes events for it."""
    shape = SHAPES["line"]
    loop = Loop(ControllerSettings("r"), Submitted(shape.topology, shape.models, ((0.0, 20.0),), 0.0, (), 1))
    now_ns = 10**12

    def take(event: t.Event) -> list[t.Instruction]:
        nonlocal now_ns
        now_ns += 10**7
        done = list(loop.step(event, t.Now(now_ns, 10**18 + now_ns)))
        for instruction in done:
            match instruction:
                case t.Finish():
                    raise AssertionError("it ended")
                case t.Send(_, message):
                    channels.encode(message)
        return done

    take(t.Started((), None, 1))
    for vm in ("vm1", "vm2"):
        take(t.FromVm(m.Hello(vm, 3, 4, 0.2, 1 << 28, "none", 7)))
    for _ in range(300):
        take(t.Tick())
    return loop, take


@pytest.mark.parametrize("seed", SEEDS)
def test_mangled_messages_of_agents_stop_nothing(seed: int) -> None:
    choose, take = random.Random(seed), a_loop()
    let_in = refused = 0
    for _ in range(2000):
        data = mangled(channels.encode(choose.choice(GOOD)), choose)
        try:
            message = channels.decode(channels.from_agent, data)
            check(message)
        except BadMessage:
            refused += 1
            continue
        let_in += 1
        take(message)
    assert let_in > 20 and refused > 500, f"seed {seed}: {let_in} let in, {refused} refused"


def bloated() -> Iterator[tuple[str, bytes]]:
    """Bodies of a command of as many bytes as are taken."""
    head, size = (
        b"\x83\xa4type\xa7request\xa7command\xa1x\xa9arguments\x81\xa1x",
        channels.REQUEST_MAX_BYTES - 60,
    )
    count = size.to_bytes(4, "big")
    yield "empty lists", head + b"\xdd" + count + b"\x90" * size
    yield "maps of one", head + b"\xdd" + (size // 3).to_bytes(4, "big") + b"\x81\x00\x00" * (size // 3)
    yield "small numbers", head + b"\xdd" + count + b"\x01" * size
    yield "large numbers", head + b"\xdd" + (size // 3).to_bytes(4, "big") + b"\xcd\xff\xfe" * (size // 3)
    yield "short texts", head + b"\xdd" + (size // 2).to_bytes(4, "big") + b"\xa1a" * (size // 2)
    yield "floats", head + b"\xdd" + (size // 9).to_bytes(4, "big") + (b"\xcb" + bytes(8)) * (size // 9)
    yield "deep", head + b"\x91" * size
    yield "a count beyond all", head + b"\xdd\xff\xff\xff\xff"
    keys = b"".join(b"\xcd" + n.to_bytes(2, "big") + b"\x90" for n in range(65535))
    yield "a map of lists", head + b"\xde\xff\xff" + keys
    pairs = b"".join(b"\xa3" + b"%03x" % n + b"\x81\x00\x00" for n in range(4096)) * 20
    yield (
        "maps in maps",
        head + b"\xdd" + (20).to_bytes(4, "big") + (b"\xde\x10\x00" + pairs[: len(pairs) // 20]) * 20,
    )


def bounded(do: Callable[[], Any], timed: bool) -> None:
    """Whatever it is, it costs little: the least CPU time of three, for neighbours on the core make it dearer."""
    times = []
    for _ in range(3 if timed else 1):
        began = time.thread_time()
        with contextlib.suppress(BadMessage):
            do()
        times.append(time.thread_time() - began)
    took_s = min(times)
    tracemalloc.start()
    with contextlib.suppress(BadMessage):
        do()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MEMORY_MOST and (took_s < SECONDS_MOST or not timed), (
        f"{took_s * 1e3:.0f} ms, {peak / MIB:.0f} MiB"
    )


@timed
@pytest.mark.parametrize(("name", "data"), list(bloated()), ids=[name for name, _ in bloated()])
def test_a_command_costs_little_memory_whatever_is_in_it(name: str, data: bytes, timed: bool) -> None:
    assert len(data) <= channels.REQUEST_MAX_BYTES

    def read() -> None:
        channels.weigh(data)
        channels.decode(channels.requests, data)

    bounded(read, timed)


def largest() -> Iterator[tuple[str, m.FromAgent]]:
    """Messages near the longest that are taken."""
    yield "threads", m.Report("vm1", 3, 1, m.Token(), tuple([WORKER] * 5_290))
    many = (m.ThreadStatus(1),) * 45_500
    yield (
        "threads of one",
        m.Report("vm1", 3, 1, m.Token(), (m.WorkerStatus(Slot("vm1", 0), 1, "running", threads=many),)),
    )
    yield (
        "sources",
        m.Report("vm1", 3, 1, m.Token(), (), (m.SourceStatus("s", 0, 1, 1, 1, 0, 0, 0),) * 49_900),
    )
    yield (
        "spools",
        m.Hello("vm1", 3, 4, 0.2, 1 << 28, "none", 7, spools=(m.SpoolLeft("s", 0, 3, 9),) * 120_000),
    )
    yield "letters", m.DeadLetters("vm1", (m.DeadLetter("", 1, "", 0, 5, "", "", ""),) * 65_000)
    yield "tasks", m.SampleBlock("vm1", 3, 1, 1, 1, 1, ("",) * 1_000_000, {}, {}, {})
    yield "buckets", m.SampleBlock("vm1", 3, 1, 1, 1, 1, (), {}, {}, {}, (("a", "b", (1,) * 1_000_000),))
    yield "latencies", m.SampleBlock("vm1", 3, 1, 1, 1, 1, (), {}, {}, {}, (("", "", ()),) * 250_000)


@timed
@pytest.mark.parametrize(("name", "message"), list(largest()), ids=[name for name, _ in largest()])
def test_a_message_of_an_agent_costs_little_whatever_is_in_it(
    name: str, message: m.FromAgent, timed: bool
) -> None:
    data = channels.encode(message)
    assert len(data) <= channels.FROM_AGENT_MAX_BYTES, len(data)

    def read() -> None:
        check(channels.decode(channels.from_agent, data))

    bounded(read, timed)
    with pytest.raises(BadMessage):
        read()
