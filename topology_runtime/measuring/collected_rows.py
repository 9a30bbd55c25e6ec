"""Sample rows collected by a process of its own, which imports the user's code; and a folder for them."""

from __future__ import annotations

import os
import selectors
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import HeadgateError


class Killed(HeadgateError):
    """A process that measures was killed. Nothing is wrong with the task, and nothing is known of it."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(what, cause=f"by signal {-code}")


# ── JSON lines between a calibration's processes ────────────────────────────────────────────────────────


class Speaker:
    """This process's stdout for JSON lines alone: what user code prints goes to stderr from now on, without secrets."""

    def __init__(self) -> None:
        from headgate.topology_runtime.worker.process.task_output import TaskOutput

        self._out = os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)
        TaskOutput(2).install()

    def say(self, **line: Any) -> None:
        self._out.write(msgspec.json.encode(line) + b"\n")

    def say_error(self, error: HeadgateError) -> None:
        self.say(error=error.what, cause=error.cause, hint=error.hint, faults=error.faults)


def heard(process: subprocess.Popen[bytes], silence_s: float) -> Iterator[dict[str, Any]]:
    """The lines of a process until it closes its stdout. TimeoutError after so much silence,
    HeadgateError for a line with an error."""
    assert process.stdout is not None
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(silence_s):
                raise TimeoutError(f"silent for {silence_s:g} s")
            if not (chunk := os.read(process.stdout.fileno(), 1 << 16)):
                return
            *lines, rest = (rest + chunk).split(b"\n")
            for message in map(msgspec.json.decode, lines):
                if "error" in message:
                    raise HeadgateError(message.pop("error"), **message)
                yield message


def last_line(stderr: IO[bytes]) -> str | None:
    """Of what a process wrote to this file."""
    size = stderr.seek(0, os.SEEK_END)
    stderr.seek(max(0, size - 4096))
    lines = stderr.read().decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), None)


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

TEMPORARY = "headgate-calibrate-"
IMPORTS_S = 20.0  # user code may import much
ENDING_S = 5.0


def collect_rows(
    file: Path, topology: Topology, tasks: Sequence[str], user_paths: Sequence[str], directory: str
) -> None:
    """Rows that reach each of these tasks, in `directory`/<task>.rows. `file`: the topology as JSON.

    Raises HeadgateError that names the task that fails or hangs."""
    from headgate.topology_runtime.measuring.collect_rows import SECONDS_A_TASK

    command = [sys.executable, "-P", "-m", "headgate.topology_runtime.measuring.collect_rows"]
    command += ["--owner", str(os.getpid()), "--topology", str(file), "--directory", directory]
    command += [word for path in user_paths for word in ("--user-path", path)]
    command += [word for task in tasks for word in ("--task", task)]
    longest_s = max(task.max_call_s for task in topology.tasks)
    at = "the first one"
    with (
        tempfile.TemporaryFile() as stderr,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr) as process,
    ):
        try:
            for line in heard(process, IMPORTS_S + SECONDS_A_TASK + longest_s):
                at = repr(line["task"])
            code = process.wait(ENDING_S)
        except (TimeoutError, subprocess.TimeoutExpired) as error:
            raise HeadgateError(f"no sample rows: task {at} hangs", cause=str(error)) from error
        finally:
            process.kill()
        if code < 0:
            raise Killed(f"no sample rows: the process that collected them was killed at task {at}", code)
        if code != 0:
            raise HeadgateError(f"no sample rows: task {at} failed", cause=last_line(stderr))


def own_folder() -> str:
    """A new folder for this process; those of processes that were killed are removed."""
    for path in Path(tempfile.gettempdir()).glob(f"{TEMPORARY}*"):
        pid = path.name.removeprefix(TEMPORARY).split("-")[0]
        if pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            shutil.rmtree(path, ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"{TEMPORARY}{os.getpid()}-")
