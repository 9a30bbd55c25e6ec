"""A controller, its agents and code that none of them has: real processes, each with a folder of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from package_made import folder
from real_run import RealRun, headgate

from headgate.topology_runtime.keys import signing_keys
from headgate.topology_runtime.wire.messages import PART_BYTES

FLOW = b"""
from pathlib import Path

from shipped_words import loud
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology

ONE = Static(threads=1, cpu=0.1, memory=0.1)


class Note:
    def __init__(self, folder):
        self.file = Path(folder, "rows")

    def __call__(self, row):
        with self.file.open("a") as file:
            file.write(f"{loud(row[1])} {__file__}\\n")
        return row


def flow():
    return Topology(
        "shipped",
        (
            Task("lines", run="headgate.topology_runtime.tasks.row_sources:FileLines", kind="source", static=ONE,
                 params={"path": "data/lines.txt", "repeat": True}),
            Task("note", run="shipped_flow:Note", params={"folder": FOLDER}, static=ONE),
        ),
        (Edge("lines", "note"),),
    )
"""
CODE = {
    "shipped_words.py": b"def loud(text):\n    return text.upper()\n",
    "data/lines.txt": b"one\ntwo\n",
    "data/large.bin": os.urandom(3 * PART_BYTES) + b"\x90" * PART_BYTES * 2,
}


class Hosts(RealRun):
    """A controller and its agents, each with a folder of its own; the code is in none of them."""

    def __init__(self, root: Path, listen: str | None = None) -> None:
        """listen: an address off loopback."""
        self.elsewhere, self.listen = root / "elsewhere", listen
        self.elsewhere.mkdir()
        super().__init__(root, "ship", 0.4, self.elsewhere)
        self.rows = Path(tempfile.mkdtemp(prefix="headgate-rows-"))  # tasks of any user may write there
        self.rows.chmod(0o777)
        (root / "models").mkdir()
        source = f"FOLDER = {str(self.rows)!r}\n".encode() + FLOW
        self.code = folder(root / "mine", {**CODE, "shipped_flow.py": source})
        signing_keys.make(root / "ann", "ann")
        signing_keys.make(root / "eve", "eve")
        if listen is not None:
            subprocess.run(headgate("keys", "init", self.state / "keys"), check=True, capture_output=True)
        self.start_controller()

    def start_controller(self, *more: str | Path) -> None:
        off = ("--listen", self.listen, "--keys", self.state / "keys") if self.listen is not None else ()
        super().start_controller("--vms", "vm1=2", *off, *more)

    def packed(self) -> Path:
        """The code and its topology, signed by ann."""
        made, topology = self.root / "made.package", self.code / "shipped_flow.py:flow"
        sign = ("--set", f"sign={self.root / 'ann' / 'signing.key'}", "--set", "on-every-host=note.folder")
        words = headgate("package", "build", self.code, "--topology", topology, "--output", made, *sign)
        subprocess.run(words, cwd=self.elsewhere, check=True, capture_output=True, timeout=60)
        return made

    def submit(self, *options: str | Path, path: Path | None = None) -> subprocess.CompletedProcess[str]:
        """path: where the submitter's own Python finds what the code needs."""
        client = self.start_submit(*options, path=path)
        out, said = client.communicate(timeout=90)
        return subprocess.CompletedProcess(client.args, client.returncode, out, said)

    def start_submit(self, *options: str | Path, path: Path | None = None) -> subprocess.Popen[str]:
        given = ("--controller", self.state, "--models", self.root / "models", "--rates", "20")
        here = () if "--package" in options else ("--set", "on-every-host=note.folder")
        words = headgate("submit", *given, *here, *options)
        env = {**os.environ, "PYTHONPATH": str(path or "")}
        pipe = subprocess.PIPE
        return subprocess.Popen(words, cwd=self.elsewhere, stdout=pipe, stderr=pipe, text=True, env=env)

    def log(self, of: str) -> list[str]:
        return (self.root / f"{of}.log").read_text().splitlines(keepends=True)

    def noted(self) -> list[str]:
        path = self.rows / "rows"
        return path.read_text().splitlines() if path.exists() else []

    def close(self) -> None:
        self.end()
        self.wait(control_groups_gone, 5)
        shutil.rmtree(self.rows)


def control_groups_gone() -> bool:
    """Those of agents that were killed: their workers end a moment later."""
    for path in sorted(_groups(), reverse=True):
        for group in (*path.glob("*/"), path):
            with contextlib.suppress(OSError):
                group.rmdir()
    return not _groups()


def _groups() -> list[Path]:
    """Of this process's runs. Groups of others may vanish meanwhile."""
    folders = (Path(folder, name) for folder, names, _ in os.walk("/sys/fs/cgroup") for name in names)
    return [path for path in folders if f"headgate-ship-{os.getpid()}-" in path.name]
