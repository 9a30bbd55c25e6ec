"""What a package needs beside its code, installed once per digest: `STORE/DIGEST/site`, there as a whole or not at all.

pip installs wheels alone (nothing of them is run), each by its hash, from those that travel in the package's `wheels/`
or from an index that the agent was given. What stands beside headgate itself is never replaced: the same version is not
installed again, another version is refused, and so is a module that would take the place of one of headgate's or
Python's.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from importlib.machinery import NamespaceLoader, PathFinder
from pathlib import Path

from headgate.topology_runtime.packages.manifest import FAULTS_TOLD, BadPackage, PackageManifest
from headgate.topology_runtime.packages.requirements import missing, normal
from headgate.topology_runtime.packages.store import open_to_readers

SITE, NEW, WORK, LINES, LOG, WHEELS = "site", "site.new", "site.work", "site.txt", "site.log", "wheels"
LIMIT_NS = 600 * 1_000_000_000
LOG_BYTES = 16 * 1024  # of pip's last words


class Install:
    """One pip at work. folder: of the package in the store."""

    def __init__(
        self, digest: str, folder: Path, wheels: Path, index: str, lines: list[str], now_ns: int
    ) -> None:
        """Raises OSError."""
        self.digest, self._folder, self._until_ns = digest, folder, now_ns + LIMIT_NS
        for place in (folder / NEW, folder / WORK):
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
        (folder / LINES).write_text("\n".join(lines) + "\n")
        source = ["--index-url", index] if index else ["--no-index"]
        found = ["--find-links", str(wheels)] if wheels.is_dir() else []
        rules = ["--isolated", "--no-input", "--no-cache-dir", "--disable-pip-version-check", "--quiet"]
        exact = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", str(folder / LINES)]
        words = ["install", *rules, *source, *found, *exact, "--target", str(folder / NEW)]
        module = [
            sys.executable,
            "-P",
            "-m",
            "headgate.topology_runtime.packages.installing",
            str(os.getpid()),
        ]
        with (folder / LOG).open("wb") as log:
            self._process = subprocess.Popen(
                [*module, *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=folder,
                env={**os.environ, "TMPDIR": str(folder / WORK)},
            )  # fmt: skip

    def over(self, now_ns: int) -> bool:
        """Has it ended? Then its folder has its name. Raises BadPackage when it could not, OSError."""
        if self._process.poll() is None:
            if now_ns < self._until_ns:
                return False
            self.end()
            raise BadPackage("its requirements cannot be installed", cause=f"not in {LIMIT_NS // 10**9} s")
        shutil.rmtree(self._folder / WORK, ignore_errors=True)
        if self._process.returncode != 0:
            raise BadPackage("its requirements cannot be installed", cause=self._last_words())
        if taken := displaced(self._folder / NEW):
            raise BadPackage(
                "its requirements would replace modules of headgate or Python", cause=", ".join(taken)
            )
        open_to_readers(self._folder / NEW)
        os.replace(self._folder / NEW, self._folder / SITE)
        return True

    def end(self) -> None:
        """pip and whatever it started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _last_words(self) -> str:
        data = (self._folder / LOG).read_bytes()[-LOG_BYTES:]
        lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
        errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR:")]
        return "; ".join(errors[:3]) or (lines[-1] if lines else f"pip ended {self._process.returncode}")


def needed(manifest: PackageManifest) -> list[str]:
    """The lines that are not satisfied by what stands beside headgate. Raises BadPackage for a conflict."""
    if not manifest.requirements:
        return []
    from importlib.metadata import distributions  # with what reads mails: a tenth of an agent's imports

    beside = {normal(one.metadata["Name"]): one.version for one in distributions() if one.metadata["Name"]}
    lines, faults = missing(manifest.requirements, beside)
    if faults:
        raise BadPackage("its requirements contradict headgate's own", faults=faults[:FAULTS_TOLD])
    return lines


def displaced(site: Path) -> list[str]:
    """Modules in it that stand beside headgate, or in Python, already; of packages that many share, none."""
    found = []
    for entry in sorted(site.iterdir()) if site.is_dir() else ():
        name = entry.name.partition(".")[0]
        if (
            entry.suffix == ".dist-info"
            or not (entry.is_dir() or entry.suffix in (".py", ".so"))
            or name == "bin"
        ):
            continue
        spec = PathFinder.find_spec(name)
        beside = spec is not None and not isinstance(spec.loader, NamespaceLoader) and spec.loader is not None
        if beside or name in sys.stdlib_module_names:
            found.append(name)
    return found
