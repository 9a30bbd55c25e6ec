"""Whatever a peer with a good key sends – agent, operator, viewer, listener –: the controller goes on, holds little of
it, names who it was and hears the others. (Workers: `test_flooding_peers.py`.)"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import until
from test_hostile_bytes import GOOD, NUMBERS, a_loop_of, mangled

from headgate.controller.controller_ports import ControllerPorts
from headgate.controller.core.commands import COMMANDS
from headgate.controller.files.audit_log import AuditLog
from headgate.controller.knowledge import loop_events as t
from headgate.controller.monitor.admission import BYTES_AT_ONCE, LOOKING
from headgate.topology_runtime.keys import link_limits
from headgate.topology_runtime.keys.key_pairs import Contact, KeyGuard, Role, Who
from headgate.topology_runtime.keys.keyring import Keyring
from headgate.topology_runtime.keys.link_limits import LINKS_MOST, KeyLinks
from headgate.topology_runtime.platform.disk import DiskTroubles
from headgate.topology_runtime.wire import channels as c
from headgate.topology_runtime.wire import messages as m

SEEDS = range(4)
MANY = [pytest.param(n, marks=pytest.mark.full) for n in range(100, 160)]
NAMES = ("rate", "rate_tps", "last", "after", "most", "id", "ids", "task", "rates", "slots", "vm", "vms", "topology",
         "models", "mode", "epoch", "plan", "placement", "schedule", "digest", "offset", "data", "package", "letters",
         "dry", "skip", "all", "from", "to", "submission", "number", "seconds", "back", "by", "x")  # fmt: skip
Channel = c.ClientChannel[Any, Any]


class Ports:
    """A controller's two sockets, and what came through them. Its time goes on only as messages come."""

    def __init__(self, folder: Path) -> None:
        self.ring, self.events = Keyring.make(folder / "keys"), list[Any]()
        audit = AuditLog(folder / "audit.jsonl", DiskTroubles())
        self.ports = ControllerPorts(self.ring, c.HERE, 0, 0, folder, self.events.append, audit)
        self.open: list[Channel] = []

    def peer(self, role: Role, name: str) -> Channel:
        self.ring.ensure(role, name)
        self.ports.look_at_keys()
        where = self.ports.endpoints["control" if role == "agent" else "commands"]
        found: Channel = c.ClientChannel(c.from_controller, self.ring.key(role, name).contact(where))
        self.open.append(found)
        return found

    def hear(self) -> int:
        """All that is there; how many events there are now."""
        self.ports.hear_agents(None)
        self.ports.hear_clients(m.Reply)
        return len(self.events)

    def unread(self) -> int:
        return sum(sum(channel.links.unread().values()) for channel in self.ports.channels)

    def close(self) -> None:
        for one in self.open:
            one.close(0)
        self.ports.close()


@pytest.fixture
def ports(tmp_path: Path) -> Iterator[Ports]:
    made = Ports(tmp_path)
    yield made
    made.close()


def senseless(choose: random.Random, deep: int = 2) -> Any:
    if deep and choose.random() < 0.3:
        parts = [senseless(choose, deep - 1) for _ in range(choose.randrange(4))]
        return parts if choose.random() < 0.5 else {str(n): part for n, part in enumerate(parts)}
    return choose.choice([
        -1, 0, 1, 3, 1 << 62, (1 << 64) - 1, -(1 << 63), 0.5, -0.0, 1e308, float("nan"), float("inf"), None, True, "",
        "work", "source", "vm1", "vm1/0", "x" * 2000, "\x1b[2J\n", "all", "auto", b"", b"\xff" * 9,
    ])  # fmt: skip


def asked(choose: random.Random, commands: list[str]) -> m.Request:
    names = choose.sample(NAMES, choose.randrange(5))
    return m.from_here(m.Request(choose.choice(commands), {name: senseless(choose) for name in names}))


@pytest.mark.parametrize("seed", [*SEEDS, *MANY])
@pytest.mark.parametrize("role", ["operator", "viewer"])
def test_every_command_with_whatever_arguments_is_answered_and_ends_nothing(role: str, seed: int) -> None:
    choose, take = random.Random(seed), a_loop_of()[1]
    commands = sorted(COMMANDS) if role == "operator" else sorted(LOOKING & set(COMMANDS))
    for number in range(150):
        request = asked(choose, [one for one in commands if one != "stop"])
        done = take(t.Command(number, request))
        replies = [one for one in done if isinstance(one, t.Answer | t.AnswerLater | t.MakePlan)]
        assert replies, f"seed {seed}: no answer to {request.command} {request.arguments}"
        for one in replies:
            if isinstance(one, t.Answer):
                c.encode(one.reply)
            elif isinstance(one, t.AnswerLater):
                thought(one.work)
    (said,) = [one for one in take(t.Command(0, m.Request("status"))) if isinstance(one, t.Answer)]
    assert said.reply.error is None and said.reply.data["stage"] == "starting"


