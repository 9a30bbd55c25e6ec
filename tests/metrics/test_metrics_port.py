"""The port on which a process tells its metrics."""

from __future__ import annotations

import math
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from http.client import HTTPConnection, HTTPSConnection

import msgspec
import pytest
from scraped_metrics import (
    CONTRACT,
    World,
    block,
    everything,
    full,
    in_tasks,
    names,
    needs_promtool,
    samples_of,
    scraped,
    text_of,
    vm,
)

from headgate.agent.core.slot_state import SlotState
from headgate.agent.reports import agent_metrics as of_agent
from headgate.controller.knowledge import loop_events as t
from headgate.controller.plan.predict.prediction import predict
from headgate.controller.views import controller_metrics as of_controller
from headgate.controller.views.controller_metrics import families
from headgate.controller.views.run_documents import summary
from headgate.controller.views.run_snapshots import SnapshotMaker
from headgate.dashboards.headgate_command import run
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.errors import Unreachable, UsageError
from headgate.topology_runtime.latency.latency_buckets import bucket_of
from headgate.topology_runtime.metrics.metric_families import BOUNDS, defined
from headgate.topology_runtime.metrics.metrics_port import CONNECTIONS_MOST, MetricsPort
from headgate.topology_runtime.platform.certificates import own_certificate
from headgate.topology_runtime.platform.http_options import MetricsAt
from headgate.topology_runtime.wire import messages as m


@pytest.fixture
def port() -> Iterator[MetricsPort]:
    opened = MetricsPort(MetricsAt("127.0.0.1", 0), lambda: families(full()))
    yield opened
    opened.close()


def got(address: str, path: str, **headers: str) -> tuple[int, str, str]:
    connection = HTTPConnection(address, timeout=5)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, answer.headers["Content-Type"], body


