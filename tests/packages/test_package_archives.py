"""An archive is the one that its manifest determines, or it is refused at its first wrong byte."""

from __future__ import annotations

import hashlib
import io
import os.path
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from package_made import FILES, KEY, SECRET, archive_of, folder, package_of

from headgate.agent.slots.agent_packages import displaced_installs, needed_install
from headgate.topology_runtime.packages.package_archive import MANIFEST, SIGNATURE, Reading, header
from headgate.topology_runtime.packages.package_manifest import (
    PACKAGE_MOST_BYTES,
    BadPackage,
    PackagedFile,
    PackageManifest,
    Signature,
    encoded,
    fault_of_path,
    faults_of,
    faults_of_lines,
    manifest_of,
    missing,
    public_of,
    signed,
)

WHOLE = package_of(FILES)


def read(data: bytes, digest: str | None = None) -> Reading:
    reading = Reading(digest)
    reading.feed(data)
    reading.end()
    return reading


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=40))
def test_parts_of_any_size_are_the_same_package(sizes: list[int]) -> None:
    reading, at = Reading(), 0
    for size in [*sizes, len(WHOLE)]:
        reading.feed(WHOLE[at : at + size])
        at += size
    assert reading.whole and reading.taken == len(WHOLE) and reading.digest == read(WHOLE).digest


@settings(max_examples=300)
@given(st.integers(0, len(WHOLE) - 1))
def test_whatever_is_cut_short_is_not_whole(at: int) -> None:
    reading = Reading()
    reading.feed(WHOLE[:at])
    assert not reading.whole
    with pytest.raises(BadPackage, match="cut short"):
        reading.end()


@settings(max_examples=400)
@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_no_byte_can_be_another(at: int, change: int) -> None:
    changed = bytearray(WHOLE)
    changed[at] ^= change
    with pytest.raises(BadPackage):
        read(bytes(changed), read(WHOLE).digest)


def test_nothing_can_follow_it_and_nothing_comes_after_a_fault() -> None:
    with pytest.raises(BadPackage, match="more than the package"):
        read(WHOLE + b"\0")
    reading = Reading()
    with pytest.raises(BadPackage):
        reading.feed(b"x" * 512)
    for more in (WHOLE, b"\0", WHOLE):
        with pytest.raises(BadPackage):
            reading.feed(more)
    assert not reading.whole


def test_another_package_is_not_this_one() -> None:
    with pytest.raises(BadPackage, match="another package"):
        read(WHOLE, read(package_of({"other.py": b""})).digest)


# ── signatures ──────────────────────────────────────────────────────────────────────────────────


def manifest_and_files() -> tuple[bytes, dict[str, bytes]]:
    files = {"a.py": b"1"}
    return encoded(
        PackageManifest("made", (PackagedFile("a.py", 1, hashlib.sha256(b"1").hexdigest()),), "0", "3")
    ), files


def test_a_package_without_signature_is_refused_by_name() -> None:
    manifest, files = manifest_and_files()
    whole = archive_of(manifest, b"", files)
    start = len(archive_of(manifest, b"", {})) - 1024 - 512
    with pytest.raises(BadPackage, match="no signature"):
        read(whole[:start] + whole[start + 512 :])
    with pytest.raises(BadPackage, match="signature cannot be read"):
        read(whole)


def test_a_signature_of_something_else_or_by_nobody_is_refused() -> None:
    manifest, files = manifest_and_files()
    with pytest.raises(BadPackage, match="signature is wrong"):
        read(archive_of(manifest, signed(manifest + b" ", SECRET), files))
    for public in (
        "00" * 32,
        "ff" * 32,
        "ec" + "ff" * 30 + "7f",
        KEY.public,
    ):  # small and impossible points too
        for made in ("00" * 64, "01" + "00" * 63, "ff" * 64):
            with pytest.raises(BadPackage, match="signature is wrong"):
                Signature(public, made).check(manifest)


def test_the_same_content_has_the_same_digest_whoever_signs_it() -> None:
    manifest, files = manifest_and_files()
    other = hashlib.sha256(b"another key").hexdigest()
    one, two = (read(archive_of(manifest, signed(manifest, secret), files)) for secret in (SECRET, other))
    assert one.digest == two.digest and one.signature != two.signature
    assert two.signature is not None and two.signature.signer == public_of(other)


