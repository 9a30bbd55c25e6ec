"""A command of the user's, called once: bytes in, bytes out, in time, and nothing of it left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from typing import Any

from headgate.topology_runtime.errors import HeadgateError

OUTPUT_MOST_BYTES = 1024 * 1024
GRACE_S = 2.0  # between SIGTERM and SIGKILL
SAID_MOST = 300  # characters of what a command says of its failure


class CommandFailed(HeadgateError):
    """Nobody knows whether the command did what was asked."""


class CommandRefusal(CommandFailed):
    """The command says that it did not: it ended with an exit code."""


def run_command(words: Sequence[str], said: bytes, timeout_s: float, what: str) -> bytes:
    """What the command writes; it and all that it started ends in time. Raises CommandFailed."""
    try:
        child = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise CommandRefusal(
            f"the machines command cannot be started: {error.strerror} ({words[0]})"
        ) from error
    with _Reader(child.stdout) as out, _Reader(child.stderr) as err:
        late = False
        try:
            assert child.stdin is not None
            threading.Thread(target=_write, args=(child.stdin, said), daemon=True).start()
            child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            _end(child)
    if late:
        raise CommandFailed(
            f"the machines command did not end `{what}` within {timeout_s:g} s, and was killed"
        )
    told = err.text.strip().rpartition("\n")[2][:SAID_MOST]
    if child.returncode != 0:
        why = told or "it says nothing"
        failed = CommandRefusal if child.returncode > 0 else CommandFailed
        raise failed(f"the machines command failed at `{what}` with {child.returncode}: {why}")
    if out.over:
        raise CommandFailed(f"the machines command answers `{what}` with more than {OUTPUT_MOST_BYTES} bytes")
    return bytes(out.data)


class _Reader:
    """Reads a pipe to its end, and keeps its beginning."""

    def __init__(self, pipe: Any) -> None:
        self._pipe, self.data, self.over = pipe, bytearray(), False
        self._thread = threading.Thread(target=self._read, daemon=True)

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")

    def __enter__(self) -> _Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(GRACE_S)  # what was started may have handed the pipe on to another session

    def _read(self) -> None:
        with self._pipe:
            while part := self._pipe.read1(1 << 16):
                room = OUTPUT_MOST_BYTES - len(self.data)
                self.data += part[:room]
                self.over = self.over or len(part) > room


def _write(pipe: Any, said: bytes) -> None:
    """A command that does not read all of it is its own affair."""
    try:
        with pipe:
            pipe.write(said)
    except OSError:
        return


def _end(child: subprocess.Popen[bytes]) -> None:
    """The command and whatever of its session is left."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            break
        try:
            child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            continue
    child.wait()
