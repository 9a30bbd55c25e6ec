"""What is installed on hosts: a wheel of headgate, and those of what it needs from a folder, or from an index."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from headgate.topology_runtime.errors import HeadgateError, InvalidInput

PACKAGES = ("agent", "controller", "dashboards", "scripts/lab", "topology_runtime")
WHEEL = re.compile(r"headgate-([^-]+)-py3-none-any\.whl")
BUILD_S = 300.0
LEFT_OUT = {"__pycache__"}


@dataclass(frozen=True)
class WheelSet:
    """version: a name that tells two builds of headgate apart. own: headgate's wheel; others: of the wheelhouse, or of
    an index where there are none."""

    version: str
    own: Path
    others: dict[str, Path] = field(default_factory=dict)

    @property
    def offline(self) -> bool:
        return bool(self.others)

    @property
    def requirement(self) -> str:
        """Where its own wheel is, below the cluster's folder: two builds of one version have one file name."""
        return f"wheels/{self.version}/{self.own.name}"


def wheel_set(wheel: Path | None, wheelhouse: Path | None) -> WheelSet:
    """Of what is told, else of the source tree that this is run from. Raises InvalidInput."""
    others = {} if wheelhouse is None else {path.name: path for path in sorted(wheelhouse.glob("*.whl"))}
    if wheelhouse is not None and not others:
        raise InvalidInput(
            f"there are no wheels in {wheelhouse}", hint=f"pip download --dest {wheelhouse} headgate"
        )
    own = wheel or built_wheel(wheelhouse)
    match = WHEEL.fullmatch(own.name)
    if match is None or not own.is_file():
        raise InvalidInput(f"{own} is no wheel of headgate", hint="headgate-VERSION-py3-none-any.whl")
    others = {name: path for name, path in others.items() if not WHEEL.fullmatch(name)}
    digest = hashlib.sha256(own.read_bytes()).hexdigest()
    return WheelSet(f"{match[1]}-{digest[:10]}", own, others)


def source_tree() -> Path | None:
    """The tree that this runs from, when it is one."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "pyproject.toml").is_file() and (root / "agent").is_dir() else None


def built_wheel(wheelhouse: Path | None) -> Path:
    """Of the source tree; built once for each state that it is in. Raises InvalidInput, HeadgateError."""
    root = source_tree()
    if root is None:
        raise InvalidInput(
            "this headgate does not run from its source tree", hint="give it: --set wheel=headgate-….whl"
        )
    kept = cache_folder() / digest_of_tree(root)
    found = next(kept.glob("headgate-*.whl"), None)
    return found or build(root, kept, wheelhouse)


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headgate" / "wheels"


def build(root: Path, into: Path, wheelhouse: Path | None) -> Path:
    new = into.with_name(f"{into.name}.{os.getpid()}")
    new.mkdir(parents=True)
    words = [
        "wheel",
        "--quiet",
        "--no-deps",
        "--disable-pip-version-check",
        "--wheel-dir",
        str(new),
        str(root),
    ]
    words += ["--find-links", str(wheelhouse)] if wheelhouse is not None else []
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "pip", *words],
            capture_output=True, text=True, timeout=BUILD_S, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if done.returncode:
            cause = done.stderr.strip()[-500:]
            raise HeadgateError(
                "headgate's wheel cannot be built", cause=cause, hint="give it: --set wheel=headgate-….whl"
            )
        if not into.exists():
            os.replace(new, into)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return next(into.glob("headgate-*.whl"))


def digest_of_tree(root: Path) -> str:
    """Of all that goes into the wheel."""
    digest = hashlib.sha256()
    files = [root / "pyproject.toml", root / "README.md", root / "LICENSE"]
    for package in PACKAGES:
        files += sorted(path for path in (root / package).rglob("*") if path.is_file())
    for path in files:
        if LEFT_OUT.isdisjoint(path.parts):
            digest.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:24]
