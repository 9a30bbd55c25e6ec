"""A store has a package as a whole or not at all, whatever is cut, full, damaged or ended in between."""

from __future__ import annotations

import os
import resource
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from package_made import FILES, digest_of, package_of

from headgate.topology_runtime.errors import Conflict
from headgate.topology_runtime.packages.manifest import BadPackage
from headgate.topology_runtime.packages.store import KEPT_MOST, KEPT_NS, PARTS_MOST, PackageStore

WHOLE = package_of(FILES)
DIGEST = digest_of(WHOLE)
STEP = 1000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PackageStore]:
    made = PackageStore(tmp_path / "store", unpacks=True)
    yield made
    made.close()


def fill(store: PackageStore, data: bytes, digest: str, step: int = STEP) -> bool:
    whole = False
    while not whole:
        at = store.taken(digest)
        whole = store.add(digest, at, data[at : at + step])
        assert whole or store.taken(digest) > at
    return whole


def code_in(store: PackageStore, digest: str = DIGEST) -> dict[str, bytes]:
    root = store.code(digest)
    return {
        path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


def test_a_package_that_came_in_parts_is_there_with_its_files(store: PackageStore) -> None:
    assert store.manifest(DIGEST) is None
    assert fill(store, WHOLE, DIGEST)
    manifest = store.manifest(DIGEST)
    assert manifest is not None and manifest.name == "made"
    assert code_in(store) == FILES
    assert store.read(DIGEST, 0, len(WHOLE) + 1) == WHOLE and store.size(DIGEST) == len(WHOLE)
    assert os.listdir(store.folder / "parts") == []
    assert all(path.stat().st_mode & 0o222 == 0 for path in store.code(DIGEST).rglob("*.py"))


def test_who_comes_there_may_read_it_however_private_its_owner_is(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        store = PackageStore(tmp_path / "store", unpacks=True)
        fill(store, WHOLE, DIGEST)
        store.close()
    finally:
        os.umask(before)
    code = store.code(DIGEST)
    for path in (code.parent, code, *code.rglob("*")):
        readable = 0o555 if path.is_dir() else 0o444
        assert path.stat().st_mode & 0o777 & readable == readable and path.stat().st_mode & 0o022 == 0, path
    assert store.folder.stat().st_mode & 0o777 == 0o711, "by whoever knows which packages there are"
    assert (store.folder / "parts").stat().st_mode & 0o777 == 0o700


def test_two_processes_do_not_share_a_store(store: PackageStore) -> None:
    with pytest.raises(Conflict, match="another process"):
        PackageStore(store.folder, unpacks=True)
    store.close()
    PackageStore(store.folder, unpacks=True).close()


def test_bytes_twice_or_too_early_change_nothing(store: PackageStore) -> None:
    assert not store.add(DIGEST, 100, WHOLE[100:200])
    assert not store.add(DIGEST, 0, WHOLE[:700])
    assert not store.add(DIGEST, 0, WHOLE[:700])
    assert not store.add(DIGEST, 900, WHOLE[900:])
    assert store.taken(DIGEST) == 700
    assert store.add(DIGEST, 700, WHOLE[700:])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.integers(0, len(WHOLE)), st.integers(0, 600))
def test_a_store_that_ends_at_any_byte_goes_on_there_and_never_shows_half(
    tmp_path: Path, at: int, lost: int
) -> None:
    """`lost`: bytes of the part that had not reached the disk."""
    folder = tmp_path / "store"
    shutil.rmtree(folder, ignore_errors=True)
    first = PackageStore(folder, unpacks=True)
    whole = first.add(DIGEST, 0, WHOLE[:at])
    first.close()
    part = folder / "parts" / DIGEST
    if not whole:
        os.truncate(part, max(0, at - lost))
    second = PackageStore(folder, unpacks=True)
    assert (second.manifest(DIGEST) is not None) == whole == (folder / DIGEST).exists() == (at == len(WHOLE))
    if not whole:
        assert second.taken(DIGEST) == max(0, at - lost)
        assert fill(second, WHOLE, DIGEST)
    assert code_in(second) == FILES
    second.close()


def test_a_part_that_was_damaged_begins_anew(store: PackageStore) -> None:
    store.add(DIGEST, 0, WHOLE[:2000])
    store.close()
    part = store.folder / "parts" / DIGEST
    data = bytearray(part.read_bytes())
    data[700] ^= 1
    part.write_bytes(data)
    again = PackageStore(store.folder, unpacks=True)
    assert again.taken(DIGEST) == 0 and part.stat().st_size == 0
    assert fill(again, WHOLE, DIGEST)
    again.close()


def test_a_wrong_byte_costs_what_has_come_and_nothing_else(store: PackageStore) -> None:
    fill(store, WHOLE, DIGEST)
    other = package_of({"b.py": b"2" * 3000})
    store.add(digest_of(other), 0, other[:1000])
    with pytest.raises(BadPackage):
        store.add(digest_of(other), 1000, b"\1" * 1000)
    assert os.listdir(store.folder / "parts") == [] and store.taken(digest_of(other)) == 0
    assert code_in(store) == FILES


@pytest.mark.parametrize("digest", ["", "..", "../../x", "a" * 63, "A" * 64, "a" * 64 + "/x"])
def test_a_name_that_is_no_digest_reaches_no_file(store: PackageStore, digest: str) -> None:
    with pytest.raises(BadPackage):
        store.add(digest, 0, WHOLE)
    assert store.manifest(digest) is None
    assert sorted(os.listdir(store.folder)) == ["parts"]


def test_few_come_at_once_and_one_that_stands_still_makes_way(store: PackageStore) -> None:
    names = [f"{n:064x}" for n in range(PARTS_MOST)]
    for name in names:
        store.taken(name)
    with pytest.raises(Conflict):
        store.taken(DIGEST)
    os.utime(store.folder / "parts" / names[1], (1e9, 1e9))
    assert store.taken(DIGEST) == 0
    assert sorted(os.listdir(store.folder / "parts")) == sorted({*names, DIGEST} - {names[1]})
    store.close()
    again = PackageStore(store.folder, unpacks=True)
    with pytest.raises(Conflict):  # what came in an earlier life counts
        again.taken(names[1])
    again.close()


# ── what happens to it later ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("damage", ["changed", "gone", "link", "archive", "cut"])
def test_what_is_damaged_on_the_disk_is_not_there(store: PackageStore, damage: str) -> None:
    fill(store, WHOLE, DIGEST)
    store.close()
    file, archive = store.code(DIGEST) / "words.py", store.folder / DIGEST / "package.tar"
    if damage == "changed":
        file.chmod(0o644)
        file.write_bytes(file.read_bytes() + b"import evil\n")
    elif damage in ("gone", "link"):
        file.unlink()
        if damage == "link":
            other = store.folder.parent / "same"
            other.write_bytes(FILES["words.py"])
            file.symlink_to(other)
    elif damage == "archive":
        data = bytearray(archive.read_bytes())
        data[-2000] ^= 1
        archive.write_bytes(data)
    else:
        os.truncate(archive, len(WHOLE) - 1)
    again = PackageStore(store.folder, unpacks=True)
    assert again.manifest(DIGEST) is None and not (store.folder / DIGEST).exists()
    assert fill(again, WHOLE, DIGEST) and code_in(again) == FILES
    again.close()


def test_files_that_the_manifest_does_not_name_go(store: PackageStore) -> None:
    """What Python compiled, and what somebody put beside."""
    fill(store, WHOLE, DIGEST)
    store.close()
    code = store.code(DIGEST)
    (code / "pkg" / "__pycache__").mkdir()
    (code / "pkg" / "__pycache__" / "x.pyc").write_bytes(b"")
    (code / "sitecustomize.py").write_bytes(b"")
    (code / "other").symlink_to("/etc")
    again = PackageStore(store.folder, unpacks=True)
    assert again.manifest(DIGEST) is not None and code_in(again) == FILES
    assert not (code / "other").is_symlink() and not (code / "pkg" / "__pycache__").exists()
    again.close()


def test_what_is_old_or_too_many_goes_but_never_what_is_kept(store: PackageStore) -> None:
    made = []
    for n in range(KEPT_MOST + 4):
        data = package_of({"n.py": str(n).encode()})
        made.append(digest_of(data))
        fill(store, data, made[-1], len(data))
        os.utime(store.folder / made[-1], (n + 1e9, n + 1e9) if n < 3 else None)
    old = made[:3]
    gone = store.collect({made[0]})
    assert made[0] not in gone and set(old[1:]) <= set(gone)
    left = {name for name in os.listdir(store.folder) if len(name) == 64}
    assert made[0] in left and made[-1] in left and len(left) == KEPT_MOST + 1
    assert all(store.manifest(digest) is None for digest in gone)
    assert KEPT_NS == 30 * 86_400 * 10**9


def test_a_disk_that_takes_no_more_leaves_no_half_and_it_goes_on_later(tmp_path: Path) -> None:
    """In a process of its own, whose files may not become larger than this."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (2500, resource.RLIM_INFINITY))
            store = PackageStore(tmp_path / "store", unpacks=True)
            try:
                fill(store, WHOLE, DIGEST)
            except OSError:
                full = store.manifest(DIGEST) is None
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                code = 0 if full and store.taken(DIGEST) == 2500 and fill(store, WHOLE, DIGEST) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    left = PackageStore(tmp_path / "store", unpacks=True)
    assert left.manifest(DIGEST) is not None and code_in(left) == FILES
    left.close()


def test_a_last_step_that_failed_is_tried_again(store: PackageStore) -> None:
    """The folder of the unpacked files cannot be made: something of that name is there."""
    (store.folder / f"new-{DIGEST}").write_bytes(b"")
    with pytest.raises(OSError):
        fill(store, WHOLE, DIGEST)
    assert store.manifest(DIGEST) is None
    (store.folder / f"new-{DIGEST}").unlink()
    assert store.taken(DIGEST) == len(WHOLE)
    assert store.add(DIGEST, len(WHOLE), b"") and code_in(store) == FILES
