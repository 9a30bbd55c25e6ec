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
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

from headgate.dashboards.cluster.on_host.doing import ANSWER_MOST, NotDone, hint_of, run, told
from headgate.dashboards.cluster.on_host.machine import (
    boot_id,
    control_groups,
    importable,
    nearest_folder,
    writable_fault,
)
from headgate.dashboards.cluster.on_host.ports_here import greet, unreached
from headgate.dashboards.cluster.on_host.services_here import ServicesHere

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
        run([python, "-P", "-c", "import headgate.dashboards.cli, zmq, pyarrow"], "import what was installed")

    def do_switch(self, request: Data) -> Data:
        """`current` leads to this version from one moment to the next."""
        new = self.home / "current.new"
        new.unlink(missing_ok=True)
        os.symlink(os.path.join("versions", request["version"]), new)
        os.replace(new, self.home / "current")
        return {}

    # services

    def do_start(self, request: Data) -> Data:
        return {"pid": self.services.start(request["service"], request["systemd"])}

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
