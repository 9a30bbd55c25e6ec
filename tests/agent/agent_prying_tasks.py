"""User code that tries what it must not, and says what became of it: imported in workers only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

DAEMON = (  # leaves its session, and the process that started it
    "import os, sys, time\n"
    "if os.fork(): os._exit(0)\n"
    "os.setsid()\n"
    "if os.fork(): os._exit(0)\n"
    "open(sys.argv[1], 'w').write(str(os.getpid()))\n"
    "time.sleep(1000)\n"
)


class Prying:
    """Passes rows on; with the first of them it does as `how` says and writes its findings into a file."""

    def __init__(self, how: str, folder: str, told: dict[str, Any] | None = None) -> None:
        self._act, self._folder, self._told = getattr(self, how), Path(folder), told or {}
        self._done = False

    def __call__(self, row: int) -> int:
        if not self._done:
            self._done = True
            self._say(self._act())
        return row

    def _say(self, found: Any) -> None:
        file = self._folder / f"found-{os.getpid()}"
        file.with_suffix(".new").write_text(json.dumps(found))
        os.replace(file.with_suffix(".new"), file.with_suffix(".json"))

    # ── whoever it runs as ──────────────────────────────────────────────────────────────────────

    def looks(self) -> dict[str, Any]:
        """At itself."""
        status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
        limits = Path("/proc/self/limits").read_text().splitlines()
        return {"status": status, "limits": {line[:25].strip(): line[25:].split()[:2] for line in limits[1:]}}

    def leaves_a_daemon(self) -> int:
        file = self._folder / "daemon"
        subprocess.run([sys.executable, "-S", "-c", DAEMON, str(file)], check=True, stdout=subprocess.DEVNULL)
        while not file.exists() or not file.read_text():
            time.sleep(0.01)
        return int(file.read_text())

    def forks(self) -> int:
        """How often it could, up to a bound."""
        children: list[int] = []
        try:
            while len(children) < self._told["most"]:
                child = os.fork()
                if not child:
                    time.sleep(1000)
                children.append(child)
        except OSError:
            return len(children)
        return len(children)

    def hogs(self) -> int:
        """Memory, far more than its slot has."""
        hog = bytearray(self._told["size_bytes"])
        for at in range(0, len(hog), 4096):
            hog[at] = 1
        return len(hog)

    def opens(self) -> str:
        """Files, until there are no more; and keeps them, if told so."""
        held = []
        try:
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError as error:
            said = f"{len(held)} files, then {error}"
        for one in held if not self._told["kept"] else held[:1]:  # that one for the file with its findings
            os.close(one)
        self._held = held
        return said
