"""What `scripts/services start|stop|status NAME…` does with real services, each in a folder of its name."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from emulated_services import service_processes as processes
from headgate.topology_runtime.commands.output import bar
from headgate.topology_runtime.errors import HeadgateError
from real_services import SERVICES, Service

SETUP = Path(__file__).resolve().parents[1] / "setup"


def start(names: Iterable[str], directory: Path) -> None:
    """All or nothing: what this call has started is ended again when something fails."""
    started: list[Service] = []
    try:
        for name in names:
            service = SERVICES[name](directory / name)
            if service.alive():
                continue
            install(service)
            with bar(f"{name} started"):
                service.start()
            started.append(service)
    except BaseException:
        for service in started:
            service.stop()
        raise


def stop(names: Iterable[str], directory: Path) -> list[Mapping[str, Any]]:
    """One row for each process that was started."""
    rows: list[Mapping[str, Any]] = []
    for name in names:
        service = SERVICES[name](directory / name)
        rows += [
            {"process": record.name, "pid": record.pid, "ended": processes.lives(record)}
            for record in processes.records(service.folder)
        ]
        service.stop()
    return rows


def status(names: Iterable[str], directory: Path) -> list[Mapping[str, Any]]:
    """One row for each that was started and not stopped. `login`: user and password, for loopback only."""
    services = [SERVICES[name](directory / name) for name in names]
    return [
        {
            "service": service.name,
            "address": service.url if service.alive() else None,
            "state": "up" if service.alive() and service.answers_now() else "down",
            "login": ":".join(service.login) if service.login else None,
            "pids": service.pids,
        }
        for service in services
        if processes.records(service.folder)
    ]


def install(service: Service) -> None:
    """Debian's package when it is missing and we are root; what cannot be had says so when it starts."""
    if service.missing() is None or service.debian is None or os.geteuid() != 0:
        return
    with bar(f"Debian's {service.debian} installed"):
        done = subprocess.run(["bash", str(SETUP), "debian", service.debian], stdout=subprocess.DEVNULL)
    if done.returncode:
        raise HeadgateError(
            f"{service.debian} could not be installed", hint=f"apt-get install {service.debian}"
        )
