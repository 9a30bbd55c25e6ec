"""The far end of a link to a host: reads requests, one JSON line each, and answers in the same way.

It is sent as text and run by the host's own Python, so it imports the standard library only and leaves no file behind
by itself. A request is {"do": …} and its arguments; bytes that belong to it follow its line. An answer begins with
`MARK`, so that what a login shell prints before it is not taken for one. It ends when its input does: with the link.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

# ── Commands of the host, run for a request, and how one of them is refused ─────────────────────────────

INSTALL_S = 1800.0
ANSWER_MOST = 1024 * 1024  # bytes of a log or of a command's output


class NotDone(Exception):
    """What went wrong, and what to try."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


def hint_of(error: OSError) -> str:
    if error.errno in (28, 122):  # ENOSPC, EDQUOT
        return "make room there, or name another directory in hosts.toml"
    return "name another directory in hosts.toml" if error.errno in (13, 30) else ""  # EACCES, EROFS


def run(command: list[str], what: str) -> None:
    """What it makes, workers of any user may read. Raises NotDone with the last line that it printed."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=INSTALL_S,
        umask=0o022,
    )
    if done.returncode:
        lines = [line for line in done.stdout.decode("utf-8", "replace").splitlines() if line.strip()]
        telling = [line for line in lines if "error" in line.lower()] or lines or ["it said nothing"]
        missing = "No matching distribution" in telling[-1]
        hint = f"is its wheel in the wheelhouse, for Python {platform.python_version()}?" if missing else ""
        raise NotDone(f"cannot {what}: {telling[-1].strip()[:300]}", hint)


def told(command: list[str]) -> str:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60
    )
    return done.stdout[-ANSWER_MOST:].decode("utf-8", "replace")


# ── What kind of machine this host is, and whether its disk takes anything ──────────────────────────────


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


# ── Whether a port of one host can be reached from another: listening there, connecting here ────────────


def greet(listening: socket.socket, word: str) -> None:
    """The word to whoever connects, until the socket is closed."""
    while True:
        try:
            peer, _ = listening.accept()
        except OSError:
            return
        with peer:
            peer.settimeout(2.0)
            try:
                peer.sendall(word.encode())
            except OSError:
                continue


def unreached(address: str, port: int, word: str, timeout_s: float) -> str | None:
    """Why this port of that address does not answer with its word; None: it does."""
    try:
        with socket.create_connection((address, port), timeout_s) as peer:
            peer.settimeout(timeout_s)
            got = b""
            while len(got) < len(word):
                part = peer.recv(64)
                if not part:
                    break
                got += part
    except TimeoutError:
        return "no answer"
    except OSError as error:
        return error.strerror or str(error)
    return None if got.decode("utf-8", "replace") == word else "something else listens there"


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """What of a login a service needs that outlives it: no secrets of whoever gave the command."""
    return {k: v for k, v in environment.items() if k in KEPT_WORDS or k.startswith(("LC_", "HEADGATE_"))}


# ── The services of a cluster on this host: units where systemd runs, else keepers of ours ──────────────

UNITS = Path("/etc/systemd/system")
START_S, STOP_S = 10.0, 40.0
KEPT = ("json", "state", "lock")  # files of a service
KEPT_WORDS = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH")


class ServicesHere:
    """home: the cluster's folder on this host, named like the cluster."""

    def __init__(self, home: Path) -> None:
        self.home, self.cluster = home, home.name

    def state(self, name: str) -> dict[str, Any]:
        """What is known of one: does it run, and with which settings?"""
        if self.unit(name).exists():
            shown = told(["systemctl", "show", self.unit(name).name, "-p", "ActiveState,MainPID,NRestarts"])
            lines = dict(line.partition("=")[::2] for line in shown.splitlines())
            text = self.unit(name).read_bytes()
            return {
                "running": lines.get("ActiveState") == "active",
                "pid": int(lines.get("MainPID", "0")),
                "restarts": int(lines.get("NRestarts", "0")),
                "digest": hashlib.sha256(text).hexdigest(),
            }
        keeper = self.keeper(name)
        try:
            state: dict[str, Any] = json.loads((self.home / "services" / f"{name}.state").read_bytes())
        except (FileNotFoundError, ValueError):
            state = {}
        return {**state, "running": bool(keeper), "keeper": keeper}

    def others(self, known: list[str]) -> list[str]:
        there = {path.stem for path in self.home.glob("services/*.json")}
        prefix = f"headgate-{self.cluster}-"
        units = {path.stem.removeprefix(prefix) for path in UNITS.glob(f"{prefix}*.service")}
        return sorted((there | units) - set(known))

    def beside(self) -> list[str]:
        """Other clusters in the same directory that have services."""
        kept = {path.parent.parent.name for path in self.home.parent.glob("*/services/*.json")}
        homes = {path.parent.name for path in self.home.parent.glob("*/current")}
        units = {name for name in homes if any(UNITS.glob(f"headgate-{name}-*.service"))}
        return sorted((kept | units) - {self.cluster})

    def unit(self, name: str) -> Path:
        return UNITS / f"headgate-{self.cluster}-{name}.service"

    def keeper(self, name: str) -> int:
        """The process that holds the service's lock; 0: none."""
        try:
            lock = os.open(self.home / "services" / f"{name}.lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return 0
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(os.read(lock, 32) or b"0")
        finally:
            os.close(lock)
        return 0

    def start(self, name: str, systemd: bool, environment: Mapping[str, str] | None = None) -> int:
        """By a unit that is written already, or by a keeper of ours that outlives this link; its process. Raises
        NotDone."""
        if systemd:
            run(["systemctl", "daemon-reload"], "read the units")
            run(["systemctl", "enable", "--quiet", self.unit(name).name], "enable the unit")
            told(["systemctl", "reset-failed", "--quiet", self.unit(name).name])  # of too many starts before
            run(["systemctl", "restart", self.unit(name).name], "start the unit")
            return int(self.state(name)["pid"])
        self.stop_keeper(name)
        (self.home / "services" / f"{name}.state").unlink(missing_ok=True)
        settings = self.home / "services" / f"{name}.json"
        command = [sys.executable, "-P", str(self.home / "keeper.py"), str(settings)]
        log = os.open(self.home / "log" / f"{name}.keeper", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        streams = [(os.POSIX_SPAWN_DUP2, nothing, 0), *((os.POSIX_SPAWN_DUP2, log, n) for n in (1, 2))]
        os.posix_spawn(
            sys.executable, command, dict(environment or clean(os.environ)), file_actions=streams, setsid=True
        )
        os.close(log)
        os.close(nothing)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self.keeper(name) and (pid := self.state(name).get("pid")):
                return int(pid)
            time.sleep(0.02)
        raise NotDone(f"{name} did not start within {START_S:g} s")

    def stop(self, name: str) -> None:
        """And it does not come again, nor is anything of it kept but its log. Raises NotDone."""
        if self.unit(name).exists():
            run(["systemctl", "disable", "--now", "--quiet", self.unit(name).name], "stop the unit")
            self.unit(name).unlink()
            run(["systemctl", "daemon-reload"], "read the units")
        self.stop_keeper(name)
        for suffix in KEPT:
            (self.home / "services" / f"{name}.{suffix}").unlink(missing_ok=True)

    def stop_keeper(self, name: str) -> None:
        for number, patience_s in ((signal.SIGTERM, STOP_S), (signal.SIGKILL, START_S)):
            keeper = self.keeper(name)
            if not keeper:
                return
            os.kill(keeper, number)
            deadline = time.monotonic() + patience_s
            while self.keeper(name) == keeper and time.monotonic() < deadline:
                time.sleep(0.02)
        if self.keeper(name):
            raise NotDone(f"{name} does not stop")


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

Data = dict[str, Any]

MARK = "headgate: "
RUN_S = 600.0


class HostSide:
    """One link's requests. home: the cluster's folder on this host; said by the first request."""

    def __init__(self, requests: BinaryIO, answers: BinaryIO) -> None:
        self.requests, self.answers = requests, answers
        self.listening: list[socket.socket] = []
        self.lock: int | None = None
        self.services = ServicesHere(Path("/"))

    @property
    def home(self) -> Path:
        return self.services.home

    def serve(self) -> None:
        self.say({"hello": os.getpid()})
        handlers: dict[str, Callable[[Data], Data]] = {
            name.removeprefix("do_"): getattr(self, name) for name in dir(self) if name.startswith("do_")
        }
        for line in self.requests:
            request = json.loads(line)
            body = self.requests.read(request.get("bytes", 0))
            try:
                answer = handlers[request["do"]]({**request, "body": body})
            except NotDone as error:
                answer = {"error": error.what, "hint": error.hint}
            except OSError as error:
                place = f"{error.filename}: " if error.filename else ""
                answer = {"error": f"{place}{error.strerror or error}", "hint": hint_of(error)}
            except subprocess.TimeoutExpired as error:
                answer = {"error": f"{error.cmd} took longer than {error.timeout:g} s"}
            except Exception as error:  # a bug of ours is told at the other end, where somebody looks
                answer = {"error": f"{request['do']} failed: {type(error).__name__}: {error}"}
            self.say(answer)

    def say(self, answer: Data) -> None:
        self.answers.write(f"{MARK}{json.dumps(answer)}\n".encode())
        self.answers.flush()

    # what the host is

    def do_facts(self, request: Data) -> Data:
        """All that a check or a plan needs to know, in one answer."""
        self.services = ServicesHere(Path(request["home"]))
        place = nearest_folder(self.home)
        space = os.statvfs(place)
        return {
            "python": platform.python_version(),
            "executable": sys.executable,
            "machine": platform.machine(),
            "system": platform.system(),
            "identity": f"{boot_id()} {socket.gethostname()}",
            "cores": os.cpu_count() or 1,
            "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
            "uid": os.geteuid(),
            "venv": importable("venv"),
            "ensurepip": importable("ensurepip"),
            "cgroups": control_groups(),
            "systemd": os.path.isdir("/run/systemd/system") and os.geteuid() == 0,
            "free_bytes": space.f_bavail * space.f_frsize,
            "writable": writable_fault(place),
            "versions": self.versions(),
            "current": self.current(),
            "wheels": sorted(path.name for path in self.home.glob("wheels/*.whl")),
            "files": {name: self.digest(name) for name in request.get("files", [])},
            "services": {name: self.services.state(name) for name in request.get("services", [])},
            "others": self.services.others(request.get("services", [])),
            "cluster": self.home.is_dir(),
            "beside": self.services.beside(),
        }

    def versions(self) -> list[str]:
        """Those that were installed to the end."""
        return sorted(path.parent.name for path in self.home.glob("versions/*/complete"))

    def current(self) -> str:
        try:
            return os.path.basename(os.readlink(self.home / "current"))
        except OSError:
            return ""

    def digest(self, name: str) -> str:
        try:
            path = self.home / name
            mode = path.stat().st_mode & 0o777
            return f"{hashlib.sha256(path.read_bytes()).hexdigest()}:{mode:o}"
        except FileNotFoundError:
            return ""

    def do_clock(self, request: Data) -> Data:
        return {"wall_ns": time.time_ns()}

    # ports between hosts

    def do_listen(self, request: Data) -> Data:
        """Listen on each of these ports (0: any) and answer whoever connects with a word."""
        found: list[Data] = []
        for port in request["ports"]:
            try:
                one = socket.create_server(("", port), backlog=64, reuse_port=False)
            except OSError as error:
                found.append({"port": port, "error": error.strerror})
                continue
            self.listening.append(one)
            threading.Thread(target=greet, args=(one, request["word"]), daemon=True).start()
            found.append({"port": one.getsockname()[1]})
        return {"ports": found}

    def do_unlisten(self, request: Data) -> Data:
        for one in self.listening:
            one.close()
        self.listening = []
        return {}

    def do_connect(self, request: Data) -> Data:
        """To each target (address, port, word), all at once: None, or why it cannot be reached."""
        with ThreadPoolExecutor(max(1, len(request["targets"]))) as pool:
            tries = [
                pool.submit(unreached, address, port, word, request["within_s"])
                for address, port, word in request["targets"]
            ]
            return {"results": [one.result() for one in tries]}

    # one at a time

    def do_lock(self, request: Data) -> Data:
        """For as long as this link stands. Refused with the holder's name."""
        self.services = ServicesHere(Path(request["home"]))
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        held = os.open(self.home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = os.read(held, 4096).decode("utf-8", "replace").strip() or "somebody"
            os.close(held)
            raise NotDone(f"locked: {who}", "wait until they have done, or ask them") from None
        os.ftruncate(held, 0)
        os.pwrite(held, f"{request['who']}, process {os.getpid()} here".encode(), 0)
        self.lock = held
        return {}

    # files

    def do_folder(self, request: Data) -> Data:
        """Folders below home, for the owner alone."""
        for name in ["", *request["names"]]:
            (self.home / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        return {}

    def do_put(self, request: Data) -> Data:
        """One file, whole or not at all, with its mode from the first byte on."""
        path = Path(request["path"]) if request.get("outside") else self.home / request["path"]
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.new")
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, request["mode"])
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(request["body"])
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            new.unlink(missing_ok=True)
            raise
        os.replace(new, path)
        return {}

    def do_remove(self, request: Data) -> Data:
        """Files and folders below home; "." is home itself."""
        for name in request["names"]:
            path = Path(os.path.normpath(self.home / name))
            if path != self.home and self.home not in path.parents:
                raise NotDone(f"{path} is not below {self.home}")
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        return {}

    def do_clear(self, request: Data) -> Data:
        """All of the cluster but what shall be kept."""
        kept = [name for name in request["keep"] if (self.home / name).exists()]
        for path in [] if not self.home.is_dir() else list(self.home.iterdir()):
            if path.name not in kept:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        for folder in (self.home, self.home.parent):  # the latter is of all clusters
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        return {}

    # versions

    def do_install(self, request: Data) -> Data:
        """A virtual environment in a folder of its own; marked complete at the very end."""
        folder, began = self.home / "versions" / request["version"], time.monotonic()
        if folder.exists():
            shutil.rmtree(folder)  # half of it, from an installation that was broken off
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        wheels = self.home / "wheels"
        try:
            self.pip_into(folder, wheels, request)
        except (NotDone, OSError, subprocess.TimeoutExpired):
            shutil.rmtree(folder, ignore_errors=True)
            raise
        (folder / "complete").touch()
        return {"seconds": time.monotonic() - began}

    def pip_into(self, folder: Path, wheels: Path, request: Data) -> None:
        pips = sorted(wheels.glob("pip-*.whl"))
        run([sys.executable, "-m", "venv", *(["--without-pip"] if pips else []), str(folder)], "make a venv")
        start = (
            "import runpy,sys;sys.path.insert(0,sys.argv.pop(1));runpy.run_module('pip',run_name='__main__')"
        )
        python = str(folder / "bin" / "python")
        pip = [python, "-c", start, str(pips[-1])] if pips else [python, "-m", "pip"]
        wanted = [request["requirement"], *(["pip"] if pips else [])]  # what packages need is installed by it
        where = ["--no-index"] if request["offline"] else []
        words = ["install", "--quiet", "--no-input", "--no-compile", "--disable-pip-version-check"]
        run(
            [*pip, *words, *where, "--no-cache-dir", "--find-links", str(wheels), *wanted],
            "install",
        )
        run(
            [python, "-P", "-c", "import headgate.dashboards.headgate_command, zmq, pyarrow"],
            "import what was installed",
        )

    def do_switch(self, request: Data) -> Data:
        """`current` leads to this version from one moment to the next."""
        new = self.home / "current.new"
        new.unlink(missing_ok=True)
        os.symlink(os.path.join("versions", request["version"]), new)
        os.replace(new, self.home / "current")
        return {}

    # services

    def do_start(self, request: Data) -> Data:
        return {"pids": {request["service"]: self.services.start(request["service"], request["systemd"])}}

    def do_stop(self, request: Data) -> Data:
        self.services.stop(request["service"])
        return {}

    # for people

    def do_logs(self, request: Data) -> Data:
        """The last lines of a service's log."""
        name, lines = request["service"], request["lines"]
        if self.services.unit(name).exists():
            return {
                "text": told(
                    ["journalctl", "-u", self.services.unit(name).name, "-n", str(lines), "--no-pager"]
                )
            }
        path = self.home / "log" / name
        try:
            with open(path, "rb") as file:
                file.seek(max(0, path.stat().st_size - ANSWER_MOST))
                text = file.read().decode("utf-8", "replace")
        except FileNotFoundError:
            raise NotDone(f"there is no log of {name}", "headgate cluster up") from None
        return {"text": "".join(text.splitlines(True)[-lines:])}

    def do_exec(self, request: Data) -> Data:
        done = subprocess.run(
            request["command"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=RUN_S,
        )
        text = done.stdout[-ANSWER_MOST:].decode("utf-8", "replace")
        return {"text": text, "exit_code": done.returncode}


def main() -> None:
    HostSide(sys.stdin.buffer, sys.stdout.buffer).serve()
