"""Asks a service for each row, many at once from one thread: an `async def` task.

    python examples/lookup.py &                  # the service, on port 8766 (LOOKUP_PORT: another one)
    headgate up examples/lookup.py:flow --rates 500 --seconds 8

One sees lookup.jsonl: each order with its customer's `city`. An answer takes 20 ms: a thread that asks one by one does
50 rows/s; this one has 100 calls under way at once, over 100 connections, and does up to 5,000.
"""

import os
from asyncio import StreamReader, StreamWriter, open_connection, run, sleep, start_server
from contextlib import suppress
from typing import Any

from headgate import Exhausted, Source, Static, concurrent, no_side_effects, topology
from headgate.tasks import CollectToFile

PORT = int(os.environ.get("LOOKUP_PORT", "8766"))
ORDERS, WAIT_S, CITIES = 2000, 0.02, ("Oslo", "Lagos", "Lima", "Osaka")


class Orders(Source):
    def read(self, position: int, limit: int) -> list[dict[str, Any]]:
        if position >= ORDERS:
            raise Exhausted
        return [{"order": n, "customer": n * 7 % 50} for n in range(position, min(position + limit, ORDERS))]


@no_side_effects
@concurrent(100)
class City:
    """Connections are kept open, and each has one call at a time. An error is raised: the row is tried again."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.free: list[tuple[StreamReader, StreamWriter]] = []

    async def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        reader, writer = self.free.pop() if self.free else await open_connection("127.0.0.1", self.port)
        try:
            writer.write(b"%d\n" % row["customer"])
            answer = await reader.readuntil()
        except BaseException:  # also when the call is cancelled: its answer may still come
            writer.close()
            raise
        self.free.append((reader, writer))
        return {**row, "city": answer.decode().strip()}

    def close(self) -> None:
        for _, writer in self.free:
            writer.close()


async def answer(reader: StreamReader, writer: StreamWriter) -> None:
    with suppress(ConnectionError):
        while line := await reader.readline():
            await sleep(WAIT_S)
            writer.write(CITIES[int(line) % 4].encode() + b"\n")


async def serve() -> None:
    await (await start_server(answer, "127.0.0.1", PORT)).serve_forever()


flow = topology("lookup")
city = flow.source("orders", Orders) >> flow.task("city", City, port=PORT)
city >> flow.task("store", CollectToFile, static=Static(), path=os.path.abspath("lookup.jsonl"))

if __name__ == "__main__":
    run(serve())
