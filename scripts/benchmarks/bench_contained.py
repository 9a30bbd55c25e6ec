"""What it costs to contain a worker: from its start to its first word, as its agent's user and as its own, in turn."""
# bench: contained – a worker's start, as its agent's user and as its own, in turn

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.benchmark_runner import spread
from headgate.agent.process import agent_startup as start_up
from headgate.agent.process.agent_config import AGENT, OWN, AgentConfig
from headgate.agent.slots.worker_supervisor import Supervisor
from headgate.topology_runtime.keys.worker_keys import WorkerKeys
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire.channels import ServerChannel, Waiter
from headgate.topology_runtime.wire.messages import FromAgentToWorker, FromWorker

LIMIT_S = 20.0


class Starter:
    """A slot, and whom its workers run as."""

    def __init__(self, folder: Path, workers_as: str, undo: ExitStack) -> None:
        run, cores = f"bench-{os.getpid()}-{workers_as}", 1.0
        config = AgentConfig("", "vm1", 1, cores, 1 << 28, str(folder), run, workers_as=workers_as)
        folder.mkdir()
        binding, _ = start_up.bind_slots(config)
        undo.callback(binding.cleanup)
        user, keys = start_up.contain(config, undo), WorkerKeys()
        self._channel: ServerChannel[FromAgentToWorker, FromWorker] = ServerChannel(
            channels.from_worker, keys.guard
        )
        undo.callback(self._channel.close, 0)
        self._waiter = Waiter([self._channel])
        self._supervisor = Supervisor(config, binding, self._channel.endpoint, keys, user)
        self._number = 0

    def start_s(self) -> float:
        """Of a worker, that is ended then."""
        self._number += 1
        began = time.perf_counter()
        worker = self._supervisor.spawn(0, self._number)
        while (came := self._channel.receive()) is None or self._supervisor.speaking(*came[1:]) is None:
            assert time.perf_counter() - began < LIMIT_S, "no word from it"
            self._waiter.wait(0.5)
        seconds = time.perf_counter() - began
        self._supervisor.bind(worker)
        self._supervisor.end_all(LIMIT_S)
        return seconds


def contained(repeats: int = 30) -> dict[str, Any]:
    if os.geteuid() != 0:
        sys.exit("only root can start workers as another user")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as undo:
        starters = {name: Starter(Path(folder, name), name, undo) for name in (AGENT, OWN)}
        found: dict[str, list[float]] = {name: [] for name in starters}
        for _ in range(repeats):
            for name, starter in starters.items():
                found[name].append(starter.start_s())
    ratios = [own / agent for agent, own in zip(found[AGENT], found[OWN], strict=True)]
    return {**{f"{name}_s": spread(values) for name, values in found.items()}, "ratio": spread(ratios)}


BENCHMARKS = {"contained": contained}
