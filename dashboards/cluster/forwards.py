"""Hosts that reach each other through ssh alone: one ssh to each carries its ports, from one machine that reaches all.

Each port of the cluster has one number, and under it, on loopback, every host finds it: where it is listened on, and
on all others a forward of ssh that leads there. So endpoints say the same everywhere. Whoever gives the commands holds
the forwards: what comes from one host goes through there to the other. One that breaks is made again.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from importlib import resources
from pathlib import Path

from headgate.dashboards.cluster.host_facts import HostFailed
from headgate.dashboards.cluster.host_links import ended
from headgate.dashboards.cluster.host_survey import KEEPER
from headgate.dashboards.cluster.hosts_file import ClusterHosts, Reached
from headgate.dashboards.cluster.on_host.host_side import ServicesHere
from headgate.dashboards.cluster.ssh_command import (
    ALIVE_S,
    FAILED,
    command_words,
    environment,
    settings_of,
    why_not,
)
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.platform.addresses import LOOPBACK
from headgate.topology_runtime.platform.disk import write_whole
from headgate.topology_runtime.platform.http_options import settings_folder

NAME, STATE = "forward", "forwards.json"
MARK = b"headgate-forwards"
FIRST_S, MOST_S, WELL_S = (
    0.2,
    10.0,
    30.0,
)  # before it is made again: twice as long each time, until it stands so long
TRIED_S, LOOK_S = 45.0, 0.05
# At the far end. Where nothing is heard for long, the link is dead, but sshd would not know for hours and keep the
# ports: so it is ended, and the next one finds them free.
WATCH = f"""exec sh -c 'echo {MARK.decode()}
while x=$(timeout {4 * ALIVE_S} head -c1); do [ "$x" ] || exit; done
kill $PPID'"""
REMOTE = re.compile(r"remote port forwarding failed for listen port (\d+)")
TAKEN = re.compile(r"bind \[\S+\]:(\d+): Address already in use")


def cluster_folder(cluster: str) -> Path:
    """Where the operator keeps what belongs to a cluster."""
    return settings_folder() / "clusters" / cluster


def ports_of(hosts: ClusterHosts, host: str) -> tuple[int, ...]:
    """Those that are listened on there."""
    c = hosts.controller
    own = (c.port, c.command_port, c.stream_port) if host == c.on.host else ()
    return (*own, *(port for vm in hosts.vms_on(host) for port in vm.worker_ports))


def ports_for(hosts: ClusterHosts, host: str) -> tuple[int, ...]:
    """Those of others that it needs: of the controller for agents, of all workers elsewhere."""
    if not hosts.vms_on(host):
        return ()
    c = hosts.controller
    others = tuple(port for vm in hosts.vms if vm.on.host != host for port in vm.worker_ports)
    return (*((c.port,) if host != c.on.host else ()), *others)


def forward_words(hosts: ClusterHosts, host: str) -> list[str]:
    """ssh's options, seen from the machine that holds the forwards."""
    same = f"{LOOPBACK}:{{0}}:{LOOPBACK}:{{0}}"
    words = ["-o", "ExitOnForwardFailure=yes", "-o", "ControlPath=none"]
    words += [word for port in ports_of(hosts, host) for word in ("-L", same.format(port))]
    return words + [word for port in ports_for(hosts, host) for word in ("-R", same.format(port))]


