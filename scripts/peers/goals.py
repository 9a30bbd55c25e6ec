"""What headgate is to reach beside its peers, and what a peer is called in tables. The goals are those of its design
("Speed: what the data plane and the controller can reach", first table: a runtime with acks, samples and metrics on).

Rates are headgate's by the peer's, at least so much; latencies headgate's by the peer's, at most so much. Goals hold
with chaining. There are none for W4, nor for a peer that is not named."""

from __future__ import annotations

MEASURES = {"W1": ("per_s",), "W2": ("per_s",), "W3": ("p50_ms", "p99_ms"), "W4": ("per_s",)}

GOALS: dict[tuple[str, str, str], float] = {
    ("W1", "bytewax-items", "per_s"): 15.0,
    ("W1", "bytewax", "per_s"): 0.9,
    ("W1", "pathway", "per_s"): 18.0,
    ("W1", "flink", "per_s"): 60.0,
    ("W1", "pyspark", "per_s"): 20.0,
    ("W1", "ray", "per_s"): 4.0,
    ("W2", "bytewax-items", "per_s"): 80.0,
    ("W2", "bytewax", "per_s"): 5.0,
    ("W2", "pathway", "per_s"): 12.0,
    ("W2", "flink", "per_s"): 60.0,
    ("W2", "pyspark", "per_s"): 20.0,
    ("W2", "ray", "per_s"): 4.0,
    ("W3", "bytewax-items", "p50_ms"): 1.0,
    ("W3", "bytewax-items", "p99_ms"): 1.2,
    ("W3", "pathway", "p50_ms"): 0.15,
    ("W3", "flink", "p50_ms"): 0.02,
    ("W3", "pyspark", "p50_ms"): 0.005,
    ("W3", "ray", "p50_ms"): 0.4,
}

SHOWN = {
    "bytewax": "bytewax, lists of 1,000 (W4: a source of 512 at once)",
    "bytewax-items": "bytewax, rows one by one",
    "ray": "ray, actors, batches of 1,000 (W3: a compiled graph)",
    "pathway": "pathway",
    "flink": "PyFlink, process mode",
    "flink-quick": "PyFlink, bundles of 5 ms, no buffer timeout",
    "pyspark": "PySpark structured streaming",
}
