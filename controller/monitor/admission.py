"""What may cross the border from an agent: names, sizes, numbers that make sense. Pure.

Types are checked when bytes are decoded, how long a message may be before that (`channels`), columns of
samples by `blocks`; the rest is here.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from headgate.topology_runtime.api.cluster import bandwidth_fault
from headgate.topology_runtime.errors import BadMessage, Conflict, HeadgateError, Refused
from headgate.topology_runtime.keys.key_pairs import Who, keyed_fault
from headgate.topology_runtime.platform.addresses import is_everywhere, is_host
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.message_bounds import (
    SLOTS_MOST,
    THREADS_MOST,
    TROUBLES_MOST,
    bounded,
    check_letter,
    check_thread,
)
from headgate.topology_runtime.wire.messages import FromAgent, Request
from headgate.topology_runtime.wire.output_messages import OutputLines
from headgate.topology_runtime.wire.state_questions import StateAnswer
from headgate.topology_runtime.wire.wire_version import REMEDY, client_fault

NS = 1_000_000_000
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
USD_MOST = 1e6  # per hour, of one VM
ROUND_NS_MOST, HOST_LONGEST = 1e9, 64  # of an agent's loop; letters of its machine's name
BAD_MOST, BAD_WITHIN_NS = 10, 10 * NS  # bad messages from a peer …
BANNED_NS = 60 * NS  # … that are too many, and for how long it is not heard then
BYTES_A_SECOND, BYTES_AT_ONCE = 4 << 20, 8 << 20  # of an agent's key; a busy VM sends a tenth
ASKED_A_SECOND, ASKED_AT_ONCE = 64 << 20, 32 << 20  # of a client's: it may bring packages
MESSAGE_COSTS, ASKING_COSTS = 4096, 128 << 10  # bytes that every message counts besides, and every question
# what was on its way over the link before has come by then, if the controller is quick
LINKS_APART_NS = 2 * NS
CAME_BACK = 3  # times, so long apart, that both links are heard: two processes
PEERS_MOST = 4096 + 1024  # whose conduct is remembered: as many VMs as there may be, and clients
REASONS_MOST = 64
VMS_MOST = 4096  # that are known; more are not let in
STRANGERS_AT_ONCE, STRANGER_EVERY_NS = 32, NS // 16  # messages of VMs that are not known yet
HELLO_EVERY_NS = NS // 8  # of one VM; agents say it twice a second


def check(message: m.FromAgent) -> None:
    """Raises BadMessage when a message cannot be meant."""
    if not NAME.fullmatch(message.vm):
        raise BadMessage("the name of a VM", cause=repr(message.vm[:80]))
    if isinstance(message, m.Report) and sum(len(one.threads) for one in message.workers) > THREADS_MOST:
        raise BadMessage("a report of too many threads")
    bounded(type(message).__name__, message)
    match message:
        case m.Hello():
            _check_hello(message)
            _check_loop(message.loop)
        case m.Report():
            for worker in message.workers:
                _check_worker(message, worker)
            _check_loop(message.loop)
            _check_spools(message.spools)
        case OutputLines():
            if any(line.slot >= SLOTS_MOST for line in message.lines):
                raise BadMessage("a line of a slot that cannot be")
        case StateAnswer():
            if message.slot.vm != message.vm or message.slot.number >= SLOTS_MOST:
                raise BadMessage("a state in a slot that cannot be")
        case m.DeadLetters():
            if message.waiting > message.first:
                cause = f"{message.waiting} waiting of {message.first}"
                raise BadMessage("dead letters that cannot be", cause=cause)
            for letter in message.letters:
                check_letter(letter)


def _check_hello(hello: m.Hello) -> None:
    if not 1 <= hello.slots <= SLOTS_MOST or not 0 < hello.slot_cores <= 1 or hello.slot_memory_bytes <= 0:
        raise BadMessage("slots that cannot be", cause=f"{hello.slots} of {hello.slot_cores} cores")
    if hello.boot <= 0:
        raise BadMessage("a boot number that cannot be", cause=str(hello.boot))
    if not 0 <= hello.usd_per_hour <= USD_MOST or not (hello.rack == "" or NAME.fullmatch(hello.rack)):
        raise BadMessage("a rack or a price that cannot be", cause=f"{hello.rack!r}, {hello.usd_per_hour}")
    if hello.bandwidth_mbps and bandwidth_fault(hello.bandwidth_mbps) is not None:
        raise BadMessage("a link that cannot be", cause=f"{hello.bandwidth_mbps} Mbit/s")
    if hello.address and (not is_host(hello.address) or is_everywhere(hello.address)):
        raise BadMessage("an address that cannot be", cause=repr(hello.address))
    _check_spools(hello.spools)


def _check_spools(spools: tuple[m.SpoolLeft, ...]) -> None:
    for spool in spools:
        if spool.acked > spool.end:
            raise BadMessage("a spool that is acked beyond its end", cause=spool.task)


def _check_loop(loop: m.LoopSeen) -> None:
    if not 0 <= loop.round_ns <= ROUND_NS_MOST or loop.seconds < 0 or len(loop.host) > HOST_LONGEST:
        raise BadMessage("a loop that cannot be", cause=f"{loop.round_ns} ns, {loop.seconds} s")


def _check_worker(report: m.Report, worker: m.WorkerStatus) -> None:
    if worker.slot.vm != report.vm or not 0 <= worker.slot.number < SLOTS_MOST:
        raise BadMessage("a report of another VM's slots")
    if worker.endpoint and (fault := keyed_fault(worker.endpoint)):
        raise BadMessage("an endpoint that nobody may connect to", cause=fault)
    for now in worker.threads:
        check_thread(now)


@dataclass(slots=True)
class KeyConduct:
    """How whoever holds one key behaves, by any links. link, before: the newest two; link_ns: when the newest was
    heard first, or it was seen last that both are heard; came_back: how often it was seen. left: bytes that it may
    still send."""

    bad: deque[int] = field(default_factory=deque)
    banned_until: int = 0
    left: int = 0
    left_ns: int = -1 << 40
    dropped: int = 0
    link: bytes = b""
    before: bytes = b""
    link_ns: int = 0
    came_back: int = 0
    newest_spoke: bool = False
    trouble: str = ""
    trouble_ns: int = 0

    def both_speak(self, link: bytes, now_ns: int) -> bool:
        """Are two links heard by turns? One process that came again sends nothing more over the link before: what was
        under way there comes late, but once."""
        if link == self.link:
            self.newest_spoke = True
        elif link != self.before:
            self.before, self.link, self.link_ns, self.came_back = self.link, link, now_ns, 0
            self.newest_spoke = True
        elif self.newest_spoke and now_ns - self.link_ns > LINKS_APART_NS:
            self.link_ns, self.came_back, self.newest_spoke = now_ns, self.came_back + 1, False
            return self.came_back >= CAME_BACK
        return False


@dataclass(slots=True)
class Conduct:
    """By key, so that a ban and a limit outlast links; by the monotonic clock of the caller. alone: one process has a
    key. dropped: messages over all keys that were not looked at."""

    bytes_a_second: int = BYTES_A_SECOND
    bytes_at_once: int = BYTES_AT_ONCE
    alone: bool = True
    message_costs: int = MESSAGE_COSTS
    keys: OrderedDict[str, KeyConduct] = field(default_factory=OrderedDict)
    counted: dict[str, int] = field(default_factory=dict)  # reason → how often
    dropped: int = 0

    def hears(self, who: str, link: bytes, size: int, now_ns: int) -> bool:
        """May this message be looked at?"""
        of, costs = self._of(who), size + self.message_costs
        of.left = min(self.bytes_at_once, of.left + (now_ns - of.left_ns) * self.bytes_a_second // NS)
        of.left_ns = now_ns
        if of.left < costs or now_ns < of.banned_until:
            of.dropped, self.dropped = of.dropped + 1, self.dropped + 1
            if now_ns >= of.banned_until:
                self._trouble(
                    of, f"{who} sends more than is looked at: {of.dropped:,} messages dropped", now_ns
                )
            return False
        of.left -= costs
        if self.alone and of.both_speak(link, now_ns):
            self._trouble(of, f"two processes have the key of {who}", now_ns)
        return True

    def blame(self, who: str, why: str, now_ns: int) -> bool:
        """Count a bad message; True when its sender is banned for it."""
        reason = why if why in self.counted or len(self.counted) < REASONS_MOST else "other"
        self.counted[reason] = self.counted.get(reason, 0) + 1
        of = self._of(who)
        of.bad.append(now_ns)
        while of.bad[0] < now_ns - BAD_WITHIN_NS:
            of.bad.popleft()
        if banned := len(of.bad) >= BAD_MOST:
            of.bad.clear()
            of.banned_until = now_ns + BANNED_NS
        self._trouble(of, f"{who} is not heard for a minute: {why}" if banned else f"{who}: {why}", now_ns)
        return banned

    def banned(self, who: str, now_ns: int) -> bool:
        of = self.keys.get(who)
        return of is not None and now_ns < of.banned_until

    def troubles(self, now_ns: int) -> tuple[str, ...]:
        """What keys did lately that they should not."""
        lately = [
            of.trouble for of in self.keys.values() if of.trouble and now_ns - of.trouble_ns < BANNED_NS
        ]
        return tuple(sorted(lately)[:TROUBLES_MOST])

    def _trouble(self, of: KeyConduct, text: str, now_ns: int) -> None:
        if now_ns >= of.banned_until or "not heard" in text:
            of.trouble, of.trouble_ns = text, now_ns

    def _of(self, who: str) -> KeyConduct:
        of = self.keys.setdefault(who, KeyConduct())
        _forget_oldest(self.keys)
        return of


def _forget_oldest(table: OrderedDict[str, Any]) -> None:
    while len(table) > PEERS_MOST:
        table.popitem(last=False)


@dataclass(slots=True)
class AdmissionGate:
    """Lets strangers in slowly, so that invented names cost little and displace nobody, by the monotonic
    clock of the caller. Who is not let in says HELLO again. `ignored`: messages not let in."""

    ignored: int = 0
    known: AbstractSet[str] = frozenset()
    vms: int = 0
    run: str = ""
    _fresh: set[str] = field(default_factory=set)  # strangers let in since
    _stranger_ns: int = 0  # up to when strangers have been let in
    _hello_ns: dict[str, int] = field(default_factory=dict)

    def know(self, known: AbstractSet[str], vms: int, run: str = "") -> None:
        """Names of VMs that are no strangers, how many VMs there are, and the run: what is of another is ignored."""
        self.known, self.vms, self.run = known, vms, run
        self._fresh.clear()

    def admits(self, message: m.FromAgent, now_ns: int) -> bool:
        if self.run and getattr(message, "run", "") not in ("", self.run):
            let_in = False
        elif message.vm in self.known or message.vm in self._fresh:
            let_in = self._in_time(message, now_ns)
        elif let_in := self._stranger(self.vms + len(self._fresh), now_ns):
            self._fresh.add(message.vm)
        self.ignored += not let_in
        return let_in

    def _in_time(self, message: m.FromAgent, now_ns: int) -> bool:
        if not isinstance(message, m.Hello):
            return True
        last_ns = self._hello_ns.get(message.vm)
        if last_ns is not None and now_ns - last_ns < HELLO_EVERY_NS:
            return False
        self._hello_ns[message.vm] = now_ns
        return True

    def _stranger(self, vms: int, now_ns: int) -> bool:
        earliest_ns = now_ns - STRANGERS_AT_ONCE * STRANGER_EVERY_NS
        next_ns = max(self._stranger_ns, earliest_ns) + STRANGER_EVERY_NS
        if vms >= VMS_MOST or next_ns > now_ns:
            return False
        self._stranger_ns = next_ns
        return True


# ── Who may say and ask what, by whose key it came under. Pure ──────────────────────────────────────────

LOOKING = frozenset(
    [
        "ping",
        "audit",
        "status",
        "share",
        "topology",
        "submission",
        "summary",
        "explain",
        "events",
        "logs",
        "whatif",
        "plans",
        "snapshot",
        "deadletters",
        "deadletter",
        "state",
    ]
)
CLIENTS = ("operator", "viewer")


def check_name(message: FromAgent, who: Who) -> None:
    """An agent speaks for its own VM only. Raises BadMessage."""
    if message.vm != who.name:
        raise BadMessage(f"the agent of {who.name} speaks for another VM", cause=repr(message.vm))


def foreign(request: Request, ours: str) -> HeadgateError | None:
    """Why what it speaks is not understood by headgate `ours`; None when it is."""
    fault = client_fault(request.protocol, request.version, ours)
    return Conflict(fault, hint=f"install one version; {REMEDY}") if fault else None


def refused_to(who: Who, command: str) -> HeadgateError | None:
    """Why he may not ask this; None when he may: a viewer looks and changes nothing."""
    if who.role == "operator" or (who.role == "viewer" and command in LOOKING):
        return None
    return Refused(
        f"{command} is not for the {who}",
        cause="a viewer's key looks and changes nothing",
        hint="use an operator's key: headgate context add NAME --key FILE",
    )
