"""Machines by a command: asked for once, given back for sure, whatever the command does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from cloud_made import Cloud
from patience import PATIENCE_S

from headgate.controller.controller_cli import machines_of
from headgate.controller.files.machine_providers import (
    AGAIN_MOST_S,
    LOOK_S,
    SETTLED_S,
    SOON_S,
    CommandFailed,
    CommandMachines,
    CommandRefusal,
    MachinesCall,
    run_command,
)
from headgate.topology_runtime.api.cluster import Vm
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
    cloud = Cloud(tmp_path / "cloud", timeout_s=3.0)
    cloud.fails(request="hang")
    cloud.ask("vm3")
    cloud.step()
    assert "did not end `request vm3` within 3 s" in trouble(cloud)
    session = int((cloud.folder / "pid").read_text())
    ending = [one for one in psutil.process_iter() if group_of(one) == session]
    _, left = psutil.wait_procs(ending, timeout=PATIENCE_S)  # what was killed may take a moment to go
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
    given = {
        "machines": None,
        "machines_command": f"touch {tmp_path / 'called'}",
        "machines_timeout": 5.0,
        "run_name": "r1",
    }
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


# ── The example of docs/how-to/elastic-machines.md, with a stand-in for the cloud's own program ────

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "elastic-machines.md"
HCLOUD = """
import json, sys
from pathlib import Path

servers = Path(__file__).parent / "servers"
servers.mkdir(exist_ok=True)
words = sys.argv[1:]
with (servers.parent / "words.jsonl").open("a") as file:
    file.write(json.dumps(words) + "\\n")
given = dict(zip(words[2::2], words[3::2]))
if words[:2] == ["server", "create"]:
    path = servers / given["--name"]
    if path.exists():
        sys.exit("hcloud: server name is already used (uniqueness_error)")
    assert given["--user-data-from-file"] == "-"
    label = given["--label"]
    path.write_text(json.dumps({"name": path.name, "status": "running", "label": label, "data": sys.stdin.read()}))
    print("Server 42 created")
elif words[:2] == ["server", "delete"]:
    (servers / words[2]).unlink()
    print("Server 42 deleted")
else:
    found = [json.loads(path.read_text()) for path in sorted(servers.iterdir())]
    print(json.dumps([one for one in found if one["label"] == given["--selector"]]))
"""


@pytest.fixture
def documented_cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandMachines:
    [script] = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    (tmp_path / "machines.py").write_text(script)
    (tmp_path / "hcloud").write_text(f"#!{sys.executable}\n{HCLOUD}")
    (tmp_path / "hcloud").chmod(0o755)
    (tmp_path / "agent.key").write_text('{"secret": "s%/\\\\"}\n')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    words = (sys.executable, str(tmp_path / "machines.py"))
    facts = {"run": "shop", "controller": "tcp://10.0.0.1:7311"}
    call = MachinesCall(words, 20.0, lambda: facts, lambda vm: tmp_path / "agent.key", lambda vm: None)
    return CommandMachines(tmp_path / "state", call)


def server(tmp_path: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tmp_path / "servers" / name).read_text())
    return found


def test_it_has_machines_and_gives_them_back(documented_cloud: CommandMachines, tmp_path: Path) -> None:
    (tmp_path / "servers").mkdir()
    (tmp_path / "servers" / "mail").write_text(
        json.dumps({"name": "mail", "status": "running", "label": "other"})
    )
    documented_cloud.request(Vm("vm3", 4, usd_per_hour=0.39))
    documented_cloud.step(0.0)
    documented_cloud.step(15.0)
    assert documented_cloud.list().running == ("vm3",) and documented_cloud.list().trouble == ""
    data = yaml.safe_load(server(tmp_path, "shop-vm3")["data"])
    [file] = data["write_files"]
    assert (file["path"], file["permissions"]) == ("/etc/headgate.key", "0600")
    assert file["content"] == (tmp_path / "agent.key").read_text()
    [[_, _, agent]] = data["runcmd"]
    asked = agent.removeprefix("exec headgate agent run ").partition(" --listen")[0].split()
    assert dict(zip(asked[::2], asked[1::2], strict=True)) == {
        "--controller": "tcp://10.0.0.1:7311", "--vm": "vm3", "--key": "/etc/headgate.key", "--slots": "4",
        "--slot-cores": "1.0", "--run": "shop",
    }  # fmt: skip
    assert subprocess.run(["sh", "-n", "-c", agent]).returncode == 0
    documented_cloud.release("vm3")
    documented_cloud.step(30.0)
    documented_cloud.step(32.0)
    assert [path.name for path in (tmp_path / "servers").iterdir()] == [
        "mail"
    ] and documented_cloud.close() == ()


def test_what_the_cloud_refuses_is_an_alarm_with_its_words(
    documented_cloud: CommandMachines, tmp_path: Path
) -> None:
    (tmp_path / "servers").mkdir()
    (tmp_path / "servers" / "shop-vm3").write_text(
        json.dumps({"name": "shop-vm3", "status": "deleting", "label": "headgate=shop"})
    )
    documented_cloud.request(Vm("vm3", 4))
    documented_cloud.step(0.0)
    assert (
        "failed at `request vm3` with 1: hcloud: server name is already used"
        in documented_cloud.list().trouble
    )


def test_the_options_of_the_page_are_there() -> None:
    told = "".join(
        subprocess.run(
            [sys.executable, "-P", "-m", "headgate", who, "run", "--help-all"],
            capture_output=True,
            text=True,
        ).stdout
        for who in ("controller", "agent")
    )
    asked = re.findall(r"--[a-z][a-z-]+", PAGE.read_text("utf-8").partition("## The command")[0])
    assert {
        option for option in asked if option not in told and option.removeprefix("--") not in told
    } == set()
