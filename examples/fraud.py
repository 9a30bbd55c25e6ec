"""Scores card payments with numpy, many at once, and keeps those that look like fraud.

    headgate up examples/fraud.py:flow --rates 2000 --seconds 6

One sees fraud.jsonl: the suspicious payments with their score. `@batched(columns=True)` gives a task whole columns (an
array for each value of the rows), so that numpy works on all rows of a call together.
"""

import os
from typing import Any

import numpy as np

from headgate import Exhausted, Source, Static, batched, keep_if, topology
from headgate.tasks import CollectToFile

PAYMENTS = 8_000
BIAS, AMOUNT, ABROAD, NIGHT = -9.0, 1.1, 2.5, 1.5  # a logistic model of three features
LIMIT = 0.8

Columns = dict[str, Any]


def payment(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "amount": round(5.0 + number * 37 % 1999 * 1.25, 2),
        "abroad": int(number % 13 == 0),
        "hour": number % 24,
    }


class Payments(Source):
    def read(self, position: int, limit: int) -> list[dict[str, Any]]:
        if position >= PAYMENTS:
            raise Exhausted
        return [payment(number) for number in range(position, min(position + limit, PAYMENTS))]


@batched(columns=True)
def score(rows: Columns) -> Columns:
    night = (rows["hour"] < 6).astype(float)
    z = BIAS + AMOUNT * np.log1p(rows["amount"]) + ABROAD * rows["abroad"] + NIGHT * night
    return {**rows, "score": 1.0 / (1.0 + np.exp(-z))}


@batched(columns=True)
@keep_if
def suspicious(rows: Columns) -> Any:
    return rows["score"] > LIMIT


flow = topology("fraud")
payments = flow.source("payments", Payments)
scored = flow.task("score", score)
kept = flow.task("suspicious", suspicious).emits(0.15)
store = flow.task("store", CollectToFile, static=Static(), path=os.path.abspath("fraud.jsonl"))
payments >> scored >> kept >> store
