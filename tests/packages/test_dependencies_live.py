"""What code needs is installed on the host, once per package, from wheels that travel in it."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import signal
import socket
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from package_made import folder
from patience import within
from shipped_hosts import Hosts

pytestmark = pytest.mark.live


def wheel_of(where: Path, name: str, files: dict[str, bytes]) -> tuple[Path, str]:
    """A wheel as the format asks for it; the line that requires it."""
    info = f"{name}-1.0.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode()
    given = {**files, f"{info}/METADATA": metadata,
             f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}  # fmt: skip
    digests = {
        k: base64.urlsafe_b64encode(hashlib.sha256(v).digest()).rstrip(b"=").decode()
        for k, v in given.items()
    }
    record = "".join(f"{k},sha256={digests[k]},{len(v)}\n" for k, v in given.items()) + f"{info}/RECORD,,\n"
    where.mkdir(parents=True, exist_ok=True)
    path = where / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as made:
        for file, data in {**given, f"{info}/RECORD": record.encode()}.items():
            made.writestr(file, data)
    return path, f"{name}==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """The code's `loud` comes from a distribution that no host has."""
    made = Hosts(tmp_path)
    (made.code / "shipped_words.py").write_text("from shipped_dep import loud\n")
    yield made
    made.close()


def requiring(hosts: Hosts, name: str, files: dict[str, bytes], line: str = "") -> Path:
    """The code requires it, and brings its wheel along; where the submitter has it."""
    _, own = wheel_of(hosts.code / "wheels", name, files)
    (hosts.code / "requirements.txt").write_text(line or own)
    return folder(hosts.root / "submitters", files)


DEP = {"shipped_dep/__init__.py": b"def loud(text):\n    return text.upper()\n"}


def submitted(hosts: Hosts, path: Path):
    hosts.start_agent("vm1", "--trust-signer", hosts.root / "ann" / "signing.pub")
    hosts.wait(lambda: "vm1" in hosts.vms())
    signed = ("--ship", "--set", f"sign={hosts.root / 'ann' / 'signing.key'}")
    return hosts.submit(hosts.code / "shipped_flow.py:flow", *signed, path=path)


def test_a_wheel_that_travels_is_installed_and_used(hosts: Hosts) -> None:
    done = submitted(hosts, requiring(hosts, "shipped_dep", DEP))
    assert done.returncode == 0, done.stderr
    shutil.rmtree(hosts.root / "submitters")
    hosts.wait(lambda: len(hosts.noted()) >= 20)
    (package,) = (path for path in (hosts.root / "vm1" / "packages").iterdir() if len(path.name) == 64)
    assert (package / "site" / "shipped_dep" / "__init__.py").exists()
    assert not {path.name for path in package.iterdir()} & {"site.new", "site.work"}


def test_a_wheel_of_another_hash_is_refused_by_the_name_of_its_host(hosts: Hosts) -> None:
    path = requiring(hosts, "shipped_dep", DEP, "shipped_dep==1.0 --hash=sha256:" + "0" * 64 + "\n")
    done = submitted(hosts, path)
    assert done.returncode == 3
    assert "- vm1 does not take package" in done.stderr and "requirements cannot be installed" in done.stderr
    assert "HASH" in done.stderr.upper()


def test_what_is_not_brought_along_is_not_looked_for_elsewhere(hosts: Hosts) -> None:
    path = requiring(hosts, "shipped_dep", DEP)
    shutil.rmtree(hosts.code / "wheels")
    done = submitted(hosts, path)
    assert done.returncode == 3 and "No matching distribution" in done.stderr


def test_a_distribution_that_would_replace_a_module_of_python_is_refused(hosts: Hosts) -> None:
    path = requiring(hosts, "shipped_dep", {**DEP, "csv.py": b"raise SystemExit\n"})
    (path / "csv.py").unlink()
    done = submitted(hosts, path)
    assert done.returncode == 3 and "would replace modules of headgate or Python: csv" in done.stderr


@within(1.0)
def test_an_agent_that_is_killed_leaves_no_installing_process(hosts: Hosts, within_s: float) -> None:
    """pip waits for an index that never answers."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        index = f"http://127.0.0.1:{silent.getsockname()[1]}/simple"
        path = requiring(hosts, "shipped_dep", DEP)
        shutil.rmtree(hosts.code / "wheels")
        signer = hosts.root / "ann" / "signing.pub"
        process = hosts.start_agent("vm1", "--trust-signer", signer, "--set", f"package-index={index}")
        hosts.wait(lambda: "vm1" in hosts.vms())
        signed = ("--ship", "--set", f"sign={hosts.root / 'ann' / 'signing.key'}")
        client = hosts.start_submit(hosts.code / "shipped_flow.py:flow", *signed, path=path)

        def pips() -> list[int]:
            found = []
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit():
                    try:
                        words = (entry / "cmdline").read_bytes()
                    except OSError:
                        continue
                    if b"pip" in words.split(b"\0") and str(hosts.root).encode() in words:
                        found.append(int(entry.name))
            return found

        hosts.wait(lambda: len(pips()) > 0)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        killed = time.monotonic()
        hosts.wait(lambda: pips() == [])
        assert time.monotonic() - killed < within_s
        client.send_signal(signal.SIGINT)  # so that it leaves no folder of its own
        client.communicate()
