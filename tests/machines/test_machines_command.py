"""Machines by a command: asked for once, given back for sure, whatever the command does."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import psutil
import pytest
from cloud_made import Cloud

from headgate.controller.files.command_call import CommandFailed, CommandRefusal, run_command
from headgate.controller.files.machines_command import AGAIN_MOST_S, LOOK_S, SETTLED_S, SOON_S
from headgate.controller.machine_options import machines_of
from headgate.topology_runtime.cluster import Vm
from headgate.topology_runtime.keys.keyring import Keyring


@pytest.fixture
def cloud(tmp_path: Path) -> Cloud:
    return Cloud(tmp_path / "cloud")


def trouble(cloud: Cloud) -> str:
    return cloud.provider.list().trouble


def test_nothing_is_called_while_no_machine_is_wanted(cloud: Cloud) -> None:
    assert [cloud.step(LOOK_S) for _ in range(3)] == [LOOK_S] * 3 and cloud.said() == []


def test_a_machine_is_had_and_given_back(cloud: Cloud) -> None:
    cloud.ask("vm3")
    assert cloud.provider.list().desired == ("vm3",)
    assert cloud.step() == LOOK_S
    [said] = cloud.said("request")
    assert said["machine"] == {
        "name": "vm3", "slots": 4, "slot_cores": 1.0, "slot_memory_bytes": 3_758_096_384, "usd_per_hour": 0.4,
        "rack": "r1", "speed": 1.0,
    }  # fmt: skip
    assert (said["schema"], said["run"], said["controller"]) == (
        "headgate/machines/v1",
        "r1",
        "tcp://10.0.0.1:7311",
    )
    assert said["agent_key"] == str(cloud.folder / "agent.key") and len(said["token"]) == 32
    cloud.step(LOOK_S)
    assert cloud.provider.list().running == ("vm3",) and trouble(cloud) == ""
    cloud.provider.release("vm3")
    assert cloud.step() == SOON_S and cloud.machines() == [] and cloud.revoked == []
    assert cloud.step(SOON_S) == LOOK_S and cloud.revoked == ["vm3"]
    assert cloud.provider.close() == () and len(cloud.said("request")) == 1
    before = len(cloud.said())
    cloud.step(LOOK_S)
    assert len(cloud.said()) == before


@pytest.mark.parametrize("how", ["die", "garbage", "flood", "other"])
def test_a_call_whose_end_is_unknown_acquires_no_second_machine(cloud: Cloud, how: str) -> None:
    cloud.fails(request=how)
    cloud.ask("vm3")
    cloud.step()
    assert "request vm3" in trouble(cloud) and cloud.names() == ["vm3"]
    for _ in range(10):
        cloud.step(SETTLED_S)
    assert cloud.names() == ["vm3"] and len(cloud.said("request")) == 1 and trouble(cloud) == ""


def group_of(process: psutil.Process) -> int:
    try:
        return os.getpgid(process.pid)
    except ProcessLookupError:
        return 0


def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    cloud = Cloud(tmp_path / "cloud", timeout_s=1.0)
    cloud.fails(request="hang")
    cloud.ask("vm3")
    cloud.step()
    assert "did not end `request vm3` within 1 s" in trouble(cloud)
    session = int((cloud.folder / "pid").read_text())
    ending = [one for one in psutil.process_iter() if group_of(one) == session]
    _, left = psutil.wait_procs(ending, timeout=10)  # what was killed may take a moment to go
    assert [one for one in left if one.status() != psutil.STATUS_ZOMBIE] == []
    cloud.fails()
    cloud.step(SETTLED_S)
    assert cloud.names() == ["vm3"] and len(cloud.said("request")) == 1


def test_a_machine_that_is_listed_late_is_asked_for_again_only_after_a_while_and_under_its_token(
    cloud: Cloud,
) -> None:
    cloud.fails(list="late")
    cloud.ask("vm3")
    cloud.step()
    for _ in range(3):
        cloud.step(LOOK_S)
    assert len(cloud.said("request")) == 1
    cloud.step(LOOK_S)
    first, second = cloud.said("request")
    assert first["token"] == second["token"] and len(cloud.machines()) == 1


def test_a_controller_that_was_killed_goes_on_with_the_same_token(cloud: Cloud) -> None:
    cloud.fails(request="ignore")
    cloud.ask("vm3")
    cloud.step()
    cloud.fails()
    cloud.born()
    cloud.step()
    assert len(cloud.said("request")) == 1, "it may still come"
    cloud.step(SETTLED_S)
    first, second = cloud.said("request")
    assert first["token"] == second["token"] and cloud.names() == ["vm3"]


def test_a_refusal_is_tried_again_more_and_more_seldom_as_one_trouble(cloud: Cloud) -> None:
    cloud.fails(request="refuse")
    cloud.ask("vm3")
    pauses = [cloud.step()]
    for _ in range(8):
        pauses.append(cloud.step(pauses[-1]))
    assert pauses[:4] == [5, 10, 20, 40] and pauses[-1] == AGAIN_MOST_S
    assert trouble(cloud) == (
        "the machines command failed at `request vm3` with 1: quota exceeded: 0 of 0 machines left (9 times); "
        "tried again in 300 s"
    )
    assert len({said["token"] for said in cloud.said("request")}) == 1
    cloud.fails()
    assert cloud.step(AGAIN_MOST_S) == LOOK_S and trouble(cloud) == "" and cloud.names() == ["vm3"]


def test_one_that_is_refused_does_not_keep_the_others_back(cloud: Cloud) -> None:
    cloud.ask("vm3")
    cloud.step()
    cloud.fails(request="refuse")
    cloud.ask("vm4", "vm5")
    cloud.provider.release("vm3")
    cloud.step()
    assert cloud.machines() == [] and {said["machine"]["name"] for said in cloud.said("request")} == {
        "vm3",
        "vm4",
        "vm5",
    }
    assert trouble(cloud).count("quota exceeded") == 2


@pytest.mark.parametrize("how", ["refuse", "garbage", "none", "flood", "die", "other"])
def test_nothing_is_done_without_a_list(cloud: Cloud, how: str) -> None:
    cloud.fails(list=how)
    cloud.ask("vm3")
    cloud.step()
    assert "list" in trouble(cloud) and cloud.said("request", "release") == []


def test_what_is_given_up_while_it_may_still_come_is_given_back_when_it_comes(cloud: Cloud) -> None:
    cloud.fails(list="late")
    cloud.ask("vm3")
    cloud.step()
    cloud.provider.release("vm3")
    assert cloud.step(LOOK_S) == SOON_S and cloud.provider.close() == ("vm3",)
    cloud.fails()
    cloud.step(LOOK_S)
    assert cloud.machines() == []
    assert cloud.step(SOON_S) == LOOK_S and cloud.provider.close() == ()


def test_a_release_that_fails_is_tried_again_and_the_machine_is_not_forgotten(cloud: Cloud) -> None:
    cloud.ask("vm3")
    cloud.step()
    cloud.fails(release="refuse")
    cloud.provider.release("vm3")
    cloud.step()
    assert cloud.names() == ["vm3"] and cloud.provider.close() == ("vm3",) and "release vm3" in trouble(cloud)
    cloud.fails()
    cloud.born()
    cloud.step()
    cloud.step(SOON_S)
    assert cloud.machines() == [] and cloud.provider.close() == ()


def test_a_machine_that_vanished_is_had_anew_under_another_token(cloud: Cloud) -> None:
    cloud.ask("vm3")
    cloud.step()
    cloud.step(LOOK_S)
    (cloud.folder / "machines" / cloud.machines()[0]).unlink()
    cloud.step(LOOK_S)
    assert cloud.machines() == [], "a list may be wrong for a while"
    cloud.step(SETTLED_S)
    first, second = cloud.said("request")
    assert first["token"] != second["token"] and cloud.names() == ["vm3"]


def test_what_nobody_asked_for_is_told_and_left_alone(cloud: Cloud) -> None:
    cloud.ask("vm3")
    cloud.step()
    (cloud.folder / "machines" / "vm3-another").write_text("running")
    (cloud.folder / "machines" / "database-1").write_text("running")
    cloud.step(LOOK_S)
    assert "nobody asked for: database" in trouble(cloud) and "more than once: vm3" in trouble(cloud)
    cloud.provider.release("vm3")
    cloud.step()
    assert cloud.machines() == ["database-1"]


def test_its_thread_gives_everything_back_before_it_ends(cloud: Cloud) -> None:
    cloud.ask("vm3", "vm4")
    cloud.step()
    assert cloud.names() == ["vm3", "vm4"]
    cloud.provider.start()
    cloud.provider.release("vm3")
    cloud.provider.release("vm4")
    assert cloud.provider.close() == () and cloud.machines() == [] and len(cloud.said("request")) == 2


def test_a_command_that_is_not_there_or_reads_nothing(tmp_path: Path) -> None:
    with pytest.raises(CommandRefusal, match="cannot be started: No such file"):
        run_command([str(tmp_path / "none")], b"{}", 5.0, "list")
    assert run_command(["echo", "{}"], b"x" * 1_000_000, 5.0, "list") == b"{}\n"
    with pytest.raises(CommandFailed, match="with -9: it says nothing"):
        run_command(["sh", "-c", "kill -9 $$"], b"", 5.0, "list")
    with pytest.raises(CommandRefusal, match="with 3: last words"):
        run_command(["sh", "-c", "echo first >&2; echo last words >&2; exit 3"], b"", 5.0, "list")


def test_nothing_is_called_before_the_controller_has_its_state_directory_for_itself(tmp_path: Path) -> None:
    """Another controller may be at work there."""
    given = {"machines_command": f"touch {tmp_path / 'called'}", "machines_timeout": 5.0, "run_name": "r1"}
    state = tmp_path / "state"
    (state / "controller").mkdir(parents=True)
    (state / "controller" / "endpoint").write_text('{"control": "tcp://127.0.0.1:1"}')
    first = machines_of(given, state, Keyring.at(tmp_path / "keys"), grows=True)
    first.request(Vm("vm3", 4))
    second = machines_of(given, state, Keyring.at(tmp_path / "keys"), grows=True)
    assert "machines" not in [thread.name for thread in threading.enumerate()]
    second.start()
    assert "machines" in [thread.name for thread in threading.enumerate()]
    second.release("vm3")
    assert second.close() == ()
