"""Azurite, Microsoft's emulator of Azure's storage (an npm package): installed once, into the cache."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from headgate.topology_runtime.calibration.store import cache_home
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.services.addresses import HOST

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
