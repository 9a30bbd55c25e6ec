"""A link to a host: ssh with the user's own agent, configuration and known hosts; of `local`, a process here.

At its far end runs `on_host/host_side.py`, sent as text, as root where that can be had without a password.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Protocol, TypeVar

from headgate.dashboards.cluster.host_facts import HostFailed, HostsFailed, lines_of
from headgate.dashboards.cluster.hosts_file import Reached
from headgate.dashboards.cluster.ssh_command import FAILED, command_words, environment, settings_of, why_not
from headgate.topology_runtime.platform.clock import wall_ns

LOGIN_S, ASK_S, LONG_S = 30.0, 60.0, 1900.0  # the first: over several hosts, where one leads to the other
ENDING_S = 5.0
NOISE_LINES = 200  # that a login shell may print before the first answer
CLOCK_ROUNDS = 8
MARK = b"headgate: "
MODULES = ("host_side",)  # each after those that it imports
PACKAGE = "headgate.dashboards.cluster.on_host"
NO_PYTHON = "headgate-no-python"

FAR_END = (
    "import json,sys,types\n"
    "for n,t in json.loads(sys.stdin.buffer.readline()):\n"
    " m=types.ModuleType(n);sys.modules[n]=m;exec(compile(t,n,'exec'),m.__dict__)\n"
    "m.main()"
)
PYTHONS = "python3.14 python3.13 python3.12 python3.11 python3"
LOGIN = """\
for p in {pythons}; do
  p=$(command -v "$p") && "$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
  p=