def test_metrics_are_told_on_loopback_in_prometheus_text_or_as_open_metrics(port):
    assert port.address.startswith("127.0.0.1:")
    status, kind, body = got(port.address, "/metrics")
    assert status == 200 and kind.startswith("text/plain; version=")
    assert {name for name, _ in samples_of(body)} < names()
    _, kind, body = got(port.address, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text") and body.endswith("# EOF\n")
    assert got(port.address, "/")[::2] == (404, "see /metrics\n")


def test_whoever_connects_and_says_nothing_keeps_nobody_waiting(port):
    host, _, number = port.address.partition(":")
    with socket.create_connection((host, int(number))), socket.create_connection((host, int(number))) as loud:
        loud.sendall(b"\x00\xff nonsense\r\n\r\n")
        assert got(port.address, "/metrics")[0] == 200


@pytest.fixture
def secure(tmp_path) -> Iterator[tuple[MetricsPort, ssl.SSLContext]]:
    made = own_certificate(tmp_path, ("127.0.0.1",))
    opened = MetricsPort(MetricsAt("127.0.0.1", 0, made), lambda: families(full()))
    yield opened, ssl.create_default_context(cafile=str(made.file))
    opened.close()


def test_metrics_are_told_by_https_to_whom_trusts_the_certificate(secure):
    port, context = secure
    with closing(HTTPSConnection(port.address, timeout=5, context=context)) as link:
        link.request("GET", "/metrics")
        assert {name for name, _ in samples_of(link.getresponse().read().decode())} < names()
    with (
        closing(HTTPSConnection(port.address, timeout=5)) as link,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        link.request("GET", "/metrics")


def test_who_speaks_plain_http_is_told_so_and_who_is_silent_holds_up_nobody(secure):
    port, context = secure
    assert got(port.address, "/metrics")[::2] == (400, "this port speaks https only\n")
    host, _, number = port.address.partition(":")
    with ExitStack() as hanging:
        for _ in range(CONNECTIONS_MOST * 2):
            hanging.enter_context(socket.create_connection((host, int(number)))).sendall(b"\x16\x03")
        link = hanging.enter_context(closing(HTTPSConnection(port.address, timeout=5, context=context)))
        link.request("GET", "/")
        assert link.getresponse().status == 404


PLACES = (
    ["controller", "run"],
    ["agent", "run", "--controller", "tcp://127.0.0.1:1", "--vm", "vm1", "--key", "none"],
)


@pytest.mark.parametrize("words", PLACES)
def test_off_loopback_they_are_told_by_https_or_by_a_flag(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for options, what in (
        (["--set", "metrics-host=10.0.0.5"], "unencrypted"),
        (["--set", "metrics-host=::"], "no address that others could connect to"),
        (["--set", "metrics-host=10.0.0.5", "--set", "metrics-certificate=x"], "go together"),
        (["--set", "metrics-tls=yes", "--set", "metrics-plain=yes"], "goes with no certificate"),
        (["--set", "metrics-host=no host"], "these addresses cannot be"),
    ):
        with pytest.raises(UsageError, match=what) as refused:
            run([*words, "--metrics-port", "0", *options])
        assert (
            refused.value.hint is None
            or "--set metrics-" in refused.value.hint
            or "a name or" in refused.value.hint
        )
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken_and_an_address_that_is_none_are_said(port):
    taken = int(port.address.partition(":")[2])
    for host, number in (("127.0.0.1", taken), ("nowhere.invalid", 0)):
        with pytest.raises(Unreachable, match=f"metrics cannot be served on {host}:{number}"):
            MetricsPort(MetricsAt(host, number), list)


# ── What Prometheus is told of a controller and of an agent ─────────────────────────────────────────────

HISTOGRAM = ("_bucket", "_sum", "_count")


@pytest.mark.parametrize("name", CONTRACT)
def test_every_metric_of_the_contract_is_told_with_its_labels_and_no_others(name):
    told = samples_of(everything())
    desired = [f"{name}{end}" for end in HISTOGRAM] if name == "headgate_task_latency_seconds" else [name]
    for series in desired:
        labels = [{key for key, _ in found} for told_name, found in told if told_name == series]
        assert labels
        assert all(found - {"le"} == CONTRACT[name] for found in labels)


def test_no_label_is_a_thread():
    labels = {key for _, found in samples_of(everything()) for key, _ in found}
    assert labels == {
        "task", "vm", "slot", "source", "reason", "state", "le", "sink", "sender", "what", "run", "to",
    }  # fmt: skip


@needs_promtool
def test_promtool_finds_nothing_wrong_with_the_exposition():
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=everything(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_before_there_is_a_plan_only_what_is_known_is_told():
    told = scraped(World())
    gauges = {name for name, _ in told if not name.startswith(("headgate_replans", "headgate_tuples"))}
    assert gauges == {"headgate_slots", "headgate_disk_trouble", "headgate_alarms", "headgate_run_info"}
    assert told["headgate_tuples_lost_total", ()] == 0


def test_a_run_is_told_as_its_status_has_it():
    world = World().start().run(20.0)
    told, status = scraped(world), world.ask("status").data
    rates = status["rates"]
    assert told["headgate_input_rate_tps", ()] == rates["offered_now_tps"] == 100
    assert told["headgate_headroom_tps", ()] == pytest.approx(rates["headroom_tps"], abs=1e-3)
    assert told["headgate_tuples_replayed_total", ()] == status["tuples"]["replayed"]
    used, total = status["slots"]["used"], status["slots"]["total"]
    by_state = {
        state: told["headgate_slots", (("state", state),)] for state in ("used", "free", "quarantined")
    }
    assert by_state == {"used": used, "free": total - used, "quarantined": 0}
    tasks = {dict(labels)["task"] for name, labels in told if name == "headgate_task_rate_tps"}
    assert tasks == {"source", "work", "sink"}
    seen = {
        f"{found['vm']}/{found['slot']}"
        for name, labels in told
        if name == "headgate_slot_cpu_ratio" and (found := dict(labels))["source"] == "predicted"
    }
    busy = {f"{v['vm']}/{s['slot']}" for v in status["vms"] for s in v["slots"] if s["predicted_cpu"]}
    assert seen == busy != set()


def test_dead_letters_and_disks_are_told():
    world = World().start().run(5.0)
    told = scraped(world)
    assert told["headgate_dead_letters_total", (("task", "work"),)] == 0
    assert told["headgate_disk_trouble", (("vm", "vm1"),)] == 0
    letters = tuple(m.DeadLetter("work", 1, "source", 0, n, "row", "ValueError", "") for n in (3, 4))
    world.do(t.FromVm(m.DeadLetters("vm1", letters)))
    world.do(t.FromVm(msgspec.structs.replace(world.vms["vm1"].report(), troubles=("the log: full",))))
    told = scraped(world)
    assert told["headgate_dead_letters_total", (("task", "work"),)] == 2
    assert told["headgate_disk_trouble", (("vm", "vm1"),)] == 1
    assert told["headgate_disk_trouble", (("vm", "controller"),)] == 0


def test_a_task_is_as_near_to_its_limit_as_the_models_say():
    """100 of the 150 rows/s that three threads of `work` carry in one slot; source and sink reserve what they use."""
    world = World(rate_tps=100.0).start().run(30.0)
    status, told = world.ask("status").data, scraped(world)
    tasks = {task["task"]: task for task in status["tasks"]}
    slots = {f"{vm['vm']}/{slot['slot']}": slot for vm in status["vms"] for slot in vm["slots"]}
    assert {name for name, task in tasks.items() if task["load"] is not None} == {"work"}
    for name, task in [("work", tasks["work"])]:
        assert told["headgate_task_load_ratio", (("task", name),)] == pytest.approx(task["load"], abs=1e-3)
        assert name in slots[task["load_slot"]]["threads"] and task["grows"] is False
    threads = slots[tasks["work"]["load_slot"]]["threads"]["work"]
    peak = tasks["work"]["rate_in_tps"] / (50.0 * threads)
    there = slots[tasks["work"]["load_slot"]]
    reserved = 0.1 * sum(there["threads"].get(name, 0) for name in ("source", "sink"))
    cpu = (there["predicted_cpu"] - reserved) / (1 - reserved)
    assert tasks["work"]["load"] == pytest.approx(max(peak, cpu), abs=1e-3)


def test_what_is_predicted_of_a_slot_is_for_the_present_rate_in_status_metrics_and_picture():
    world = World(rate_tps=100.0).start().run(30.0)
    status, told = world.ask("status").data, scraped(world)
    view, k = world.loop.view(world.now), world.loop.knowledge
    plan = view.plan
    by_definition = predict(k.topology, k.models, plan.placement, plan.vms, view.window.emitted_tps)
    picture = SnapshotMaker()
    picture.advance(view)
    drawn = picture.snapshot()["slots"]
    shown = {(vm["vm"], slot["slot"]): slot["predicted_cpu"] for vm in status["vms"] for slot in vm["slots"]}
    for use in by_definition.slots:
        labels = (("slot", str(use.slot)), ("source", "predicted"), ("vm", use.vm))
        assert shown[use.vm, use.slot] == pytest.approx(use.cpu, abs=1e-3)
        assert told["headgate_slot_cpu_ratio", labels] == pytest.approx(use.cpu, abs=1e-3)
        assert drawn[f"{use.vm}/{use.slot}"]["predicted_cpu"] == pytest.approx(use.cpu, abs=1e-2)
    planned = {(use.vm, use.slot): use.cpu for use in plan.prediction.slots}
    assert any(planned[at] > shown[at] + 0.05 for at in planned)


def test_a_verdict_that_is_not_known_is_not_told():
    world = World().start().run(2.0)
    assert world.ask("status").data["verdict"]["verdict"] == "unknown"
    assert not {name for name, _ in scraped(world)} & {"headgate_stable", "headgate_latency_slope"}


def test_re_plans_are_counted_by_reason_and_the_first_plan_is_none():
    world = World().start().run(20.0)
    before = scraped(world)
    assert sum(value for (name, _), value in before.items() if name == "headgate_replans_total") == 0
    assert ("headgate_replan_seconds", ()) not in before
    world.ask("rate_set", rate_tps=180.0)
    world.run(20.0)
    after = scraped(world)
    assert after["headgate_replans_total", (("reason", "rate_changed"),)] == 1
    assert after["headgate_replan_seconds", ()] == pytest.approx(
        summary(world.loop.view(world.now))["plans"][-1]["enacted_s"], abs=1e-3
    )


def test_re_plans_and_tuples_are_counted_on_by_a_controller_that_was_killed():
    world = World().start().run(15.0)
    world.ask("rate_set", rate_tps=180.0)
    before = scraped(world.run(15.0))
    world.restart_controller()
    after = scraped(world.run(15.0))
    for counted in ("headgate_replans_total", "headgate_tuples_replayed_total", "headgate_tuples_lost_total"):
        assert {key: v for key, v in after.items() if key[0] == counted} == {
            key: v for key, v in before.items() if key[0] == counted
        }


def test_slots_that_are_given_up_are_counted_as_that_and_those_of_vms_that_are_gone_are_not():
    world = World([vm("vm1"), vm("vm2")]).start().run(10.0)
    slot = next(iter(world.vms["vm1"].workers))
    world.vms["vm1"].quarantine(slot.number)
    told = scraped(world.run(10.0))
    states = [told["headgate_slots", (("state", state),)] for state in ("used", "free", "quarantined")]
    assert states[2] == 1 and sum(states) == 8
    world.vms["vm2"].down = True
    told = scraped(world.run(10.0))
    assert sum(value for (name, _), value in told.items() if name == "headgate_slots") == 4


def test_a_view_does_not_change_after_it_was_taken_and_taking_it_changes_nothing():
    world = World().start().run(10.0)
    before = world.ask("status").data
    scraped(world)
    assert world.ask("status").data == before
    in_tasks(world, block((1, 40, 3)))
    view = world.loop.view(world.now)
    text = text_of(of_controller.families(view))
    in_tasks(world, block((1, 40, 3)))
    world.ask("rate_set", rate_tps=180.0)
    world.run(15.0)
    assert text_of(of_controller.families(view)) == text
    assert text_of(of_controller.families(world.loop.view(world.now))) != text


def test_rows_in_tasks_make_a_histogram_of_exact_bounds():
    world = World().start().run(5.0)
    in_tasks(world, block((1, bucket_of(1_000_000), 90), (1, bucket_of(2_000_000_000), 10)))
    in_tasks(world, block((1, bucket_of(1_000_000), 10)))
    told = scraped(world)
    below = {
        float(dict(labels)["le"]): value
        for (name, labels), value in told.items()
        if name == "headgate_task_latency_seconds_bucket"
    }
    assert list(below.values()) == sorted(below.values())
    assert below[math.inf] == told["headgate_task_latency_seconds_count", (("task", "work"),)] == 110
    assert {value for bound, value in below.items() if bound <= 0.0008} == {0}
    assert {value for bound, value in below.items() if 0.002 < bound < 1.5} == {100}
    mean_s = (100 * 0.001 + 10 * 2.0) / 110
    assert told["headgate_task_latency_seconds_sum", (("task", "work"),)] / 110 == pytest.approx(
        mean_s, rel=0.13
    )


def test_bounds_are_edges_of_the_meters_buckets():
    for first, bound_s in BOUNDS:
        assert bucket_of(round(bound_s * 1e9)) == first
        assert bucket_of(round(bound_s * 1e9) - 1024) == first - 1


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_left_out(value):
    assert not defined(value)
    result, slot = full().result, next(iter(full().result.window.slots))
    cpu = msgspec.structs.replace(result.window.slots[slot], cpu=value)
    window = msgspec.structs.replace(result.window, slots={slot: cpu})
    stability = msgspec.structs.replace(result.stability, slope=value)
    result = replace(result, window=window, stability=stability, predicted={slot: (0.1, value)})
    view = replace(full(), result=result, offered_tps=value)
    told = samples_of(text_of(of_controller.families(view)))
    assert {name for name, _ in told if "slot_" in name} == {
        "headgate_slot_cpu_ratio",
        "headgate_slot_memory_ratio",
    }
    assert not {name for name, _ in told} & {"headgate_input_rate_tps", "headgate_latency_slope"}
    assert all(math.isfinite(value) for value in told.values())


def test_an_agent_tells_its_slots_workers_and_the_cost_of_its_samples():
    slots = [SlotState(Slot("vm1", n)) for n in range(3)]
    slots[0].status, slots[1].status, slots[1].crashes = "running", "quarantined", 4
    view = of_agent.view_of(slots, (1, 2), of_agent.AgentView(), 2_000_000)
    view = of_agent.view_of(slots, (1, 2), view, 1_000_000)
    told = samples_of(text_of(of_agent.families("vm1", view)))
    here = ("vm", "vm1")
    assert told["headgate_agent_slots", (here,)] == 3
    assert told["headgate_agent_workers", (("state", "running"), here)] == 1
    assert told["headgate_agent_worker_crashes_total", (here,)] == 4
    assert told["headgate_agent_sampling_seconds_total", (here,)] == pytest.approx(0.003)
    assert told["headgate_agent_blocks_total", (here,)] == 2
    assert told["headgate_agent_bad_messages_total", (("sender", "workers"), here)] == 2
    assert not {name for name, _ in told} & {name for name, _ in samples_of(text_of(families(full())))}