# ── hostile archives ────────────────────────────────────────────────────────────────────────────


def hostile(kind: bytes, name: str, link: str = "", pax: bool = False) -> bytes:
    """A real tar of the first two members, and one that `tar` would obey."""
    manifest, _ = manifest_and_files()
    out = io.BytesIO()
    with tarfile.open(
        fileobj=out, mode="w", format=tarfile.PAX_FORMAT if pax else tarfile.USTAR_FORMAT
    ) as tar:
        for own, data in ((MANIFEST, manifest), (SIGNATURE, signed(manifest, SECRET))):
            member = tarfile.TarInfo(own)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        member = tarfile.TarInfo(name)
        member.type, member.linkname, member.size = kind, link, 1 if kind == tarfile.REGTYPE else 0
        if pax:
            member.pax_headers = {"path": "../../evil"}
        tar.addfile(member, io.BytesIO(b"1"))
    return out.getvalue()


@pytest.mark.parametrize(
    ("kind", "name", "link", "pax"),
    [
        (tarfile.SYMTYPE, "code/a.py", "/etc/passwd", False),
        (tarfile.LNKTYPE, "code/a.py", "../../../etc/passwd", False),
        (tarfile.CHRTYPE, "code/a.py", "", False),
        (tarfile.FIFOTYPE, "code/a.py", "", False),
        (tarfile.DIRTYPE, "code/a.py", "", False),
        (tarfile.REGTYPE, "../a.py", "", False),
        (tarfile.REGTYPE, "/code/a.py", "", False),
        (tarfile.REGTYPE, "code/a.py", "", True),
    ],
)
def test_members_that_are_not_the_manifests_are_refused(kind: bytes, name: str, link: str, pax: bool) -> None:
    with pytest.raises(BadPackage, match="not written the way headgate writes it"):
        read(hostile(kind, name, link, pax))


@settings(max_examples=300)
@given(st.binary(max_size=2000))
def test_noise_is_refused(data: bytes) -> None:
    with pytest.raises(BadPackage):
        read(data)


# ── manifests ───────────────────────────────────────────────────────────────────────────────────

BAD_PATHS = ["", "/a", "../a", "a/../b", "a//b", "a/", "./a", ".", "a\\b", "a\0b", "a\nb", "x" * 101, "a/" * 80 + "b",
             "/".join("a" * 40), "a/./b", "\u202egnp.py"]  # fmt: skip
words = st.text(st.sampled_from("ab/.\\\0 é~"), max_size=12)


@pytest.mark.parametrize("path", BAD_PATHS)
def test_paths_that_lead_elsewhere_are_refused(path: str) -> None:
    assert fault_of_path(path) is not None


@settings(max_examples=500)
@given(words)
def test_a_path_that_is_allowed_stays_below_the_folder_and_fits_into_a_header(path: str) -> None:
    if fault_of_path(path) is None:
        assert os.path.normpath(f"/store/code/{path}") == f"/store/code/{path}" and "\0" not in path
        assert tarfile.TarInfo.frombuf(header(f"code/{path}", 7), "utf-8", "strict").name == f"code/{path}"


@given(st.lists(st.sampled_from(["a" * 100, "b", "c" * 49]), min_size=1, max_size=6))
def test_the_longest_paths_fit_into_a_header(parts: list[str]) -> None:
    path = "/".join(parts)
    if fault_of_path(path) is None:
        assert len(header(f"code/{path}", 0)) == 512


