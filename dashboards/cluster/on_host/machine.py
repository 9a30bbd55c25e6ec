"""What kind of machine this host is, and whether its disk takes anything."""

from __future__ import annotations

import os
from pathlib import Path


def nearest_folder(path: Path) -> Path:
    """Itself, or the one above it that is there."""
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def writable_fault(folder: Path) -> str:
    """Why a file cannot be written there; "": it can."""
    probe = folder / f".headgate-probe-{os.getpid()}"
    try:
        with open(probe, "wb") as file:
            file.write(b"\0" * 65536)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.strerror or str(error)
    finally:
        probe.unlink(missing_ok=True) if os.access(probe, os.F_OK) else None
    return ""


def control_groups() -> str:
    """What keeps a process to its slot here: v2, v1 or none."""
    root = Path("/sys/fs/cgroup")
    if (root / "cgroup.controllers").exists():
        return "v2" if os.access(root, os.W_OK) else "none"
    cpu = root / "cpu"
    return "v1" if cpu.is_dir() and os.access(cpu, os.W_OK) else "none"


def boot_id() -> str:
    """Another one on each machine, and after each start of it."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def importable(name: str) -> bool:
    try:
        __import__(name)
    except ImportError:
        return False
    return True
