"""The example of docs/machines.md, as it stands there, with a stand-in for the cloud's own program."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from headgate.controller.files.machines_command import CommandMachines, MachinesCall
from headgate.topology_runtime.cluster import Vm

PAGE = Path(__file__).resolve().parents[2] / "docs" / "machines.md"
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
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandMachines:
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


def test_it_has_machines_and_gives_them_back(cloud: CommandMachines, tmp_path: Path) -> None:
    (tmp_path / "servers").mkdir()
    (tmp_path / "servers" / "mail").write_text(
        json.dumps({"name": "mail", "status": "running", "label": "other"})
    )
    cloud.request(Vm("vm3", 4, usd_per_hour=0.39))
    cloud.step(0.0)
    cloud.step(15.0)
    assert cloud.list().running == ("vm3",) and cloud.list().trouble == ""
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
    cloud.release("vm3")
    cloud.step(30.0)
    cloud.step(32.0)
    assert [path.name for path in (tmp_path / "servers").iterdir()] == ["mail"] and cloud.close() == ()


def test_what_the_cloud_refuses_is_an_alarm_with_its_words(cloud: CommandMachines, tmp_path: Path) -> None:
    (tmp_path / "servers").mkdir()
    (tmp_path / "servers" / "shop-vm3").write_text(
        json.dumps({"name": "shop-vm3", "status": "deleting", "label": "headgate=shop"})
    )
    cloud.request(Vm("vm3", 4))
    cloud.step(0.0)
    assert "failed at `request vm3` with 1: hcloud: server name is already used" in cloud.list().trouble


def test_the_options_of_the_page_are_there() -> None:
    told = "".join(
        subprocess.run(
            [sys.executable, "-P", "-m", "headgate.dashboards.cli", who, "run", "--help"],
            capture_output=True,
            text=True,
        ).stdout
        for who in ("controller", "agent")
    )
    asked = re.findall(r"--[a-z][a-z-]+", PAGE.read_text("utf-8").partition("## The command")[0])
    assert {option for option in asked if option not in told} == set()
