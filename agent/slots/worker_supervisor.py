"""Starts, watches and ends worker processes.

Rules:
 1. Workers are spawned from the agent's main thread: their PR_SET_PDEATHSIG fires when the *thread* that
    made them ends. They set it themselves and check that their parent is still the agent (`--owner`).
 2. A worker leads a session of its own: Ctrl-C on the agent's terminal is the agent's business.
 3. Death is seen by pidfd, in a millisecond; the process is reaped, then what it left in its slot is
    killed, before anything new starts there.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import structs

from headgate.agent.core.worker_failures import Hang, HangWatch, UnderWay, line_of, of_thread
from headgate.agent.process.agent_config import AgentConfig
from headgate.agent.process.worker_user import slot_group, worker_environment
from headgate.agent.reports.meter_reader import MeterReader
from headgate.agent.slots.slot_bounds import SlotBounds
from headgate.topology_runtime.keys.key_pairs import Who
from headgate.topology_runtime.keys.worker_keys import WorkerKeys, handing
from headgate.topology_runtime.platform import processes
from headgate.topology_runtime.platform.containment import NOT_CONTAINED, WorkerUser, faults
from headgate.topology_runtime.platform.disk import DiskTroubles
from headgate.topology_runtime.platform.process_logs import open_log, trim
from headgate.topology_runtime.platform.slot_binding import SlotBinding
from headgate.topology_runtime.wire.dead_letter_spool import forget
from headgate.topology_runtime.wire.messages import FromWorker
from headgate.topology_runtime.worker.meters import meter

LAST_WORDS_BYTES = 256 * 1024  # of a worker's log are read at its end, for the stacks in them
OWN_SIGNALS = frozenset(
    (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGSYS)
)  # what a process does to itself

log = logging.getLogger("headgate.agent")


@dataclass(slots=True)
class WorkerProcess:
    """A worker process. bound: its slot's CPU bound is in force. why: what it was killed for. log_from: where
    in the slot's log its words begin. beyond: what its tasks took too much of."""

    slot: int
    incarnation: int
    process: subprocess.Popen[bytes]
    pidfd: int
    reader: MeterReader
    oom_kills: int
    refused: int  # processes
    watch: HangWatch = field(default_factory=HangWatch)
    bound: bool = False
    why: str = ""
    beyond: str = ""
    log_from: int = 0

    @property
    def pid(self) -> int:
        return self.process.pid


class WorkerEnd(NamedTuple):
    """How a worker ended, in a few words; clean: it ended itself in order; by_itself: nobody ended it from outside, and
    it had not started to end."""

    how: str
    clean: bool
    by_itself: bool