def files(*paths: str, size: int = 0) -> tuple[PackagedFile, ...]:
    return tuple(PackagedFile(path, size, "0" * 64) for path in paths)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"files": files("b", "a")}, "does not come after"),
        ({"files": files("a", "a")}, "does not come after"),
        ({"files": files("a", "a/b")}, "another file stands where"),
        ({"files": ()}, "0 files"),
        ({"files": files("a", size=PACKAGE_MOST_BYTES + 1)}, "at most 67,108,864"),
        ({"files": files("a", size=-1)}, "no size and digest"),
        ({"files": (PackagedFile("a", 0, "xyz"),)}, "no size and digest"),
        ({"name": "../x"}, "names are 1 to 64"),
        ({"schema": "headgate/package/v2"}, "reads headgate/package/v1"),
        ({"requirements": ("numpy==1.0",)}, "no NAME==VERSION --hash"),
        ({"requirements": ("--index-url http://evil --hash=",)}, "no NAME==VERSION --hash"),
    ],
)
def test_manifests_that_make_no_sense_are_refused_with_every_fault(
    changed: dict[str, object], said: str
) -> None:
    given = {"name": "n", "files": files("a"), "headgate": "0", "python": "3", **changed}
    manifest = PackageManifest(**given)  # type: ignore[arg-type]
    assert any(said in fault for fault in faults_of(manifest))
    with pytest.raises(BadPackage, match="not sound"):
        manifest_of(encoded(manifest))


def test_a_manifest_has_one_way_of_being_written() -> None:
    data = encoded(PackageManifest("n", files("a"), "0", "3"))
    assert manifest_of(data).name == "n"
    with pytest.raises(BadPackage):
        manifest_of(data.replace(b'"n"', b' "n"'))
    with pytest.raises(BadPackage):
        manifest_of(data[:-1] + b',"more":1}')


# ── What a package needs beside its code: which lines count, and what contradicts headgate's own ────────

HASH = "--hash=sha256:" + "ab" * 32


def manifest(*lines: str) -> PackageManifest:
    return PackageManifest("n", (PackagedFile("a.py", 0, "0" * 64),), "0.1.0", "3.11", lines)


@pytest.mark.parametrize(
    "line",
    [f"six==1.16 {HASH}", f"A.b_c[x,y]==1!2.0rc1+local {HASH} {HASH}", f"six==1.16 ; python_version >= '3' {HASH}",
     f"six == 1.16 {HASH}", f"six==1.16; sys_platform == 'linux' {HASH}"],
)  # fmt: skip
def test_lines_as_pip_compile_writes_them_count(line: str) -> None:
    assert list(faults_of_lines([line])) == []
    assert missing([line], {}) == ([line], [])


@pytest.mark.parametrize(
    "line",
    ["six", "six==1.16", f"six>=1 {HASH}", f"six==1.* {HASH}", f"-e . {HASH}", f"--index-url http://x {HASH}",
     f"six @ http://x {HASH}", f"./six.whl {HASH}", f"six==1 --hash=md5:{'a' * 32}", f"six==1 {HASH} --pre",
     f"six==1 --global-option=x {HASH}", f"six==1 ; --pre {HASH}", "six==1 --hash=sha256:zz"],
)  # fmt: skip
def test_lines_that_could_become_something_else_do_not(line: str) -> None:
    assert len(list(faults_of_lines([line]))) == 1


def test_what_stands_beside_headgate_is_used_in_its_version_and_refused_in_another() -> None:
    lines = [f"Some_Thing==1.0 {HASH}", f"msgspec=={version('msgspec')} {HASH}", f"Py.YAML==0.1 {HASH}"]
    assert missing(lines[:2], {"msgspec": version("msgspec")}) == (lines[:1], [])
    found, faults = missing(lines, {"py-yaml": "6.0", "msgspec": version("msgspec")})
    assert found == lines[:1] and faults == [
        "it needs py-yaml 0.1, and headgate stands beside py-yaml 6.0 there"
    ]
    assert needed_install(manifest()) == []
    assert needed_install(manifest(*lines[:2])) == lines[:1]
    with pytest.raises(BadPackage, match="contradict"):
        needed_install(manifest(f"msgspec==0.0.1 {HASH}"))


def test_modules_that_would_take_anothers_place_are_named(tmp_path: Path) -> None:
    names = ("headgate/__init__.py", "json/__init__.py", "msgspec.py", "own/__init__.py", "own.dist-info/METADATA",
             "bin/tool", "_own.cpython-311-x86_64-linux-gnu.so", "typing.py", "notes.txt")  # fmt: skip
    site = folder(tmp_path / "site", dict.fromkeys(names, b""))
    assert displaced_installs(site) == ["headgate", "json", "msgspec", "typing"]
    assert displaced_installs(tmp_path / "nothing") == []
    assert "json" in sys.stdlib_module_names
