"""User code of the live tests of async tasks: imported in workers only."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

from headgate import Context, concurrent, flat_map, keep_if


@concurrent(200)
async def waits(row: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(0.02)
    return row


@concurrent(50, ordered=False)
class Opened:
    """Says in which thread and loop it was opened, and fails if it is called, or closed, in another."""

    async def open(self, context: Context) -> None:
        self.home = threading.get_ident(), asyncio.get_running_loop()
        self.context = context

    async def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0.001 * (row["id"] % 7))
        assert self.home == (threading.get_ident(), asyncio.get_running_loop())
        return row

    async def close(self) -> None:
        assert self.home == (threading.get_ident(), asyncio.get_running_loop())
        with open(f"{self.context.directory}/closed", "w", encoding="ascii") as file:
            file.write("closed\n")


@flat_map
async def twice(row: dict[str, Any]) -> Any:
    for _ in range(2):
        await asyncio.sleep(0)
        yield row


@keep_if
async def even(row: dict[str, Any]) -> bool:
    await asyncio.sleep(0.001)
    return row["id"] % 2 == 0


async def fails_at_seven(row: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(0.001)
    if row["id"] == 7:
        raise ValueError("seven is not to be had")
    return row


async def hangs_at_five(row: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(60 if row["id"] == 5 else 0)
    return row


async def blocks_at_five(row: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(0)
    if row["id"] == 5:
        time.sleep(3600)
    return row
