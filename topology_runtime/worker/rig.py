"""Workers alone: a topology on this machine without agent, controller or slots' limits.

For benchmarks and for tests of the data plane. It plays the agent's part of the worker's channel: starts
one worker per slot number, sends desired states, reads the meters.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import KEY_RANGES, Topology
from headgate.topology_runtime.errors import EnactmentFailed
from headgate.topology_runtime.keys.worker_keys import WorkerKeys, handing
from headgate.topology_runtime.latency.latency_buckets import BUCKETS
from headgate.topology_runtime.platform import clock
from headgate.topology_runtime.platform import processes as proc
from headgate.topology_runtime.rates.schedule import Schedule
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.channels import ServerChannel, Waiter
from headgate.topology_runtime.worker.meters import meter as mt

VM = "rig"
PATIENCE_S = 120.0  # only what hangs takes as long
LEASED_UNTIL_NS = 1 << 62  # nobody else has a thread of its exclusive tasks


@dataclass
class _Process:
    popen: subprocess.Popen[bytes]
    meter: mt.Meter
    fd: int
    incarnation: int
    endpoint: str = ""
    report: m.WorkerReport | None = None
    peer: bytes = b""


@dataclass
class Rig:
    """`places`: task → slot number of each of its threads. `weights`: task → what each of them gets of its
    rows, in proportion (default: the same)."""

    topology: Topology
    places: Mapping[str, Sequence[int]]
    directory: str
    user_paths: tuple[str, ...] = ()
    settings: m.DataPlaneSettings = field(default_factory=m.DataPlaneSettings)
    modelled_tps: Mapping[str, float] = field(default_factory=dict)
    weights: Mapping[str, Sequence[float]] = field(default_factory=dict)
    chained: tuple[str, ...] = ()
    keys: WorkerKeys = field(default_factory=WorkerKeys)
    said: int | None = None  # file to which workers write what they say (default: where this process does)
    through: Callable[[int, str], str] = lambda slot, endpoint: endpoint  # how peers reach a worker

    def __post_init__(self) -> None:
        self._channel: ServerChannel[m.FromAgentToWorker, m.FromWorker] = ServerChannel(
            channels.from_worker, self.keys.guard
        )
        self._waiter = Waiter([self._channel])
        self._workers: dict[int, _Process] = {}
        self._letters: list[m.DeadLetter] = []
        self._counter = 0
        self._acked: dict[tuple[str, int], tuple[int, int]] = {}
        self.desired: m.DesiredState | None = None
        numbers = iter(range(1, 1_000_000))
        self.threads = tuple(
            m.ThreadSpec(next(numbers), task, Slot(VM, slot), k)
            for task, slots in self.places.items()
            for k, slot in enumerate(slots)
        )

    # ── life ────────────────────────────────────────────────────────────────────────────────────

    def start(self, timeout_s: float = PATIENCE_S) -> None:
        """All workers up, all threads there, every worker connected to every other."""
        for slot in sorted({t.slot.number for t in self.threads}):
            self.spawn(slot)
        self.wait(lambda: all(w.endpoint for w in self._workers.values()), timeout_s, "workers to come up")
        self.send("prepared")
        self.wait(self.ready, timeout_s, "workers to be ready")

    def spawn(self, slot: int) -> None:
        """Start (or start again) the worker of a slot."""
        fd = mt.create()
        incarnation = time.time_ns()
        agent = self.keys.endpoint(self._channel.endpoint)
        command = [sys.executable, "-P", "-m", "headgate.topology_runtime.worker", "--agent", agent]
        command += ["--vm", VM, "--slot", str(slot), "--incarnation", str(incarnation), "--meter-fd", str(fd)]
        command += ["--directory", self.directory, "--owner", str(os.getpid())]
        with handing(self.keys.make(VM, slot, incarnation)) as key_fd:
            command += ["--key-fd", str(key_fd)]
            popen = subprocess.Popen(
                command, pass_fds=[fd, key_fd], stdin=subprocess.DEVNULL, stdout=self.said, stderr=self.said
            )
        self._workers[slot] = _Process(popen, mt.Meter(fd), fd, incarnation)

    def pid_of(self, slot: int) -> int:
        return self._workers[slot].popen.pid

    def kill(self, slot: int) -> None:
        """`kill -9`, reaped."""
        self._workers[slot].popen.kill()
        self._workers[slot].popen.wait()

    def respawn(self, slot: int, timeout_s: float = PATIENCE_S) -> None:
        """A killed worker comes back with a higher incarnation; sources go on from what was acked."""
        old = self._workers[slot]
        self._acked = {**self._acked, **self._acked_now(old)}
        self.spawn(slot)
        old.meter.close()
        os.close(old.fd)
        self.wait(lambda: bool(self._workers[slot].endpoint), timeout_s, f"worker {slot} to come back")
        assert self.desired is not None
        self.send(self.desired.phase, draining=self.desired.draining)

    def _acked_now(self, worker: _Process) -> dict[tuple[str, int], tuple[int, int]]:
        """Source positions (below which all is acked, next to read), from the meter of a worker, dead or
        alive."""
        words = worker.meter.words
        return {
            (self._task_at(words, at), words[at + mt.SOURCE_PARTITION] - 1): (
                words[at + mt.SOURCE_ACKED],
                words[at + mt.SOURCE_EMITTED],
            )
            for at in worker.meter.thread_records()
            if words[at + mt.SOURCE_PARTITION]
        }

    def _task_at(self, words: memoryview, at: int) -> str:
        return self.topology.tasks[words[at + mt.TASK]].name

    def _records_of(self, task: str) -> Iterator[tuple[memoryview, int]]:
        """(words, first one) of the meter records of a task's threads."""
        for worker in self._workers.values():
            words = worker.meter.words
            for at in worker.meter.thread_records():
                if words[at + mt.THREAD] and self._task_at(words, at) == task:
                    yield words, at

    def offer(self, steps: Sequence[tuple[float, float]], period_s: float = 0.0) -> None:
        """Routes in force and the sources' schedule from now on."""
        self.send("committed", Schedule(clock.wall_ns(), tuple(steps), period_s))

    def emit(self, rate_tps: float, seconds: float) -> int:
        """Offer a rate for so long, or until half of those rows are emitted where the machine is slow, and drain; how
        many rows were emitted."""
        self.offer([(0.0, rate_tps)])
        self.pump(seconds)
        self.wait(lambda: self.count_emitted() > rate_tps * seconds / 2, PATIENCE_S, "rows")
        self.drain()
        return self.count_emitted()

    def count_emitted(self) -> int:
        return sum(self.count(task.name, mt.SOURCE_EMITTED) for task in self.topology.sources)

    def drain(self, timeout_s: float = PATIENCE_S) -> None:
        """Sources stop; wait until everything they emitted is acked."""
        self.send("committed", draining=True)
        self.wait(self._drained, timeout_s, "sources to drain")

    def _drained(self) -> bool:
        sources = self.sources()
        return bool(sources) and all(source.stopped for source in sources)

    def stop(self) -> None:
        for worker in self._workers.values():
            self._channel.send(worker.peer, m.Quit("the rig stops"))
        deadline = time.monotonic() + 2.0
        for worker in self._workers.values():
            try:
                worker.popen.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.popen.kill()
                worker.popen.wait()
            worker.meter.close()
            os.close(worker.fd)
        self._channel.close(linger_ms=0)

    # ── desired states ───────────────────────────────────────────────────────────────────────────

    def send(self, phase: m.Phase, schedule: Schedule | None = None, draining: bool = False) -> None:
        self._counter += 1
        before = self.desired
        self.desired = m.DesiredState(
            token=m.Token(1, 1, self._counter),
            phase=phase,
            run="rig",
            topology=self.topology,
            user_paths=self.user_paths,
            threads=self.threads,
            routes_number=1,
            routes=self._routes(),
            workers=tuple(
                m.WorkerAt(Slot(VM, n), w.incarnation, w.endpoint)
                for n, w in self._workers.items()
                if w.endpoint
            ),
            schedule=schedule or (before.schedule if before else None),
            starts=self._starts(),
            modelled_tps={
                t.thread: self.modelled_tps[t.task] for t in self.threads if t.task in self.modelled_tps
            },
            draining=draining,
            settings=self.settings,
            chained=self.chained,
            holders=tuple(t.thread for t in self.threads if t.task in self.topology.exclusive),
        )
        for worker in self._workers.values():
            self._tell(worker.peer)

    def _tell(self, peer: bytes) -> None:
        if self.desired is None:
            return
        self._channel.send(peer, channels.encode(self.desired))
        if self.desired.holders:
            self._channel.send(peer, channels.encode(m.Lease(LEASED_UNTIL_NS)))

    def _routes(self) -> tuple[m.Route, ...]:
        routes = []
        for number, edge in enumerate(self.topology.edges):
            threads = [t.thread for t in self.threads if t.task == edge.target]
            weights = self.weights.get(edge.target, [1.0] * len(threads))
            ends = [round(KEY_RANGES * part / sum(weights)) for part in accumulate(weights)]
            counts = [end - begin for begin, end in pairwise([0, *ends])]
            ranges = tuple(zip(threads, counts, strict=True))
            targets = tuple((t, weight / sum(weights)) for t, weight in zip(threads, weights, strict=True))
            routes.append(m.Route(number, targets, ranges if edge.grouping == "fields" else ()))
        return tuple(routes)

    def _starts(self) -> tuple[m.SourceStart, ...]:
        known = self._acked
        sources = {task.name for task in self.topology.sources}
        return tuple(
            m.SourceStart(t.task, t.partition, *known.get((t.task, t.partition), (0, 0)))
            for t in self.threads
            if t.task in sources
        )

    # ── what is ─────────────────────────────────────────────────────────────────────────────────

    def ready(self) -> bool:
        assert self.desired is not None
        token = self.desired.token
        return all(
            w.report is not None and w.report.ready and w.report.token == token
            for w in self._workers.values()
        )

    def sources(self) -> list[m.SourceStatus]:
        reports = [w.report for w in self._workers.values() if w.report is not None]
        return [source for report in reports for source in report.sources]

    def letters(self) -> list[m.DeadLetter]:
        return list(self._letters)

    def count(self, task: str, field_: int = mt.TUPLES_IN) -> int:
        """The sum of a meter field over a task's threads."""
        return sum(words[at + field_] for words, at in self._records_of(task))

    def cpu_ns(self) -> dict[str, int]:
        """CPU that the running threads of each task have taken; under "" that of whole workers."""
        found = dict.fromkeys(["", *(task.name for task in self.topology.tasks)], 0)
        for worker in self._workers.values():
            words, pid = worker.meter.words, worker.popen.pid
            whole = proc.stat(pid)
            found[""] += whole.cpu_ns if whole is not None else 0
            for at in worker.meter.thread_records():
                tid = words[at + mt.TID]
                if tid and (told := proc.read(f"/proc/{pid}/task/{tid}/schedstat")):
                    found[self._task_at(words, at)] += int(told.split()[0])
        return found

    def latencies(self, task: str) -> list[int]:
        """Latency buckets from the intended emit time at a sink."""
        each = [words[at + mt.E2E : at + mt.E2E + BUCKETS].tolist() for words, at in self._records_of(task)]
        return [sum(counts) for counts in zip([0] * BUCKETS, *each, strict=True)]

    def links(self) -> dict[tuple[str, str], tuple[int, int]]:
        """(from task, to task) → frames, and their ns from when they left the sender's thread until they were there; of
        those that were not handed over as they were made."""
        tasks, found = {t.thread: t.task for t in self.threads}, dict[tuple[str, str], tuple[int, int]]()
        for worker in self._workers.values():
            words = worker.meter.words
            for at in worker.meter.link_records():
                ends = tasks[words[at + mt.L_FROM]], tasks[words[at + mt.L_TO]]
                frames, spent_ns = found.get(ends, (0, 0))
                found[ends] = frames + words[at + mt.L_FRAMES], spent_ns + words[at + mt.L_CHANNEL_NS]
        return found

    def pump(self, seconds: float) -> None:
        """Hear the workers for so long."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._hear(left)

    def wait(self, until: Callable[[], bool], timeout_s: float, what: str) -> None:
        end = time.monotonic() + timeout_s
        while not until():
            if time.monotonic() > end:
                raise EnactmentFailed(f"waited {timeout_s:g} s for {what}", cause=self._troubles())
            self._hear(0.05)

    def _hear(self, timeout_s: float) -> None:
        self._waiter.wait(min(timeout_s, 0.05))
        while (got := self._channel.receive()) is not None:
            peer, _, message = got
            worker = self._workers.get(message.slot.number)
            if worker is None or message.incarnation != worker.incarnation:
                continue
            before, worker.peer = worker.peer, peer
            if before not in (b"", peer):  # over a new link: what was sent over the old one may be lost
                self._tell(peer)
            if isinstance(message, m.WorkerHello):
                self._channel.send(peer, m.ClockOff(0, clock.HERE.ahead_ns))
                worker.endpoint = worker.endpoint or self.through(message.slot.number, message.endpoint)
            elif isinstance(message, m.WorkerReport):
                worker.report = message
                self._letters.extend(message.letters)

    def _troubles(self) -> str:
        dead = [n for n, w in self._workers.items() if w.popen.poll() is not None]
        failed = [
            f"{t.thread}: {t.failed}"
            for w in self._workers.values()
            if w.report
            for t in w.report.threads
            if t.failed
        ]
        return f"dead workers {dead}, failed threads {failed}, {len(self._workers)} workers"
