"""Whom the workers of an agent run as: where it is root, a user that nobody else is, for as long as the agent lives.

Users of this kind have numbers in a range that nothing else uses, and need no entry anywhere. A file per number, locked
by the agent that has it, keeps two agents from taking the same.
"""

from __future__ import annotations

import errno
import fcntl
import grp
import os
import pwd
import signal
import stat
import time
import zlib
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from headgate.agent.process.agent_config import AGENT, OWN, WORK, AgentConfig
from headgate.topology_runtime.errors import HeadgateError, InvalidInput
from headgate.topology_runtime.platform.clock import monotonic_ns
from headgate.topology_runtime.platform.containment import WorkerUser

RANGES = (  # the second where a container's root has no others
    range(2_040_000_000, 2_040_065_536),
    range(60_706, 61_184),
)
GROUPS_FROM, GROUPS_EACH = 2_041_000_000, 256  # a group for each slot of each such user
TAKEN = Path("/run/headgate/users")
NEEDED = {"CAP_CHOWN": 0, "CAP_DAC_OVERRIDE": 1, "CAP_KILL": 5, "CAP_SETGID": 6, "CAP_SETUID": 7}
TRIES_MOST = 256
UNCONTAINED = f"`headgate agent run --workers-as {AGENT}` runs them as the agent's own user"
GONE_NS, LOOK_AGAIN_S = 1_000_000_000, 0.005


class ClaimedUser:
    """One number of `RANGES`. Nobody else has it until `release`, which ends all that still runs under it."""

    def __init__(self, uid: int, file: Path, lock: int) -> None:
        self.uid, self._file, self._lock = uid, file, lock

    def release(self) -> list[str]:
        """Names of processes that do not end."""
        left = end_all(self.uid)
        self._file.unlink(missing_ok=True)
        os.close(self._lock)
        return left


def claim(whose: str, taken: Path = TAKEN) -> ClaimedUser:
    """For the agent whose folder this is: mostly the number that it had before. Raises HeadgateError."""
    numbers = _mapped()
    try:
        taken.mkdir(mode=0o700, parents=True, exist_ok=True)
        first = zlib.crc32(whose.encode())
        for attempt in range(TRIES_MOST):
            uid = numbers[(first + attempt) % len(numbers)]
            if not _named(uid) and (found := _take(uid, taken / str(uid), whose)) is not None:
                _sweep(taken)
                return found
    except OSError as error:
        raise _refused(f"{error.strerror}: {error.filename}") from error
    raise _refused(f"{TRIES_MOST} numbers from {numbers[0]} on are in use")


def faults() -> list[str]:
    """What keeps this process from starting workers as others; nothing where it can."""
    if os.geteuid() != 0:
        return ["only root can start workers as another user"]
    rights = int(_status("self")["CapEff"], 16)
    missing = [name for name, bit in NEEDED.items() if not rights >> bit & 1]
    return [f"this root has no {', '.join(missing)}"] if missing else []


def given(name: str) -> tuple[int, int]:
    """User and group of a name, or of a number that need not have any. Raises InvalidInput."""
    try:
        entry = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
        uid, gid = entry.pw_uid, entry.pw_gid
    except (KeyError, OverflowError) as error:
        if not name.isdigit():
            raise InvalidInput(f"--workers-as {name}: there is no such user here") from error
        uid = gid = int(name)
    if not 0 < uid < 0xFFFF_FFFF or not 0 < gid < 0xFFFF_FFFF:
        raise InvalidInput(f"--workers-as {name}: user {uid} and group {gid} are not one that is not root's")
    return uid, gid


def worker_user(config: AgentConfig) -> tuple[WorkerUser | None, ClaimedUser | None]:
    """None, None: workers are of the agent's own user. Raises HeadgateError."""
    if config.workers_as == AGENT:
        return None, None
    if missing := faults():
        raise _refused("; ".join(missing))
    shown = config.directory, os.path.abspath(config.store)
    if config.workers_as != OWN:
        return WorkerUser(*given(config.workers_as), config.work, shown=shown), None
    claimed = claim(config.directory)
    most = config.slots * config.slot_processes
    return WorkerUser(claimed.uid, claimed.uid, config.work, most, shown), claimed


def slot_group(user: WorkerUser, slot: int) -> int:
    """The group that files of a slot belong to; 0: it has none of its own."""
    first = RANGES[0]
    return GROUPS_FROM + (user.uid - first[0]) * GROUPS_EACH + slot if user.uid in first else 0


