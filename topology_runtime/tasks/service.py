"""A small look-up service on this machine: `python -P -m headgate.topology_runtime.tasks.service --port 0 …`.

A line in (a key), a line out (its weight, 0 to 99: the same for the same key), after a latency and
with at most so many requests at once, as a remote service would. Prints its port; ends with its owner.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from zlib import crc32

from headgate.topology_runtime.owner import die_with, orphaned

HOST = "127.0.0.1"
LINE_MOST_BYTES = 1024
SPREAD = 0.2  # latencies are within ± this share, by key
LOOK_EVERY_S = 0.5  # is our owner still there?
WEIGHTS = 100


def weight_of(key: bytes) -> int:
    return crc32(key) % WEIGHTS


def latency_of(key: bytes, mean_s: float) -> float:
    """Within ± `SPREAD` of the mean, the same for the same key."""
    return mean_s * (1.0 - SPREAD + 2.0 * SPREAD * (crc32(key, 1) / 0xFFFFFFFF))


class Service:
    """`limit`: requests worked on at once; the others wait their turn."""

    def __init__(self, latency_s: float, limit: int) -> None:
        self._latency_s = latency_s
        self._turns = asyncio.Semaphore(limit)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: requests one after the other; cut when a line is too long."""
        try:
            while line := await reader.readline():
                key = line.strip()
                async with self._turns:
                    await asyncio.sleep(latency_of(key, self._latency_s))
                writer.write(b"%d\n" % weight_of(key))
                await writer.drain()
        except (ConnectionError, ValueError):
            return  # the client left, or sent no line within the limit
        finally:
            writer.close()


async def run(port: int, latency_s: float, limit: int, owner: int | None) -> None:
    service = Service(latency_s, limit)
    server = await asyncio.start_server(service.serve, HOST, port, limit=LINE_MOST_BYTES)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    print(server.sockets[0].getsockname()[1], flush=True)
    while not stop.is_set() and not (owner is not None and orphaned(owner)):
        try:
            await asyncio.wait_for(stop.wait(), LOOK_EVERY_S)
        except TimeoutError:
            continue
    server.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="headgate.topology_runtime.tasks.service", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--latency-ms", type=float, default=25.0)
    parser.add_argument("--limit", type=int, default=64, help="requests worked on at once")
    parser.add_argument("--owner", type=int, default=None, help="process to end with")
    a = parser.parse_args()
    if a.owner is not None:
        die_with(a.owner)
    try:
        asyncio.run(run(a.port, a.latency_ms / 1000.0, a.limit, a.owner))
    except OSError as error:
        print(f"error: cannot listen on {HOST}:{a.port}: {os.strerror(error.errno or 0)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
