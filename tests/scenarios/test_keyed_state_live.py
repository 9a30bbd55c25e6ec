"""Workers that hold keyed state are killed while ranges move, and a VM is lost with what it held."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from patience import PATIENCE_S, until

from benchmarks.live_runs.bench_replan import command
from watched_runs.counted_run import CountedRun
from watched_runs.trials import Trial

pytestmark = pytest.mark.live
RATE_TPS = 60.0


def holders(run: CountedRun, leaving: bool) -> list[int]:
    """Workers with threads of the keyed task that stay, or of slots where some leave."""
    slots = {
        (vm["vm"], slot["slot"])
        for vm in run.command("status")["vms"]
        for slot in vm["slots"]
        if (slot["leaving"] if leaving else "tally" in slot["threads"])
    }
    return [pid for pid in run.pids("worker") if place(pid) in slots]


def place(pid: int) -> tuple[str, int]:
    words = " ".join(psutil.Process(pid).cmdline())
    found = re.search(r"--vm (\S+) --slot (\d+)", words)
    assert found is not None, words
    return found[1], int(found[2])


def planned(run: CountedRun, factor: float) -> None:
    plan = run.command("plan", rate_tps=RATE_TPS * factor, propose=True)
    run.command("apply", id=plan["id"])


def settled(run: CountedRun) -> dict[str, Any]:
    """Its status, once no plan is under way and rows come."""

    def told() -> dict[str, Any] | None:
        run.segments.drain()
        status: dict[str, Any] = run.command("status")
        return status if status["plan"] and status["stage"] in ("committed", "probation") else None

    status: dict[str, Any] = until(told, run.log, run.process, every_s=0.2)
    return status


def test_old_and_new_owners_killed_while_ranges_move_cost_no_row_and_no_state(tmp_path: Path) -> None:
    run = CountedRun(tmp_path, RATE_TPS, 600)
    killed = {True: 0, False: 0}
    try:
        run.wait_for_rows(more=200)
        for turn in range(6):
            settled(run)
            planned(run, (2.4, 0.8)[turn % 2])
            time.sleep((0.0, 0.3, 1.0)[turn % 3])  # as it begins, while it is under way, when it is in force
            leaving = turn // 2 % 2 == 0
            for pid in (holders(run, leaving) or holders(run, not leaving))[:1]:
                os.kill(pid, signal.SIGKILL)
                killed[leaving] += 1
            run.wait_for_rows(more=200)
        settled(run)
        run.end()
        summary = run.finish()
        found = run.verdict(summary)
    finally:
        run.end()
    assert min(killed.values()) >= 2, killed
    assert found["whole"], found
    assert summary["state"]["lost_ranges"] == 0
    assert found["applied_again"] <= summary["state"]["applied_again_at_most"], found


def test_a_slot_given_up_where_no_other_worker_is_loses_no_state(tmp_path: Path) -> None:
    run = CountedRun(tmp_path, RATE_TPS, 600, vms=",".join("1" * 8))
    try:
        run.wait_for_rows(more=300)
        first = settled(run)["plan"]["epoch"]
        (owner,) = holders(run, leaving=False)[:1]
        slot = place(owner)

        def planned_round() -> bool:
            for pid in run.pids("worker"):
                if place(pid) == slot:
                    os.kill(pid, signal.SIGKILL)
            return bool(run.command("status")["plan"]["epoch"] != first)

        until(planned_round, run.log, run.process, every_s=1.0)
        settled(run)
        assert slot not in {place(pid) for pid in holders(run, leaving=False)}
        run.wait_for_rows(more=300)
        run.end()
        summary = run.finish()
        found = run.verdict(summary)
    finally:
        run.end()
    assert found["whole"], found
    assert summary["state"]["lost_ranges"] == 0, run.log()[-3000:]


def test_a_vm_lost_with_keyed_state_is_told_and_loses_no_row(tmp_path: Path) -> None:
    run = CountedRun(tmp_path, RATE_TPS, 600)
    try:
        run.wait_for_rows(more=300)
        status = settled(run)
        (owner,) = holders(run, leaving=False)[:1]
        vm, _ = place(owner)
        (agent,) = (v["pid"] for v in status["vms"] if v["vm"] == vm)
        stopped = [agent, *(pid for pid in run.pids("worker") if place(pid)[0] == vm)]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        before = status["plan"]["epoch"]
        until(lambda: run.command("status")["plan"]["epoch"] != before, run.log, run.process)
        settled(run)
        run.wait_for_rows(more=300)
        for pid in stopped:
            os.kill(pid, signal.SIGKILL)
        run.end()
        run.process.wait(PATIENCE_S)
        summary = json.loads((tmp_path / "out.json").read_text())
        found = run.verdict(summary)
    finally:
        run.end()
    assert run.process.returncode == 8, run.log()[-3000:]
    assert summary["state"]["lost_ranges"] > 0
    assert "tally" in summary["state"]["tasks"]
    assert summary["tuples"]["lost"] == 0
    lost = {name: sink["lost"] for name, sink in found["sinks"].items()}
    assert not any(lost.values()), found
    assert found["keys_short"], "the state of keys was lost with the VM, and nothing else may be told"


# ── Keyed state follows its key ranges through live re-plans: every row is counted once ─────────────────

HERE = Path(__file__).parent
TASKS = "headgate.topology_runtime.tasks"
STATIC = {"threads": 1, "cpu": 0.1, "memory": 0.1}


def write_work(folder: Path, tally: str) -> None:
    topology = {
        "schema": "headgate/topology/v1",
        "name": "tally",
        "tasks": [
            {"name": "source", "kind": "source", "run": f"{TASKS}.row_sources:Counter", "static": STATIC},
            {"name": "group", "run": "keyed_tasks:group"},
            {
                "name": "tally",
                "kind": "keyed",
                "state": "keyed",
                "run": f"keyed_tasks:{tally}",
                "max_call_s": 600,
            },
            {"name": "store", "run": f"{TASKS}.sinks:CollectToFile", "static": STATIC}
            | {"params": {"path": str(folder / "stored.txt")}},
        ],
        "edges": [
            {"from": "source", "to": "group"},
            {"from": "group", "to": "tally", "grouping": "fields", "key": 0},
            {"from": "tally", "to": "store"},
        ],
    }
    (folder / "topology.json").write_text(json.dumps(topology))
    (folder / "keyed_tasks.py").write_text((HERE / "keyed_tasks.py").read_text())
    (folder / "models").mkdir()
    for task, rate in (("group", 400.0), ("tally", 50.0)):  # one slot carries 50/s: more rate, more owners
        point = {"threads": 1, "rate_tps": rate, "cpu": 0.9, "memory": 0.05}
        slot = {"cores": 0.12, "memory_bytes": 536870912, "machine": "any"}
        model = {"schema": "headgate/model/v1", "task": task, "slot": slot, "points": [point]}
        (folder / "models" / f"{task}.json").write_text(json.dumps(model))


class Tallied(Trial):
    """`headgate up` of that work, whose offered rate is set as it goes."""

    def __init__(self, folder: Path, tally: str) -> None:
        self.tally = tally
        super().__init__(folder, "30", 600, ["--vms", "4,4"])

    def _write_topology(self) -> None:
        write_work(self.folder, self.tally)

    def offer(self, rate_tps: float) -> None:
        command(self, "rate_set", rate_tps=rate_tps)

    def says(self, *words: str) -> None:
        until(lambda: any(one in self.log() for one in words), self.log, self.process)

    def in_force(self, plan: int) -> None:
        self.says(f"plan #{plan} probation", f"plan #{plan} committed")

    def stored_rows(self) -> Counter[tuple[int, int]]:
        """(group, its count)"""
        return Counter(
            tuple(json.loads(line)) for line in (self.folder / "stored.txt").read_text().splitlines()
        )

    def ended(self) -> dict[str, Any]:
        self.end()
        summary = self.finish()
        assert len(summary["plans"]) >= 3, summary["plans"]
        assert summary["state"]["lost_ranges"] == 0
        return summary


@contextmanager
def tallied(folder: Path, tally: str) -> Iterator[Tallied]:
    run = Tallied(folder, tally)
    try:
        run.in_force(1)
        yield run
    finally:
        run.end()


def counted_once(emitted: int) -> Counter[tuple[int, int]]:
    return Counter((g, n) for g in range(20) for n in range(1, len(range(g, emitted, 20)) + 1))


def test_counts_stay_exact_while_ranges_move(tmp_path: Path) -> None:
    with tallied(tmp_path, "Tally") as run:
        for plan, rate_tps in ((2, 110.0), (3, 30.0)):
            run.offer(rate_tps)
            run.in_force(plan)
        summary = run.ended()
    assert not any(plan["rolled_back"] for plan in summary["plans"])
    assert run.stored_rows() == counted_once(summary["tuples"]["emitted"])


def test_a_long_legal_call_during_a_re_plan_loses_no_state(tmp_path: Path) -> None:
    """Rows are replayed meanwhile and come out again; no state counts them twice, or begins anew."""
    with tallied(tmp_path, "SlowTally") as run:
        (tmp_path / "be-slow").touch()
        until((tmp_path / "slow").exists, run.log, run.process)
        run.offer(110.0)
        run.says("plan #2 enacting")
        time.sleep(3.0)
        (tmp_path / "go-on").touch()
        run.in_force(2)
        run.offer(200.0)
        run.in_force(3)
        summary = run.ended()
    assert max(plan["pause_ms"] for plan in summary["plans"]) > 2000, "a re-plan waited for the call"
    assert set(run.stored_rows()) == set(counted_once(summary["tuples"]["emitted"]))
