"""One turn of one run, shown everywhere: the same figures, parsed from what is shown."""

from __future__ import annotations

import json
import re
from array import array
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from arriving_world import ArrivingWorld
from enactment_world import TOPOLOGY, World
from enactment_world import vm as machine
from keys_made import MadeKeys
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from headgate.controller.core.loop import Loop
from headgate.controller.knowledge import loop_events as t
from headgate.controller.viewers import Publisher
from headgate.controller.views.controller_metrics import families
from headgate.dashboards.terminal.status_commands import print_status
from headgate.topology_runtime.api.topology import Static
from headgate.topology_runtime.latency.latency_buckets import PER_DOUBLING, bucket_of
from headgate.topology_runtime.wire.messages import SampleBlock

Labels = frozenset[tuple[str, str]]


class TickingWorld(World):
    """Remembers what the last tick gave rise to, and asks in the same moment."""

    ticked: list[t.Instruction]
    replied: list[dict[str, Any]]
    predicts = True

    def do(self, event: t.Event) -> list[t.Instruction]:
        out = super().do(event)
        if isinstance(event, t.Tick):
            self.ticked = out
            self.replied = [json.loads(json.dumps(self.ask(what).data)) for what in ("status", "summary")]
        return out


@dataclass
class Shown:
    """What each of them shows at one moment. text: of `headgate status`, for people."""

    status: dict[str, Any]
    summary: dict[str, Any]
    page: dict[str, Any]
    text: str
    metrics: dict[tuple[str, Labels], float]
    rates: dict[str, Any]

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.get((name, frozenset(labels.items())))


def shown(world: TickingWorld, capsys: pytest.CaptureFixture[str]) -> Shown:
    """At a moment at which a view was made."""
    show = None
    while show is None:
        world.run(0.25)
        turn = world.ticked
        show = next((one for one in turn if isinstance(one, t.Show)), None)
    rates = [one.data for one in turn if isinstance(one, t.Trace) and one.kind == "rates"]

    class Collected:
        def collect(self) -> Any:
            return families(show.view)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collected())  # type: ignore[arg-type]
    told = generate_latest(registry).decode()
    with closing(Publisher(MadeKeys().guard)) as publisher:
        publisher.show(show.view)
        page = json.loads(json.dumps(publisher.snapshot()["snapshot"]))
    status, summary = world.replied
    capsys.readouterr()
    print_status(status)
    metrics = {
        (one.name, frozenset(one.labels.items())): one.value
        for family in text_string_to_metric_families(told)
        for one in family.samples
    }
    return Shown(status, summary, page, capsys.readouterr().out, metrics, rates[0] if rates else {})


def number(text: str, pattern: str) -> float:
    found = re.search(pattern, text)
    assert found, f"{pattern} is not in\n{text}"
    return float(found[1].replace(",", ""))


def alike(shown_there: Any, exact: float | None, digits: int = 3) -> bool:
    """To as many digits as it is shown with."""
    if exact is None or shown_there is None:
        return exact is None and shown_there is None
    return float(shown_there) == pytest.approx(exact, rel=1.01 * 10 ** (1 - digits) / 2, abs=1e-9)


def in_tasks(world: World) -> None:
    """Rows of `work` took a while."""
    columns = {"task": 1, "bucket": bucket_of(1_000_000), "rows": 90}
    counts = {name: array("q", [value]).tobytes() for name, value in columns.items()}
    block = SampleBlock("vm1", 1, 1, 1, 1, 1, (), {}, {}, {}, task_latency=counts, per_doubling=PER_DOUBLING)
    assert world.loop.intake is not None
    world.loop.intake.in_task.add(block, world.mono_ns)


