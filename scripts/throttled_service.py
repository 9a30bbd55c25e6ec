"""A service that gives out tokens at a steady rate, as cloud services do: `--rate 60 --reserve 0.5`.

Speaks as `headgate.topology_runtime.tasks.service`: a line in, a line out. A request that finds no token waits for
the next one, first come first served; `reserve` seconds' worth of tokens are saved up while nobody asks, so
that an overload shows only when they are used up. Prints its port; ends with its owner.
"""

from __future__ import annotations

import argparse
import asyncio

from emulated_services.limits import Limit
from headgate.topology_runtime.owner import die_with

ANSWER = b"1\n"


async def run(limit: Limit) -> None:
    now_s = asyncio.get_running_loop().time

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readline():
                await asyncio.sleep(limit.wait_s(1.0, now_s()))
                writer.write(ANSWER)
                await writer.drain()
        except ConnectionError:
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, required=True, help="tokens per second")
    parser.add_argument("--reserve", type=float, default=0.5, help="seconds' worth of tokens saved up")
    parser.add_argument("--owner", type=int, required=True, help="process to end with")
    given = parser.parse_args()
    die_with(given.owner)
    asyncio.run(run(Limit(given.rate, given.reserve)))


if __name__ == "__main__":
    main()
