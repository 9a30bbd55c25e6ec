"""A VM that is killed with all its workers and does not come back: how long until rows reach the sink again.

Three agents of two slots, started one by one; a run of three tasks on two of them. The VM without the source is killed
(SIGKILL, its workers die with it). The sink keeps the time of each row: the longest gap that ends after that counts.
"""
# bench: lost-vm – seconds until rows reach the sink again when a VM is killed and does not come back

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.benchmark_runner import spread
from headgate.dashboards.runs.connection import asked
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.keys.keyring import Keyring
from headgate.topology_runtime.platform.cgroups import remove_run

TASKS = """
import time
from headgate.topology_runtime.api.logic import Source


class Ids(Source):
    def read(self, position, limit):
        return list(range(position, position + limit))


def same(row):
    return row


class Keep:
    def __init__(self, path):
        self.file = open(path, "a", buffering=1)

    def __call__(self, row):
        self.file.write(f"{row} {time.time_ns()}\\n")
"""
STATIC = {"threads": 1, "cpu": 0.9, "memory": 0.1}
RATE_TPS, START_S, AFTER_S, VMS = 100, 40.0, 15.0, ("vm1", "vm2", "vm3")


def topology(folder: Path) -> dict[str, Any]:
    tasks = [
        {"name": "ids", "kind": "source", "run": "lost_vm_tasks:Ids", "static": STATIC},
        {"name": "same", "run": "lost_vm_tasks:same", "static": STATIC},
        {
            "name": "keep",
            "run": "lost_vm_tasks:Keep",
            "static": STATIC,
            "params": {"path": str(folder / "rows")},
        },
    ]
    edges = [{"from": "ids", "to": "same"}, {"from": "same", "to": "keep"}]
    return {"schema": "headgate/topology/v1", "name": "lost-vm", "tasks": tasks, "edges": edges}


def once(number: int) -> dict[str, Any]:
    run, processes = f"lost-vm-{os.getpid()}-{number}", list[subprocess.Popen[bytes]]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        state = folder / "state"

        def start(*words: str) -> subprocess.Popen[bytes]:
            command = [sys.executable, "-P", "-m", "headgate", *words]
            processes.append(
                subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )
            return processes[-1]

        try:
            (folder / "lost_vm_tasks.py").write_text(TASKS)
            (folder / "topology.json").write_text(json.dumps(topology(folder)))
            (folder / "models").mkdir()
            vms = ",".join(f"{vm}=2" for vm in VMS)
            start(
                *(
                    "controller",
                    "run",
                    "--topology",
                    "topology.json",
                    "--models",
                    "models",
                    "--rate",
                    str(RATE_TPS),
                ),
                *("--slot-cores", "0.2", "--vms", vms, "--state-dir", str(state), "--run", run),
                *("--path", str(folder)),
            )
            wait_for(lambda: (state / "controller" / "endpoint").exists())
            control = json.loads((state / "controller" / "endpoint").read_text())["control"]
            agents = {vm: start(*agent_words(vm, control, state, run)) for vm in VMS}
            wait_for(lambda: len(rows_of(folder)) > 3 * RATE_TPS)
            threads = {
                vm["vm"]: [task for slot in vm["slots"] for task in slot["threads"]]
                for vm in asked(str(state), "status")["vms"]
            }
            killed = next(vm for vm in VMS if threads[vm] and "ids" not in threads[vm])
            at_ns = time.time_ns()
            agents[killed].kill()
            time.sleep(AFTER_S)
            summary = asked(str(state), "status")["tuples"]
            return {
                "killed": threads[killed],
                "again_s": again_s(rows_of(folder), at_ns),
                "lost": summary["lost"],
            }
        finally:
            for process in reversed(processes):
                process.terminate()
            for process in processes:
                try:
                    process.wait(10.0)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            remove_run(run)


def agent_words(vm: str, control: str, state: Path, run: str) -> list[str]:
    key = Keyring(state / "keys").ensure("agent", vm)
    words = [
        "agent",
        "run",
        "--workers-as",
        "agent",
        "--controller",
        control,
        "--vm",
        vm,
        "--key",
        str(key),
        "--slots",
        "2",
        "--run",
        run,
    ]
    return [*words, "--slot-cores", "0.2", "--slot-memory", "256M", "--state-dir", str(state.parent / vm)]


def wait_for(what: Any) -> None:
    end = time.monotonic() + START_S
    while True:
        try:
            if what():
                return
        except HeadgateError:
            pass  # it is not there yet; who never comes ends this below
        if time.monotonic() > end:
            raise SystemExit(f"not within {START_S:g} s")
        time.sleep(0.05)


def rows_of(folder: Path) -> list[int]:
    """When rows reached the sink (UTC ns), in order."""
    file = folder / "rows"
    return (
        [int(line.split()[1]) for line in file.read_text().splitlines() if " " in line]
        if file.exists()
        else []
    )


def again_s(times_ns: list[int], killed_ns: int) -> float:
    """From the kill to the end of the longest gap that ends after it."""
    gaps = [
        (after - before, after)
        for before, after in zip(times_ns, times_ns[1:], strict=False)
        if after > killed_ns
    ]
    return (max(gaps)[1] - killed_ns) / 1e9 if gaps else float("inf")


def lost_vm(repeats: int = 10) -> dict[str, Any]:
    found = []
    for number in range(repeats):
        print(f"run {number + 1} of {repeats}", file=sys.stderr)
        found.append(once(number))
    return {
        "again_s": spread([one["again_s"] for one in found]),
        "lost": sum(one["lost"] for one in found),
        "killed": [" ".join(one["killed"]) for one in found],
        "load": round(os.getloadavg()[0], 1),
    }


BENCHMARKS = {"lost-vm": lost_vm}
