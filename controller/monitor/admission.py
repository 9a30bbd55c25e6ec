"""What may cross the border from an agent: names, sizes, numbers that make sense. Pure.

Types are checked when bytes are decoded, how long a message may be before that (`channels`), columns of
samples by `blocks`; the rest is here.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict, deque
from collections.abc import Set as AbstractSet
from collections.abc import Sized
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import astuple

from headgate.topology_runtime.api.cluster import bandwidth_fault
from headgate.topology_runtime.api.topology import KEY_RANGES
from headgate.topology_runtime.errors import BadMessage, Conflict, HeadgateError, Refused
from headgate.topology_runtime.keys.key_pairs import Who
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.dead_letter_messages import AGAIN_MOST, ROW_BYTES_MOST, VmStrikes
from headgate.topology_runtime.wire.messages import FromAgent, Request
from headgate.topology_runtime.wire.report_messages import KeysSeen, Profiled
from headgate.topology_runtime.wire.wire_version import REMEDY, client_fault

NS = 1_000_000_000
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
SLOTS_MOST = 1024
THREADS_MOST = 4096  # in one message; so many sources, spools and logs too
LETTERS_MOST = 256  # in one message
KEYS_TOLD_MOST = 16  # of one edge, by one thread
USD_MOST = 1e6  # per hour, of one VM
NAME_MOST, TEXT_MOST = 256, 16_384  # characters
TROUBLES_MOST = 16  # of a disk
STRUCK_MOST = 20  # calls that workers of a VM did not survive
NUMBER_MOST = 1 << 62  # one more, a sum of two: all still fit into 64 bits
BAD_MOST, BAD_WITHIN_NS = 10, 10 * NS  # bad messages from a peer …
BANNED_NS = 60 * NS  # … that are too many, and for how long it is not heard then
PEERS_MOST = 1024  # whose conduct is remembered
REASONS_MOST = 64
VMS_MOST = 4096  # that are known; more are not let in
STRANGERS_AT_ONCE, STRANGER_EVERY_NS = 32, NS // 16  # messages of VMs that are not known yet
HELLO_EVERY_NS = NS // 8  # of one VM; agents say it twice a second


def check(message: m.FromAgent) -> None:
    """Raises BadMessage when a message cannot be meant."""
    if not NAME.fullmatch(message.vm):
        raise BadMessage("the name of a VM", cause=repr(message.vm[:80]))
    match message:
        case m.Hello():
            _check_hello(message)
        case m.Report():
            _check_report(message)
        case m.SampleBlock():
            _check_block(message)
        case m.DeadLetters():
            _check_dead_letters(message)
        case Profiled():
            _numbers("a profile", message.number)
            _texts("a profile", message.error)
        case m.Goodbye():
            _numbers("a goodbye", message.boot)
        case m.PackageAt():
            _numbers("a package", message.boot, message.taken)
            _texts("a package", message.digest, most=NAME_MOST)
            _texts("a package", message.refused)


def _numbers(what: str, *numbers: int) -> None:
    if not all(0 <= number <= NUMBER_MOST for number in numbers):
        raise BadMessage(f"{what}: a number that cannot be", cause=str(numbers)[:NAME_MOST])


def _texts(what: str, *texts: str, most: int = TEXT_MOST) -> None:
    if any(len(text) > most for text in texts):
        raise BadMessage(f"{what}: a text that is too long")


def _many(what: str, things: Sized, most: int = THREADS_MOST) -> None:
    if len(things) > most:
        raise BadMessage(f"{what}: too many of them")


def _check_hello(hello: m.Hello) -> None:
    cores_fit = math.isfinite(hello.slot_cores) and 0 < hello.slot_cores <= 1
    if not 1 <= hello.slots <= SLOTS_MOST or not cores_fit or hello.slot_memory_bytes <= 0:
        raise BadMessage("slots that cannot be", cause=f"{hello.slots} of {hello.slot_cores} cores")
    if hello.boot <= 0:
        raise BadMessage("a boot number that cannot be", cause=str(hello.boot))
    if not 0 <= hello.usd_per_hour <= USD_MOST or not (hello.rack == "" or NAME.fullmatch(hello.rack)):
        raise BadMessage("a rack or a price that cannot be", cause=f"{hello.rack!r}, {hello.usd_per_hour}")
    if hello.bandwidth_mbps and bandwidth_fault(hello.bandwidth_mbps) is not None:
        raise BadMessage("a link that cannot be", cause=f"{hello.bandwidth_mbps} Mbit/s")
    _numbers("a hello", hello.boot, hello.slot_memory_bytes, hello.pid, hello.protocol)
    _texts("a hello", hello.binding, hello.version, hello.machine, hello.workers_as, most=NAME_MOST)
    _check_spools(hello.spools)


def _check_spools(spools: tuple[m.SpoolLeft, ...]) -> None:
    _many("spools", spools)
    for spool in spools:
        _texts("a spool", spool.task, spool.run, most=NAME_MOST)
        _numbers("a spool", spool.partition, spool.acked, spool.end, spool.thread)
        if spool.acked > spool.end:
            raise BadMessage("a spool that is acked beyond its end", cause=spool.task)


def _check_report(report: m.Report) -> None:
    _numbers("a report", report.boot, report.sequence, report.unlogged, *_token(report.token))
    _many("troubles", report.troubles, TROUBLES_MOST)
    _texts("a trouble", *report.troubles)
    _numbers("a clock", abs(report.clock[0]), report.clock[1])
    _many("workers", report.workers, SLOTS_MOST)
    if sum(len(worker.threads) for worker in report.workers) > THREADS_MOST:
        raise BadMessage("a report of too many threads")
    for worker in report.workers:
        _check_worker(report, worker)
    _check_spools(report.spools)
    _check_failures(report.strikes)
    _many("profiles", report.profiles, SLOTS_MOST)
    for at in report.profiles:
        _numbers("a profile", *astuple(at))
    _many("keys", report.keys)
    for seen in report.keys:
        _check_keys(seen)
    _many("sources", report.sources)
    for source in report.sources:
        _check_source(source)


def _check_keys(seen: KeysSeen) -> None:
    _numbers("keys", seen.edge, seen.thread, seen.rows, seen.looked_at)
    _many("keys of an edge", seen.top, KEYS_TOLD_MOST)
    for top in seen.top:
        _texts("a key", top.key, most=NAME_MOST)
        _numbers("a key", top.key_range, top.rows)


def _check_failures(strikes: VmStrikes) -> None:
    _many("strikes", strikes.struck, STRUCK_MOST)
    _numbers("strikes", strikes.unknown)
    for one in strikes.struck:
        _numbers("a strike", one.partition, one.position, one.variant, one.times)
        _texts("a strike", one.task, one.source, most=NAME_MOST)
        _texts("a strike", one.error, one.traceback)


def _check_worker(report: m.Report, worker: m.WorkerStatus) -> None:
    if worker.slot.vm != report.vm or not 0 <= worker.slot.number < SLOTS_MOST:
        raise BadMessage("a report of another VM's slots")
    _numbers("a worker", worker.incarnation, worker.crashes, *_token(worker.token))
    _texts("a worker", worker.endpoint, most=NAME_MOST)
    _texts("a worker", worker.last_exit)
    for thread in worker.threads:
        _numbers("a thread", thread.thread, thread.switched, thread.marked)
        _texts("a thread", thread.failed, thread.unsaved, thread.unreadable)
        _check_ranges(thread)
    _many("latency constraints", worker.paths)
    for path in worker.paths:
        counts = path.channels, path.shortened, path.lengthened, path.chained
        _numbers("a latency constraint", path.constraint, *counts)
        _texts("a latency constraint", path.text)
        if not all(math.isfinite(ms) for ms in (path.mean_ms, path.least_ms, path.most_ms)):
            raise BadMessage("a latency that cannot be")
    _many("source threads with dead letters", worker.again)
    for again in worker.again:
        _many("dead letters sent again", again.open, AGAIN_MOST)
        _many("dead letters sent again", again.done, AGAIN_MOST)
        _numbers("dead letters sent again", again.thread, again.boot, *again.open, *again.done)


def _check_ranges(now: m.ThreadStatus) -> None:
    _numbers("a keyed thread", now.applied_again)
    _many("key ranges", now.lost, KEY_RANGES)
    if not all(0 <= first < first + count <= KEY_RANGES for first, count in now.lost):
        raise BadMessage("key ranges that cannot be", cause=f"thread {now.thread}")


def _check_source(now: m.SourceStatus) -> None:
    _texts("a source", now.task, most=NAME_MOST)
    positions = (
        now.partition,
        now.thread,
        now.acked,
        now.emitted,
        now.acked_above,
        now.in_flight,
        now.replayed,
    )
    numbers = *positions, now.arrived, now.oldest_ns, now.seen_ns
    if not all(0 <= number <= NUMBER_MOST for number in numbers):
        raise BadMessage("source positions that cannot be", cause=f"{now.task}/{now.partition}")


def _check_block(block: m.SampleBlock) -> None:
    if len(block.tasks) > THREADS_MOST:
        raise BadMessage("samples of too many threads", cause=str(len(block.tasks)))
    _numbers(
        "samples", block.boot, block.sequence, block.wall_ns, block.window_ns, block.epoch, block.cost_ns
    )
    _many("latencies", block.latency)
    _many("logs", block.finished)
    for _, _, buckets in block.latency:
        _many("buckets", buckets)
        _numbers("a latency", min(buckets, default=0), max(buckets, default=0))
    for log in block.finished:
        _texts("a log", log.task, most=NAME_MOST)
        _numbers("a log", log.thread, log.incarnation, log.offset)


def _check_dead_letters(letters: m.DeadLetters) -> None:
    _many("dead letters", letters.letters, LETTERS_MOST)
    _numbers("dead letters", letters.boot, letters.first, letters.waiting)
    if letters.waiting > letters.first:
        raise BadMessage("dead letters that cannot be", cause=f"{letters.waiting} waiting of {letters.first}")
    for letter in letters.letters:
        _texts("a dead letter", letter.task, letter.source, most=NAME_MOST)
        _texts("a dead letter", letter.row, letter.error, letter.traceback)
        _texts("a dead letter", letter.feeder, most=NAME_MOST)
        _many("bytes of a row", letter.data, ROW_BYTES_MOST)
        _numbers("a dead letter", letter.thread, letter.partition, letter.position)
        _numbers("a dead letter", letter.variant, letter.shape, letter.again)
        if letter.again not in (0, letter.of):
            raise BadMessage("a dead letter of another one", cause=f"{letter.again} at {letter.position}")


def _token(token: m.Token) -> tuple[int, int, int]:
    return token.boot, token.epoch, token.counter


@dataclass(slots=True)
class Conduct:
    """Which peers sent how many bad messages lately, by the monotonic clock of the caller."""

    bad: OrderedDict[bytes, deque[int]] = field(default_factory=OrderedDict)
    banned_until: OrderedDict[bytes, int] = field(default_factory=OrderedDict)
    counted: dict[str, int] = field(default_factory=dict)  # reason → how often

    def banned(self, peer: bytes, now_ns: int) -> bool:
        until = self.banned_until.get(peer)
        if until is not None and now_ns >= until:
            del self.banned_until[peer]
            return False
        return until is not None

    def blame(self, peer: bytes, why: str, now_ns: int) -> bool:
        """Count a bad message; True when its peer is banned for it."""
        reason = why if why in self.counted or len(self.counted) < REASONS_MOST else "other"
        self.counted[reason] = self.counted.get(reason, 0) + 1
        times = self.bad.setdefault(peer, deque())
        times.append(now_ns)
        while times[0] < now_ns - BAD_WITHIN_NS:
            times.popleft()
        if len(times) < BAD_MOST:
            _forget_oldest(self.bad)
            return False
        del self.bad[peer]
        self.banned_until[peer] = now_ns + BANNED_NS
        _forget_oldest(self.banned_until)
        return True


def _forget_oldest(table: OrderedDict[bytes, Any]) -> None:
    while len(table) > PEERS_MOST:
        table.popitem(last=False)


@dataclass(slots=True)
class AdmissionGate:
    """Lets strangers in slowly, so that invented names cost little and displace nobody, by the monotonic
    clock of the caller. Who is not let in says HELLO again. `ignored`: messages not let in."""

    ignored: int = 0
    known: AbstractSet[str] = frozenset()
    vms: int = 0
    _fresh: set[str] = field(default_factory=set)  # strangers let in since
    _stranger_ns: int = 0  # up to when strangers have been let in
    _hello_ns: dict[str, int] = field(default_factory=dict)

    def know(self, known: AbstractSet[str], vms: int) -> None:
        """Names of VMs that are no strangers, and how many VMs there are."""
        self.known, self.vms = known, vms
        self._fresh.clear()

    def admits(self, message: m.FromAgent, now_ns: int) -> bool:
        if message.vm in self.known or message.vm in self._fresh:
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
        "status",
        "submission",
        "summary",
        "explain",
        "events",
        "whatif",
        "plans",
        "snapshot",
        "deadletters",
        "deadletter",
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
        hint="use an operator's key: --key FILE",
    )
