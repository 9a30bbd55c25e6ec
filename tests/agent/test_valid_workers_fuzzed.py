"""Whatever a worker with its own key says to its agent: the agent goes on, holds little of it, counts what it drops,
hears the others, and says nothing for which the controller would refuse it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from agent_world import BOOT, VM, Mind, slot, thread
from patience import until

from headgate.agent.core import agent_events as e
from headgate.agent.core.agent_state import KEPT_MOST, DeadLetterBox
from headgate.agent.reports.sampler import USER_KEPT, UserPart
from headgate.agent.slots.worker_port import MESSAGES_MOST, WorkerPort
from headgate.controller.monitor.admission import check
from headgate.topology_runtime.keys import link_limits
from headgate.topology_runtime.keys.curve import new_pair
from headgate.topology_runtime.keys.key_pairs import Contact, Who, contact_at, keyed
from headgate.topology_runtime.keys.worker_keys import WorkerKeys
from headgate.topology_runtime.wire import channels as c
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.dead_letter_messages import DeadLetter, LettersTaken, SentAgain
from headgate.topology_runtime.wire.report_messages import SampleBlock, UserMetric

SEEDS = [0, 1, *(pytest.param(n, marks=pytest.mark.full) for n in range(100, 160))]
BAD, GOOD = 0, 1  # slots
HERE = "127.0.0.1"


class Agent:
    """The part of an agent that hears its workers; slots 0 and 1 have one each, that connects as it would."""

    def __init__(self) -> None:
        self.keys, self.mind, self.user = WorkerKeys(), Mind(slots=2), UserPart()
        self.port = WorkerPort(self.keys, HERE)
        orders = self.mind.want(thread(1, BAD, "source"), thread(2, GOOD))
        self.number = {one.slot.number: one.incarnation for one in orders if isinstance(one, e.SpawnWorker)}
        self.pairs = {n: self.keys.make(VM, n, number) for n, number in self.number.items()}
        self.links: dict[int, c.ClientChannel[Any, Any]] = {
            n: c.ClientChannel(c.from_agent_to_worker, contact) for n, contact in self.contacts()
        }
        self.heard: list[tuple[Who, m.FromWorker]] = []
        self.words, self.every_s = 0, 0.6  # so long until the agent reports again

    def contacts(self) -> Iterator[tuple[int, Contact]]:
        for n, pair in self.pairs.items():
            yield n, contact_at(self.keys.endpoint(self.port.channel.endpoint), pair)

    def at(self, n: int) -> str:
        return keyed(f"tcp://{HERE}:4711", self.pairs[n].public)

    def hello(self, n: int) -> m.WorkerHello:
        return m.WorkerHello(slot(n), self.number[n], 7, self.at(n))

    def report(self, n: int, word: int = 0, **more: Any) -> m.WorkerReport:
        return m.WorkerReport(slot(n), self.number[n], m.Token(1, 1, word), True, **more)

    def take(self, peer: bytes, who: Who, message: m.FromWorker) -> None:
        self.heard.append((who, message))
        if isinstance(message, m.WorkerReport):
            self.user.add(message.metrics)
        self.mind.tell(message)
        self.mind.tick(after_s=self.every_s)

    def hear(self, done: Callable[[], Any]) -> None:
        until(lambda: self.port.hear(self.take) or done(), lambda: f"{self.heard[-2:]}", every_s=0.001)

    def say(self, n: int, *messages: m.FromWorker | bytes) -> None:
        """… and all of it has been read: a last, good word of this worker has come."""
        for message in messages:
            self.links[n].send(message)
        self.words += 1
        last = self.report(n, self.words)
        self.links[n].send(last)
        self.hear(lambda: any(one == last for _, one in self.heard[-MESSAGES_MOST:]))

    def close(self) -> None:
        for link in self.links.values():
            link.close(0)
        self.port.channel.close(0)


@pytest.fixture
def agent() -> Iterator[Agent]:
    made = Agent()
    yield made
    made.close()


def said_to_the_controller(agent: Agent) -> None:
    """All of it is something that the controller takes."""
    said, agent.mind.all = agent.mind.all, []
    for one in said:
        if isinstance(one, m.Report | m.DeadLetters | m.Hello):
            check(one)
            assert len(c.encode(one)) <= c.FROM_AGENT_MAX_BYTES
    check(block := SampleBlock(VM, BOOT, 1, 1, 1, 1, (), {}, {}, {}, user=agent.user.take()))
    assert len(c.encode(block)) <= c.FROM_AGENT_MAX_BYTES


LETTER = DeadLetter("work", 1, "source", 0, 5, "row", "error", "trace")
HUGE = (1 << 64) - 1
SENSELESS: tuple[Any, ...] = (
    -1, 0, 1, 1 << 62, HUGE, -(1 << 63), 0.5, -0.0, 1e308, float("nan"), float("inf"), None, True, "", "work",
    "x" * 20_000, "vm1", "\x1b[2J\n", b"", b"\xff" * 9, (), (1, 2), {}, [[]] * 5000,
)  # fmt: skip


def said(agent: Agent, choose: random.Random) -> bytes:
    """A word that its worker could say, but for some of its parts or bytes."""
    report = agent.report(
        BAD,
        threads=(m.ThreadStatus(1, lost=((0, 5),)),),
        sources=(m.SourceStatus("source", 0, 1, 5, 3, 0, 2, 0),),
        letters=(LETTER,),
        again=(SentAgain(1, 1, (1,), (2,)),),
        metrics=(UserMetric(BAD, 1, "work", "seen", "histogram", 1.0, 2, ((3, 2),)),),
        heard=(m.VmHeard("vm2", 5),),
        troubles=("no room",),
    )
    parts = msgspec.msgpack.decode(c.encode(choose.choice([report, report, agent.hello(BAD)])))
    for _ in range(choose.randrange(3)):
        spoil(parts, choose)
    data = bytearray(c.encode(parts))
    for _ in range(choose.choice([0, 0, 0, 1, 4])):
        data[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
    return bytes(data) if choose.random() < 0.95 else choose.randbytes(choose.randrange(300))


def spoil(parts: Any, choose: random.Random) -> None:
    """One part, however deep, is something else."""
    while True:
        places = list(parts) if isinstance(parts, dict) else list(range(len(parts)))
        if not places:
            return
        place = choose.choice(places)
        inside = parts[place]
        if not isinstance(inside, dict | list) or choose.random() < 0.1:
            parts[place] = choose.choice(SENSELESS)
            return
        parts = inside


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_a_worker_says_harms_neither_its_agent_nor_what_the_controller_hears(
    seed: int, agent: Agent
) -> None:
    choose = random.Random(seed)
    agent.say(BAD, agent.hello(BAD))
    for _ in range(30):
        agent.say(BAD, *(said(agent, choose) for _ in range(10)))
        said_to_the_controller(agent)
    assert agent.port.dropped > 50
    before = len(agent.heard)
    agent.say(GOOD, agent.hello(GOOD))
    assert [who.name for who, _ in agent.heard[before:]] == [f"{slot(GOOD)}#{agent.number[GOOD]}"] * 2


def test_a_worker_has_no_word_for_another_and_tells_no_other_endpoint(agent: Agent) -> None:
    stranger = keyed(f"tcp://{HERE}:4711", new_pair().public)
    for wrong in (
        agent.hello(GOOD),
        agent.report(GOOD),
        m.WorkerHello(slot(BAD), agent.number[BAD] + 1, 7, agent.at(BAD)),
        m.WorkerHello(slot(BAD), agent.number[BAD], 7, agent.at(GOOD)),
        m.WorkerHello(slot(BAD), agent.number[BAD], 7, stranger),
        m.WorkerHello(slot(BAD), agent.number[BAD], 7, agent.at(BAD).replace(HERE, "10.0.0.9")),
        m.WorkerHello(slot(BAD), agent.number[BAD], 7, f"tcp://{HERE}:4711"),
        agent.report(BAD, metrics=(UserMetric(GOOD, 2, "work", "seen", "counter", 1.0),)),
    ):
        before = agent.port.dropped
        agent.say(BAD, wrong)
        assert agent.port.dropped == before + 1, wrong


def test_what_a_worker_adds_up_stays_a_number(agent: Agent) -> None:
    """A sum that does not fit into 64 bits would end the agent where it is sent on."""
    most = UserMetric(BAD, 1, "work", "seen", "histogram", 1e308, 1 << 62, ((3, 1 << 62),))
    agent.say(BAD, *(agent.report(BAD, metrics=(most,), unlogged=1 << 62) for _ in range(9)))
    said_to_the_controller(agent)


def test_a_report_that_would_fill_its_agents_is_dropped(agent: Agent) -> None:
    """The agent's own would be too long for the controller, and none of this machine's slots heard of any more."""
    threads = tuple(m.ThreadStatus(n, unsaved="x" * 10_000) for n in range(100))
    agent.say(BAD, agent.hello(BAD), agent.report(BAD, threads=threads))
    assert agent.port.dropped == 1
    said_to_the_controller(agent)


def test_what_is_kept_of_a_workers_own_metrics_is_bounded_in_numbers() -> None:
    user = UserPart()
    buckets = tuple((n, 1) for n in range(100))
    for n in range(USER_KEPT // 50):
        user.add([UserMetric(0, 1, "work", f"seen{n}", "histogram", 1.0, 1, buckets)])
    taken = 0
    while part := user.take():
        taken += sum(len(one.buckets) + 1 for one in part)
    assert USER_KEPT - 200 < taken <= USER_KEPT
    user.add([UserMetric(0, 1, "work", "seen", "counter", 1.0)])
    assert len(user.take()) == 1, "what is taken makes room"


def test_a_worker_that_floods_is_bounded_and_the_others_are_heard(agent: Agent) -> None:
    """More dead letters than are kept, and more bytes than may wait unread."""
    data, agent.every_s = c.encode(agent.report(BAD, letters=(LETTER,) * 200)), 0.0
    agent.say(BAD, agent.hello(BAD))
    for _ in range(2 * KEPT_MOST // 200):
        agent.links[BAD].send(data)
    agent.say(GOOD, agent.hello(GOOD))
    agent.hear(lambda: sum(agent.port.channel.links.unread().values()) <= link_limits.UNREAD_MOST)
    waiting = [one for one in agent.mind.all if isinstance(one, m.DeadLetters)]
    assert waiting and sum(len(one.letters) for one in waiting) <= KEPT_MOST


def test_dead_letters_for_which_there_is_no_room_are_counted() -> None:
    box = DeadLetterBox(VM, BOOT)
    for _ in range(KEPT_MOST // 1000 + 1):
        box.add([LETTER] * 1000, 0)
    assert box.dropped == 1000 and box.trouble() == (
        "1,000 dead letters were not kept: too many wait for the controller",
    )
    box.taken(LettersTaken(BOOT, 10))
    assert sum(len(one.letters) for one in box.add([LETTER] * 11, 0)) == 10 and box.dropped == 1001
