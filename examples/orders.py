"""Joins two streams: orders and their payments become one row when both are there.

    headgate up examples/orders.py:flow --rates 800 --seconds 6

One sees orders.jsonl: each order with the amount that was paid. Payments come in another order than the orders do.
`Join` keeps a row until the other one is there; the rows that wait are replayed if their worker dies.
"""

import os
from typing import Any

from headgate import Exhausted, Source, Static, topology
from headgate.tasks import CollectToFile, Join

ORDERS = 1_000


def order(number: int) -> dict[str, Any]:
    return {"order": number, "customer": f"c{number % 17}"}


def payment(number: int) -> dict[str, Any]:
    """Payments of each hundred orders come backwards."""
    of = number // 100 * 100 + 99 - number % 100
    return {"order": of, "paid": of * 5 % 300}


class Orders(Source):
    def read(self, position: int, limit: int) -> list[dict[str, Any]]:
        if position >= ORDERS:
            raise Exhausted
        return [order(number) for number in range(position, min(position + limit, ORDERS))]


class Payments(Source):
    def read(self, position: int, limit: int) -> list[dict[str, Any]]:
        if position >= ORDERS:
            raise Exhausted
        return [payment(number) for number in range(position, min(position + limit, ORDERS))]


flow = topology("orders")
orders = flow.source("orders", Orders)
payments = flow.source("payments", Payments)
join = flow.task("join", Join, fields=["customer", "paid"], key="order").emits(0.5)  # two rows become one
store = flow.task("store", CollectToFile, static=Static(), path=os.path.abspath("orders.jsonl"))
[orders, payments] >> join.by("order") >> store
