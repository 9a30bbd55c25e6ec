"""Payments that are posted get a score by numpy; all go to NATS, and what looks like fraud to somebody who is alerted.

    scripts/example webhooks

That starts NATS, posts payments with GitHub's kind of signature, and takes the alerts. With services of your own:
PORT, SECRET (of the signature), NATS_URL with a stream that takes `payments.>`, and ALERT_URL.
"""

import os
from typing import Any

import numpy as np

from headgate import batched, keep_if, topology
from headgate.connectors import HttpSink, HttpSource, NatsSink

BIAS, AMOUNT, ABROAD, NIGHT = -9.0, 1.1, 2.5, 1.5  # a logistic model of three features
LIMIT = 0.8

Columns = dict[str, Any]


@batched(columns=True)
def score(rows: Columns) -> Columns:
    """{"id": 7, "country": "de", "amount": 20.5, "abroad": 0, "hour": 3}, many at once."""
    night = (rows["hour"] < 6).astype(float)
    z = BIAS + AMOUNT * np.log1p(rows["amount"]) + ABROAD * rows["abroad"] + NIGHT * night
    return {**rows, "score": np.round(1.0 / (1.0 + np.exp(-z)), 4)}


@batched(columns=True)
@keep_if
def suspicious(rows: Columns) -> Any:
    return rows["score"] > LIMIT


flow = topology("webhooks")
payments = flow.source(
    "payments",
    HttpSource,
    port=int(os.environ.get("PORT", "8080")),
    signature="github",
    secret="${ENV:SECRET}",
)
scored = flow.task("score", score)
stored = flow.task(
    "store",
    NatsSink,
    url=os.environ.get("NATS_URL", "nats://127.0.0.1:4222"),
    subject="payments.{country}",
)
kept = flow.task("suspicious", suspicious).emits(0.15)
alert = flow.task("alert", HttpSink, url=os.environ.get("ALERT_URL", "http://127.0.0.1:8081/alerts"))
payments >> scored >> stored
scored >> kept >> alert
