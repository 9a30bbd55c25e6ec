"""A folder of all wheels that headgate needs, fetched once for each state of its dependencies."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

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