done
if [ -z "$p" ]; then echo "{no_python} $(python3 --version 2>&1 || true)"; exit 1; fi
s=
if [ "$(id -u)" != 0 ] && sudo -n true 2>/dev/null; then s="sudo -n"; fi
exec $s "$p" -c {far_end} 2>/dev/null
"""


@dataclass(frozen=True)
class HostStep:
    """One request to a host. says: what is shown meanwhile. body: bytes, or a file that is read when its turn comes."""

    says: str
    do: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    body: bytes | Path = b""
    timeout_s: float = LONG_S


class FarInput(Protocol):
    def write(self, data: bytes) -> None: ...
    async def drain(self) -> None: ...
    def close(self) -> None: ...


class FarOutput(Protocol):
    async def readline(self) -> bytes: ...


class HostLink:
    """One host: asked one thing at a time."""

    def __init__(self, on: Reached, to: FarInput, answers: FarOutput) -> None:
        self.on, self.to, self.answers = on, to, answers
        self._turn = asyncio.Lock()

    async def begin(self) -> None:
        """Its far end. Raises HostFailed."""
        folder = resources.files(PACKAGE)
        texts = [(f"{PACKAGE}.{name}", (folder / f"{name}.py").read_text("utf-8")) for name in MODULES]
        await self._answer(json.dumps(texts).encode() + b"\n", LOGIN_S)

    async def ask(
        self, do: str, body: bytes = b"", timeout_s: float = ASK_S, **arguments: Any
    ) -> dict[str, Any]:
        """Raises HostFailed."""
        async with self._turn:
            line = json.dumps({"do": do, "bytes": len(body), **arguments}).encode() + b"\n"
            answer = await self._answer(line + body, timeout_s)
        if "error" in answer:
            raise self.failed(answer["error"], answer.get("hint", ""))
        return answer

    async def _answer(self, request: bytes, timeout_s: float) -> dict[str, Any]:
        """The next line that is one; login shells may print others. Raises HostFailed."""
        try:
            async with asyncio.timeout(timeout_s):
                self.to.write(request)
                await self.to.drain()
                for _ in range(NOISE_LINES):
                    line = await self.answers.readline()
                    if line.startswith(MARK):
                        found: dict[str, Any] = json.loads(line.removeprefix(MARK))
                        return found
                    if line.startswith(NO_PYTHON.encode()):
                        raise self._old_python(line.decode("utf-8", "replace"))
                    if not line:
                        break
        except TimeoutError as error:
            raise self.failed(f"no answer for {timeout_s:g} s", "is the host up?") from error
        except HostFailed:
            raise
        except Exception as error:  # of the pipe or of what came through it: the host's line says which
            raise self.failed(f"the link broke: {error}") from error
        raise self.failed("the link ended", "run it again; does the login shell print much, or end?", "true")

    def _old_python(self, line: str) -> HostFailed:
        there = line.removeprefix(NO_PYTHON).strip() or "none"
        hint = "install Python 3.11 or newer, or name it in hosts.toml: python = …"
        return self.failed(f"no Python that will do ({there})", hint, "python3 --version")

    async def clock(self) -> tuple[float, float]:
        """(seconds that its clock is ahead of this machine's, by how much that may be off): the quickest of a few."""
        rounds = []
        for _ in range(CLOCK_ROUNDS):
            before = wall_ns()
            there = (await self.ask("clock"))["wall_ns"]
            after = wall_ns()
            rounds.append(((after - before) / 2e9, (there - (before + after) / 2) / 1e9))
        error_s, offset_s = min(rounds)
        return offset_s, error_s

    def failed(self, what: str, hint: str = "", see: str = "") -> HostFailed:
        return HostFailed(what, hint=hint, see=see_command(self.on, see))


def see_command(on: Reached, command: str = "") -> str:
    """The command, for people, that shows what is wrong there."""
    if on.is_local:
        return command
    return f"{on.shell_words()} {shlex.quote(command)}" if command else on.shell_words()


def login_command(on: Reached) -> str:
    pythons = shlex.quote(on.python) if on.python else PYTHONS
    return LOGIN.format(pythons=pythons, no_python=NO_PYTHON, far_end=shlex.quote(FAR_END))


@contextlib.asynccontextmanager
async def linked(on: Reached) -> AsyncIterator[HostLink]:
    """A link for as long as the block lasts. Raises HostFailed."""
    opening = local_link(on) if on.is_local else ssh_link(on)
    async with opening as link:
        await link.begin()
        yield link


@contextlib.asynccontextmanager
async def local_link(on: Reached) -> AsyncIterator[HostLink]:
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", login_command(on),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 24,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    try:
        yield HostLink(on, process.stdin, process.stdout)
    finally:
        process.stdin.close()
        await process.wait()


@contextlib.asynccontextmanager
async def ssh_link(on: Reached) -> AsyncIterator[HostLink]:
    """Raises HostFailed: in ssh's own words why, when it was ssh that failed. InvalidInput when there is none."""
    settings = await settings_of(on)
    with tempfile.TemporaryFile() as said:
        process = await asyncio.create_subprocess_exec(
            *command_words(on, settings), login_command(on),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=said, limit=1 << 24,
            env=environment(), start_new_session=True,
        )  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        try:
            yield HostLink(on, process.stdin, process.stdout)
        except HostFailed as failure:
            if await ended(process) == FAILED:
                said.seek(0)
                what, hint = why_not(on, settings, said.read().decode("utf-8", "replace"))
                raise HostFailed(what, hint=hint, see=see_command(on)) from failure
            raise
        finally:
            process.stdin.close()
            await ended(process)


async def ended(process: asyncio.subprocess.Process) -> int:
    """Its exit code, at once or by SIGKILL after a moment."""
    try:
        return await asyncio.wait_for(process.wait(), ENDING_S)
    except TimeoutError:
        process.kill()
        return await process.wait()


# ── What happens on all hosts at once: a live table on a terminal, lines elsewhere; and who failed ──────

T = TypeVar("T")
FRAMES_PER_S = 8
LOGINS_AT_ONCE = 10  # sshd turns more away (MaxStartups), and all may go through one


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

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Shown while it goes on."""
        with self:
            return asyncio.run(work)

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

            from headgate.topology_runtime.commands.output import console

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
        turns = asyncio.Semaphore(LOGINS_AT_ONCE)

        async def link(on: Reached) -> None:
            board.step(on.host, "log in")
            try:
                async with turns:
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


async def steps_on_each(
    links: dict[str, HostLink], board: HostBoard, steps: Callable[[str], Iterable[HostStep]]
) -> dict[str, list[dict[str, Any]]]:
    """The steps of each host (by its name), one after the other, on all hosts at once; the answers. The first step that
    fails is its host's last."""

    async def work(link: HostLink) -> list[dict[str, Any]]:
        answers = []
        for step in steps(link.on.host):
            board.step(link.on.host, step.says)
            body = step.body.read_bytes() if isinstance(step.body, Path) else step.body
            answers.append(await link.ask(step.do, body, step.timeout_s, **step.arguments))
        return answers

    return await on_each(links, board, work)