def check_rates(now: Shown) -> None:
    rates, page = now.status["rates"], now.page["rates"]
    assert alike(page["offered_tps"], rates["offered_now_tps"])
    assert alike(now.metric("headgate_input_rate_tps"), rates["offered_now_tps"], 6)
    assert number(now.text, r"rate +([\d,]+) rows/s offered") == pytest.approx(
        rates["offered_now_tps"], abs=0.51
    )
    for name in ("emitted", "acked"):
        assert alike(page.get(f"{name}_tps"), rates[f"{name}_now_tps"])
    if rates["acked_now_tps"] is not None:
        assert number(now.text, r"([\d,]+) measured") == pytest.approx(rates["acked_now_tps"], abs=0.51)
    for name, of_plan in (("planned", "rate_tps"), ("predicted", "predicted_tps")):
        exact = rates[f"{name}_tps"]
        assert exact == now.status["plan"][of_plan] and alike(page[f"{name}_tps"], exact)
        assert alike(now.page["plan"][of_plan], exact, 6)
        assert now.rates == {} or now.rates[f"{name}_tps"] == exact
        assert number(now.text, rf"([\d,]+) {name}") == pytest.approx(exact, abs=0.51)
    assert alike(page["headroom_tps"], rates["headroom_tps"])
    assert now.metric("headgate_headroom_tps") == pytest.approx(rates["headroom_tps"], abs=1e-3)


def check_lag(now: Shown) -> None:
    rates, page = now.status["rates"], now.page["rates"]
    assert now.summary["source_kind"] == rates["source_kind"]
    assert now.summary["lag"] == {"rows": rates["lag_rows"] or 0, "seconds": rates["lag_s"] or 0.0}
    if rates["source_kind"] == "paced":
        assert rates["lag_rows"] is None and "source_kind" not in page
        return
    assert page["source_kind"] == rates["source_kind"]
    assert page["lag_rows"] == rates["lag_rows"] and alike(page["lag_s"], rates["lag_s"])
    if rates["lag_rows"]:
        assert number(now.text, r"([\d,]+) rows, ") == rates["lag_rows"]
    if now.rates:
        traced = (now.rates["source_kind"], now.rates["lag_rows"], now.rates["lag_s"])
        assert traced == ("arriving", rates["lag_rows"], rates["lag_s"])


def check_tuples(now: Shown) -> None:
    tuples = now.status["tuples"]
    every = ("offered", "emitted", "acked", "in_flight", "lost", "dead_lettered", "replayed", "duplicates")
    for name in every:
        assert now.page["tuples"][name] == tuples[name], name
        assert name == "lost" or now.summary["tuples"][name] == tuples[name], name
    assert now.summary["tuples"]["lost"] == tuples["emitted"] - tuples["acked"] - tuples["dead_lettered"]
    assert now.summary["tuples"]["sinks"] == tuples["sinks"]
    assert now.metric("headgate_tuples_lost_total") == tuples["lost"]
    assert now.metric("headgate_tuples_replayed_total") == tuples["replayed"]
    dead = [value for (name, _), value in now.metrics.items() if name == "headgate_dead_letters_total"]
    assert sum(dead) == tuples["dead_lettered"]
    for name, words in {"acked": "acked", "in_flight": "in flight", "replayed": "replayed",
                        "dead_lettered": "dead letters", "lost": "lost"}.items():  # fmt: skip
        assert number(now.text, rf"([\d,]+) {words}") == tuples[name], name


def check_plan_and_slots(now: Shown) -> None:
    status, page = now.status, now.page
    assert status["plan"]["epoch"] == page["plan"]["epoch"] == now.summary["plans"][-1]["epoch"]
    assert status["plan"]["threads"] == page["plan"]["threads"]
    assert status["stage"] == page["stage"] and status["stage"] in now.text
    used, total = status["slots"]["used"], status["slots"]["total"]
    assert page["plan"]["slots"]["used"] == used == now.summary["plans"][-1]["slots"]
    assert f"plan #{page['plan']['epoch']}, {used} of {total} slots" in page["header"]
    assert number(now.text, r"#\d+: (\d+) of") == used and number(now.text, r"of (\d+) slots on") == total
    states = [now.metric("headgate_slots", state=state) for state in ("used", "free", "quarantined")]
    assert sum(filter(None, states)) == total and states[2] == status["slots"]["quarantined"]
    for vm in status["vms"]:
        there = page["vms"][vm["vm"]]
        assert there["state"] == vm["state"] and there["slots_used"] == sum(
            bool(s["threads"]) for s in vm["slots"]
        )
        for what in ("cpu", "memory"):
            measured = [slot[what] for slot in vm["slots"] if slot[what] is not None]
            assert vm[what] is None or vm[what] == pytest.approx(sum(measured) / len(vm["slots"]), abs=1e-3)
            assert vm[what] is None or abs(there[what] - vm[what]) <= 0.0051
        for slot in vm["slots"]:
            there = page["slots"][f"{vm['vm']}/{slot['slot']}"]
            assert (there["threads"], there["state"]) == (slot["threads"], slot["state"])
            assert there.get("crashes", 0) == slot["crashes"] and there.get("leaving", 0) == slot["leaving"]
            for what in ("cpu", "memory"):
                for source, key in (("measured", what), ("predicted", f"predicted_{what}")):
                    told = now.metric(
                        f"headgate_slot_{what}_ratio", vm=vm["vm"], slot=str(slot["slot"]), source=source
                    )
                    assert alike(told, slot[key], 9) and (
                        slot[key] is None or abs(there[key] - slot[key]) <= 0.0051
                    )


