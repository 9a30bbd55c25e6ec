"""Certificates as somebody else would make them: by openssl, not by what is tested."""

from __future__ import annotations

import subprocess
from pathlib import Path


def made_by_openssl(folder: Path, names: str, days: int = 9, name: str = "given") -> tuple[Path, Path]:
    """names: as openssl has them, `DNS:page.example,IP:10.0.0.1`. (certificate, key)"""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    openssl(
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", str(days),
        "-subj", "/CN=given", "-addext", f"subjectAltName={names}", "-keyout", str(key), "-out", str(certificate),
    )  # fmt: skip
    key.chmod(0o600)
    return certificate, key


def openssl(*words: str, said: str = "") -> str:
    done = subprocess.run(["openssl", *words], input=said, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout
