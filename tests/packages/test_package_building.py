"""What goes into a package, what stays behind, and that the same content is the same package."""

from __future__ import annotations

import os
import stat
import zipfile
from pathlib import Path
from typing import Any

import pytest
from package_made import FILES, SECRET, built, folder

from headgate.topology_runtime.api.topology import Task, Topology
from headgate.topology_runtime.packages import package_building as building
from headgate.topology_runtime.packages.package_files import travelling
from headgate.topology_runtime.packages.package_manifest import PACKAGE_MOST_BYTES, BadPackage, placed


def test_the_same_content_is_the_same_file_whatever_its_times_modes_and_order(tmp_path: Path) -> None:
    one = built(tmp_path / "one")
    two = folder(tmp_path / "two" / "code", dict(reversed(FILES.items())))
    os.utime(two / "words.py", (1, 1))
    (two / "words.py").chmod(0o755)
    other = building.build(building.contents_of(two), SECRET, tmp_path / "two.package", "0.1.0")
    assert other.digest == one.digest and other.path.read_bytes() == one.path.read_bytes()
    (two / "words.py").write_bytes(b"def count(x): return 1\n")
    changed = building.build(building.contents_of(two), SECRET, tmp_path / "three.package", "0.1.0")
    assert changed.digest != one.digest


def test_what_is_no_code_stays_behind_and_secrets_are_named(tmp_path: Path) -> None:
    unwanted = (".git/config", ".env", ".venv/x.py", "__pycache__/a.pyc", "a.pyc", "traces/run/run.json",
                "node_modules/x.js", "x.egg-info/PKG-INFO", "old.package", "env/pyvenv.cfg", "env/lib.py")  # fmt: skip
    secrets = {"deploy.key": b"x", "id_ed25519": b"x", "conf/tls.pem": b"x", "credentials.json": b"{}",
               "notes.txt": b"a\n-----BEGIN OPENSSH PRIVATE KEY-----\nb\n"}  # fmt: skip
    place = folder(
        tmp_path / "flow", {**dict.fromkeys(unwanted, b"x"), **secrets, "a.py": b"1", "public.txt": b"2"}
    )
    contents = building.contents_of(place)
    assert set(contents.files) == {"a.py", "public.txt"} and contents.name == "flow"
    assert sorted(line.partition(":")[0] for line in contents.left_out) == sorted(secrets)


def test_links_and_what_is_no_file_are_refused_by_name(tmp_path: Path) -> None:
    place = folder(tmp_path / "flow", {"a.py": b"1"})
    (place / "link.py").symlink_to("a.py")
    (place / "deep").symlink_to("/etc")
    os.mkfifo(place / "pipe")
    with pytest.raises(BadPackage) as error:
        building.contents_of(place)
    assert [fault.split()[0] for fault in error.value.faults] == ["deep", "link.py", "pipe"]


def test_a_file_that_becomes_a_link_while_it_is_packed_is_not_followed(tmp_path: Path) -> None:
    place = folder(tmp_path / "flow", {"a.py": b"1"})
    contents = building.contents_of(place)
    (place / "a.py").unlink()
    (place / "a.py").symlink_to("/etc/hostname")
    with pytest.raises(BadPackage, match=r"a\.py cannot be read"):
        building.build(contents, SECRET, tmp_path / "p", "0.1.0")


def test_a_file_that_changes_while_it_is_packed_is_noticed_and_nothing_is_left(tmp_path: Path) -> None:
    place = folder(tmp_path / "flow", {"a.py": b"1"})
    contents = building.contents_of(place)
    opened, times = contents.files["a.py"], []

    def changing():
        times.append(1)
        (place / "a.py").write_bytes(str(len(times)).encode())
        return opened()

    contents.files["a.py"] = changing
    with pytest.raises(BadPackage, match="is not the file"):
        building.build(contents, SECRET, tmp_path / "p", "0.1.0")
    assert [path.name for path in tmp_path.iterdir()] == ["flow"]


@pytest.mark.parametrize("place", ["nothing", "file.txt", "empty"])
def test_what_cannot_be_packed_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file.txt").write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadPackage, match="cannot be packed"):
        building.contents_of(tmp_path / place)


def test_a_home_is_not_sent_to_other_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = folder(tmp_path / "ann", {"flow.py": b"", "letters/private.txt": b"", "code/a.py": b""})
    monkeypatch.setenv("HOME", str(home))
    for place in (home, Path("/"), home / "code" / ".."):
        with pytest.raises(BadPackage, match="is not packed"):
            building.contents_of(place)
    assert set(building.contents_of(home / "code").files) == {"a.py"}


def test_too_much_is_refused_by_the_file_that_was_too_much(tmp_path: Path) -> None:
    place = folder(tmp_path / "flow", {"a.py": b"1"})
    with (place / "big.bin").open("wb") as file:
        file.truncate(PACKAGE_MOST_BYTES)
    with pytest.raises(BadPackage, match="too large") as error:
        building.build(building.contents_of(place), SECRET, tmp_path / "p", "0.1.0")
    assert "big.bin" in str(error.value.cause)


