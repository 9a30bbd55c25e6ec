"""A worker that its agent started as root becomes its own user, before it imports any user code.

`python -P -m headgate.topology_runtime.containment.own_user SPEC` tries it out: exit code 0, or the reason on stderr.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from pathlib import Path

import msgspec

from headgate.topology_runtime.containment.limits import NOT_CONTAINED, NotContained, give_up
from headgate.topology_runtime.containment.own_view import show

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
    machine, at most (0: as many as it may). shown: folders that it may reach; code: those that it must read."""

    uid: int
    gid: int
    home: str
    processes: int = 0
    shown: tuple[str, ...] = ()
    code: tuple[str, ...] = ()

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
        os.setgroups([])
        os.setresgid(user.gid, user.gid, user.gid)
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
    """An error of a task that opens, and whose user it met as, if that may be why."""
    text = f"{type(error).__name__}: {error}"
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
    found += [] if status["Gid"] == [str(user.gid)] * 4 else [f"its group is {status['Gid'][1]}"]
    found += [f"it is in groups {' '.join(status['Groups'])}"] if status["Groups"] else []
    found += ["it has capabilities"] if any(int(status[name][0], 16) for name in NONE_OF) else []
    return found + (["it can gain privileges"] if status["NoNewPrivs"] != ["1"] else [])


def _no_capabilities() -> None:
    """They went with the user already, but for those of a root with unusual bits."""
    header, nothing = (ctypes.c_uint32 * 2)(CAPABILITIES_V3, 0), (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capset(header, nothing) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"capset: {os.strerror(code)}")


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
