"""Who may come in now: a folder's `trust.json` in memory, read again when it changes."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection

from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.keys.keyring import TRUST, Keyring
from headgate.topology_runtime.keys.pairs import Admits, Who


class Trust:
    """Asked by any thread. trouble: why the last change could not be read; what was known counts on."""

    def __init__(self, ring: Keyring) -> None:
        """Raises InvalidInput when it cannot be read."""
        self._ring, self._lock = ring, threading.Lock()
        self._seen = self._stamp()
        self._known = self._read()
        self._gone = False
        self.trouble = ""

    def admits(self, *roles: str) -> Admits:
        """Those of these roles. Somebody new is known at once, somebody who is gone after the next `look`."""
        return lambda public: self._of(public, roles)

    def look(self) -> bool:
        """Read it again if it has changed; True when somebody may come in no more since the last time."""
        with self._lock:
            self._read_again()
            gone, self._gone = self._gone, False
            return gone

    def _of(self, public: str, roles: Collection[str]) -> Who | None:
        who = self._known.get(public)
        if who is None:
            with self._lock:
                self._read_again()
            who = self._known.get(public)
        return who if who is not None and who.role in roles else None

    def _read_again(self) -> None:
        stamp = self._stamp()
        if stamp == self._seen:
            return
        try:
            known = self._read()
        except InvalidInput as error:  # a broken file lets nobody in anew and throws nobody out
            self.trouble = str(error)
            return
        self._gone = self._gone or bool(self._known.keys() - known.keys())
        self._seen, self._known, self.trouble = stamp, known, ""

    def _read(self) -> dict[str, Who]:
        return {key.public: Who(key.role, key.name) for key in self._ring.trust().keys if not key.revoked}

    def _stamp(self) -> tuple[int, int, int]:
        try:
            found = os.stat(self._ring.folder / TRUST)
        except OSError:
            return 0, 0, 0
        return found.st_ino, found.st_mtime_ns, found.st_size
