"""A VM that is killed with all its workers and does not come back: how long until rows reach the sink again.

Three agents of two slots, started one by one; a run of three tasks on two of them. The VM without the source is killed
(SIGKILL, its workers die with it). The sink keeps the time of each row: the longest gap that ends after that counts.
With `--state-mb` the task in the middle has so much state per key, 1,000 bytes a key, with `--state-to` a folder; the
VM that has it is killed and its disk removed once all keys have been there; each key's count is compared at the end.
"""
# bench: lost-vm – seconds until rows reach the sink again when a VM is killed and does not come back, also with state

from __future__ import annotations

import json
import os
import shutil
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
from headgate.topology_runtime.api.logic import Keyed, Source


class Held(Keyed):
    # Rows come in turns through all keys: a count that differs from the turn has lost state, or a row twice.

    def __init__(self, keys):
        self.keys = keys

    def new(self, key):
        return {"rows": 0, "text": f"{key:01000}"}

    def process(self, key, row, state):
        state = {"rows": state["rows"] + 1, "text": state["text"]}
        wrong = state["rows"] != row // self.keys + 1
        return state, ([-1 if wrong else row] if wrong or row % 50 == 0 else [])


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


STATE_RATE_TPS, STATE_BYTES, STATE_START_S, STATE_AFTER_S = 5000, 1000, 300.0, 60.0


def topology(folder: Path, keys: int = 0) -> dict[str, Any]:
    """keys: of the task in the middle; 0: it has no state."""
    held = {
        "name": "same",
        "kind": "keyed",
        "state": "keyed",
        "run": "lost_vm_tasks:Held",
        "static": STATIC,
        "params": {"keys": keys},
    }
    tasks = [
        {"name": "ids", "kind": "source", "run": "lost_vm_tasks:Ids", "static": STATIC},
        held if keys else {"name": "same", "run": "lost_vm_tasks:same", "static": STATIC},
        {
            "name": "keep",
            "run": "lost_vm_tasks:Keep",
            "static": STATIC,
            "params": {"path": str(folder / "rows")},
        },
    ]
    by_key = {"grouping": "fields", "key": f"lost_vm_tasks:modulo_{keys}"} if keys else {}
    edges = [{"from": "ids", "to": "same", **by_key}, {"from": "same", "to": "keep"}]
    return {"schema": "headgate/topology/v1", "name": "lost-vm", "tasks": tasks, "edges": edges}


def once(number: int, keys: int = 0) -> dict[str, Any]:
    rate, after_s = (STATE_RATE_TPS, STATE_AFTER_S) if keys else (RATE_TPS, AFTER_S)
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
            by_key = f"\n\ndef modulo_{keys}(row):\n    return row % {keys}\n" if keys else ""
            (folder / "lost_vm_tasks.py").write_text(TASKS + by_key)
            (folder / "topology.json").write_text(json.dumps(topology(folder, keys)))
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
                    str(rate),
                ),
                *("--slot-cores", cores_of(keys), "--vms", vms, "--state-dir", str(state), "--run", run),
                *("--path", str(folder)),
                *(("--set", f"state-to={folder}/states", "--set", "exactly-once=true") if keys else ()),
            )
            wait_for(lambda: (state / "controller" / "endpoint").exists())
            control = json.loads((state / "controller" / "endpoint").read_text())["control"]
            agents = {vm: start(*agent_words(vm, control, state, run, keys)) for vm in VMS}
            seen = 3 * rate if not keys else keys * 11 // 10 // 50
            wait_for(lambda: len(rows_of(folder)) > seen, STATE_START_S if keys else START_S)
            threads = {
                vm["vm"]: [task for slot in vm["slots"] for task in slot["threads"]]
                for vm in asked(str(state), "status")["vms"]
            }
            killed = next(
                vm
                for vm in VMS
                if ("same" in threads[vm] if keys else threads[vm] and "ids" not in threads[vm])
            )
            at_ns = time.time_ns()
            agents[killed].kill()
            agents[killed].wait()
            if keys:
                shutil.rmtree(folder / killed)
            time.sleep(after_s)
            summary = asked(str(state), "status")["tuples"]
            return {
                "killed": threads[killed],
                "again_s": again_s(rows_of(folder), at_ns),
                "lost": summary["lost"],
                "wrong": sum(line.startswith("-1 ") for line in (folder / "rows").read_text().splitlines()),
                "state_bytes": sum(f.stat().st_size for f in (folder / "states").rglob("*") if f.is_file()),
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


def cores_of(keys: int) -> str:
    """Of a slot: rows that waited are worked on one by one, beside those that come."""
    return "1" if keys else "0.2"


def agent_words(vm: str, control: str, state: Path, run: str, keys: int) -> list[str]:
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
    memory = f"{256 + keys * STATE_BYTES * 6 // 1_000_000}M"
    return [
        *words,
        "--slot-cores",
        cores_of(keys),
        "--slot-memory",
        memory,
        "--state-dir",
        str(state.parent / vm),
    ]


def wait_for(what: Any, most_s: float = START_S) -> None:
    end = time.monotonic() + most_s
    while True:
        try:
            if what():
                return
        except HeadgateError:
            pass  # it is not there yet; who never comes ends this below
        if time.monotonic() > end:
            raise SystemExit(f"not within {most_s:g} s")
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


def lost_vm(repeats: int = 10, state_mb: int = 0) -> dict[str, Any]:
    found = []
    for number in range(repeats):
        print(f"run {number + 1} of {repeats}", file=sys.stderr)
        found.append(once(number, state_mb * 1_000_000 // STATE_BYTES))
    return {
        "again_s": spread([one["again_s"] for one in found]),
        "lost": sum(one["lost"] for one in found),
        "wrong_counts": sum(one["wrong"] for one in found),
        "state_bytes": [one["state_bytes"] for one in found],
        "killed": [" ".join(one["killed"]) for one in found],
        "load": round(os.getloadavg()[0], 1),
    }


BENCHMARKS = {"lost-vm": lost_vm}
