"""Makes a host as it should be: the steps of `host_changes.py`, one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate.dashboards.cluster.host_board import HostBoard
from headgate.dashboards.cluster.host_changes import MODE, HostChange, HostWanted
from headgate.dashboards.cluster.host_links import LONG_S, HostLink
from headgate.dashboards.cluster.wheels import WheelSet

FOLDERS = ("wheels", "versions", "services", "log")
UNITS = "/etc/systemd/system"


@dataclass
class HostApplied:
    """pids: of the services that were started. install_s: what pip took."""

    pids: dict[str, int] = field(default_factory=dict)
    install_s: float = 0.0


async def apply(
    link: HostLink, wanted: HostWanted, steps: tuple[HostChange, ...], wheels: WheelSet, board: HostBoard
) -> HostApplied:
    """Raises HostFailed; what was there before goes on then: what is not whole is not switched to."""
    done = HostApplied()
    if steps:
        await link.ask("folder", names=FOLDERS)
    for step in steps:
        board.step(link.on.host, step.line())
        if step.thing == "wheels":
            await bring_wheels(link, step.names, wheels, board)
        elif step.thing == "version":
            done.install_s = await install(link, wanted.home, wheels)
        elif step.thing == "file":
            name = step.names[0]
            await link.ask("put", wanted.files[name], path=name, mode=MODE)
        elif step.thing == "current":
            await link.ask("switch", version=wanted.version)
        elif step.thing == "service":
            done.pids[step.names[0]] = await start(link, wanted, step.names[0])
    return done


async def bring_wheels(link: HostLink, names: tuple[str, ...], wheels: WheelSet, board: HostBoard) -> None:
    for number, name in enumerate(names, 1):
        board.step(link.on.host, f"wheel {number} of {len(names)}: {name}")
        await link.ask("put", wheels.others[name].read_bytes(), LONG_S, path=f"wheels/{name}", mode=MODE)


async def install(link: HostLink, home: str, wheels: WheelSet) -> float:
    await link.ask("put", wheels.own.read_bytes(), LONG_S, path=wheels.requirement, mode=MODE)
    requirement = f"{home}/{wheels.requirement}"
    done = await link.ask(
        "install", timeout_s=LONG_S, version=wheels.version, requirement=requirement, offline=wheels.offline
    )
    seconds: float = done["seconds"]
    return seconds


async def start(link: HostLink, wanted: HostWanted, name: str) -> int:
    service = next(one for one in wanted.services if one.name == name)
    if service.unit:
        path = f"{UNITS}/headgate-{wanted.cluster}-{name}.service"
        await link.ask("put", service.unit.encode(), path=path, outside=True, mode=0o644)
    else:
        await link.ask("put", service.settings, path=f"services/{name}.json", mode=MODE)
    started = await link.ask("start", service=name, systemd=bool(service.unit))
    pid: int = started["pid"]
    return pid
