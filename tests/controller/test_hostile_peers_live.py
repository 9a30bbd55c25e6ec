"""Peers with good keys and bad manners at a real controller: whatever they send, clients are answered at once."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from keys_made import agent, operator
from patience import until
from test_controller_live import Process, controller

from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire import messages as m

pytestmark = [pytest.mark.live, pytest.mark.alone]
ANSWER_S = 2.0  # a machine with nothing else to do needs a tenth of it
Peer = channels.ClientChannel[m.FromAgent, m.FromController]


@contextmanager
def peer(one: Process, name: str) -> Iterator[Peer]:
    where = one.where()["control"]
    channel: Peer = channels.ClientChannel(channels.from_controller, agent(one.state, name).contact(where))
    try:
        yield channel
    finally:
        channel.close(linger_ms=0)


def answers_in_s(one: Process) -> float:
    began = time.monotonic()
    assert one.ask("ping").error is None
    return time.monotonic() - began


def settled_mib(one: Process) -> float:
    """Its memory once it answers; before that it may not even be loaded."""
    assert one.ask("ping").error is None
    return memory_mib(one)


def memory_mib(one: Process) -> float:
    pages = int(Path(f"/proc/{one.popen.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def welcomed(channel: Peer) -> bool:
    return channels.Waiter([channel]).wait(5.0) != [] and isinstance(channel.receive(), m.Welcome)


def hello(vm: str) -> m.Hello:
    return m.Hello(vm, 3, 4, 0.2, 1 << 28, "none", 7)


def test_a_thousand_invented_names_keep_nobody_waiting_and_displace_nobody(tmp_path: Path) -> None:
    with controller(tmp_path) as one, peer(one, "vm1") as real, peer(one, "x") as false:
        real.send(hello("vm1"))
        assert welcomed(real)
        for n in range(1000):
            false.send(hello(f"invented-{n}"))
        assert max(answers_in_s(one) for _ in range(5)) < ANSWER_S
        assert [vm["vm"] for vm in one.ask("status").data["vms"]] == ["vm1"]
        real.send(m.Report("vm1", 3, 1, m.Token()))
        assert welcomed(real)


@pytest.mark.parametrize("control", [True, False], ids=["of an agent", "of a client"])
def test_a_message_that_is_too_long_never_gets_in(control: bool, tmp_path: Path) -> None:
    with controller(tmp_path) as one:
        before_mib = settled_mib(one)
        letter = m.DeadLetter("work", 1, "source", 0, 5, "row", "error", "traceback")
        data = channels.encode(m.DeadLetters("vm1", (letter,) * (32 * 1024 * 1024 // 40)))
        where = one.where()["control" if control else "commands"]
        contact = agent(tmp_path, "vm1").contact(where) if control else operator(tmp_path)
        channel: Peer = channels.ClientChannel(channels.from_controller, contact)
        try:
            channel.send(data)
            assert max(answers_in_s(one) for _ in range(10)) < ANSWER_S
        finally:
            channel.close(linger_ms=0)
        assert memory_mib(one) - before_mib < 64
        assert one.ask("status").data["vms"] == []


def test_a_command_of_countless_parts_is_refused_in_words(tmp_path: Path) -> None:
    with controller(tmp_path) as one:
        before_mib = settled_mib(one)
        reply = one.ask("x", x=[[] for _ in range(400_000)])
        assert reply.error is not None and "too many parts" in reply.error[2]
        assert answers_in_s(one) < ANSWER_S and memory_mib(one) - before_mib < 64


@pytest.mark.parametrize("links", [1, 8])
def test_a_flood_under_one_good_key_takes_little_memory_and_is_named(links: int, tmp_path: Path) -> None:
    with controller(tmp_path) as one, ExitStack() as closing:
        before_mib = settled_mib(one)
        letter = m.DeadLetter("work", 1, "source", 0, 5, "r" * 1000, "error", "t" * 1000)
        data = channels.encode(m.DeadLetters("vm1", (letter,) * 200))
        peers = [closing.enter_context(peer(one, "vm1")) for _ in range(links)]
        peak_mib = 0.0
        for n in range(1500):
            peers[n % links].send(data)
            if n % 50 == 0:
                assert answers_in_s(one) < ANSWER_S
                peak_mib = max(peak_mib, memory_mib(one))
        assert peak_mib - before_mib < 64
        until(
            lambda: any(
                "agent vm1 sends more than is looked at" in a["text"]
                for a in one.ask("status").data["alarms"]
            )
        )
