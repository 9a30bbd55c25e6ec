"""The figures of `/metrics`, sent to a collector of OpenTelemetry (OTLP over HTTP) every ten seconds, by a thread of
its own that only reads.

What cannot be sent is not kept: the next figures say all that these would have, since counters count from the start.
The SDK takes headers, certificates and a time limit from the variables that OpenTelemetry names (OTEL_EXPORTER_OTLP_…).
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from headgate.topology_runtime.errors import HeadgateError, InvalidInput
from headgate.topology_runtime.platform.clock import wall_ns
from headgate.topology_runtime.wire.wire_version import VERSION
from headgate.topology_runtime.wording import visible

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricsData

EVERY_S = 10.0
LAST_S = 3.0  # for the last figures, when the process ends
PATH = "/v1/metrics"
SDK_LOG = "opentelemetry.exporter"

Families = Callable[[], Iterable[Metric]]


def otlp_url(text: str) -> str:
    """Where metrics go, from an address as OTEL_EXPORTER_OTLP_ENDPOINT has it. Raises InvalidInput.

    >>> otlp_url("http://collector:4318")
    'http://collector:4318/v1/metrics'
    """
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput(
            f"otlp-to={text}: not the address of a collector",
            hint="http://HOST:4318, its port for OTLP over HTTP",
        )
    return text.rstrip("/") + ("" if parts.path.endswith(PATH) else PATH)


class OtlpPush:
    """Sends until it is closed. service: what sends, as `service.name`; instance: which of them.

    Raises InvalidInput for what is no address, HeadgateError without OpenTelemetry's SDK."""

    def __init__(self, url: str, service: str, instance: str, families: Families) -> None:
        self.url = otlp_url(url)
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        except ImportError as error:
            raise HeadgateError(
                "OpenTelemetry's SDK is not installed",
                cause="metrics are sent to --set otlp-to=… with it",
                hint="pip install 'headgate[otlp]'",
            ) from error
        self._families, self._who = families, {"service.name": service, "service.instance.id": instance}
        self._began_ns = wall_ns()
        self._said = _FirstWords()
        logger = logging.getLogger(SDK_LOG)  # what it would print is said here, once
        logger.propagate = False
        logger.addHandler(self._said)
        self._exporter = OTLPMetricExporter(self.url)
        self._fault, self._ends = "", threading.Event()
        self._thread = threading.Thread(target=self._work, name="otlp", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Send the last figures, unless nobody takes them."""
        self._ends.set()
        if self._fault:
            self._exporter.shutdown()
        self._thread.join(LAST_S)
        logging.getLogger(SDK_LOG).removeHandler(self._said)

    def _work(self) -> None:
        while not self._ends.wait(EVERY_S):
            self._send()
        if not self._fault:
            self._send()
            self._exporter.shutdown()

    def _send(self) -> None:
        from opentelemetry.sdk.metrics.export import MetricExportResult

        self._said.text = ""
        sent = self._exporter.export(told(self._families(), self._who, self._began_ns, wall_ns()))
        good = sent is MetricExportResult.SUCCESS
        if good == bool(self._fault):
            self._fault = "" if good else self._said.text or "it was refused"
            what = "metrics are sent again" if good else f"metrics cannot be sent: {self._fault}"
            sys.stderr.write(f"otlp: {'' if good else 'warning: '}{visible(what)} ({self.url})\n")


class _FirstWords(logging.Handler):
    """What the SDK says first when it cannot send: the cause; later words are that it gave up."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = self.text or record.getMessage()


def told(families: Iterable[Metric], who: dict[str, str], began_ns: int, now_ns: int) -> MetricsData:
    """Prometheus's families as OpenTelemetry has them: gauges, sums that count up from `began_ns`, histograms."""
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    metrics = [metric for family in families for metric in _metric(family, (began_ns, now_ns))]
    scope = ScopeMetrics(InstrumentationScope("headgate", VERSION), metrics, "")
    return MetricsData([ResourceMetrics(Resource({**who, "service.version": VERSION}), [scope], "")])


def _metric(family: Metric, times: tuple[int, int]) -> Iterator[Any]:
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        Gauge,
        Histogram,
        NumberDataPoint,
        Sum,
    )
    from opentelemetry.sdk.metrics.export import Metric as OtlpMetric

    kept = AggregationTemporality.CUMULATIVE
    data: Gauge | Sum | Histogram
    if family.type == "histogram":
        data = Histogram([_histogram(of, times) for of in _by_labels(family.samples)], kept)
    else:
        points = [NumberDataPoint(dict(one.labels), *times, float(one.value)) for one in family.samples]
        data = Sum(points, kept, is_monotonic=True) if family.type == "counter" else Gauge(points)
    if family.samples:
        yield OtlpMetric(family.name, family.documentation, "", data)


def _by_labels(samples: Iterable[Sample]) -> list[list[Sample]]:
    """Those of one histogram together."""
    found: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for one in samples:
        key = tuple(sorted((name, value) for name, value in one.labels.items() if name != "le"))
        found.setdefault(key, []).append(one)
    return list(found.values())


def _histogram(samples: list[Sample], times: tuple[int, int]) -> Any:
    """Prometheus counts what is below each bound, OpenTelemetry what is between two."""
    from opentelemetry.sdk.metrics.export import HistogramDataPoint

    below = [(float(one.labels["le"]), int(one.value)) for one in samples if one.name.endswith("_bucket")]
    counts = [count - before for (_, count), before in zip(below, [0, *(n for _, n in below)], strict=False)]
    labels = {name: value for name, value in samples[0].labels.items() if name != "le"}
    total = next(one.value for one in samples if one.name.endswith("_sum"))
    bounds = [bound for bound, _ in below[:-1]]  # the last is infinity
    unknown: Any = None  # the least and the greatest
    return HistogramDataPoint(labels, *times, below[-1][1], total, counts, bounds, unknown, unknown)