def end_all(uid: int) -> list[str]:
    """Kill every process of this user; those that do not end within a second."""
    until_ns = monotonic_ns() + GONE_NS
    while (found := processes_of(uid)) and monotonic_ns() < until_ns:
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(LOOK_AGAIN_S)
    return [f"process {pid}" for pid in processes_of(uid)]


def processes_of(uid: int) -> list[int]:
    """Those that live."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            status = _status(name)
            if status and status["State"][:1] not in "ZX" and str(uid) in status["Uid"].split():
                found.append(int(name))
    return found


def _take(uid: int, file: Path, whose: str) -> ClaimedUser | None:
    lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock).st_ino == os.stat(file).st_ino:  # else whoever had it has removed it meanwhile
            before = os.pread(lock, 4096, 0).decode("utf-8", "replace")
            if before == whose:
                end_all(uid)  # left by the agent that was here before and was killed
            if not processes_of(uid):
                os.ftruncate(lock, 0)
                os.pwrite(lock, whose.encode(), 0)
                return ClaimedUser(uid, file, lock)
    except (BlockingIOError, FileNotFoundError):
        pass  # another agent has it, or has just given it back
    os.close(lock)
    return None


def _sweep(taken: Path) -> None:
    """Take away the files of agents that were killed and did not come back, unless something of theirs still runs."""
    for file in taken.iterdir():
        with suppress(FileNotFoundError, BlockingIOError):
            lock = os.open(file, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not file.name.isdigit() or not processes_of(int(file.name)):
                    file.unlink()
            finally:
                os.close(lock)


def _named(uid: int) -> bool:
    for look in (pwd.getpwuid, grp.getgrgid):
        try:
            look(uid)
            return True
        except KeyError:
            continue
    return False


def _mapped() -> range:
    """The first range that exists in this user namespace. Raises HeadgateError."""
    maps = [
        [list(map(int, line.split())) for line in Path(f"/proc/self/{kind}_map").read_text().splitlines()]
        for kind in ("uid", "gid")
    ]
    for numbers in RANGES:
        if all(any(a <= numbers[0] and numbers[-1] < a + n for a, _, n in one) for one in maps):
            return numbers
    raise _refused("this root is a container's, and has no users from 60706 to 61183")


def _status(pid: str) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text("utf-8", "replace").splitlines()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ESRCH):
            return {}
        raise
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _refused(cause: str) -> HeadgateError:
    return HeadgateError("workers cannot run as a user of their own", cause=cause, hint=UNCONTAINED)


# ── The folders that workers write to, where they are of another user than their agent ───
#
# DIRECTORY       the agent's own: this user may pass through it, and see nothing
# DIRECTORY/work  the workers': what an agent reads, too, is in folders of fixed names. These are root's, with
# the sticky bit, so that no worker puts a link into the place of one

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
                kept = slot_group(user, 0) <= status.st_gid < slot_group(user, GROUPS_EACH)  # whose it is
                gid = status.st_gid if kept else user.gid
                os.chown(name, user.uid, gid, dir_fd=at, follow_symlinks=False)


# ── What of the agent's environment its workers get ─────────────────────────────────────────────────────
#
# Where they are the agent's user they may read it anyway, and get all of it. Where they are another user it is not
# for them, but for what any process needs, and the variables that the topology names.

# a slot has at most one core: no threads of numpy beside its own, and no heap for each of these
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "MALLOC_ARENA_MAX")
FOR_ALL = frozenset(
    (
        *ONE_THREAD,
        *("PATH", "HOME", "SHELL", "TMPDIR", "TZ", "LANG", "LANGUAGE", "TERM", "VIRTUAL_ENV", "JAVA_HOME"),
        *(
            "LD_LIBRARY_PATH",
            "LD_PRELOAD",
            "SSL_CERT_FILE",
            "SSL_CERT_DIR",
            "REQUESTS_CA_BUNDLE",
            "CURL_CA_BUNDLE",
        ),
        *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
    )
)
FOR_ALL_BEGIN = ("LC_", "PYTHON", "HEADGATE_", "CUDA_", "NVIDIA_", "OMP_")


def worker_environment(
    own: Mapping[str, str], user: WorkerUser | None, named: Collection[str]
) -> dict[str, str]:
    """own: the agent's. named: by the topology."""
    kept = {
        name: value
        for name, value in own.items()
        if user is None or name in FOR_ALL or name in named or name.startswith(FOR_ALL_BEGIN)
    }
    return {**dict.fromkeys(ONE_THREAD, "1"), **kept}