def test_requirements_are_kept_and_need_hashes(tmp_path: Path) -> None:
    a, b = "aa" * 32, "bb" * 32
    text = f"# by hand\nnumpy==2.0 \\\n  --hash=sha256:{a} \\\n  --hash=sha256:{b}\n\n"
    text += f"six==1.16 --hash=sha256:{a}  # six\n"
    manifest = built(tmp_path / "one", {"a.py": b"", "requirements.txt": text.encode()}).manifest
    assert manifest.requirements == (
        f"numpy==2.0 --hash=sha256:{a} --hash=sha256:{b}",
        f"six==1.16 --hash=sha256:{a}",
    )
    with pytest.raises(BadPackage) as error:
        built(tmp_path / "two", {"a.py": b"", "requirements.txt": b"numpy\n-r more.txt\n"})
    assert len(error.value.faults) == 2


# ── wheels ──────────────────────────────────────────────────────────────────────────────────────


def wheel(where: Path, files: dict[str, bytes], link: str = "") -> Path:
    path = where / "words_count-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as whole:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (stat.S_IFLNK if name == link else stat.S_IFREG) << 16
            whole.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return path


def test_a_wheel_is_what_pip_would_unpack(tmp_path: Path) -> None:
    given = {
        "words/__init__.py": b"",
        "words/count.py": b"x = 1\n" * 99,
        "words_count-1.0.dist-info/METADATA": b"M",
    }
    contents = building.contents_of(wheel(tmp_path, given))
    packed = building.build(contents, SECRET, tmp_path / "p", "0.1.0")
    assert packed.manifest.name == "words_count"
    assert {file.path: file.size for file in packed.manifest.files} == {k: len(v) for k, v in given.items()}


@pytest.mark.parametrize(
    ("files", "link"),
    [
        ({"../evil.py": b""}, ""),
        ({"/evil.py": b""}, ""),
        ({"a/../../b.py": b""}, ""),
        ({"link.py": b"/etc/passwd"}, "link.py"),
        ({"w.data/scripts/x": b""}, ""),
        ({}, ""),
    ],
)
def test_wheels_that_lead_elsewhere_are_refused(tmp_path: Path, files: dict[str, bytes], link: str) -> None:
    with pytest.raises(BadPackage, match="cannot be packed"):
        building.contents_of(wheel(tmp_path, files, link))


def test_a_wheel_that_unpacks_into_too_much_is_refused_without_unpacking_all_of_it(tmp_path: Path) -> None:
    bomb = wheel(tmp_path, {"a.py": b"", "zeros.bin": bytes(PACKAGE_MOST_BYTES + 1)})
    assert bomb.stat().st_size < 200_000
    with pytest.raises(BadPackage, match="too large"):
        building.build(building.contents_of(bomb), SECRET, tmp_path / "p", "0.1.0")


def test_a_wheel_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    path = wheel(tmp_path, {"a.py": os.urandom(9999)})
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(BadPackage, match="cannot be read"):
        building.contents_of(path)


# ── Params that name files: they travel, or are refused by name, and are found where the package is
# unpacked


def topology(**params: Any) -> Topology:
    return Topology("t", (Task("read", run="a:b", params=params), Task("plain")))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder(tmp_path / "here", {"local.txt": b"1", "words/x": b""}))
    return folder(tmp_path / "flow", {"data/words.txt": b"a", "flow.py": b"", "deploy.key": b""})


def sent(root: Path, given: Topology, **more: Any) -> dict[str, Any]:
    return travelling(given, root, {"data/words.txt", "flow.py"}, **more).tasks[0].params


def test_a_file_of_the_package_travels_however_it_is_written(root: Path) -> None:
    given = topology(
        whole=str(root / "data" / "words.txt"),
        inside="data/words.txt",
        deep={"list": ["flow.py", 3, None]},
        folder="data/",
        named="package:data/words.txt",
        words=["words", "a sentence of it", "", "x" * 5000, "no/such/file"],
    )
    params = sent(root, given)
    assert params["whole"] == params["inside"] == params["named"] == "package:data/words.txt"
    assert params["deep"] == {"list": ["package:flow.py", 3, None]} and params["folder"] == "package:data"
    assert params["words"] == given.tasks[0].params["words"], "words are no files"
    there = placed(travelling(given, root, {"data/words.txt", "flow.py"}), "/store/code").tasks[0].params
    assert there["whole"] == "/store/code/data/words.txt" and there["folder"] == "/store/code/data"
    assert there["words"] == given.tasks[0].params["words"]


def test_files_that_would_not_be_there_are_refused_by_name_all_at_once(root: Path) -> None:
    given = topology(
        a="/etc/hostname", b="local.txt", c=str(root / "deploy.key"), d="package:nothing", e="words/"
    )
    with pytest.raises(BadPackage) as error:
        sent(root, given)
    assert [fault.split()[0] for fault in error.value.faults] == [f"read.{name}" for name in "abcde"]
    assert "--set on-every-host" in str(error.value.hint)


def test_what_is_said_to_be_on_every_host_stays_as_it_is(root: Path) -> None:
    assert sent(root, topology(a="/etc/hostname"), everywhere=["read.a"]) == {"a": "/etc/hostname"}


def test_a_path_cannot_lead_out_of_the_package(root: Path) -> None:
    for path in ("package:../deploy.key", "package:", "package:data/../../x", "package:/etc/passwd"):
        with pytest.raises(BadPackage):
            sent(root, topology(a=path))
