"""What a service tells systemd: that it is ready, and that it goes round (sd_notify(3)). Nothing where none asks."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import MutableMapping

NS = 1_000_000_000
BEATS = 3  # in the time after which systemd ends it


class ServiceNotes:
    """Of this process. Its children are told nothing of it: none of them can say that it lives."""

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        where = environment.pop("NOTIFY_SOCKET", "")
        limit_us, pid = environment.pop("WATCHDOG_USEC", "0"), environment.pop("WATCHDOG_PID", "")
        mine = where and pid in ("", str(os.getpid())) and limit_us.isdigit()
        self._every_ns = int(limit_us) * 1000 // BEATS if mine else 0
        self._where = "\0" + where[1:] if where.startswith("@") else where
        self._due_ns = 0

    def ready(self) -> None:
        """It has started."""
        self._tell("READY=1")

    def alive(self, now_ns: int) -> None:
        """It goes round; told often enough."""
        if self._every_ns and now_ns >= self._due_ns:
            self._due_ns = now_ns + self._every_ns
            self._tell("WATCHDOG=1")

    def _tell(self, what: str) -> None:
        if not self._where:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
            to.setblocking(False)
            with contextlib.suppress(OSError):  # systemd that is started again hears the next word
                to.sendto(what.encode(), self._where)
