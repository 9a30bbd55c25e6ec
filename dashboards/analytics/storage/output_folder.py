"""Where an analysis goes: a folder of its own, held by one process at a time, whose results are replaced as a whole.

Results are made in a draft. To publish them, `analysis.json` is deleted first and comes back last: whoever is cut off
between leaves the earlier analysis or none, never parts of two. The lock is the kernel's (`flock`), so a dead
process holds none; an object store has no such lock, there it is on whoever starts analyses.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path

from headgate.dashboards.analytics.storage.data_folders import DataPlace, place
from headgate.topology_runtime.errors import Conflict, HeadgateError

FOLDER = "analysis"  # holds one folder for each run, beside the runs
LOCK, DRAFT, ANALYSIS = ".lock", "_draft", "analysis.json"
PUBLISHED = ("results", "models", "seasons", "plots", "curated", "report.html")  # and last ANALYSIS


def default_output(traces: Sequence[str]) -> str:
    """`analysis/NAME` beside the only TRACE; of several, or of one elsewhere, a folder of theirs below the present."""
    if len(traces) == 1 and "://" not in traces[0]:
        path = Path(os.path.abspath(traces[0]))
        return str(path.parent / FOLDER / path.name)
    uris = sorted({place(trace).uri for trace in traces})
    mark = blake2b("\n".join(uris).encode(), digest_size=4).hexdigest()
    more = f"-and-{len(uris) - 1}-more" if len(uris) > 1 else ""
    return str(Path(FOLDER).absolute() / f"{place(uris[0]).name}{more}-{mark}")


@contextmanager
def held(to: DataPlace) -> Iterator[None]:
    """The folder is this process's meanwhile. Raises Conflict when it is another's, and says whose."""
    if not to.local:
        yield
        return
    folder = Path(to.path)
    made = _missing(folder)
    fd = _locked(folder)
    try:
        yield
    finally:
        draft = draft_of(to)
        if draft.is_folder():
            draft.delete_folder()
        (folder / LOCK).unlink(missing_ok=True)  # ours still: nobody else can have made another
        os.close(fd)
        for empty in made:  # an analysis that was refused leaves no folder
            with suppress(OSError):
                empty.rmdir()


def _missing(folder: Path) -> list[Path]:
    """The folders on the way to it that are not there, the deepest first."""
    return [path for path in (folder, *folder.parents) if not path.exists()]


def _locked(folder: Path) -> int:
    path = folder / LOCK
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:  # an analysis that was refused has just deleted it
            continue
        except OSError as error:
            raise HeadgateError(
                f"nothing can be written to {folder}",
                cause=error.strerror,
                hint="another folder: --output DIR",
            ) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(fd)
            raise _conflict(folder) from error
        with suppress(FileNotFoundError):
            if os.fstat(fd).st_ino == path.stat().st_ino:
                os.ftruncate(fd, 0)
                os.write(fd, json.dumps(_me()).encode() + b"\n")
                return fd
        os.close(fd)  # its holder ended and deleted it between: once more


def _me() -> dict[str, object]:
    words = " ".join(["headgate", *sys.argv[1:]])
    return {
        "pid": os.getpid(), "host": socket.gethostname(), "since": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "command": words[:500],
    }  # fmt: skip


def _conflict(folder: Path) -> Conflict:
    try:
        who = json.loads((folder / LOCK).read_bytes())
        cause = f"process {who['pid']} on {who['host']} since {who['since']}: {who['command']}"
    except (OSError, ValueError, KeyError, TypeError):
        cause = f"another process holds {folder / LOCK}"
    return Conflict(
        f"another analysis is writing to {folder}",
        cause=cause,
        hint="wait until it has ended, or --output ANOTHER",
    )


def draft_of(to: DataPlace) -> DataPlace:
    """Where results are made."""
    return to / DRAFT


@contextmanager
def drafted(to: DataPlace) -> Iterator[DataPlace]:
    """An empty draft, published in place of the earlier results when the block ends; when it fails, gone."""
    draft = draft_of(to)
    if draft.is_folder():  # of a process that was killed
        draft.delete_folder()
    try:
        yield draft
        publish(to, draft)
    finally:
        if draft.is_folder():
            draft.delete_folder()


def publish(to: DataPlace, draft: DataPlace) -> None:
    """Show what is in the draft in place of all earlier results."""
    if (to / ANALYSIS).is_file():
        (to / ANALYSIS).delete()
    for name in PUBLISHED:
        old = to / name
        if old.is_folder():
            old.delete_folder()
        elif old.is_file():
            old.delete()
        (draft / name).move_to(old)
    (draft / ANALYSIS).move_to(to / ANALYSIS)


@contextmanager
def disk_told(to: DataPlace) -> Iterator[None]:
    """A disk that takes no more is named."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO):
            raise
        raise full(to, os.strerror(error.errno)) from error


def full(to: DataPlace, cause: str) -> HeadgateError:
    """The error of a disk that takes no more."""
    return HeadgateError(
        f"the analysis in {to.path if to.local else to.uri} cannot be written",
        cause=f"{cause} (there, or where Spark puts what does not fit in memory)",
        hint="make room, or --output DIR on another disk",
    )
