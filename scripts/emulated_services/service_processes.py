"""Processes that go on after the command that started them, found again by a file each.

A number alone may be another process's by now, so a record also has the machine's boot and the process's
start: only what agrees in all three is ended.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import psutil

from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.measuring.model_store import cache_home
from headgate.topology_runtime.tasks.service_addresses import HOST

LOOK_EVERY_S = 0.05
PACKAGES = Path(__file__).resolve().parents[1]  # where the processes find this package
TERM_PATIENCE_S = 60.0  # the emulator writes its tables before it goes


class ProcessRecord(msgspec.Struct, frozen=True):
    """One process. `started`: by the kernel's clock, in its ticks where there is /proc."""

    name: str
    pid: int
    boot: str
    started: str
    log: str


def boot() -> str:
    """Names this start of the machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return str(psutil.boot_time())


def started(pid: int) -> str | None:
    """When the process began; None when it is gone (or only waits to be reaped)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return None if fields[0] in (b"Z", b"X") else fields[19].decode()
    except (FileNotFoundError, ProcessLookupError):
        if os.path.exists("/proc/self/stat"):
            return None
    try:
        return str(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def lives(record: ProcessRecord) -> bool:
    return record.boot == boot() and record.started == started(record.pid)


def spawn(
    name: str,
    command: Sequence[str],
    directory: Path,
    user: str | None = None,
    env: Mapping[str, str] | None = None,
) -> ProcessRecord:
    """Start a process of its own session that writes to `NAME.log`; its record is on disk on return.
    `user`: whose it is; None means ours. `env`: added to our environment."""
    log = directory / f"{name}.log"
    found = os.pathsep.join(filter(None, (str(PACKAGES), os.environ.get("PYTHONPATH"))))
    with open(log, "wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": found, **(env or {})},
            cwd=directory,
            user=user,
            group=None if user is None else pwd.getpwnam(user).pw_gid,
            extra_groups=None if user is None else [],
        )
    process.returncode = 0  # it is not ours to wait for: no warning when this object goes
    record = ProcessRecord(name, process.pid, boot(), started(process.pid) or "", str(log))
    write(_file(directory, name), msgspec.json.encode(record))
    return record


def write(path: Path, data: bytes) -> None:
    """The file whole or not at all."""
    part = path.with_name(f".{path.name}")
    part.write_bytes(data)
    part.replace(path)


def records(directory: Path) -> list[ProcessRecord]:
    """Every record there is, also of what has ended."""
    found = []
    for path in sorted(directory.glob("*.pid.json")):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=ProcessRecord))
        except msgspec.DecodeError as error:
            raise HeadgateError(
                f"{path} is no record of a process", hint="delete it", cause=str(error)
            ) from error
    return found


def end(record: ProcessRecord, directory: Path, by: signal.Signals = signal.SIGTERM) -> bool:
    """End exactly this process, asked with signal `by`, and forget it; whether it lived."""
    lived = lives(record)
    if lived:
        _signal(record, by)
        give_up_s = time.monotonic() + TERM_PATIENCE_S
        while lives(record) and time.monotonic() < give_up_s:
            reap(record.pid)
            time.sleep(LOOK_EVERY_S)
        _signal(record, signal.SIGKILL)
    reap(record.pid)
    _file(directory, record.name).unlink(missing_ok=True)
    return lived


def kill(record: ProcessRecord) -> None:
    """SIGKILL for the process and all that it started; returns when all are gone. A group is not enough:
    Postgres gives each of its processes a session of its own."""
    if not lives(record):
        return
    leader = psutil.Process(record.pid)
    family = [leader, *leader.children(recursive=True)]
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(family, timeout=TERM_PATIENCE_S)


def reap(pid: int) -> None:
    """If it is a child of ours, let the kernel forget it."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def last_words(record: ProcessRecord) -> str:
    """The last line of its log."""
    lines = [line for line in Path(record.log).read_text("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def _signal(record: ProcessRecord, number: signal.Signals) -> None:
    if lives(record):
        try:
            os.kill(record.pid, number)
        except ProcessLookupError:
            return


def _file(directory: Path, name: str) -> Path:
    return directory / f"{name}.pid.json"


# ── Azurite, Microsoft's emulator of Azure's storage (an npm package): installed once, into the cache ───

PACKAGE = "azurite@3"
INSTALL_LIMIT_S = 300.0
KEEP_ALIVE_S = 600  # its own 5 s also run while it saves: connections in use are cut then
EMBEDDED = "`scripts/services start --embedded` needs no Node"


def folder() -> Path:
    return cache_home() / "headgate" / "services" / "node"


def script() -> Path:
    """What node runs."""
    return folder() / "node_modules" / "azurite" / "dist" / "src" / "azurite.js"


def installed() -> bool:
    return script().is_file()


def node() -> str:
    """The `node` of this machine. HeadgateError when there is none."""
    return _found("node")


def install() -> None:
    """Get the package with npm (20 s, 190 MB). HeadgateError with npm's last words."""
    npm = _found("npm")
    folder().mkdir(parents=True, exist_ok=True)
    command = [npm, "install", "--prefix", str(folder()), "--no-audit", "--no-fund", "--no-save", PACKAGE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT_S)
    except subprocess.TimeoutExpired as error:
        what = f"npm did not install {PACKAGE} within {INSTALL_LIMIT_S:g} s"
        raise HeadgateError(what, hint=EMBEDDED) from error
    if done.returncode or not installed():
        last = [line for line in done.stderr.splitlines() if line.strip()][-3:]
        raise HeadgateError(f"npm could not install {PACKAGE}", cause="\n  ".join(last), hint=EMBEDDED)


def command(data: Path, blob_port: int, queue_port: int, table_port: int) -> list[str]:
    """The emulator on loopback, its data under `data`; the SDKs may be newer than it."""
    ports = {"blob": blob_port, "queue": queue_port, "table": table_port}
    places = [f"--{name}{end}" for name in ports for end in ("Host", "Port")]
    values = [value for port in ports.values() for value in (HOST, str(port))]
    pairs = [word for pair in zip(places, values, strict=True) for word in pair]
    flags = ["--silent", "--disableTelemetry", "--skipApiVersionCheck"]
    for name in ("blob", "table"):
        flags += [f"--{name}KeepAliveTimeout", str(KEEP_ALIVE_S)]
    return [node(), str(script()), *flags, "--location", str(data), *pairs]


def _found(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise HeadgateError(f"there is no {name} on this machine, and azurite needs Node", hint=EMBEDDED)
    return path
