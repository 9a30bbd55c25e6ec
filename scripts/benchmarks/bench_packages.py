"""What a package costs whoever checks it, keeps it and unpacks it.

A store as a controller has it (`keep`) and as an agent has it (`unpack`), on the disk of the current folder.
`part`: the costliest part of 256 KiB but the last. `last`: the last part, with which the package gets its name.
`again`: the check of a later life. Milliseconds: median and most of all rounds.
"""
# bench: packages – a package checked, kept and unpacked: the costliest part, the last one, the check of a later life

from __future__ import annotations

import hashlib
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from headgate.topology_runtime.keys.signing_keys import SigningKey
from headgate.topology_runtime.packages import package_building as building
from headgate.topology_runtime.packages.package_archive import Reading
from headgate.topology_runtime.packages.package_manifest import public_of
from headgate.topology_runtime.packages.package_store import PackageStore
from headgate.topology_runtime.wire.messages import PART_BYTES

SHAPES = {
    "a project": (50, 4_000),
    "many files": (4_000, 4_000),
    "large": (8, 8_000_000),
}  # files, bytes of each


def made(folder: Path, files: int, size: int) -> building.Packed:
    secret = hashlib.sha256(b"bench").hexdigest()
    for n in range(files):
        path = folder / "code" / f"d{n % 20}" / f"f{n}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))
    key = SigningKey("bench", public_of(secret), secret)
    return building.build(building.contents_of(folder / "code"), key.secret, folder / "made.package", "0")


def kept(folder: Path, data: bytes, digest: str, unpacks: bool) -> dict[str, float]:
    store, parts = PackageStore(folder, unpacks), []
    store.taken(digest)
    for at in range(0, len(data), PART_BYTES):
        parts.append(took(lambda at=at: store.add(digest, at, data[at : at + PART_BYTES])))
    store.close()
    later = PackageStore(folder, unpacks)
    again = took(lambda: later.manifest(digest))
    return {"part": max(parts[:-1], default=0.0), "last": parts[-1], "again": again}


def took(what: Any) -> float:
    begin = time.perf_counter()
    assert what() is not None
    return 1000 * (time.perf_counter() - begin)


def read(data: bytes) -> bool:
    reading = Reading()
    reading.feed(data)
    return reading.whole


def bench(shape: str, rounds: int) -> dict[str, Any]:
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-packages-") as name:
        packed = made(Path(name), *SHAPES[shape])
        data = packed.path.read_bytes()
        for n in range(rounds):
            figures = {"read": took(lambda: read(data))}
            for kind in ("keep", "unpack"):
                costs = kept(Path(name) / f"{kind}-{n}", data, packed.digest, kind == "unpack")
                figures |= {f"{kind}_{what}": ms for what, ms in costs.items()}
            for what, ms in figures.items():
                found.setdefault(what, []).append(ms)
    costs = {
        what: {"median": statistics.median(all_ms), "max": max(all_ms)} for what, all_ms in found.items()
    }
    return {"shape": shape, "bytes": len(data), "rounds": rounds, **costs}


def packages(rounds: int = 5) -> list[dict[str, Any]]:
    return [bench(shape, rounds) for shape in SHAPES]


BENCHMARKS = {"packages": packages}
