"""What all real services share: a folder, a port that stays theirs, start, kill, start again, stop."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pwd
import shutil
import signal
import socket
import ssl
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import ClassVar, NamedTuple, Self

from emulated_services import service_processes as processes
from headgate.topology_runtime.errors import Conflict, HeadgateError, InvalidInput
from headgate.topology_runtime.tasks.service_addresses import HOST
from real_services.certificates import Certificates

ANSWER_S = 2.0  # for one try of whether it answers
LOOK_EVERY_S = 0.05
PORTS = "ports.json"  # for a command that finds the service running
READY_PATIENCE_S = 120.0  # Erlang takes 10 s on a busy machine


class Login(NamedTuple):
    user: str
    password: str


class Service(ABC):
    """One service. `folder` keeps its settings, data, log and pid file; `port` 0 means a free one.

    `login`: who may use it; None lets everyone in. `tls`: it speaks TLS only, with the server certificate
    of these; `client_certificates`: and asks for a certificate of theirs.
    """

    name: ClassVar[str]
    debian: ClassVar[str | None] = None  # the package that has it
    module: ClassVar[str | None] = None  # the Python module that has it
    keeps_data: ClassVar[bool] = True  # is what it has confirmed still there after `kill` and `start_again`?
    run_as: ClassVar[str | None] = None  # the user it runs as when we are root
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    default_login: ClassVar[Login | None] = None
    host = HOST

    def __init__(
        self,
        folder: Path,
        port: int = 0,
        *,
        login: Login | None = None,
        tls: Certificates | None = None,
        client_certificates: bool = False,
    ) -> None:
        if client_certificates and tls is None:
            raise InvalidInput(f"{self.name} cannot ask for client certificates without TLS", hint="pass tls")
        self.folder = folder.resolve()
        self.login = login or self.default_login
        self.tls = tls
        self.client_certificates = client_certificates
        self._wanted_port = port
        self._held: dict[str, socket.socket] = {}
        known = self.folder / PORTS
        self._running_ports: dict[str, int] = json.loads(known.read_bytes()) if known.exists() else {}

    # ── what a kind of service says of itself ───────────────────────────────────────────────────

    @abstractmethod
    def commands(self) -> Mapping[str, list[str]]:
        """Its processes by name, in the order in which they start; the last one answers."""

    @abstractmethod
    def answers(self) -> bool:
        """Does it answer in its own protocol? OSError counts as no."""

    @abstractmethod
    def prepare(self) -> None:
        """Write its settings; make its data when there are none."""

    def environment(self) -> Mapping[str, str]:
        """Variables that its processes need beside ours."""
        return {}

    @property
    @abstractmethod
    def url(self) -> str:
        """Its address as clients write it, without a password."""

    # ── what people and tests do with it ────────────────────────────────────────────────────────

    @property
    def port(self) -> int:
        return self.port_of("port")

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{self.host}:{self.port}"

    @property
    def pids(self) -> list[int]:
        """Of the processes that live."""
        return [record.pid for record in processes.records(self.folder) if processes.lives(record)]

    def alive(self) -> bool:
        """Do all its processes live?"""
        found = processes.records(self.folder)
        return bool(found) and all(map(processes.lives, found))

    @property
    def log(self) -> Path:
        """What it wrote since it was started last."""
        return self.folder / f"{self.name}.log"

    def start(self) -> Self:
        """Start it and wait until it answers. Nothing is left when that fails."""
        self.check_installed()
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.pids:
            raise Conflict(f"{self.name} runs already in {self.folder}", hint="stop it first")
        self.own(self.folder)
        try:
            self.prepare()
            self._run()
            ports = {what: held.getsockname()[1] for what, held in self._held.items()}
            processes.write(self.folder / PORTS, json.dumps(ports).encode())
        except BaseException:
            self.stop()
            raise
        return self

    def kill(self) -> None:
        """`kill -9` for all its processes; the port stays reserved and the data stay."""
        for record in self._last_first():
            processes.kill(record)

    def start_again(self) -> None:
        """After `kill` or `stop`: the same settings, port and data."""
        if self.pids:
            self.kill()
        try:
            self._run()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End its processes, asked politely first. The data stay."""
        for record in self._last_first():
            processes.end(record, self.folder, self.stop_signal)

    def close(self) -> None:
        """Stop it and give its port back."""
        self.stop()
        for held in self._held.values():
            held.close()
        self._held.clear()

    def __enter__(self) -> Self:
        return self if self.alive() else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ── for kinds of services ───────────────────────────────────────────────────────────────────

    def port_of(self, what: str) -> int:
        """A port of its own for each `what`, given by the kernel at first sight.

        A socket that is bound and does not listen holds it: the service may bind it as well, but while it
        is down no outgoing connection of this machine gets that port, nor connects to itself there.
        """
        if what not in self._held:
            if what in self._running_ports and self.alive():
                return self._running_ports[what]
            self._held[what] = _hold(self._wanted_port if what == "port" else 0, self.name)
        found: int = self._held[what].getsockname()[1]
        return found

    def own(self, path: Path) -> None:
        """Hand `path` to the user that the service runs as."""
        if (user := self.user()) is not None:
            entry = pwd.getpwnam(user)
            os.chown(path, entry.pw_uid, entry.pw_gid)
            _check_reachable(path, user)

    def user(self) -> str | None:
        return self.run_as if os.geteuid() == 0 else None

    def write(self, name: str, text: str) -> Path:
        """A file of its settings that only the service reads."""
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(text, "utf-8")
        self.own(path)
        return path

    def certificate_files(self, tls: Certificates) -> tuple[Path, Path, Path]:
        """Server certificate, key and authority, as files that the service may read."""
        pairs = (("server.pem", tls.server), ("server.key", tls.server_key), ("ca.pem", tls.authority))
        ours = [self.write(name, file.read_text("ascii")) for name, file in pairs]
        return ours[0], ours[1], ours[2]

    @contextlib.contextmanager
    def connection(self) -> Iterator[socket.socket]:
        """A connection to it, by TLS if it speaks that, for `answers`."""
        with socket.create_connection((self.host, self.port), ANSWER_S) as plain:
            if self.tls is None:
                yield plain
            else:
                with self.tls.client_context().wrap_socket(plain, server_hostname=self.host) as safe:
                    yield safe

    def run(self, command: list[str]) -> None:
        """Run a program of the service to its end, as its user. HeadgateError with what it said when it fails."""
        user = self.user()
        group = None if user is None else pwd.getpwnam(user).pw_gid
        none: list[int] | None = None if user is None else []
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            user=user,
            group=group,
            extra_groups=none,
        )
        if done.returncode:
            raise HeadgateError(f"{self.name}: {Path(command[0]).name} failed", cause=done.stderr.strip())

    @classmethod
    def program(cls, name: str, *folders: str) -> str:
        """Where the program is. HeadgateError when it is not installed."""
        found = shutil.which(name, path=os.pathsep.join([*folders, os.environ.get("PATH", ""), "/usr/sbin"]))
        if found is None:
            raise HeadgateError(
                f"{cls.name}: there is no {name} on this machine",
                hint=f"as root on Debian: scripts/setup debian {cls.debian}"
                if cls.debian
                else "scripts/setup tests",
            )
        return found

    @classmethod
    def check_installed(cls) -> None:
        """HeadgateError that says how to install it when it is missing."""
        if cls.module is not None and importlib.util.find_spec(cls.module) is None:
            raise HeadgateError(
                f"{cls.name}: this Python has no module {cls.module}", hint="scripts/setup tests"
            )

    @classmethod
    def missing(cls) -> str | None:
        """Why it cannot be started here; None when it can."""
        try:
            cls.check_installed()
        except HeadgateError as error:
            return f"{error.what} ({error.hint})"
        return None

    def _last_first(self) -> list[processes.ProcessRecord]:
        """The service before what it needs."""
        return sorted(processes.records(self.folder), key=lambda record: record.name != self.name)

    def _run(self) -> None:
        for name, command in self.commands().items():
            record = processes.spawn(name, command, self.folder, self.user(), self.environment())
        give_up_s = time.monotonic() + READY_PATIENCE_S
        while not self.answers_now():
            processes.reap(record.pid)
            if not processes.lives(record) or time.monotonic() > give_up_s:
                raise HeadgateError(
                    f"{self.name} did not start (its log: {record.log})", cause=processes.last_words(record)
                )
            time.sleep(LOOK_EVERY_S)

    def answers_now(self) -> bool:
        """Whether it answers; no when it cannot be reached."""
        try:
            return self.answers()
        except (OSError, ssl.SSLError):
            return False


def _hold(port: int, name: str) -> socket.socket:
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        held.bind((HOST, port))
    except OSError as error:
        held.close()
        what = f"{name}: port {port} of {HOST} is taken"
        raise Conflict(what, cause=error.strerror, hint="port 0 takes any free one") from error
    return held


def _check_reachable(path: Path, user: str) -> None:
    for parent in path.parents:
        if not parent.stat().st_mode & 0o001:
            raise InvalidInput(
                f"user {user} cannot get to {path}",
                cause=f"{parent} lets nobody else in",
                hint=f"chmod o+x {parent}, or another folder",
            )
