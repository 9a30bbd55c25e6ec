"""`headgate lab shadow`: what other policies would have needed and carried beside a run, also while it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headgate.lab.rate_policies.rate_options import check_numbers, chosen_policies, enact_s, machine_s
from headgate.topology_runtime.commands.number_options import Number
from headgate.topology_runtime.commands.output import Format, emit, emit_line, format_options, write_table
from headgate.topology_runtime.commands.rare_settings import SettingsCommand, setting
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.traces.trace_tables import INPUTS, RUN_FILE

if TYPE_CHECKING:
    from headgate.controller.replay.exact_replay import ExactReplay
    from headgate.lab.rate_policies.shadow_policies import Shadows

SCHEMA = "headgate/shadow/v1"
LOOK_S = 0.5
TRACES = Path("traces")
SHOWN = (
    "rank", "policy", "of_static", "short_share", "late_share", "planned_of_offered", "plans",
    "plans_in_a_minute_most", "moves", "usd",
)  # fmt: skip


@click.command(cls=SettingsCommand)
@click.argument("trace", required=False, type=click.Path(path_type=Path))
@click.option("--policy", "policies", multiple=True, metavar="P", help="Only these (default: all).")
@click.option("-f", "--follow", is_flag=True, help="Go on while the run does; the table again and again.")
@setting("--every", type=Number(1.0), default=10.0, show_default=True, metavar="S", help="… so often.")
@enact_s
@machine_s
@format_options
def shadow(
    trace: Path | None, policies: tuple[str, ...], follow: bool, every: float, output: Format, **delays: float
) -> None:  # fmt: skip
    """Score other policies beside the run recorded in the folder TRACE (default: the newest below traces/), on the
    rows that it was offered, with its topology, models and VMs. The run may still go on: --follow.

    One table, the best first: who carries 99 % with least slots. What each column says: `headgate lab backtest --help`.
    `controller` is what the run did, by its own plans; what they carry is predicted there as for the others.

    \b
    static      one plan for the highest rate so far, with headroom
    bare        the same without
    foresight   the controller's rule among machines that do as predicted
    lsa+rsm     the same rule; plans by LSA and RSM, as in the paper
    mba+sam     the same rule; plans by MBA and SAM, as in the paper
    ds2         the right size for the mean of the last ten seconds
    hpa         the size × measured use / wanted use, every 15 s

    \b
    headgate lab shadow traces/demo/RUN
    headgate lab shadow --follow"""
    from headgate.controller.replay.exact_replay import ExactReplay
    from headgate.controller.replay.ideal_machines import Delays
    from headgate.controller.replay.recorded_run import run_of
    from headgate.controller.replay.trace_reading import tailed
    from headgate.lab.rate_policies.shadow_policies import SHADOWS, Shadows

    check_numbers(delays)
    folder = trace or newest()
    chosen = chosen_policies(policies, SHADOWS, SHADOWS)
    try:
        run = run_of((folder / RUN_FILE).read_bytes(), str(folder / RUN_FILE))
    except OSError as error:
        raise InvalidInput(f"{folder} is no trace", cause=f"{RUN_FILE}: {error.strerror}") from error
    beside, again = Shadows(run, chosen, Delays(**delays)), ExactReplay(run)
    told = Teller(beside, again, every, output)
    for moment in again.moments(tailed(folder, told.wait if follow else lambda: False)):
        beside.see(moment)
    told.tell(last=True)


def newest() -> Path:
    """The trace that was written to last. Raises InvalidInput when there is none here."""
    found = [path for path in TRACES.glob(f"*/*/{INPUTS}")]
    if not found:
        raise InvalidInput(f"there is no trace below {TRACES}/", hint="name the folder of a run")
    return max(found, key=lambda path: path.stat().st_mtime).parent


class Teller:
    """Prints the table, and waits for more of a run that goes on."""

    def __init__(
        self, beside: Shadows, again: ExactReplay, every_s: float, output: Format,
        clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self._beside, self._again, self._every_s, self._output = beside, again, every_s, output
        self._clock, self._sleep = clock, sleep
        self._told_s = -every_s

    def wait(self) -> bool:
        """Is there more to come?"""
        if self._again.lives and self._again.lives[-1].ended:
            return False
        if self._clock() - self._told_s >= self._every_s:
            self._told_s = self._clock()
            self.tell()
        self._sleep(LOOK_S)
        return True

    def tell(self, last: bool = False) -> None:
        rows = self._beside.rows()
        if not rows:
            if last:
                raise InvalidInput("nothing was offered in this run, so there is nothing to score")
            return
        answer: dict[str, Any] = {
            "schema": SCHEMA,
            "seconds": round(self._beside.run.offer.until_s),
            "policies": rows,
        }
        if self._output == "table":
            write_table(
                [{name: row.get(name) for name in SHOWN} for row in rows],
                title=f"{answer['seconds']} s, {self._beside.run.offer.rows:.0f} rows offered",
            )
            for row in rows:
                if "error" in row:
                    click.echo(f"{row['policy']}: {row['error']}", err=True)
        elif last and self._output != "jsonl":
            emit(self._output, answer, rows)
        elif self._output == "jsonl":
            emit_line(answer)
