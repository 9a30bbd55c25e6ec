"""JSON lines between a calibration's processes."""

from __future__ import annotations

import os
import selectors
import subprocess
from collections.abc import Iterator
from typing import IO, Any

import msgspec

from headgate.topology_runtime.errors import HeadgateError


class Speaker:
    """This process's stdout for JSON lines alone: what user code prints goes to stderr from now on."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)

    def say(self, **line: Any) -> None:
        self._out.write(msgspec.json.encode(line) + b"\n")

    def say_error(self, error: HeadgateError) -> None:
        self.say(error=error.what, cause=error.cause, hint=error.hint, faults=error.faults)


def heard(process: subprocess.Popen[bytes], silence_s: float) -> Iterator[dict[str, Any]]:
    """The lines of a process until it closes its stdout. TimeoutError after so much silence,
    HeadgateError for a line with an error."""
    stdout = process.stdout
    assert stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(stdout, selectors.EVENT_READ)
        rest = b""
        while chunk := _chunk(selector, stdout, silence_s):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield _message(line)


def _chunk(selector: selectors.DefaultSelector, stdout: IO[bytes], silence_s: float) -> bytes:
    if not selector.select(silence_s):
        raise TimeoutError(f"silent for {silence_s:g} s")
    return os.read(stdout.fileno(), 1 << 16)


def _message(line: bytes) -> dict[str, Any]:
    message: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
    if "error" in message:
        raise HeadgateError(
            message["error"],
            cause=message.get("cause"),
            hint=message.get("hint"),
            faults=message.get("faults") or (),
        )
    return message


def ended(process: subprocess.Popen[bytes], patience_s: float) -> int:
    """The exit code; a process that does not end in time is killed."""
    try:
        return process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def stopped(process: subprocess.Popen[bytes], patience_s: float) -> None:
    """End a process: asked first, then killed."""
    if process.poll() is None:
        process.terminate()
    ended(process, patience_s)


def last_line(stderr: IO[bytes]) -> str | None:
    """Of what a process wrote to this file."""
    size = stderr.seek(0, os.SEEK_END)
    stderr.seek(max(0, size - 4096))
    lines = stderr.read().decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), None)
