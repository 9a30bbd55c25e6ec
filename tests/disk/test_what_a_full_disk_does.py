"""Logs, counts and words when a disk takes no more: nothing raises, everything is counted and said."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.topology_runtime import logs
from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.disk import DiskTroubles, mount_of
from headgate.topology_runtime.logs import KEPT_BYTES, LogStream, open_log, trim
from headgate.topology_runtime.messages import RootKey, RootPart
from headgate.topology_runtime.worker.finished import RUN_BYTES, FinishedLog
from headgate.topology_runtime.worker.pieces import Finished

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
BROKEN = [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT]


def raising(error: OSError) -> Callable[..., int]:
    def call(*_: object, **__: object) -> int:
        raise error

    return call


def finished(position: int, count: int = 1) -> Finished:
    return RootPart(RootKey(1, 77, 0, 0), Slot("vm1", 0), 0, 0, position, 0, 0, 0), 0, count, 0


def test_printing_to_a_full_disk_raises_nothing_and_says_later_what_is_missing(tmp_path: Path) -> None:
    """A real process with a real limit on the size of its log."""
    code = """
import resource, signal, sys
from headgate.topology_runtime.logs import hold_out
hold_out()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
print("first", file=sys.stderr)
resource.setrlimit(resource.RLIMIT_FSIZE, (6, resource.RLIM_INFINITY))
print("x" * 100, file=sys.stderr)
print("y" * 20000, flush=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print("last", file=sys.stderr)
"""
    log = tmp_path / "log"
    with log.open("wb") as file:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=file, check=False
        )
    assert done.returncode == 0
    assert log.read_text() == "first\n\n[101 bytes of log: the disk took none]\nlast\n"


def test_a_short_write_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fd = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    whole = logs.io.FileIO.write

    class Short(logs.io.FileIO):
        def write(self, data: memoryview) -> int:  # type: ignore[override]
            return whole(self, data[:3])

    stream = type("ShortLog", (LogStream, Short), {})(fd)
    assert stream.write(b"eight be") == 8 and (tmp_path / "log").read_bytes() == b"eight be"
    os.close(fd)


def test_a_log_is_bounded_and_its_end_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST_BYTES", 2 * KEPT_BYTES)
    path = tmp_path / "logs" / "worker-0.log"
    fd = open_log(str(path))
    os.write(fd, b"a" * 2 * KEPT_BYTES)
    trim(str(path))
    assert path.stat().st_size == 2 * KEPT_BYTES, "not before it is too long"
    os.write(fd, b"z")
    trim(str(path))
    os.write(fd, b"goes on")
    os.close(fd)
    assert path.read_bytes() == b"goes on"
    assert (tmp_path / "logs" / "worker-0.log.1").read_bytes() == b"a" * (KEPT_BYTES - 1) + b"z"


def test_a_log_is_cut_even_if_its_end_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST_BYTES", 1)
    path = tmp_path / "log"
    path.write_bytes(b"b" * KEPT_BYTES)
    (tmp_path / "log.1").mkdir()  # cannot be written
    with pytest.raises(OSError, match="directory"):
        trim(str(path))
    assert path.read_bytes() == b""


def test_where_no_log_can_be_had_a_process_has_one_that_drops_everything(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("no folder")
    fd = open_log(str(tmp_path / "logs" / "worker-0.log"))
    assert os.readlink(f"/proc/self/fd/{fd}") == os.devnull
    os.close(fd)


@pytest.mark.parametrize("number", BROKEN)
def test_finished_rows_that_the_disk_does_not_take_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    disk = DiskTroubles()
    log = FinishedLog(str(tmp_path), 2, 5, 77, disk)
    log.append([finished(0)])
    with monkeypatch.context() as broken:
        broken.setattr(os, "pwrite", raising(OSError(number, os.strerror(number))))
        log.append([finished(1, 3), finished(4, 2)])
    assert log.dropped == 5
    (said,) = disk.texts()
    assert os.strerror(number) in said and str(tmp_path) in said and mount_of(tmp_path) in said
    log.append([finished(6)])
    assert disk.texts() == () and log.dropped == 5
    assert (tmp_path / "finished" / "2-5-77.log").stat().st_size == 2 * RUN_BYTES


def test_of_a_write_cut_short_whole_runs_stay_and_the_torn_one_is_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = DiskTroubles()
    log = FinishedLog(str(tmp_path), 2, 5, 77, disk)
    real, pieces = os.pwrite, [RUN_BYTES + 7]

    def short(fd: int, data: memoryview, offset: int) -> int:
        if not pieces:
            raise FULL
        return real(fd, data[: pieces.pop()], offset)

    with monkeypatch.context() as broken:
        broken.setattr(os, "pwrite", short)
        log.append([finished(0), finished(1, 4), finished(5)])
    assert log.dropped == 5
    log.append([finished(6)])
    data = (tmp_path / "finished" / "2-5-77.log").read_bytes()
    positions = [int.from_bytes(data[at + 16 : at + 24], "little") for at in range(0, len(data), RUN_BYTES)]
    assert positions == [0, 6]


def test_a_log_that_cannot_be_made_is_made_later(tmp_path: Path) -> None:
    (tmp_path / "finished").write_text("no folder")
    log = FinishedLog(str(tmp_path), 2, 5, 77, DiskTroubles())
    log.append([finished(0)])
    (tmp_path / "finished").unlink()
    log.append([finished(1)])
    assert log.dropped == 1 and (tmp_path / "finished" / "2-5-77.log").stat().st_size == RUN_BYTES


def test_trouble_is_told_while_it_lasts() -> None:
    disk = DiskTroubles()
    with disk.writing("the tallies", "/some/where"):
        raise FULL
    (text,) = disk.texts()
    assert text == ("the tallies cannot be written: No space left on device (/some/where, on the disk at /)")
    with disk.writing("the tallies", "/some/where"):
        pass
    assert disk.texts() == ()
    with pytest.raises(ValueError, match="no disk"), disk.writing("the tallies", "/some/where"):
        raise ValueError("no disk")
