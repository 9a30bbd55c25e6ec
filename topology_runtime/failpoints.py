"""Points at which a process can be made to die, for tests of what a crash does exactly there.

Off unless HEADGATE_FAILPOINTS names a folder. In it a file named like a point arms that point from the epoch
on that the file holds: the first process to reach it renames the file to NAME.hit and kills itself.
"""

from __future__ import annotations

import os
import signal
import sys

FOLDER = os.environ.get("HEADGATE_FAILPOINTS", "")


def reach(point: str, epoch: int) -> None:
    """The enactment of this epoch is at this point."""
    if FOLDER:
        _die_if_armed(os.path.join(FOLDER, point), epoch)


def _die_if_armed(path: str, epoch: int) -> None:
    try:
        with open(path) as file:
            first = int(file.read())
        if epoch < first:
            return
        os.rename(path, f"{path}.hit")
    except FileNotFoundError:
        return  # not armed, or another process was first
    sys.stderr.write(f"headgate: failpoint {os.path.basename(path)}: process {os.getpid()} dies here\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)