def check_tasks(now: Shown) -> None:
    tasks = {task["task"]: task for task in now.status["tasks"]}
    assert set(tasks) == set(now.page["topology"]["tasks"])
    for name, task in tasks.items():
        there = now.page["topology"]["tasks"][name]
        assert alike(there["rate_tps"], task["rate_in_tps"]) and alike(there["queue"], task["queue"], 2)
        assert alike(there.get("p50_ms"), task["latency_p50_ms"], 2)
        assert alike(there.get("p99_ms"), task["latency_p99_ms"], 2)
        assert there.get("grows", False) == task["grows"] and there.get("load_slot") == task["load_slot"]
        told = now.metric("headgate_task_load_ratio", task=name)
        assert told == pytest.approx(task["load"], abs=1e-4) if told is not None else task["load"] is None
        if task["rate_in_tps"]:
            assert now.metric("headgate_task_rate_tps", task=name) == pytest.approx(
                task["rate_in_tps"], abs=1e-4
            )


def check_verdict(now: Shown) -> None:
    verdict, stable = now.status["verdict"], now.page["stable"]
    assert stable["verdict"] == verdict["verdict"] and verdict["words"].split(":")[0] in now.text
    flag = {"stable": 1, "catching_up": 0, "unstable": 0, "unknown": None}
    assert now.metric("headgate_stable") == flag[verdict["verdict"]]
    states = {state: now.metric("headgate_verdict", state=state) for state in flag}
    assert states == {state: float(state == verdict["verdict"]) for state in flag}
    assert stable["backlog_rows"] == verdict["backlog_rows"] == now.metric("headgate_backlog_rows")
    assert alike(stable["backlog_s"], verdict["backlog_s"])
    assert now.metric("headgate_backlog_seconds") == pytest.approx(verdict["backlog_s"], abs=1e-3)
    assert number(now.text, r"([\d,]+) rows not done") == verdict["backlog_rows"]
    if now.rates:
        assert now.rates["backlog_s"] == pytest.approx(verdict["backlog_s"], abs=1e-3)
    if verdict["verdict"] != "unknown":
        assert now.metric("headgate_latency_slope") == pytest.approx(verdict["slope"], abs=1e-4)
        assert stable["slope"] == pytest.approx(verdict["slope"], rel=0.06, abs=1e-4)
        assert number(now.text, r"slope ([+-][\d.]+) ms/s") == pytest.approx(
            1000 * verdict["slope"], abs=0.11
        )
    window = now.status["latency_ms"]["window"]
    assert (window is None) == (now.page["latency_ms"] == {})
    if window:
        assert all(alike(now.page["latency_ms"][p], window[p]) for p in ("p50", "p95", "p99"))
    predicted, told = now.status["latency_ms"]["predicted"], now.metric("headgate_predicted_p95_seconds")
    if predicted is None:
        assert told is None and not any("predicted" in name for name in now.page["latency_ms"])
    else:
        assert told == pytest.approx(predicted["p95_ms"] / 1000, abs=1e-6)
        shares = ("p50", "p95", "p99")
        assert all(alike(now.page["latency_ms"][f"predicted_{p}"], predicted[f"{p}_ms"]) for p in shares)
        assert number(now.text, r"predicted ([\d,.]+) ms") == pytest.approx(predicted["p50_ms"], abs=0.06)
    overall = {
        name: ms for name, ms in now.status["latency_ms"].items() if name not in ("window", "predicted")
    }
    assert overall == now.summary["latency_ms"]


