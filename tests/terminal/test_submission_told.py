"""What `headgate submit` says while tasks are measured, and what it keeps (dashboards/terminal/submit_commands.py)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.dashboards.runs.live_view import notes
from headgate.dashboards.terminal import submit_commands as measuring
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.errors import HeadgateError, Unreachable

LINE = Topology(
    "line",
    (
        Task("source", "source", "x:Source", static=Static()),
        Task("work", run="x:work"),
        Task("pay", run="x:pay", side_effects=True),
        Task("store", run="x:store"),
    ),
    (Edge("source", "work"), Edge("work", "pay"), Edge("pay", "store")),
)
VM = {"vm": "vm1", "machine": "a-kind-1", "slot_cores": 0.5, "slot_memory_bytes": 1 << 28}


def model(task: str, machine: str = "a-kind-1", **more: Any) -> dict[str, Any]:
    slot = {"machine": machine, "cores": 0.5, "memory_bytes": 1 << 28}
    points = [{"threads": 1, "rate_tps": 5.0, "cpu": 0.5, "memory": 0.1}]
    return {"schema": "headgate/model/v1", "task": task, "slot": slot, "points": points, **more}


# ── what is kept ────────────────────────────────────────────────────────────────────────────────


def test_what_was_measured_is_known_the_next_time_on_that_kind_of_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = measuring.Kept(LINE, ())
    assert kept.models([VM]) == []
    kept.keep([model("work"), model("pay", unmeasured=True)])
    assert kept.models([VM]) == [model("work")], "what only stands in is not known"
    assert kept.models([{**VM, "machine": "b-kind-2"}]) == kept.models([{**VM, "slot_cores": 0.2}]) == []
    other = Topology("line", (*LINE.tasks[:1], Task("work", run="x:other"), *LINE.tasks[2:]), LINE.edges)
    assert measuring.Kept(other, ()).models([VM]) == []


@pytest.mark.parametrize("name", ["", "../../etc", "/etc", "..", "a/b", "x" * 200])
def test_nothing_is_kept_outside_whatever_hosts_and_controller_call_things(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "deep" / "down" / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    kept = measuring.Kept(LINE, ())
    kept.keep([model("work", machine=name), model(f"../{name}")])
    assert kept.models([{**VM, "machine": name}, {**VM, "machine": None}]) == []
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


# ── what stands in ──────────────────────────────────────────────────────────────────────────────


def test_what_may_have_effects_is_not_run_on_samples_unless_asked_for() -> None:
    said: list[str] = []
    names = measuring.lacking(LINE, [])
    assert names == ["work", "pay", "store"]
    found = measuring.stand_ins(LINE, names, False, said.append)
    assert [one["task"] for one in found] == ["pay", "store"] and all(one["unmeasured"] for one in found)
    assert said[0].startswith("not run on sample rows, since they may have side effects: pay, store.")
    assert measuring.stand_ins(LINE, names, True, said.append) == [] and "pay, store really run" in said[1]
    assert (
        measuring.stand_ins(LINE, measuring.lacking(LINE, [model("pay"), model("store")]), False, said.append)
        == []
    )
    assert len(said) == 2, "of what has a model nothing is said"


# ── how far it is ───────────────────────────────────────────────────────────────────────────────


def task(name: str, state: str, slot: str | None = None) -> dict[str, Any]:
    about = {"task": name, "model": name, "machine": "a", "state": state, "slot": slot}
    return {**about, "points": 1, "points_of": 4}


def now(*tasks: dict[str, Any], left_s: float | None = 12.3) -> dict[str, Any]:
    done = sum(one["state"] == "measured" for one in tasks)
    told = {"tasks": list(tasks), "done": done, "of": len(tasks), "left_s": left_s}
    return {"state": "measuring", "measuring": told}


def asking(*answers: Any) -> tuple[Any, list[tuple[str, dict[str, Any]]]]:
    """One that is asked, gives these answers one after the other, or raises them; and what was asked."""
    left: Iterator[Any] = iter(answers)
    asked: list[tuple[str, dict[str, Any]]] = []

    def ask(command: str, arguments: dict[str, Any]) -> Any:
        asked.append((command, arguments))
        answer = next(left)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return ask, asked


def test_elsewhere_than_on_a_terminal_a_line_tells_of_each_that_begins_or_is_done() -> None:
    said: list[str] = []
    ask, _ = asking(
        now(task("a", "waiting"), task("b", "waiting")),
        now(task("a", "measuring", "vm1/0"), task("b", "waiting")),
        now(task("a", "measuring", "vm1/0"), task("b", "waiting")),
        Unreachable("it is being started again"),
        now(task("a", "measured"), task("b", "measuring", "vm2/0"), left_s=4.0),
        {"state": "accepted", "models": [model("a")]},
    )
    assert measuring.measured(ask, 7, said.append) == [model("a")]
    assert said == [
        "2 tasks without a model: measured in free slots of the hosts first, about 12 s (they really run there, with "
        "sample rows). Ctrl-C withdraws the submission",
        "measuring a in vm1/0",
        "a is measured, 1 of 2, about 4 s",
        "measuring b in vm2/0",
    ]


def test_status_tells_of_it() -> None:
    text = "chain: 0 of 3 tasks measured, a in vm1/0 (1 of 4 points); about 20 s"
    assert notes({"measuring": {"text": text}}) == [f"to be run once its tasks are measured: {text}"]


def test_what_is_dropped_or_forgotten_is_an_error() -> None:
    error = {"what": "task 'a' could not be measured in vm1/0", "cause": "ValueError: no", "hint": None}
    ask, _ = asking({"state": "dropped", "error": error})
    with pytest.raises(HeadgateError, match="task 'a'") as raised:
        measuring.measured(ask, 7, print)
    assert raised.value.cause == "ValueError: no" and raised.value.exit_code == 1
    ask, _ = asking({"state": "unknown"})
    with pytest.raises(HeadgateError, match="knows nothing"):
        measuring.measured(ask, 7, print)


def test_ctrl_c_withdraws_and_goes_on_as_ctrl_c() -> None:
    said: list[str] = []
    ask, asked = asking(now(task("a", "measuring", "vm1/0")), KeyboardInterrupt(), {})
    with pytest.raises(KeyboardInterrupt):
        measuring.measured(ask, 7, said.append)
    assert asked[-1] == ("withdraw", {"number": 7}) and "withdrawn" in said[-1]


def test_that_no_plan_fits_is_said() -> None:
    said: list[str] = []
    alarm = {"what": "plan", "text": "no first plan: no plan carries the 900 rows/s"}
    ask, _ = asking(
        {"plan": None, "stage": "gathering", "alarms": []},
        {"plan": None, "stage": "gathering", "alarms": [alarm]},
    )
    measuring.say_first_plan(ask, said.append)
    assert said == [f"{alarm['text']}. It waits for more VMs; `headgate stop` ends it"]
    ask, _ = asking({"plan": {"epoch": 1}, "stage": "starting", "alarms": []})
    measuring.say_first_plan(ask, said.append)
    assert len(said) == 1