def test_what_a_command_fails_on_is_answered_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a bug of ours would look like a fault of whoever asked, and nobody would see where."""
    monkeypatch.setitem(COMMANDS, "deadletter_replay", lambda turn, arguments: [][arguments["task"]])
    out = a_loop_of()[1](t.Command(1, m.Request("deadletter_replay", {"to": 1, "task": 0})))
    (answer,) = [one for one in out if isinstance(one, t.Answer)]
    assert answer.reply.error is not None and answer.reply.error[0] == "HG-INVALID"
    assert any(
        "deadletter_replay" in one.text and ", line " in one.text for one in out if isinstance(one, t.Say)
    )


def thought(work: Callable[[], Any]) -> None:
    """As it is done beside the loop: errors of ours are answers, too."""
    from headgate.topology_runtime.errors import HeadgateError

    try:
        work()
    except HeadgateError:
        return


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("role", ["agent", "operator", "viewer"])
def test_mangled_messages_under_a_good_key_are_bounded_and_their_sender_is_named(
    role: Role, seed: int, ports: Ports
) -> None:
    choose = random.Random(seed)
    bad, good = ports.peer(role, "vm1"), ports.peer("agent", "vm2")
    for _ in range(400):
        body = (
            choose.choice(GOOD)
            if role == "agent"
            else asked(choose, [*COMMANDS, "snapshot", "package_put", "logs"])
        )
        data = mangled(c.encode(body), choose) + choose.choice(NUMBERS) * choose.randrange(2)
        bad.send(data)
    big = bytes(c.FROM_AGENT_MAX_BYTES // 2)
    for _ in range(40):
        bad.send(big)
    good.send(m.Hello("vm2", 3, 4, 0.2, 1 << 28, "none", 7))

    def heard() -> bool:
        ports.hear()
        return any(isinstance(one, t.FromVm) and one.message.vm == "vm2" for one in ports.events)

    until(heard, lambda: f"{ports.events[-3:]}")
    until(
        lambda: ports.hear() >= 0 and ports.unread() <= link_limits.UNREAD_MOST,
        lambda: f"{ports.unread()} unread",
    )
    mine = [one for one in ports.events if not (isinstance(one, t.FromVm) and one.message.vm == "vm2")]
    taken = sum(len(c.encode(one.message if isinstance(one, t.FromVm) else one.request)) for one in mine)
    assert taken < BYTES_AT_ONCE
    if role == "agent":
        until(lambda: ports.hear() and any("agent vm1" in one for one in ports.ports.troubles()))


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_a_listener_says_he_is_one_listener_and_holds_little(seed: int) -> None:
    choose = random.Random(seed)
    from headgate.topology_runtime.keys.curve import new_pair

    own, ann, bob = new_pair(), new_pair(), new_pair()
    known = {ann.public: Who("viewer", "ann"), bob.public: Who("viewer", "bob")}
    publisher = c.PublisherChannel(KeyGuard(own, known.get))
    listener = c.SubscriberChannel(Contact(publisher.endpoint, bob, own.public))
    odd: Channel = c.ClientChannel(c.replies, Contact(publisher.endpoint, ann, own.public))
    for _ in range(2000):
        odd.send(choose.randbytes(choose.randrange(200)))
    sent = 0

    def heard() -> bytes | None:
        nonlocal sent
        sent += 1
        publisher.send_bytes(b"%d" % sent)
        c.Waiter([listener]).wait(0.02)
        return listener.receive_bytes()

    until(heard)
    assert sum(publisher.links.unread().values()) <= 2 * c.LISTENING_UNREAD_MOST
    for one in (odd, listener, publisher):
        one.close(0)


def test_who_has_too_many_links_or_too_much_unread_is_cut_off_and_may_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(link_limits.time, "monotonic", lambda: now_s[0])
    links = KeyLinks(KeyGuard(None, {"eve": Who("viewer", "eve")}.get))  # type: ignore[arg-type]
    assert links.may_come("eve") and links.troubles() == ()
    for again in range(4):
        for settled in (True, False):
            links.bar("eve", "sends faster than it is read")
            if settled:
                links.emptied()
                links.look()
                assert not links.may_come("eve"), "it is too early"
        now_s[0] += min(4 ** (again + 1), 60) + 0.01
        assert not links.may_come("eve"), "what it sent is not read yet"
        links.emptied()
        links.look()
        assert links.may_come("eve")
        now_s[0] += 1.0
    assert links.troubles() == ("viewer eve sends faster than it is read: its links were cut",)
    assert links.may_come("ann")
    now_s[0] += 1000.0
    assert links.troubles() == () and sum(links.may_come("eve") for _ in range(1000)) == LINKS_MOST
    now_s[0] += link_limits.SILENT_S + 1
    assert links.may_come("eve")
