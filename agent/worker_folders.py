"""The folders that workers write to, where they are of another user than their agent.

DIRECTORY       the agent's own: this user may pass through it, and see nothing
DIRECTORY/work  the workers': what an agent reads, too, is in folders of fixed names. These are root's, with the sticky
                bit, so that no worker puts a link into the place of one
"""

from __future__ import annotations

import os
import stat

from headgate.agent.config import WORK
from headgate.topology_runtime.containment.own_user import WorkerUser

KEPT = ("finished", "letters", "snapshots", "spools")  # from one life of an agent to the next
LOGS = "logs"
FOLDERS = (*KEPT, "measured", "mirror", "profiled")  # written to by workers and profiles
PROFILES = "profile"  # in which each profile has one that is made for it


def take_over(directory: str, work: str) -> None:
    """What workers left when they ran as somebody else, and wrote to other folders. Raises OSError."""
    others = os.path.join(directory, WORK) if work == directory else directory
    for name in KEPT:
        before, now = os.path.join(others, name), os.path.join(work, name)
        if os.path.isdir(before) and not os.path.islink(before) and not os.path.lexists(now):
            os.makedirs(work, exist_ok=True)
            os.rename(before, now)


def hand_over(directory: str, user: WorkerUser) -> None:
    """Raises OSError."""
    for name in ("", *FOLDERS, PROFILES):
        os.makedirs(os.path.join(user.home, name), exist_ok=True)
    os.chown(directory, 0, user.gid)
    os.chmod(directory, 0o710)
    os.makedirs(os.path.join(directory, LOGS), exist_ok=True)
    os.chmod(os.path.join(directory, LOGS), 0o700)  # written to by descriptors that were opened before
    _theirs(user)
    for name in ("", *FOLDERS):
        folder = os.path.join(user.home, name)
        os.chown(folder, 0, user.gid)
        os.chmod(folder, 0o1770)
    os.chown(os.path.join(user.home, PROFILES), 0, user.gid)
    os.chmod(os.path.join(user.home, PROFILES), 0o710)


def _theirs(user: WorkerUser) -> None:
    """All that is in there. A file with a second name may be any file of the machine: it is left as it is."""
    for _, folders, files, at in os.fwalk(user.home, topdown=False, follow_symlinks=False):
        for name in (*folders, *files):
            status = os.stat(name, dir_fd=at, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode) or status.st_nlink == 1:
                os.chown(name, user.uid, user.gid, dir_fd=at, follow_symlinks=False)
