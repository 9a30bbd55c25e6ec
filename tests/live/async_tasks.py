"""User code of the live tests of async tasks: imported in workers only."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx2

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


@concurrent(40)
class Customers:
    """Asks a web service."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def open(self, context: Context) -> None:
        self.client = httpx2.AsyncClient(base_url=self.url, limits=httpx2.Limits(max_connections=40))

    async def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        answer = await self.client.get(f"/{row['id']}")
        answer.raise_for_status()
        assert answer.json() == {"id": row["id"]}
        return row

    async def close(self) -> None:
        await self.client.aclose()
