"""The processes of a profile in a spare slot (profile_state.py says when): started, and ended without trace.

<directory>/mirror     rows that workers copy for it
<directory>/profile    its own folder, for as long as it runs
<directory>/profiled   models, and the records from which an interrupted profile goes on
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from agent import events as e
from agent.config import AgentConfig
from agent.supervisor import ONE_THREAD
from topology_runtime.logs import open_log
from topology_runtime.slots.binding import SlotBinding
from topology_runtime.worker import mirror

KILL_TIMEOUT_S = 2.0

log = logging.getLogger("headgate.agent")


class SpareSlot:
    """At most one profile at a time. pidfd: readable once its first process has ended."""

    def __init__(self, config: AgentConfig, binding: SlotBinding) -> None:
        self._config, self._binding = config, binding
        home = Path(config.directory)
        self._mirror, self._own, self._output = home / mirror.FOLDER, home / "profile", home / "profiled"
        self._order: e.StartProfile | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._dying: list[subprocess.Popen[bytes]] = []  # killed; on a busy machine that takes a while
        self.pidfd: int | None = None

    def start(self, order: e.StartProfile) -> e.ProfileEnded | None:
        """How it ended when it could not be started."""
        enter = self._binding.procs(order.profile.slot.number)
        if not enter:
            return e.ProfileEnded(order.profile.number, error="nothing bounds the slots of this VM")
        self._order = order
        try:
            self._make_folders()
            self._process = self._spawn(order, enter)
            self.pidfd = os.pidfd_open(self._process.pid)
            self._binding.bind(order.profile.slot.number, self._process.pid)
        except OSError as error:
            log.error("the profile of %s cannot be started: %s", order.profile.task, error)
            self.end()
            return e.ProfileEnded(order.profile.number, error=f"it cannot be started: {error}")
        log.info("%s is profiled in slot %d", order.profile.task, order.profile.slot.number)
        return None

    def _make_folders(self) -> None:
        self._remove_folders()
        for folder in (self._mirror, self._own, self._output):
            folder.mkdir(parents=True, exist_ok=True)
        self._model.unlink(missing_ok=True)

    def _remove_folders(self) -> None:
        for folder in (self._mirror, self._own):
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def _model(self) -> Path:
        assert self._order is not None
        task = self._order.topology.by_name[self._order.profile.task]
        return self._output / f"{task.model_name}.json"

    def _spawn(self, order: e.StartProfile, enter: list[str]) -> subprocess.Popen[bytes]:
        from topology_runtime.calibration.background import ProfileOrder

        config, profile = self._config, order.profile
        said = ProfileOrder(
            topology=order.topology,
            task=profile.task,
            number=profile.number,
            user_paths=order.user_paths,
            mirror=config.directory,
            directory=str(self._own),
            output=str(self._output),
            enter=tuple(enter),
            binding=self._binding.name,
            slot_cores=config.slot_cores,
            slot_memory_bytes=config.slot_memory_bytes,
            budget_s=profile.budget_s,
            owner=os.getpid(),
        )
        file = self._own / "order.json"
        file.write_bytes(msgspec.json.encode(said))
        command = [sys.executable, "-P", "-m", "topology_runtime.calibration.background", str(file)]
        output = open_log(os.path.join(config.directory, "logs", "profile.log"))
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**dict.fromkeys(ONE_THREAD, "1"), **os.environ},
                start_new_session=True,
            )
        finally:
            os.close(output)

    def end(self) -> e.ProfileEnded | None:
        """Kill what still runs of it, in its slot and outside, without waiting for that: a slot is needed at
        once. What it measured; None when there is none."""
        from topology_runtime.calibration.background import FAILED

        order, process = self._order, self._process
        if order is None:
            return None
        code = 0
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # it leads a session of its own
            self._binding.kill(order.profile.slot.number)
            code = process.poll() or 0
            self._dying.append(process)
        if self.pidfd is not None:
            os.close(self.pidfd)
        model, failed = _content(self._model), _content(self._own / FAILED).decode("utf-8", "replace")
        if not failed and code not in (0, -signal.SIGKILL):
            failed = f"it ended with exit code {code}; see logs/profile.log of its agent"
        self._remove_folders()
        self._order = self._process = self.pidfd = None
        return e.ProfileEnded(order.profile.number, model, failed)

    def reap(self) -> None:
        """Forget those that have died meanwhile."""
        self._dying = [process for process in self._dying if process.poll() is None]

    def close(self) -> None:
        """End it and see it dead."""
        self.end()
        for process in self._dying:
            try:
                process.wait(KILL_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                log.error("process %d of a profile does not end even when killed", process.pid)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
