"""`scripts/example NAME`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from connected_examples.changes_demo import Changes
from connected_examples.city_demo import City
from connected_examples.demo import Demo, Row
from connected_examples.sessions_demo import Sessions
from connected_examples.webhooks_demo import Webhooks
from headgate.topology_runtime.commands.output import Format, emit, format_options
from headgate.topology_runtime.errors import HeadgateError
from real_services import started_services

ROOT = Path(__file__).resolve().parents[2]
DEMOS: dict[str, type[Demo]] = {"changes": Changes, "city": City, "sessions": Sessions, "webhooks": Webhooks}
TURN_S = 0.25
READY_S, RESULT_S = 120.0, 300.0  # until the flow reads; until the last row is in the target
LOOK_S = 0.5
SHOWN = 12  # rows of the result on a terminal


class Flow:
    """`headgate up` of the example, in the folder that we are in: its trace stays. What it says goes on to the
    terminal."""

    def __init__(self, name: str, demo: Demo) -> None:
        command = [
            sys.executable,
            "-P",
            "-m",
            "headgate",
            "up",
            str(ROOT / f"examples/connected/{name}.py:flow"),
        ]
        self._process = subprocess.Popen(command, env={**os.environ, **demo.environment()}, stderr=subprocess.PIPE,
                                         stdout=sys.stderr, text=True, process_group=0)  # fmt: skip
        # Ctrl-C in a terminal is for us alone: a second one would end it at once
        self._reads = threading.Event()
        self._reader = threading.Thread(target=self._pass_on, name="what up says")
        self._reader.start()

    def _pass_on(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as said:
            for line in said:
                sys.stderr.write(f"  | {line}")
                if "is in force" in line:
                    self._reads.set()

    def ready(self, demo: Demo) -> None:
        end_s = time.monotonic() + READY_S
        while not (self._reads.wait(LOOK_S) and demo.reads()):
            self.alive()
            if time.monotonic() > end_s:
                raise HeadgateError(f"the flow does not read after {READY_S:.0f} s", hint="see what it said")
            time.sleep(TURN_S)

    def alive(self) -> None:
        if self._process.poll() is not None:
            raise HeadgateError("the flow has ended", cause=f"exit code {self._process.returncode}")

    def end(self) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait()
        self._reader.join()


@contextmanager
def running(name: str) -> Iterator[tuple[Demo, Flow]]:
    """The example with its services; all of it ends with the context, its folder too."""
    with ExitStack() as until_end:
        folder = Path(tempfile.mkdtemp(prefix=f"headgate-{name}-"))
        until_end.callback(shutil.rmtree, folder)
        os.chmod(folder, 0o711)  # PostgreSQL runs as a user of its own
        services = {}
        for kind in DEMOS[name].needs:
            click.echo(f"{kind.name} is started", err=True)
            service = kind(folder / kind.name)
            started_services.install(service)
            services[kind.name] = until_end.enter_context(service)
        own = folder / "example"
        own.mkdir()
        demo = DEMOS[name](own, services)
        until_end.callback(demo.close)
        demo.prepare()
        flow = Flow(name, demo)
        until_end.callback(flow.end)
        flow.ready(demo)
        yield demo, flow


def result_of(demo: Demo, flow: Flow, rows: int, rate: int) -> list[Row]:
    """Send so many rows, at most `rate` a second, and wait until all of them are in the target."""
    turn = max(1, round(rate * TURN_S))
    for first in range(0, rows, turn):
        demo.send(first, min(turn, rows - first))
        flow.alive()
        time.sleep(TURN_S)
    end_s = time.monotonic() + RESULT_S
    while (found := demo.results(rows)) is None:
        flow.alive()
        if time.monotonic() > end_s:
            raise HeadgateError(f"not all of {rows:,} rows are in the target after {RESULT_S:.0f} s")
        time.sleep(LOOK_S)
    return found


@click.command()
@click.argument("name", type=click.Choice(list(DEMOS)))
@click.option(
    "--rows", type=click.IntRange(1, 1_000_000), default=2_000, show_default=True, help="So many are sent."
)
@click.option(
    "--rate", type=click.IntRange(4, 100_000), default=200, show_default=True, help="Rows/s, at most."
)
@click.option("--keep", is_flag=True, help="Go on until Ctrl-C, to look around.")
@format_options
def example(name: str, rows: int, rate: int, keep: bool, output: Format) -> None:
    """Start what the example needs, send rows, and show what came of them. All of it ends; the trace of the
    run stays, in `traces/` of this folder."""
    with running(name) as (demo, flow):
        found = result_of(demo, flow, rows, rate)
        shown = found[:SHOWN] if output == "table" else found
        emit(output, {"rows": found}, shown, f"{demo.about}: {len(shown)} of {len(found)}")
        if keep:
            places = ", ".join(f"{key}={value}" for key, value in demo.environment().items())
            click.echo(f"goes on until Ctrl-C; {places}", err=True)
            while True:
                time.sleep(LOOK_S)
                flow.alive()


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started ends with us
    try:
        example(prog_name="scripts/example")
    except HeadgateError as error:
        print("\n".join(error.lines()), file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
