"""Whom workers run as: numbers that nobody else has, folders that are handed over, and what of a folder is seen."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.agent.process import agent_doctor, worker_user
from headgate.agent.process.agent_config import AgentConfig
from headgate.topology_runtime.errors import HeadgateError, InvalidInput
from headgate.topology_runtime.platform.containment import WorkerUser, faults
from headgate.topology_runtime.platform.disk import open_plain, text_of, write_note

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has other users")
UID = worker_user.RANGES[0][-1]


def config(folder: Path, workers_as: str) -> AgentConfig:
    return AgentConfig(
        "tcp://h:1", "vm1", 2, 1.0, 1 << 28, str(folder / "vm1"), key="k", workers_as=workers_as
    )


@root
def test_nobody_else_has_the_number_until_it_is_given_back(tmp_path: Path) -> None:
    first = worker_user.claim("/a", tmp_path)
    again = worker_user.claim("/a", tmp_path)
    assert first.uid != again.uid and {first.uid, again.uid} <= set(worker_user.RANGES[0])
    assert first.release() == [] and again.release() == []
    assert list(tmp_path.iterdir()) == []
    later = worker_user.claim("/a", tmp_path)
    assert later.uid == first.uid, "mostly the number that it had before"
    later.release()


@root
def test_a_number_under_which_a_stranger_runs_is_not_taken(tmp_path: Path) -> None:
    uid = worker_user.claim("/b", tmp_path).uid
    for file in tmp_path.iterdir():
        file.unlink()
    process = subprocess.Popen(["sleep", "100"], user=uid, group=uid, extra_groups=[])
    try:
        assert worker_user.processes_of(uid) == [process.pid]
        other = worker_user.claim("/b", tmp_path)
        assert other.uid != uid and process.poll() is None
        other.release()
    finally:
        process.kill()
        process.wait()


@root
def test_what_the_agent_before_left_under_its_number_is_ended(tmp_path: Path) -> None:
    first = worker_user.claim("/c", tmp_path)
    held = (tmp_path / str(first.uid)).read_text()
    assert held == "/c"
    first.release()
    (tmp_path / str(first.uid)).write_text("/c")  # as if it had been killed
    process = subprocess.Popen(["sleep", "100"], user=first.uid, group=first.uid, extra_groups=[])
    again = worker_user.claim("/c", tmp_path)
    assert again.uid == first.uid and process.wait(5) == -9
    again.release()


@root
def test_files_of_agents_that_are_no_more_go_unless_something_of_theirs_runs(tmp_path: Path) -> None:
    process = subprocess.Popen(["sleep", "100"], user=UID, group=UID, extra_groups=[])
    try:
        for uid in (UID, UID - 1):
            (tmp_path / str(uid)).write_text("/gone")
        claimed = worker_user.claim("/e", tmp_path)
        assert {file.name for file in tmp_path.iterdir()} == {str(UID), str(claimed.uid)}
        claimed.release()
    finally:
        process.kill()
        process.wait()


@root
def test_who_gives_a_number_back_ends_what_still_runs_under_it(tmp_path: Path) -> None:
    claimed = worker_user.claim("/d", tmp_path)
    process = subprocess.Popen(["sleep", "100"], user=claimed.uid, group=claimed.uid, extra_groups=[])
    assert claimed.release() == [] and process.wait(5) == -9


@root
def test_whoever_is_named_is_there_and_not_root() -> None:
    assert worker_user.given("nobody") == (65534, 65534)
    assert worker_user.given(str(UID)) == (UID, UID)
    for name, word in (("root", "root's"), ("0", "root's"), ("no-such-user", "no such user")):
        with pytest.raises(InvalidInput, match=word):
            worker_user.given(name)


@root
def test_folders_are_handed_over_and_links_and_second_names_are_not(tmp_path: Path) -> None:
    one = config(tmp_path, "own")
    work, outside = Path(one.work), tmp_path / "outside"
    (work / "spools" / "in~0").mkdir(parents=True)
    (work / "spools" / "in~0" / "acked").write_text("1")
    outside.write_text("root's")
    (work / "link").symlink_to(outside)
    os.link(outside, work / "second-name")
    user = WorkerUser(UID, UID, one.work)
    worker_user.hand_over(one.directory, user)
    assert (work / "spools" / "in~0" / "acked").stat().st_uid == UID
    assert outside.stat().st_uid == 0 and (work / "link").lstat().st_uid == UID
    for name in ("", *worker_user.FOLDERS):
        folder = (work / name).stat()
        assert (folder.st_uid, folder.st_gid, stat.S_IMODE(folder.st_mode)) == (0, UID, 0o1770), name
    assert stat.S_IMODE(Path(one.directory).stat().st_mode) == 0o710


def test_what_workers_left_as_somebody_else_is_taken_over(tmp_path: Path) -> None:
    for before, now in (("agent", "own"), ("own", "agent")):
        old, new = config(tmp_path / now, before), config(tmp_path / now, now)
        Path(old.work, "spools", "in~0").mkdir(parents=True)
        worker_user.take_over(new.directory, new.work)
        assert Path(new.work, "spools", "in~0").is_dir() and not Path(old.work, "spools").exists()
        worker_user.take_over(new.directory, new.work)
        assert Path(new.work, "spools", "in~0").is_dir()


def test_notes_never_go_through_a_link_that_somebody_put_there(tmp_path: Path) -> None:
    victim, note = tmp_path / "victim", tmp_path / "run"
    victim.write_text("as it was")
    for name in ("run", "run.new"):
        (tmp_path / name).symlink_to(victim)
    write_note(str(note), "run 7")
    assert victim.read_text() == "as it was" and not note.is_symlink() and text_of(str(note)) == "run 7"


def test_what_others_wrote_is_read_only_when_it_is_a_plain_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(__file__)
    for name in ("pipe", "link"):
        with pytest.raises(OSError):
            open_plain(tmp_path / name)


SEEN = """
import json, os, sys
from headgate.topology_runtime.platform import containment as own_view
uid, folder, shown = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
own_view.show(shown, uid, uid)
os.setgroups([]), os.setresgid(uid, uid, uid), os.setresuid(uid, uid, uid)
found = {path: sorted(os.listdir(path)) for path in (folder, *shown[:-1])}
print(json.dumps(found))
"""


@root
def test_of_a_closed_folder_it_sees_what_is_shown_and_others_see_it_as_ever(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    for name in ("a/b", "c/d", "secret"):
        (closed / name).mkdir(parents=True)
    (closed / "a" / "b" / "code.py").touch()
    (closed / "link").symlink_to(closed / "c")
    closed.chmod(0o700)
    shown = [str(closed / "a" / "b"), str(closed / "link" / "d")]
    words = [
        sys.executable,
        "-P",
        "-c",
        SEEN,
        str(UID),
        str(closed),
        *shown,
        str(closed),
    ]  # the last is closed itself
    try:
        said = subprocess.run(words, capture_output=True, check=True)
    except subprocess.CalledProcessError as error:
        assert b"OSError" in error.stderr or b"PermissionError" in error.stderr, error.stderr.decode()
        pytest.skip(f"no mount namespace can be made here: {error.stderr[-200:]!r}")
    assert json.loads(said.stdout) == {str(closed): ["a", "c", "link"], shown[0]: ["code.py"], shown[1]: []}
    assert sorted(os.listdir(closed)) == ["a", "c", "link", "secret"]


@root
@pytest.mark.parametrize(
    ("how", "word"),
    [
        ({"user": UID, "group": UID, "extra_groups": [0]}, "in groups 0"),
        ({"user": UID, "group": 0, "extra_groups": []}, "group is 0"),
        ({"extra_groups": []}, "user is 0"),
        ({"user": UID, "group": UID, "extra_groups": []}, "privileges"),
    ],
)
def test_a_process_that_is_not_contained_is_known(how: dict[str, object], word: str) -> None:
    process = subprocess.Popen(["sleep", "100"], **how)  # type: ignore[call-overload]
    try:
        found = ", ".join(faults(process.pid, WorkerUser(UID, UID, "/")))
        assert word in found
        assert ("capabilities" in found) == ("user" not in how)
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(os.geteuid() == 0, reason="of users who are not root")
def test_only_root_has_others() -> None:
    with pytest.raises(HeadgateError, match="of their own"):
        worker_user.worker_user(config(Path("/"), "own"))


def test_doctor_tells_each_part_and_what_to_try_where_it_lacks() -> None:
    names = [
        "tasks' own user",
        "tasks' privileges",
        "tasks' processes",
        "tasks' memory",
        "what tasks leave running",
    ]
    for binding in ("cgroup1", "affinity", "none"):
        found = agent_doctor.containment_checks(binding)
        assert [check.name for check in found] == names
        assert all(check.ok is not False and check.text for check in found)
        if not binding.startswith("cgroup"):
            assert all("control groups" in check.text for check in found[2:])
    user = agent_doctor.containment_checks("none")[0]
    assert (user.ok is True) == (os.geteuid() == 0) or "--workers-as agent" in user.text