class Supervisor:
    """The workers of one VM, and their keys. `endpoint`: where they find their agent. code: folders that they will
    import from. variables: of the agent's environment that their topology names."""

    def __init__(
        self,
        config: AgentConfig,
        binding: SlotBinding,
        endpoint: str,
        keys: WorkerKeys,
        user: WorkerUser | None = None,
    ) -> None:
        self._config, self._binding, self._endpoint = config, binding, keys.endpoint(endpoint)
        self._keys, self._user = keys, user
        self._bounds = SlotBounds(config, binding, user)
        self.code: tuple[str, ...] = ()
        self.variables: tuple[str, ...] = ()
        self.workers: dict[int, WorkerProcess] = {}

    def spawn(self, slot: int, incarnation: int) -> WorkerProcess:
        """A new worker in a slot that has none. Raises OSError."""
        with ExitStack() as on_failure:
            fd = meter.create()
            try:
                reader = MeterReader(fd)
                on_failure.callback(reader.close)
                on_failure.callback(self._keep_keys)
                with handing(self._keys.make(self._config.vm, slot, incarnation)) as key_fd:
                    words = [*self._command(slot, incarnation, fd, key_fd), *self._as_whom(slot)]
                    command = self._binding.command(slot, words)
                    process, log_from = self._start(slot, command, (fd, key_fd))
            finally:
                os.close(fd)
            on_failure.callback(process.wait)
            on_failure.callback(process.kill)
            pidfd = os.pidfd_open(process.pid)
            on_failure.pop_all()
        counts = self._binding.oom_kills(slot), self._bounds.refused(slot)
        worker = WorkerProcess(slot, incarnation, process, pidfd, reader, *counts)
        worker.log_from = log_from
        self.workers[slot] = worker
        return worker

    def _keep_keys(self) -> None:
        """Of workers that are no more none counts."""
        self._keys.keep(
            (self._config.vm, worker.slot, worker.incarnation) for worker in self.workers.values()
        )

    def _command(self, slot: int, incarnation: int, meter_fd: int, key_fd: int) -> list[str]:
        config = self._config
        options = {
            "--agent": self._endpoint,
            "--vm": config.vm,
            "--slot": slot,
            "--incarnation": incarnation,
            "--meter-fd": meter_fd,
            "--key-fd": key_fd,
            "--directory": config.work,
            "--listen": config.at.listen,
            "--advertise": config.at.advertise,
            "--port": config.at.port and config.at.port + slot,
            "--owner": os.getpid(),
            "--memory": config.slot_memory_bytes,
        }
        words = [str(word) for pair in options.items() for word in pair]
        return [sys.executable, "-P", "-m", "headgate.topology_runtime.worker", *words]

    def _as_whom(self, slot: int) -> list[str]:
        user = self._of_slot(slot)
        return ["--user", user.words(self.code)] if user is not None else []

    def _of_slot(self, slot: int) -> WorkerUser | None:
        """With the group that the slot's files belong to."""
        user = self._user
        return user and structs.replace(user, group=slot_group(user, slot))

    def _start(
        self, slot: int, command: list[str], fds: tuple[int, ...]
    ) -> tuple[subprocess.Popen[bytes], int]:
        """The process, and how long its log is already."""
        words = open_log(self.log_path(slot))
        log_from = os.fstat(words).st_size
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                pass_fds=fds,
                env=worker_environment(os.environ, self._user, self.variables),
                start_new_session=True,
            )
            return process, log_from
        finally:
            os.close(words)

    def log_path(self, slot: int) -> str:
        return os.path.join(self._config.directory, "logs", f"worker-{slot}.log")

    def present(self, slot: int, incarnation: int) -> WorkerProcess | None:
        """The slot's worker if it is this incarnation."""
        worker = self.workers.get(slot)
        return worker if worker is not None and worker.incarnation == incarnation else None

    def speaking(self, who: Who, message: FromWorker) -> WorkerProcess | None:
        """Whose message it is; None of a worker that is no more, or that speaks for another."""
        if who.name != f"{message.slot}#{message.incarnation}":
            return None
        return self.present(message.slot.number, message.incarnation)

    def under_way(
        self, worker: WorkerProcess, tasks: tuple[str, ...], sources: tuple[str, ...]
    ) -> tuple[UnderWay, ...]:
        """The calls of user code that its end broke off, with their stacks as far as it wrote them."""
        calls = worker.reader.under_way(tasks, sources)
        stacks = [of_thread(self.words(worker), call.ident) for call in calls]
        return tuple(
            call._replace(stack=stack, line=line_of(stack)) for call, stack in zip(calls, stacks, strict=True)
        )

    # ── orders ──────────────────────────────────────────────────────────────────────────────────

    def bind(self, worker: WorkerProcess) -> None:
        """Put its slot's CPU bound in force: it has said hello, and imported nothing yet. Raises OSError, also when it
        is not of the user that it should be of."""
        if not worker.bound:
            user = self._of_slot(worker.slot)
            if user is not None and (found := faults(worker.pid, user)):
                raise PermissionError(f"it is not contained: {', '.join(found)}")
            self._binding.bind(worker.slot, worker.pid)
            worker.bound = True

    def dump(self, worker: WorkerProcess) -> None:
        """Ask it for the stacks of its threads, in its log."""
        _signal(worker, signal.SIGUSR1)

    def kill(self, worker: WorkerProcess, why: str) -> None:
        worker.why = worker.why or why
        _signal(worker, signal.SIGKILL)

    def reap(self, worker: WorkerProcess) -> WorkerEnd | None:
        """How it ended; None while it lives."""
        code = worker.process.poll()
        if code is None:
            return None
        self._binding.kill(worker.slot)
        os.close(worker.pidfd)
        del self.workers[worker.slot]
        self._keep_keys()
        return self._end(worker, code)

    def drop_dead_letters(self) -> None:
        """Of workers that are no more. Raises OSError."""
        living = {(worker.slot, worker.incarnation) for worker in self.workers.values()}
        forget(self._config.work, living)

    def words(self, worker: WorkerProcess) -> str:
        """The end of what it wrote into its log."""
        path = self.log_path(worker.slot)
        try:
            with open(path, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(worker.log_from if worker.log_from <= size else 0, size - LAST_WORDS_BYTES))
                return file.read().decode("utf-8", "replace")
        except OSError as error:
            log.error("%s cannot be read: %s", path, error)
            return ""

    def _end(self, worker: WorkerProcess, code: int) -> WorkerEnd:
        starved = self._binding.oom_kills(worker.slot) > worker.oom_kills
        fatal = starved or bool(worker.beyond) or code >= 0 or -code in OWN_SIGNALS
        by_itself = fatal and worker.why in ("", worker.beyond) and not worker.reader.ending
        return WorkerEnd(self._how(worker, code), code == 0 and worker.reader.ending, by_itself)

    def _how(self, worker: WorkerProcess, code: int) -> str:
        if code == NOT_CONTAINED and not worker.bound:  # it never said hello: the words are its own
            return "; ".join(self.words(worker).strip().splitlines()[-1:]) or "it could not be contained"
        how = f"exit code {code}" if code >= 0 else f"signal {-code} ({signal.Signals(-code).name})"
        if self._binding.oom_kills(worker.slot) > worker.oom_kills:
            most = self._config.slot_memory_bytes
            how = f"out of memory, its slot has {most / 2**20:.0f} MiB: {how}"
        if worker.beyond:
            how = f"{worker.beyond}: {how}"
        return how if not worker.why or code == 0 else f"{how} by its agent"

    # ── watching ────────────────────────────────────────────────────────────────────────────────

    def hung(self, now_ns: int, max_call_ns: Mapping[int, int]) -> list[tuple[WorkerProcess, Hang]]:
        """Workers that make no progress, and why one thinks so."""
        found = []
        for worker in self.workers.values():
            stat = processes.stat(worker.pid) if worker.bound else None
            if stat is None:
                continue
            ran_ns = stat.cpu_ns + processes.run_delay_ns(worker.pid)
            hang = worker.watch.look(worker.reader.reading(now_ns, stat.state, ran_ns), max_call_ns)
            if hang is not None:
                found.append((worker, hang))
        return found

    def end_beyond(self, now_ns: int) -> list[WorkerProcess]:
        """Workers whose tasks take more than their slots may: seen now, they say where they are and end at the next
        look; those seen now."""
        self._bounds.look(now_ns)
        found = []
        for worker in self.workers.values():
            if worker.beyond:
                self.kill(worker, worker.beyond)
            elif worker.bound and (beyond := self._bounds.beyond(worker.slot, worker.refused)):
                worker.beyond = beyond
                self.dump(worker)
                found.append(worker)
        return found

    def trim_logs(self, disk: DiskTroubles) -> None:
        """Cut the log of a worker that floods it."""
        for slot in self.workers:
            path = self.log_path(slot)
            with disk.writing("a worker's log", path):
                trim(path)

    def end_all(self, timeout_s: float) -> list[WorkerProcess]:
        """Kill every worker and wait for their ends; those that were there."""
        ended = list(self.workers.values())
        for worker in ended:
            self.kill(worker, "the agent ends")
        for worker in ended:
            try:
                worker.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                continue  # nothing ends it: the slot's clean-up says so
            self.reap(worker)
        return ended


def _signal(worker: WorkerProcess, number: signal.Signals) -> None:
    """By pidfd: never to another process that got the same number."""
    try:
        signal.pidfd_send_signal(worker.pidfd, number)
    except ProcessLookupError:
        return  # it has ended; its pidfd says so too
