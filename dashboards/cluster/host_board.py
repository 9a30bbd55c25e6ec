"""What happens on all hosts at once: a live table on a terminal, lines elsewhere; and who failed."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from headgate.dashboards.cluster.host_failures import HostFailed, HostsFailed, lines_of
from headgate.dashboards.cluster.host_links import HostLink, linked
from headgate.dashboards.cluster.hosts_file import Reached

T = TypeVar("T")
FRAMES_PER_S = 8


@dataclass
class HostBoard:
    """One row per host: the step it is at, or why it failed. quiet: nothing is shown."""

    quiet: bool = False
    steps: dict[str, str] = field(default_factory=dict)
    failures: dict[str, HostFailed] = field(default_factory=dict)
    _live: Any = None

    def step(self, host: str, text: str) -> None:
        self.steps[host] = text
        self._show(host, text)

    def fail(self, host: str, failure: HostFailed) -> None:
        self.failures[host] = failure
        self._show(host, f"FAILED: {failure.line()}")

    def raise_failures(self) -> None:
        """Raises HostsFailed when there are any."""
        if self.failures:
            failed = len(self.failures)
            what = f"{failed} of the hosts failed, the others went on"
            raise HostsFailed(what, lines_of(self.failures), failed)

    def _show(self, host: str, text: str) -> None:
        if self._live is not None:
            self._live.update(self.table())
        elif not self.quiet:
            sys.stderr.write(f"{host}: {text}\n")
            sys.stderr.flush()

    def table(self) -> Any:
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("host", "", "step"):
            table.add_column(column, overflow="fold")
        for host, text in self.steps.items():
            failure = self.failures.get(host)
            table.add_row(host, "✗" if failure else "·", failure.line() if failure else text)
        return table

    def __enter__(self) -> HostBoard:
        if sys.stderr.isatty() and not self.quiet:
            from rich.live import Live

            from headgate.topology_runtime.output import console

            self._live = Live(self.table(), console=console(sys.stderr), refresh_per_second=FRAMES_PER_S)
            self._live.start()
        return self

    def __exit__(self, *told: object) -> None:
        if self._live is not None:
            self._live.update(self.table())
            self._live.stop()
            self._live = None


@contextlib.asynccontextmanager
async def all_linked(hosts: Iterable[Reached], board: HostBoard) -> AsyncIterator[dict[str, HostLink]]:
    """Links to all that let us in; the others are failures on the board."""
    async with contextlib.AsyncExitStack() as stack:
        links: dict[str, HostLink] = {}

        async def link(on: Reached) -> None:
            board.step(on.host, "log in")
            try:
                links[on.host] = await stack.enter_async_context(linked(on))
            except HostFailed as failure:
                board.fail(on.host, failure)

        wanted = list(hosts)
        await asyncio.gather(*map(link, wanted))
        yield {on.host: links[on.host] for on in wanted if on.host in links}


async def on_each(
    links: dict[str, HostLink], board: HostBoard, work: Callable[[HostLink], Awaitable[T]]
) -> dict[str, T]:
    """The same work on all hosts at once: what came of it, where it did not fail."""
    done: dict[str, T] = {}

    async def one(host: str, link: HostLink) -> None:
        try:
            done[host] = await work(link)
        except HostFailed as failure:
            board.fail(host, failure)

    await asyncio.gather(*(one(host, link) for host, link in links.items() if host not in board.failures))
    return {host: done[host] for host in links if host in done}
