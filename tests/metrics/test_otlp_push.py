"""Metrics sent to a collector: what arrives is what `/metrics` says, as another reader reads both."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from patience import PATIENCE_S
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.latency.latency_buckets import BUCKETS
from headgate.topology_runtime.metrics.metric_families import latency
from headgate.topology_runtime.metrics.otlp_push import PATH, OtlpPush, otlp_url, told
from watched_runs.trials import trial

BEGAN_NS, NOW_NS = 1_700_000_000_000_000_000, 1_700_000_060_000_000_000
WHO = {"service.name": "headgate-controller", "service.instance.id": "r1"}


def families() -> Iterator[Metric]:
    replans = CounterMetricFamily("headgate_replans", "Plans that replaced another.", labels=["reason"])
    replans.add_metric(["rate"], 3)
    replans.add_metric(["memory"], 1)
    yield replans
    yield GaugeMetricFamily("headgate_input_rate_tps", "Offered.", value=99.5)
    slots = GaugeMetricFamily("headgate_slots", "Slots.", labels=["vm", "state"])
    slots.add_metric(["vm1", "used"], 2)
    yield slots
    counts = [0] * BUCKETS
    counts[200], counts[400], counts[BUCKETS - 1] = 5, 7, 1
    yield from latency(
        "headgate_latency_seconds", "Of rows.", "sink", {"store": counts, "other": [1, *counts[1:]]}
    )


def exposed() -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """As Prometheus reads `/metrics`."""

    class All(Collector):
        def collect(self) -> Iterator[Metric]:
            return families()

    registry = CollectorRegistry()
    registry.register(All())
    text = generate_latest(registry).decode()
    samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
    return {(one.name, frozenset(one.labels.items())): one.value for one in samples}


def received(request: ExportMetricsServiceRequest) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """As a collector writes to Prometheus what it got, by OpenTelemetry's rules for that."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    (resource,) = request.resource_metrics
    for metric in resource.scope_metrics[0].metrics:
        kind = metric.WhichOneof("data")
        for point in getattr(metric, kind).data_points:
            labels = {one.key: one.value.string_value for one in point.attributes}
            assert point.time_unix_nano == NOW_NS
            assert kind == "gauge" or point.start_time_unix_nano == BEGAN_NS
            if kind != "histogram":
                name = metric.name + ("_total" if kind == "sum" and metric.sum.is_monotonic else "")
                found[name, frozenset(labels.items())] = point.as_double
                continue
            below = 0
            for bound, count in zip([*point.explicit_bounds, math.inf], point.bucket_counts, strict=True):
                below += count
                le = "+Inf" if bound == math.inf else f"{bound:.9g}"
                found[f"{metric.name}_bucket", frozenset({**labels, "le": le}.items())] = below
            found[f"{metric.name}_count", frozenset(labels.items())] = point.count
            found[f"{metric.name}_sum", frozenset(labels.items())] = point.sum
    return found


def test_what_is_sent_is_what_is_exposed() -> None:
    from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics

    request = encode_metrics(told(families(), WHO, BEGAN_NS, NOW_NS))
    assert received(ExportMetricsServiceRequest.FromString(request.SerializeToString())) == exposed()
    attributes = {one.key: one.value.string_value for one in request.resource_metrics[0].resource.attributes}
    assert attributes.items() >= WHO.items() and attributes["service.version"]
    metrics = request.resource_metrics[0].scope_metrics[0].metrics
    cumulative = {
        getattr(m, m.WhichOneof("data")).aggregation_temporality for m in metrics if not m.HasField("gauge")
    }
    assert cumulative == {AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE}


def test_where_nothing_is_known_nothing_is_sent() -> None:
    data: Any = told([GaugeMetricFamily("headgate_slots", "Slots.", labels=["vm"])], WHO, BEGAN_NS, NOW_NS)
    assert data.resource_metrics[0].scope_metrics[0].metrics == []


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://c:4318", "http://c:4318/v1/metrics"),
        ("https://c/otlp/", "https://c/otlp/v1/metrics"),
        ("http://c:4318/v1/metrics", "http://c:4318/v1/metrics"),
    ],
)
def test_an_address_is_that_of_the_collector(given: str, url: str) -> None:
    assert otlp_url(given) == url


@pytest.mark.parametrize("given", ["collector:4318", "ftp://c", "http://", ""])
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput, match="not the address of a collector"):
        OtlpPush(given, "headgate-controller", "r1", families)


class TakingServer(ThreadingHTTPServer):
    """A collector: what came, by path; refuses for good while `status` is not 200."""

    daemon_threads = True

    def __init__(self) -> None:
        self.came: Queue[tuple[str, bytes]] = Queue()
        self.status = 200
        super().__init__(("127.0.0.1", 0), TakingHandler)
        threading.Thread(target=self.serve_forever, args=[0.01], daemon=True).start()


class TakingHandler(BaseHTTPRequestHandler):
    server: TakingServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.came.put((self.path, body))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """It has no log."""


@pytest.fixture
def collector() -> Iterator[TakingServer]:
    server = TakingServer()
    yield server
    server.shutdown()
    server.server_close()


def test_the_last_figures_arrive_when_the_process_ends(collector: TakingServer) -> None:
    push = OtlpPush(f"http://127.0.0.1:{collector.server_address[1]}", "headgate-controller", "r1", families)
    push.close()
    path, body = collector.came.get(timeout=10)
    assert path == PATH
    names = {
        m.name
        for m in ExportMetricsServiceRequest.FromString(body).resource_metrics[0].scope_metrics[0].metrics
    }
    assert names == {family.name for family in families()}
    assert all(thread.name != "otlp" for thread in threading.enumerate())


def test_a_collector_that_refuses_is_named_once(
    collector: TakingServer, capsys: pytest.CaptureFixture[str]
) -> None:
    collector.status = 400
    push = OtlpPush(f"http://127.0.0.1:{collector.server_address[1]}", "headgate-controller", "r1", families)
    push.close()
    said = capsys.readouterr().err
    assert said.count("metrics cannot be sent") == 1 and "400" in said and push.url in said


@pytest.mark.live
def test_a_run_sends_what_it_serves(collector: TakingServer, tmp_path: Path) -> None:
    """Also as it ends, when ten seconds have not passed."""
    url = f"http://127.0.0.1:{collector.server_address[1]}"
    with trial(tmp_path / "run", "50", 3.0, ["--vms", "2", "--set", f"otlp-to={url}"]) as run:
        run.process.wait(PATIENCE_S)
    path, body = collector.came.get(timeout=PATIENCE_S)
    (resource,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
    attributes = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert path == PATH and attributes["service.name"] == "headgate-controller"
    lost = next(one for one in resource.scope_metrics[0].metrics if one.name == "headgate_tuples_lost")
    assert [point.as_double for point in lost.sum.data_points] == [0.0]