class Forwards:
    """Of one cluster. state: per host that was tried: "", or why its ports are not carried. on_change: told then."""

    def __init__(self, hosts: ClusterHosts, on_change: Callable[[Forwards, str], None]) -> None:
        self.hosts, self.on_change = hosts, on_change
        self.state: dict[str, str] = {}
        self.far = [on for on in hosts.hosts() if not on.is_local]

    @property
    def tried(self) -> bool:
        return len(self.state) == len(self.far)

    async def hold(self) -> None:
        """Until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for on in self.far:
                group.create_task(self._keep(on))

    async def _keep(self, on: Reached) -> None:
        wait_s = FIRST_S
        while True:
            began = time.monotonic()
            try:
                await self._carry(on)
            except HostFailed as failure:
                self._now(on, failure.line())
            wait_s = FIRST_S if time.monotonic() - began > WELL_S else wait_s
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, MOST_S)

    def _now(self, on: Reached, trouble: str) -> None:
        if self.state.get(on.host) != trouble:
            self.state[on.host] = trouble
            self.on_change(self, on.host)

    async def _carry(self, on: Reached) -> None:
        """As long as it goes. Raises HostFailed at its end."""
        settings = await settings_of(on)
        words = command_words(on, settings, *forward_words(self.hosts, on.host), only=False)
        with tempfile.TemporaryFile() as said:
            process = await asyncio.create_subprocess_exec(
                *dies_with_it(), *words, WATCH,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=said,
                env=environment(), start_new_session=True,
            )  # fmt: skip
            try:
                await self._watch(on, process)
                code = await ended(process)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
                await ended(process)
            said.seek(0)
            text = said.read().decode("utf-8", "replace")
        what, hint = forward_fault(text) or why_not(on, settings, text)
        raise HostFailed(
            what if code == FAILED else f"its forwards ended: {what}", hint=hint, see=on.shell_words()
        )

    async def _watch(self, on: Reached, process: asyncio.subprocess.Process) -> None:
        """Until nothing comes from it any more; it hears of us all the time."""
        assert process.stdin is not None and process.stdout is not None

        async def beat(to: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                while True:
                    to.write(b"x")
                    await to.drain()
                    await asyncio.sleep(ALIVE_S)

        beating = asyncio.create_task(beat(process.stdin))
        try:
            while line := await process.stdout.readline():
                if line.strip() == MARK:  # after what a login shell says
                    self._now(on, "")
        finally:
            beating.cancel()


def forward_fault(said: str) -> tuple[str, str] | None:
    """Why it was no link but a port. Pure."""
    if there := REMOTE.search(said):
        hint = "is it taken there (ss -ltn), or does its sshd allow none (AllowTcpForwarding, PermitListen)?"
        return f"port {there[1]} cannot be forwarded to it", hint
    if here := TAKEN.search(said):
        hint = f"ss -ltnp sport = :{here[1]}; another cluster's, or somebody else holds these forwards"
        return f"port {here[1]} of this machine is taken", hint
    return None


def dies_with_it() -> list[str]:
    """Before a command: it ends with whoever starts it; on Linux. Elsewhere ssh sees the end of its input."""
    return ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []


@contextlib.asynccontextmanager
async def forwarding(hosts: ClusterHosts) -> AsyncIterator[dict[str, str]]:
    """For as long as the block lasts, unless they are held already; why each host that has none has none."""
    if not hosts.only_ssh or holder(hosts).keeper(NAME):
        yield {}
        return
    held = Forwards(hosts, lambda _, __: None)
    task = asyncio.create_task(held.hold())
    try:
        until = time.monotonic() + TRIED_S
        while not held.tried and time.monotonic() < until:
            await asyncio.sleep(LOOK_S)
        yield {on.host: state for on in held.far if (state := held.state.get(on.host, "it does not answer"))}
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


# ── Held beside the commands: a keeper at the operator's side, as for services on hosts without systemd ──


def holder(hosts: ClusterHosts) -> ServicesHere:
    return ServicesHere(cluster_folder(hosts.name))


def hold(hosts: ClusterHosts) -> None:
    """Until the cluster is down; does nothing where they are held as they should be, or need not. Raises
    HeadgateError."""
    if not hosts.only_ssh:
        return
    here = holder(hosts)
    logins = [
        [on.login, on.ssh_port, *forward_words(hosts, on.host)] for on in hosts.hosts() if not on.is_local
    ]
    digest = hashlib.sha256(json.dumps([hosts.file, logins]).encode()).hexdigest()
    now = here.state(NAME)
    if now["running"] and now.get("digest") == digest:
        return
    for folder in ("services", "log"):
        (here.home / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    command = [*dies_with_it(), sys.executable, "-P", "-m", "headgate", "cluster", "forward", hosts.file]
    settings = {"name": NAME, "command": command, "digest": digest, "signal": "SIGTERM"}
    text = resources.files("headgate.dashboards.cluster.on_host").joinpath(KEEPER).read_bytes()
    write_whole(here.home / KEEPER, text)
    write_whole(here.home / "services" / f"{NAME}.json", json.dumps(settings).encode())
    (here.home / STATE).unlink(missing_ok=True)
    here.start(NAME, systemd=False, environment=os.environ)  # ssh is its user's own: agent, settings
    _wait(hosts, here.home)


def _wait(hosts: ClusterHosts, home: Path) -> None:
    """Until every host was tried; a host that has none fails for itself later. Raises HeadgateError."""
    until, far = time.monotonic() + TRIED_S, sum(not on.is_local for on in hosts.hosts())
    while time.monotonic() < until:
        with contextlib.suppress(FileNotFoundError):
            if len(json.loads((home / STATE).read_bytes())) >= far:
                return
        time.sleep(LOOK_S)
    raise HeadgateError("the forwards do not stand", hint=f"tail {home}/log/{NAME}")


def let_go(hosts: ClusterHosts) -> None:
    if hosts.only_ssh:
        holder(hosts).stop(NAME)


def run_forwards(hosts: ClusterHosts) -> None:
    """In the foreground, until a signal."""

    def changed(of: Forwards, host: str) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        sys.stderr.write(f"{stamp} {host}: {of.state[host] or 'its ports are forwarded'}\n")
        sys.stderr.flush()
        with contextlib.suppress(FileNotFoundError):  # nobody waits for it there
            write_whole(holder(hosts).home / STATE, json.dumps(of.state).encode())

    async def held() -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await Forwards(hosts, changed).hold()

    asyncio.run(held())
