"""The three products that sell best: counts by product, then one list of the best.

    headgate up examples/topk.py:flow --rates 1000 --seconds 6

One sees topk.jsonl: the list each time it changes; its last line is the result. Counting runs in as many threads as the
rate needs; the list has one key, so one thread has it. It needs no count but those of the best: counts only grow.
"""

import os
from typing import Any

from headgate import Exhausted, Keyed, Source, Static, topology
from headgate.tasks import CollectToFile, CountByKey

SALES, PRODUCTS, BEST = 3_000, 30, 3

Count = tuple[str, int]


def sale(number: int) -> str:
    """The number-th sale: products with a small number sell more often."""
    return f"p{number * number % 101 * (number % 7) % PRODUCTS}"


class Sales(Source):
    def read(self, position: int, limit: int) -> list[str]:
        if position >= SALES:
            raise Exhausted
        return [sale(number) for number in range(position, min(position + limit, SALES))]


class Top(Keyed):
    """State: the best so far, as [product, count], the best one first."""

    def new(self, key: Any) -> list[list[Any]]:
        return []

    def process(self, key: Any, row: Count, state: list[list[Any]]) -> tuple[list[list[Any]], list[Any]]:
        product, count = row
        others = [entry for entry in state if entry[0] != product]
        before = next((entry[1] for entry in state if entry[0] == product), 0)
        every = [*others, [product, max(before, count)]]
        best = sorted(every, key=lambda entry: (-entry[1], entry[0]))[:BEST]
        return best, [best] if best != state else []


def itself(product: str) -> str:
    return product


def one_list(row: Count) -> str:
    return "all"


flow = topology("topk")
sales = flow.source("sales", Sales)
count = flow.task("count", CountByKey)
top = flow.task("top", Top).emits(0.3)
store = flow.task("store", CollectToFile, static=Static(), path=os.path.abspath("topk.jsonl"))
sales >> count.by(itself) >> top.by(one_list) >> store
