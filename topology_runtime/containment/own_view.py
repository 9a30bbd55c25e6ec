"""What a worker sees of the file system when its user may not go where it lies: root's own Python, code below /root.

In a mount namespace of its own, an empty folder takes the place of the one that it may not enter, and in that only what
it needs is to be seen. So no rights on the machine are changed, and the rest of such a folder is out of sight.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable
from pathlib import Path

CLONE_NEWNS = 0x0002_0000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_SLAVE = 2, 4, 4096, 16384, 1 << 19


def closed(path: str, uid: int, gid: int) -> str:
    """The first folder on the way to `path` that this user may not enter, by its mode; "": it may enter all."""
    for folder in reversed(Path(path).parents):
        if not _may(os.stat(folder), uid, gid):
            return str(folder)
    return ""


def _may(status: os.stat_result, uid: int, gid: int) -> bool:
    """Enter this folder, by its mode?"""
    bit = stat.S_IXUSR if status.st_uid == uid else stat.S_IXGRP if status.st_gid == gid else stat.S_IXOTH
    return bool(status.st_mode & bit) or not stat.S_ISDIR(status.st_mode)


def show(paths: Iterable[str], uid: int, gid: int) -> None:
    """Make these reachable for this user, who this process is about to become; but for folders that themselves are
    closed to it. Raises OSError."""
    hidden: dict[str, list[str]] = {}
    for path in paths:
        for one in dict.fromkeys((os.path.abspath(path), os.path.realpath(path))):
            if os.path.exists(one) and _may(os.stat(one), uid, gid) and (at := closed(one, uid, gid)):
                hidden.setdefault(at, []).append(one)
    if not hidden:
        return
    _call("unshare", CLONE_NEWNS)
    _mount(
        "none", "/", None, MS_REC | MS_SLAVE
    )  # what is mounted there later is seen here, not the other way round
    for folder, inside in hidden.items():
        _show(folder, sorted(set(inside)))


def _show(folder: str, inside: list[str]) -> None:
    held = [(path, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in inside]
    try:
        _mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m")
        for path, descriptor in held:
            if os.path.exists(path):
                continue  # within one that is shown already
            is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            os.makedirs(path if is_folder else os.path.dirname(path), 0o755, exist_ok=True)
            if not is_folder:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
            _mount(f"/proc/self/fd/{descriptor}", path, None, MS_BIND | MS_REC)
    finally:
        for _, descriptor in held:
            os.close(descriptor)


def _mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    words = source.encode(), target.encode(), kind.encode() if kind else None
    _call("mount", *words, ctypes.c_ulong(flags), data.encode())


def _call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
