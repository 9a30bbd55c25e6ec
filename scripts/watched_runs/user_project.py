"""A folder with a user's own flow: runs of it by `headgate up`, and the commands that a person gives meanwhile."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HEADGATE = [sys.executable, "-P", "-m", "headgate"]
LIMIT_S = 60.0


def write_models(
    folder: Path, rates: Mapping[str, float], cores: float, cpu: float = 0.9, threads: Sequence[int] = (1,)
) -> None:
    """Task → rows/s of a thread, in slots of so many cores, of which a thread takes so much."""
    (folder / "models").mkdir(exist_ok=True)
    slot = {"cores": cores, "memory_bytes": 536870912, "machine": "any"}
    for task, tps in rates.items():
        points = [{"threads": n, "rate_tps": tps * n, "cpu": cpu, "memory": 0.05} for n in threads]
        model = {"schema": "headgate/model/v1", "task": task, "slot": slot, "points": points}
        (folder / "models" / f"{task}.json").write_text(json.dumps(model))


class UserProject:
    """`flow.py` holds the flow. cores: of a slot."""

    def __init__(self, home: Path, flow: str, rates: Mapping[str, float], cores: float = 0.3) -> None:
        self.home, self.cores = home, cores
        self.started: list[subprocess.Popen[str]] = []
        (home / "flow.py").write_text(flow)
        write_models(home, rates, cores)

    def up(self, *words: str) -> subprocess.Popen[str]:
        command = [*HEADGATE, "up", "flow.py:flow", "--models", "models", "--slot-cores", f"{self.cores:g}"]
        with (self.home / "up.log").open("w") as log:
            self.started.append(
                subprocess.Popen(
                    [*command, *words, "-o", "json"], cwd=self.home, stdout=subprocess.PIPE, stderr=log,
                    stdin=subprocess.DEVNULL, text=True, process_group=0,
                )
            )  # fmt: skip
        return self.started[-1]

    def log(self) -> str:
        return (self.home / "up.log").read_text()

    def headgate(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*HEADGATE, *words], cwd=self.home, capture_output=True, text=True, timeout=150, check=False
        )

    def asked(self, *words: str) -> dict[str, Any]:
        """The answer as data; empty where there is none (yet)."""
        done = self.headgate(*words, "-o", "json")
        found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
        return found

    def until(self, what: Callable[[], bool], words: str = "") -> None:
        end_s = time.monotonic() + LIMIT_S
        while not what():
            assert time.monotonic() < end_s and self.started[-1].poll() is None, (
                f"{words}\n{self.log()[-3000:]}"
            )
            time.sleep(0.1)

    def ended(self) -> dict[str, Any]:
        """The summary of the newest run, once Ctrl-C has ended it."""
        self.started[-1].send_signal(signal.SIGINT)
        out, _ = self.started[-1].communicate(timeout=LIMIT_S)
        assert self.started[-1].returncode == 0, self.log()[-3000:]
        found: dict[str, Any] = json.loads(out)
        return found


@contextmanager
def user_project(
    home: Path, flow: str, rates: Mapping[str, float], cores: float = 0.3
) -> Iterator[UserProject]:
    """Nothing of it goes on when the block is left."""
    project = UserProject(home, flow, rates, cores)
    try:
        yield project
    finally:
        for one in project.started:
            if one.poll() is None:
                one.send_signal(signal.SIGINT)
            one.communicate(timeout=LIMIT_S)
