"""Commands of the host, run for a request, and how one of them is refused."""

from __future__ import annotations

import platform
import subprocess

INSTALL_S = 1800.0
ANSWER_MOST = 1024 * 1024  # bytes of a log or of a command's output


class NotDone(Exception):
    """What went wrong, and what to try."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


def hint_of(error: OSError) -> str:
    if error.errno in (28, 122):  # ENOSPC, EDQUOT
        return "make room there, or name another directory in hosts.toml"
    return "name another directory in hosts.toml" if error.errno in (13, 30) else ""  # EACCES, EROFS


def run(command: list[str], what: str) -> None:
    """What it makes, workers of any user may read. Raises NotDone with the last line that it printed."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=INSTALL_S,
        umask=0o022,
    )
    if done.returncode:
        lines = [line for line in done.stdout.decode("utf-8", "replace").splitlines() if line.strip()]
        telling = [line for line in lines if "error" in line.lower()] or lines or ["it said nothing"]
        missing = "No matching distribution" in telling[-1]
        hint = f"is its wheel in the wheelhouse, for Python {platform.python_version()}?" if missing else ""
        raise NotDone(f"cannot {what}: {telling[-1].strip()[:300]}", hint)


def told(command: list[str]) -> str:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60
    )
    return done.stdout[-ANSWER_MOST:].decode("utf-8", "replace")
