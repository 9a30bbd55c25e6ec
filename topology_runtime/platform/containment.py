"""A worker that its agent started as root becomes its own user, before it imports any user code.

`python -P -m headgate.topology_runtime.platform.containment SPEC` tries it out: exit code 0, or the reason on stderr.
"""

from __future__ import annotations

import ctypes
import os
import resource
import stat
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.platform.processes import call, prctl
from headgate.topology_runtime.wording import error_text, one_line, visible

# ── What every worker gives up before it imports user code, whoever it runs as ───
#
# No new privileges: what it starts (sudo, say) gets no rights that it has not. No core dumps: its memory
# holds a key. Open files: more than a slot's threads need, and far from all that the machine has.

FILES_MOST = 8192
NOT_CONTAINED = 71  # a worker's exit code: it could not be contained, and has imported nothing
PR_SET_NO_NEW_PRIVS = 38


class NotContained(Exception):
    """Why, in one line for its agent."""


def give_up() -> None:
    """Raises NotContained."""
    try:
        if sys.platform == "linux":
            prctl(PR_SET_NO_NEW_PRIVS, 1)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = FILES_MOST if hard == resource.RLIM_INFINITY else min(hard, FILES_MOST)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (OSError, ValueError) as error:
        raise NotContained(f"it cannot be limited: {error}") from error


# ── What a worker sees of the file system when its user may not go where it lies: root's own Python, code
# below /root
#
# In a mount namespace of its own, an empty folder takes the place of the one that it may not enter, and in
# that only what it needs is to be seen. So no rights on the machine are changed, and the rest of such a
# folder is out of sight.

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
    call("unshare", CLONE_NEWNS)
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
    call("mount", *words, ctypes.c_ulong(flags), data.encode())


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

CAPABILITIES_V3 = 0x2008_0522
OUR_CODE = str(Path(__file__).resolve().parents[2])  # in a clone `sys.path` has only links to it
NONE_OF = ("CapInh", "CapPrm", "CapEff", "CapAmb")
FORGOTTEN = (
    "USER",
    "LOGNAME",
    "MAIL",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "SSH_AUTH_SOCK",
)


_became: list[WorkerUser] = []  # by this process, at most one


class WorkerUser(msgspec.Struct, frozen=True):
    """home: where it works, and what tasks are given as their folder. processes: and threads of this user on this
    machine, at most (0: as many as it may). group: that its files belong to (0: gid), so that one sees whose they are;
    it is in gid besides. shown: folders that it may reach; code: those that it must read."""

    uid: int
    gid: int
    home: str
    processes: int = 0
    shown: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    group: int = 0

    def words(self, code: tuple[str, ...]) -> str:
        """For a command line."""
        return msgspec.json.encode(msgspec.structs.replace(self, code=code)).decode("utf-8")


def read(words: str) -> WorkerUser:
    return msgspec.json.decode(words, type=WorkerUser)


def become(user: WorkerUser) -> None:
    """Raises NotContained: then nothing may be imported. `give_up` follows."""
    python = sys.prefix, sys.base_prefix, sys.executable
    needed = *python, OUR_CODE, *filter(os.path.exists, (*sys.path, *user.code))
    try:
        show((*needed, *user.shown, user.home), user.uid, user.gid)
        if user.processes:
            resource.setrlimit(resource.RLIMIT_NPROC, (user.processes, user.processes))
        os.setgroups([user.gid] if user.group else [])
        own = user.group or user.gid
        os.setresgid(own, own, own)
        os.setresuid(user.uid, user.uid, user.uid)
        _no_capabilities()
        os.chdir(user.home)
    except (OSError, ValueError) as error:
        raise NotContained(f"it cannot become user {user.uid}: {error}") from error
    _became.append(user)
    os.environ["HOME"] = user.home
    for name in FORGOTTEN:
        os.environ.pop(name, None)
    _reaches(user, needed)


def explained(error: BaseException) -> str:
    """An error of user code in a line, with its cause and remedy if it has them, and whose user it met as, if that may
    be why."""
    text = one_line(error_text(error))
    if isinstance(error, HeadgateError):
        more = f": {error.cause}" * bool(error.cause) + f" (try: {error.hint})" * bool(error.hint)
        text += visible(more)
    if not _became or not isinstance(error, PermissionError | FileNotFoundError):
        return text
    return f"{text} (tasks are user {_became[0].uid} here, unless `agent run --workers-as` says whom)"


def check(user: WorkerUser) -> None:
    """That this process is what it should be, at the end. Raises NotContained."""
    found = faults("self", user)
    try:
        os.setuid(0)
        found.append("it can become root again")
    except PermissionError:
        pass
    if found:
        raise NotContained(f"it is not contained: {', '.join(found)}")


def faults(pid: int | str, user: WorkerUser) -> list[str]:
    """What a process has that a contained one has not; nothing when it is gone. Raises OSError."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return []
    status = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    found = [] if status["Uid"] == [str(user.uid)] * 4 else [f"its user is {status['Uid'][1]}"]
    own, others = str(user.group or user.gid), [str(user.gid)] if user.group else []
    found += [] if status["Gid"] == [own] * 4 else [f"its group is {status['Gid'][1]}"]
    found += [f"it is in groups {' '.join(status['Groups'])}"] if status["Groups"] != others else []
    found += ["it has capabilities"] if any(int(status[name][0], 16) for name in NONE_OF) else []
    return found + (["it can gain privileges"] if status["NoNewPrivs"] != ["1"] else [])


def _no_capabilities() -> None:
    """They went with the user already, but for those of a root with unusual bits."""
    header, nothing = (ctypes.c_uint32 * 2)(CAPABILITIES_V3, 0), (ctypes.c_uint32 * 6)()
    call("capset", header, nothing)


def _reaches(user: WorkerUser, needed: tuple[str, ...]) -> None:
    """Raises NotContained with the first that it does not, for it would fail later at a stranger place."""
    for path in needed:
        rights = os.R_OK | (os.X_OK if os.path.isdir(path) else 0)
        if not os.access(path, rights):
            hint = "let others read it, ship the code (submit --ship), or agent run --workers-as agent"
            raise NotContained(
                f"user {user.uid}, as which workers run here, may not read {path} · try: {hint}"
            )
    if not os.access(user.home, os.W_OK):
        raise NotContained(f"user {user.uid}, as which workers run here, may not write to {user.home}")


def main(words: str) -> int:
    try:
        become(read(words))
        give_up()
        check(read(words))
    except NotContained as error:
        print(error, file=sys.stderr)
        return NOT_CONTAINED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
