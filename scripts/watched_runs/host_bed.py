"""Several hosts on one machine: network namespaces on a bridge, with processes, folders, a name and sshd of their own.

Everything hangs on processes that die with the test, however that one ends: a namespace ends with its last process, and
its mounts and links with it. What is left, when a kernel is slow, is the link of this machine to the bridge: the next
bed takes those of dead tests away, by their names.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import tomllib
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LINK = "hgbed"  # this machine's end, with the test's process id
UP_S = 120.0
SSHD = "/usr/sbin/sshd"
DIES = ["setpriv", "--pdeathsig", "KILL"]
CONFIG = """\
Port 22
HostKey /run/bed/host_key
AuthorizedKeysFile /run/bed/authorized_keys
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
MaxStartups 100
SetEnv {environment}
"""
INIT = """\
set -e
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
mkdir -p /run/bed /run/sshd
cp {folder}/* /run/bed/
chmod 600 /run/bed/host_key
mkdir /run/seen && mount --bind {bed} /run/seen
mount --bind /run/bed/passwd /etc/passwd
mount -t tmpfs -o mode=755,size={size} tmpfs /var/lib
mount -t tmpfs tmpfs /tmp
mkdir -p {bed} && mount --bind /run/seen {bed}
mkdir /run/ops && chown 1999:1999 /run/ops
{more}
hostname {name}
exec {sshd} -D -e -f /run/bed/sshd_config 2>/run/bed/log
"""


def missing() -> str | None:
    """Why there can be no hosts here."""
    if os.geteuid() != 0:
        return "hosts are network namespaces: they need root"
    tools = [SSHD, "ssh", "ip", "unshare", "nsenter", "setpriv", "ssh-keygen"]
    absent = [tool for tool in tools if shutil.which(tool) is None]
    if absent:
        return f"hosts need {', '.join(absent)} (Debian: openssh-server, iproute2, util-linux)"
    tried = subprocess.run(["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "true"], check=False)
    return "no namespaces can be made here" if tried.returncode else None


def done(*words: str) -> str:
    found = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 0, (words, found.stdout, found.stderr)
    return found.stdout


@dataclass
class BedHost:
    """One host. pid: of its first process, sshd, on this machine."""

    name: str
    address: str
    pid: int
    process: subprocess.Popen[bytes]

    def inside(self, *words: str) -> str:
        """A command run there, as root; what it printed."""
        return done("nsenter", "-t", str(self.pid), "-n", "-m", "-u", "-p", *words)

    def drop_from(self, other: BedHost) -> None:
        """What the other one sends does not arrive here; the other direction goes on."""
        self.inside("iptables", "-A", "INPUT", "-s", other.address, "-j", "DROP")

    def heal(self) -> None:
        self.inside("iptables", "-F", "INPUT")

    def processes(self, containing: str) -> list[int]:
        """Those of this host, by their ids there, whose command line has this in it."""
        listed = self.inside("ps", "-e", "-o", "pid=,args=")
        lines = [line.split(None, 1) for line in listed.splitlines() if containing in line]
        return [int(words[0]) for words in lines]

    def kill(self) -> None:
        """As if its power were cut: nothing says goodbye."""
        self.process.kill()
        self.process.wait(UP_S)


@dataclass
class Bed:
    """All of them, and the home of whoever gives commands: his ssh key and the hosts' keys are in it. folder: the only
    one that all hosts have in common, beside what is not theirs: programs, /root, the tests."""

    folder: Path
    network: str  # 10.x.y
    stack: ExitStack
    switch: int = 0
    hosts: list[BedHost] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def environment(self) -> dict[str, str]:
        """For commands that are given from this machine."""
        kept = {k: v for k, v in os.environ.items() if k not in ("SSH_AUTH_SOCK", "XDG_CONFIG_HOME")}
        path = f"{self.folder / 'bin'}:{kept.get('PATH', '/usr/bin:/bin')}"
        return {**kept, "HOME": str(self.home), "PATH": path, "COLUMNS": "200", "NO_COLOR": "1"}

    def ssh_home(self) -> None:
        """ssh asks the system where its user's home is, not HOME: here it is told."""
        own, bin = self.home / ".ssh", self.folder / "bin"
        (own / "bed_config").write_text(
            f"Include {own}/config\nHost *\n  UserKnownHostsFile {own}/known_hosts\n"
            f"  IdentityFile {own}/id_ed25519\n"
        )
        bin.mkdir()
        (bin / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {own}/bed_config "$@"\n')
        (bin / "ssh").chmod(0o755)

    def add(
        self,
        name: str,
        size: str = "4G",
        more: str = "",
        has: Mapping[str, str] | None = None,
        sees: Mapping[str, str] | None = None,
    ) -> BedHost:
        """One more host. size: of its /var/lib; more: commands before its sshd; has: programs in its /run/bed; sees:
        what its logins have in their environment."""
        number = len(self.hosts) + 1
        address = f"{self.network}.{number}"
        own = self.folder / name
        own.mkdir()
        done("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(own / "host_key"))
        seen = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", **(sees or {})}
        words = " ".join(f"{key}={value}" for key, value in seen.items())
        (own / "sshd_config").write_text(CONFIG.format(environment=words))
        shutil.copy(self.home / ".ssh" / "id_ed25519.pub", own / "authorized_keys")
        for program, text in (has or {}).items():
            (own / program).write_text(text)
            (own / program).chmod(0o755)
        (own / "passwd").write_text(
            "root:*:0:0:root:/root:/bin/sh\nsshd:*:998:65534::/run/sshd:/usr/sbin/nologin\n"
            "nobody:*:65534:65534::/nonexistent:/usr/sbin/nologin\nops:*:1999:1999::/run/ops:/bin/sh\n"
        )
        script = INIT.format(folder=own, bed=self.folder, size=size, name=name, more=more, sshd=SSHD)
        spaces = ["--net", "--mount", "--uts", "--pid", "--fork", "--kill-child"]
        process = subprocess.Popen([*DIES, "unshare", *spaces, "sh", "-c", script], stdin=subprocess.DEVNULL)
        self.stack.callback(process.wait, UP_S)
        self.stack.callback(process.kill)
        host = BedHost(name, address, first_child(process.pid), process)
        self.hosts.append(host)
        self._plug(host, number)
        self.trust(host)
        wait_for(lambda: answers(address), f"sshd of {name}")
        return host

    def _plug(self, host: BedHost, number: int) -> None:
        of, here = ["nsenter", "-t", str(self.switch), "-n"], ["nsenter", "-t", str(host.pid), "-n"]
        port = f"port{number}"
        done(*of, "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(host.pid))
        done(*of, "ip", "link", "set", port, "master", "bridge0", "up")
        done(*here, "ip", "address", "add", f"{host.address}/24", "dev", "eth0")
        done(*here, "ip", "link", "set", "eth0", "up")
        done(*here, "ip", "link", "set", "lo", "up")

    def trust(self, host: BedHost, key: Path | None = None) -> None:
        """Its key among the known hosts, in place of the one before."""
        known = self.home / ".ssh" / "known_hosts"
        others = known.read_text().splitlines() if known.exists() else []
        kept = [line for line in others if line.split()[0] != host.address]
        kind, public, *_ = (key or self.folder / host.name / "host_key.pub").read_text().split()
        known.write_text("\n".join([*kept, f"{host.address} {kind} {public}"]) + "\n")


@contextmanager
def bed(folder: Path) -> Iterator[Bed]:
    """A network without hosts yet; all of it is gone at the end."""
    clear_leftovers()
    number = os.getpid() % 12_000
    with ExitStack() as stack:
        made = Bed(folder, f"10.{200 + number // 250}.{number % 250}", stack)
        (made.home / ".ssh").mkdir(parents=True, mode=0o700)
        key = made.home / ".ssh" / "id_ed25519"
        done("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "bed", "-f", str(key))
        made.ssh_home()
        switch = subprocess.Popen([*DIES, "unshare", "--net", "sleep", "infinity"], stdin=subprocess.DEVNULL)
        stack.callback(switch.wait, UP_S)
        stack.callback(switch.kill)
        made.switch = switch.pid
        wait_for(lambda: own_network(switch.pid), "the switch")
        link, of = f"{LINK}{os.getpid()}", ["nsenter", "-t", str(switch.pid), "-n"]
        stack.callback(subprocess.run, ["ip", "link", "delete", link], capture_output=True, check=False)
        done("ip", "link", "add", link, "type", "veth", "peer", "name", "uplink", "netns", str(switch.pid))
        done(*of, "ip", "link", "add", "bridge0", "type", "bridge")
        done(*of, "ip", "link", "set", "bridge0", "up")
        done(*of, "ip", "link", "set", "uplink", "master", "bridge0", "up")
        done("ip", "address", "add", f"{made.network}.254/24", "dev", link)
        done("ip", "link", "set", link, "up")
        yield made


def leftovers() -> list[str]:
    """Links of beds whose test is not there any more."""
    names = [line.split(": ")[1].partition("@")[0] for line in done("ip", "-o", "link").splitlines()]
    return [n for n in names if n.startswith(LINK) and not Path(f"/proc/{n.removeprefix(LINK)}").exists()]


def clear_leftovers() -> None:
    for name in leftovers():
        subprocess.run(["ip", "link", "delete", name], capture_output=True, check=False)


def own_network(pid: int) -> bool:
    return os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")


def first_child(pid: int) -> int:
    """The first process of a namespace that `unshare` makes, once it has a network of its own."""
    found: list[str] = []

    def there() -> bool:
        try:
            found[:] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except FileNotFoundError:
            return False
        return bool(found) and own_network(int(found[0]))

    wait_for(there, "a host's first process")
    return int(found[0])


def answers(address: str) -> bool:
    try:
        with socket.create_connection((address, 22), 0.5) as peer:
            return peer.recv(3) == b"SSH"
    except OSError:
        return False


def wait_for(there: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + UP_S
    while not there():
        assert time.monotonic() < deadline, f"{what} did not come within {UP_S:g} s"
        time.sleep(0.02)


# ── A cluster on hosts of a bed (host_bed.py), and whoever gives commands to it ─────────────────────────

HEADGATE = [sys.executable, "-P", "-m", "headgate"]
PYTHON = Path(sys.base_prefix) / "bin" / "python3"
CLUSTER_S = 300.0
SLOT = {"cores": 0.2, "memory_bytes": 268435456, "machine": "any"}

FLOW = """
from headgate.topology_runtime.api.builder import topology
from headgate.topology_runtime.tasks.row_sources import Counter
from headgate.topology_runtime.tasks.sinks import CollectToFile

def double(row):
    return row * 2

flow = topology("doubles")
flow.source("numbers", Counter) >> flow.task("double", double) >> flow.task("store", CollectToFile, path={path!r})
"""


class Cluster:
    """Its hosts, its file, and whoever gives commands."""

    def __init__(self, made: Bed, wheels: Path) -> None:
        self.bed, self.wheels = made, wheels
        self.name = f"bed{os.getpid()}"
        self.file = made.folder / "hosts.toml"
        self.said = ""  # by the first `up`

    def host(self, name: str) -> BedHost:
        return next(host for host in self.bed.hosts if host.name == name)

    def write(self, *vms: str, slots: int = 2) -> None:
        lines = ['schema = "headgate/hosts/v1"', f'name = "{self.name}"', "[defaults]", 'user = "root"']
        lines += [f"slots = {slots}", "slot_cores = 0.2", 'slot_memory = "256M"', f'python = "{PYTHON}"']
        lines += ["[controller]", f'host = "{self.bed.hosts[0].address}"']
        for vm in vms:
            lines += ["[[vm]]", f'name = "{vm}"', f'host = "{self.host(vm).address}"']
        self.file.write_text("\n".join(lines) + "\n")

    def run(self, *words: str, code: int | None = 0, within: Path | None = None) -> str:
        """`headgate WORDS`; what it printed."""
        ran = subprocess.run(
            [*HEADGATE, *words], env=self.bed.environment(), cwd=within or self.bed.folder,
            capture_output=True, text=True, timeout=CLUSTER_S,
        )  # fmt: skip
        assert code is None or ran.returncode == code, (
            f"{words} ended {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
        )
        return ran.stdout + (ran.stderr if code is None or code else "")

    def cluster(self, command: str, *words: str, code: int | None = 0) -> str:
        return self.run("cluster", command, str(self.file), *words, code=code)

    def up(self, *words: str, code: int | None = 0) -> str:
        return self.cluster("up", "--set", f"wheelhouse={self.wheels}", *words, code=code)

    def services(self) -> dict[str, dict[str, Any]]:
        found = json.loads(self.cluster("status", "-o", "json", code=None).partition("error[")[0])
        return {row["service"]: row for row in found["services"]}

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("status", "-o", "json"))
        return found

    def submit(self, name: str, rows_before: int = 500, rate_tps: int = 100) -> Path:
        """A topology that doubles numbers, offered so many a second; where its rows arrive, some of them already."""
        folder = self.bed.folder / name
        rows = self.bed.folder / f"{name}.jsonl"
        (folder / "models").mkdir(parents=True)
        (folder / "flow.py").write_text(FLOW.format(path=str(rows)))
        rows.touch()
        rows.chmod(0o666)  # tasks are of a user of their own, and on each host of another
        self.bed.folder.chmod(0o755)
        for task in ("double", "store"):
            points = [{"threads": n, "rate_tps": 40.0, "cpu": 0.5, "memory": 0.1} for n in (1, 2)]
            model = {"schema": "headgate/model/v1", "task": task, "slot": SLOT, "points": points}
            (folder / "models" / f"{task}.json").write_text(json.dumps(model))
        options = [
            "--models",
            f"{name}/models",
            "--rates",
            str(rate_tps),
            "--set",
            "on-every-host=store.path",
        ]
        self.run("submit", f"{name}/flow.py:flow", *options)
        wait_for(lambda: arrived(rows) > rows_before, f"{rows_before} rows")
        return rows

    def stopped(self, rows: Path) -> Counter[int]:
        """The run's rows, once it has ended and the controller waits for the next."""
        ran_s = self.status()["seconds"]
        self.run("stop")

        def waits() -> bool:
            try:
                now = json.loads(self.run("status", "-o", "json", code=None).partition("error[")[0] or "{}")
            except json.JSONDecodeError:
                return False
            return bool(now) and now["topology"] is None and now["seconds"] <= ran_s

        wait_for(waits, "a controller that waits for the next topology")
        return Counter(int(line) for line in rows.read_text().split())

    def other_build(self) -> Path:
        """A wheel that differs from the one that was built, but in nothing that matters."""
        own = next((self.bed.home / ".cache" / "headgate" / "wheels").glob("*/headgate-*.whl"))
        other = self.bed.folder / "other" / own.name
        other.parent.mkdir(exist_ok=True)
        shutil.copy(own, other)
        with zipfile.ZipFile(other, "a") as wheel:
            wheel.writestr("headgate_other_build.py", "")
        return other


def arrived(rows: Path) -> int:
    return rows.read_text().count("\n") if rows.exists() else 0


# ── A folder of all wheels that headgate needs, fetched once for each state of its dependencies ─────────

ROOT = Path(__file__).resolve().parents[2]
FETCH_S = 300.0


def wheelhouse() -> Path:
    """Raises CalledProcessError when no index is reached."""
    needed: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    digest = hashlib.sha256("\n".join([sys.version, *needed]).encode()).hexdigest()[:16]
    kept = ROOT / ".venv" / f"wheelhouse-{digest}"
    if not kept.is_dir():
        new = kept.with_name(f"{kept.name}.{os.getpid()}")
        words = ["download", "--quiet", "--only-binary", ":all:", "--dest", str(new)]
        try:
            subprocess.run(
                [sys.executable, "-P", "-m", "pip", *words, *needed, "pip"],
                check=True, timeout=FETCH_S, capture_output=True,
            )  # fmt: skip
            if not kept.is_dir():
                os.replace(new, kept)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return kept
