"""Other implementations agree: tar lists what is in a package, sha256sum gives its digest, openssl checks the key."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from package_made import FILES, KEY, built

TOOLS = ("tar", "sha256sum", "openssl")
pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, TOOLS)), reason=f"not installed: {[t for t in TOOLS if not shutil.which(t)]}"
)


def said(*words: str | Path, data: bytes = b"") -> bytes:
    return subprocess.run(words, input=data, capture_output=True, check=True).stdout


def test_tar_unpacks_the_very_files_and_sha256sum_finds_the_digests(tmp_path: Path) -> None:
    packed = built(tmp_path)
    names = said("tar", "-tf", packed.path).decode().split()
    assert names == ["manifest.json", "signature.json", *(f"code/{path}" for path in sorted(FILES))]
    listed = said("tar", "-tvf", packed.path, "--numeric-owner", "--utc").decode()
    assert all(
        line.startswith("-rw-r--r-- 0/0 ") and "1970-01-01 00:00" in line for line in listed.splitlines()
    )
    said("tar", "-xf", packed.path, "-C", tmp_path)
    assert said("sha256sum", tmp_path / "manifest.json").split()[0].decode() == packed.digest
    for file in json.loads((tmp_path / "manifest.json").read_bytes())["files"]:
        assert said("sha256sum", tmp_path / "code" / file["path"]).split()[0].decode() == file["sha256"]
        assert (tmp_path / "code" / file["path"]).read_bytes() == FILES[file["path"]]


def test_openssl_checks_the_signature_and_refuses_another(tmp_path: Path) -> None:
    packed = built(tmp_path)
    said("tar", "-xf", packed.path, "-C", tmp_path)
    signature = json.loads((tmp_path / "signature.json").read_bytes())
    assert signature["signer"] == KEY.public
    der = bytes.fromhex("302a300506032b6570032100" + signature["signer"])  # RFC 8410: an Ed25519 public key
    (tmp_path / "key.der").write_bytes(der)
    (tmp_path / "made.sig").write_bytes(bytes.fromhex(signature["signature"]))
    check = ["openssl", "pkeyutl", "-verify", "-pubin", "-keyform", "DER", "-inkey", str(tmp_path / "key.der"),
             "-rawin", "-in", str(tmp_path / "manifest.json"), "-sigfile", str(tmp_path / "made.sig")]  # fmt: skip
    assert b"Verified Successfully" in said(*check)
    with (tmp_path / "manifest.json").open("ab") as file:
        file.write(b" ")
    assert subprocess.run(check, capture_output=True).returncode != 0
