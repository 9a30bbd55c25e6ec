"""The processes of profiles in free slots (core/agent_state.py says when): started, and ended without trace.

<directory>/mirror             rows that workers copy for one of them
<directory>/profile/NUMBER     a folder of its own, for as long as it runs
<directory>/profiled           models, and the records from which an interrupted profile goes on
<directory>/measured           the same of those that are measured before a run
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Set
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

import msgspec
from msgspec import structs

from headgate.agent.core import agent_events as e
from headgate.agent.process.agent_config import AgentConfig
from headgate.agent.process.worker_user import worker_environment
from headgate.topology_runtime.platform.containment import WorkerUser
from headgate.topology_runtime.platform.disk import open_plain
from headgate.topology_runtime.platform.process_logs import open_log
from headgate.topology_runtime.platform.slot_binding import SlotBinding
from headgate.topology_runtime.worker.meters import row_copies

KILL_TIMEOUT_S = 2.0
CONTENT_MOST = 1 << 20  # of a model, which its task's code can write too

log = logging.getLogger("headgate.agent")


@dataclass
class ProfileSlot:
    """A profile in one slot. own: its folder; model: what it has measured; pidfd: readable once its first process has
    ended."""

    order: e.StartProfile
    own: Path
    model: Path
    process: subprocess.Popen[bytes] | None = None
    pidfd: int | None = None
    told: tuple[int, int] = (0, 0)  # points measured, of about so many


class ProfileSlots:
    """Those that have a profile: at most one each."""

    def __init__(self, config: AgentConfig, binding: SlotBinding, user: WorkerUser | None = None) -> None:
        self._config, self._binding, self._user = config, binding, user
        self._home = Path(config.work)
        self._mirror, self._profiles = self._home / row_copies.FOLDER, self._home / "profile"
        self._slots: dict[int, ProfileSlot] = {}  # by number of the profile
        self._dying: list[subprocess.Popen[bytes]] = []  # killed; on a busy machine that takes a while
        empty(self._profiles)  # of an agent that was killed

    def start(self, order: e.StartProfile) -> e.ProfileEnded | None:
        """How it ended when it could not be started."""
        profile = order.profile
        enter = self._binding.procs(profile.slot.number)
        if not enter and not profile.samples:  # it would disturb the run
            return e.ProfileEnded(profile.number, error="nothing bounds the slots of this VM")
        task = order.topology.by_name[profile.task]
        output = self._home / ("measured" if profile.samples else "profiled")
        own = self._profiles / str(profile.number)
        slot = self._slots[profile.number] = ProfileSlot(order, own, output / f"{task.model_name}.json")
        try:
            self._make_folders(slot)
            slot.process = self._spawn(slot, enter)
            slot.pidfd = os.pidfd_open(slot.process.pid)
            if enter:
                self._binding.bind(profile.slot.number, slot.process.pid)
        except OSError as error:
            log.error("the profile of %s cannot be started: %s", profile.task, error)
            self.end(profile.number)
            return e.ProfileEnded(profile.number, error=f"it cannot be started: {error}")
        log.info("%s is profiled in slot %d", profile.task, profile.slot.number)
        return None

    def _make_folders(self, slot: ProfileSlot) -> None:
        self._remove_folders(slot)
        mine = () if slot.order.profile.samples else (self._mirror,)
        for folder in (slot.own.parent, slot.model.parent, *mine):
            folder.mkdir(parents=True, exist_ok=True)
        slot.own.mkdir()
        if self._user is not None:
            os.chown(slot.own, self._user.uid, self._user.gid)
        slot.model.unlink(missing_ok=True)

    def _remove_folders(self, slot: ProfileSlot) -> None:
        if not slot.order.profile.samples:
            empty(self._mirror)
            if self._user is None:  # else it is there for good: in its place nobody puts a link
                shutil.rmtree(self._mirror, ignore_errors=True)
        shutil.rmtree(slot.own, ignore_errors=True)

    def _spawn(self, slot: ProfileSlot, enter: list[str]) -> subprocess.Popen[bytes]:
        """It gets its slot as open files: whoever opened them may put processes there."""
        with ExitStack() as opened:
            descriptors = [os.open(file, os.O_WRONLY | os.O_CLOEXEC) for file in enter]
            for one in descriptors:
                opened.callback(os.close, one)
            return self._begun(slot, descriptors)

    def _begun(self, slot: ProfileSlot, descriptors: list[int]) -> subprocess.Popen[bytes]:
        from headgate.topology_runtime.measuring.background_profile import ProfileOrder

        config, profile = self._config, slot.order.profile
        said = ProfileOrder(
            topology=slot.order.topology,
            task=profile.task,
            number=profile.number,
            user_paths=slot.order.user_paths,
            mirror="" if profile.samples else config.work,
            directory=str(slot.own),
            output=str(slot.model.parent),
            enter=tuple(descriptors),
            user=structs.replace(self._user, code=slot.order.user_paths) if self._user is not None else None,
            binding=self._binding.name,
            slot_cores=config.slot_cores,
            slot_memory_bytes=config.slot_memory_bytes,
            budget_s=profile.budget_s,
            owner=os.getpid(),
        )
        command = [sys.executable, "-P", "-m", "headgate.topology_runtime.measuring.background_profile"]
        output = open_log(os.path.join(config.directory, "logs", "profile.log"))
        try:
            with TemporaryFile() as given:
                given.write(msgspec.json.encode(said))
                given.seek(0)
                return subprocess.Popen(
                    command,
                    stdin=given,
                    stdout=output,
                    stderr=output,
                    pass_fds=descriptors,
                    env=worker_environment(os.environ, self._user, slot.order.topology.variables),
                    start_new_session=True,
                )
        finally:
            os.close(output)

    @property
    def pidfds(self) -> list[int]:
        return [slot.pidfd for slot in self._slots.values() if slot.pidfd is not None]

    def ended(self, ready: Set[int]) -> list[int]:
        """Those whose first process has ended. Processes that have died meanwhile are forgotten."""
        self._dying = [process for process in self._dying if process.poll() is None]
        return [number for number, slot in self._slots.items() if slot.pidfd in ready]

    def stands(self) -> list[e.ProfileStands]:
        """Of those that have got on since."""
        if not self._slots:
            return []  # what measures takes 0.1 s and 12 MB, which an agent that measures nothing does without
        from headgate.topology_runtime.measuring.background_profile import stands_in

        news = []
        for number, slot in self._slots.items():
            if (now := stands_in(slot.own)) not in (None, slot.told):
                slot.told = now
                news.append(e.ProfileStands(number, *now))
        return news

    def end(self, number: int) -> e.ProfileEnded | None:
        """Kill what still runs of it, in its slot and outside, without waiting for that: a slot is needed at
        once. What it measured; None when there is none."""
        slot = self._slots.pop(number, None)
        if slot is None:
            return None
        from headgate.topology_runtime.measuring.background_profile import FAILED

        code = 0
        if slot.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(slot.process.pid, signal.SIGKILL)  # it leads a session of its own
            self._binding.kill(slot.order.profile.slot.number)
            code = slot.process.poll() or 0
            self._dying.append(slot.process)
        if slot.pidfd is not None:
            os.close(slot.pidfd)
        model, failed = _content(slot.model), _content(slot.own / FAILED).decode("utf-8", "replace")
        of_task = bool(failed)
        if not failed and code not in (0, -signal.SIGKILL):
            failed = f"it ended with exit code {code}; see logs/profile.log of its agent"
        self._remove_folders(slot)
        return e.ProfileEnded(number, model, failed, of_task)

    def close(self) -> None:
        """End them and see them dead."""
        for number in list(self._slots):
            self.end(number)
        for process in self._dying:
            try:
                process.wait(KILL_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                log.error("process %d of a profile does not end even when killed", process.pid)


def empty(folder: Path) -> None:
    """Of all that is in it."""
    for entry in os.scandir(folder) if folder.is_dir() else ():
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            with suppress(FileNotFoundError):
                os.unlink(entry.path)


def _content(path: Path) -> bytes:
    try:
        with open_plain(path) as file:
            return file.read(CONTENT_MOST)
    except FileNotFoundError:
        return b""