def check_bottleneck(now: Shown) -> None:
    """The same task everywhere, and none has a higher load."""
    first, page, plan = now.status["bottleneck"], now.page.get("next_bottleneck"), now.status["plan"]
    if first is None:
        assert page is None
        return
    assert (first["task"], first["slot"]) == (plan["limited_by"], plan["limited_by_slot"])
    assert (page["task"], page["slot"]) == (first["task"], first["slot"])
    assert page["at_tps"] == pytest.approx(first["at_tps"])
    assert f"{first['task']} on {first['slot']} saturates first" in now.text
    loads = {task["task"]: task["load"] for task in now.status["tasks"] if task["load"] is not None}
    assert first["load"] == loads[first["task"]] == max(loads.values())
    assert now.metric("headgate_bottleneck_load_ratio") == pytest.approx(first["load"], abs=1e-4)


def check(now: Shown) -> None:
    check_bottleneck(now)
    check_rates(now)
    check_lag(now)
    check_tuples(now)
    check_plan_and_slots(now)
    check_tasks(now)
    check_verdict(now)
    assert now.page["seconds"] == pytest.approx(now.status["seconds"], abs=0.051)
    assert now.summary["seconds"] == now.status["seconds"]
    alarms = {alarm["what"]: alarm["text"] for alarm in now.status["alarms"]}
    assert now.page.get("alarms", {}) == alarms and all(
        text in " ".join(now.text.split()) for text in alarms.values()
    )
    counted = sum(value for (name, _), value in now.metrics.items() if name == "headgate_alarms")
    assert counted == len(alarms)


@pytest.mark.parametrize("seconds", [3.0, 30.0])
def test_of_a_run_that_keeps_up(seconds: float, capsys: pytest.CaptureFixture[str]) -> None:
    world = TickingWorld().start().run(seconds)
    in_tasks(world)
    now = shown(world.run(1.0), capsys)
    check(now)
    assert now.status["verdict"]["verdict"] == ("unknown" if seconds < 10 else "stable")
    assert seconds < 10 or now.status["latency_ms"]["predicted"] is not None
    assert seconds < 10 or {task["latency_p99_ms"] is not None for task in now.status["tasks"]} == {
        True,
        False,
    }


def test_of_a_run_that_is_planned_again_and_loses_a_slot(capsys: pytest.CaptureFixture[str]) -> None:
    world = TickingWorld().start().run(30.0)
    world.ask("rate_set", rate_tps=310.0)
    epochs = set()
    for _ in range(12):
        now = shown(world.run(0.5), capsys)
        check(now)
        epochs.add(now.status["plan"]["epoch"])
    assert len(epochs) > 1, "through the change of plans"
    world.vms["vm1"].quarantine(next(iter(world.vms["vm1"].workers)).number)
    for _ in range(4):
        check(shown(world.run(1.0), capsys))


def test_of_a_run_that_is_behind_what_comes(capsys: pytest.CaptureFixture[str]) -> None:
    class TickingArrivals(TickingWorld, ArrivingWorld):
        pass

    world = TickingArrivals(100.0, 100.0)
    world.start().run(20.0)
    world.comes_tps, world.carries_tps = 200.0, 100.0
    now = shown(world.run(12.0), capsys)
    check(now)
    assert now.summary["source_kind"] == "arriving" and now.summary["lag"]["rows"] > 100
    assert "lag" in now.page["alarms"]


def test_a_load_grows_as_the_rate_does_whatever_is_reserved_beside_it() -> None:
    """The source reserves more than half of the slot in which the other task is."""
    source = msgspec.structs.replace(TOPOLOGY.by_name["source"], static=Static(1, 0.6, 0.1))
    tight = msgspec.structs.replace(TOPOLOGY, tasks=(source, *TOPOLOGY.tasks[1:]))
    world = TickingWorld((machine("vm1", 1),), rate_tps=10.0)
    world.submitted = msgspec.structs.replace(world.submitted, topology=tight)
    world.loop = Loop(world.settings, world.submitted)
    world.start().run(30.0)
    loads = []
    for rate_tps in (10.0, 20.0):
        world.ask("rate_set", rate_tps=rate_tps)
        world.run(20.0)
        status = world.ask("status").data
        assert {task["task"] for task in status["tasks"] if task["load"] is not None} == {"work"}
        loads.append(status["bottleneck"]["load"])
    assert loads[1] == pytest.approx(2 * loads[0], rel=0.05)
