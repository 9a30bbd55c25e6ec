"""`headgate up`: its command line. What it does is in `running`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from headgate.dashboards.runs.up_settings import (
    METRICS_MOST,
    UpSettings,
    check,
    parse_rate_scale,
    parse_slots,
)
from headgate.topology_runtime.api.cluster import SLOT_CORES, SLOT_MEMORY_BYTES
from headgate.topology_runtime.api.shipped_examples import DEMO
from headgate.topology_runtime.commands.number_options import Number
from headgate.topology_runtime.commands.output import FILE, Format, format_options
from headgate.topology_runtime.commands.rare_settings import SET, SettingsCommand, setting
from headgate.topology_runtime.commands.run_settings import run_settings
from headgate.topology_runtime.wire.run_options import parse_keep, parse_spread, parse_triggers

USUAL = (  # what `up --help` shows; `up --help-all` shows the rest too
    "input", "rates", "rate_scale", "seconds", "slots", "max_vms", "slot_cores", "models", "measure",
    "mode", "exactly_once", "state_to", "from_checkpoint", "drain_timeout", "state_dir", "resume",
    "dashboard", "metrics_port", "quiet_tasks", "output", SET,
)  # fmt: skip
PLAIN = (  # no settings here
    "mode", "allocator", "mapper", "routing", "plan", "drain_timeout", "exactly_once", "state_to",
    "from_checkpoint",
)  # fmt: skip


@click.command(cls=SettingsCommand, usual=USUAL)
@click.argument("topology", required=False)
@click.option("--input", type=FILE, help="A file of events, one per line; the demo repeats it.")
@click.option(
    "--rates",
    metavar="FILE|R",
    help="The input rate: rows/s, or a file `seconds,rate_tps`; of rows that come by themselves, the most that "
    "are read.",
)
@click.option(
    "--rate-scale", metavar="X|auto", help="Multiplies rates; auto: the highest is 80 % of what fits."
)
@click.option("--time-scale", type=Number(0, min_open=True), help="Divides the times of a rates file.")
@setting("--peak", "peak_tps", type=Number(0, min_open=True), metavar="R",
              help="Scales the rates so that the highest is R rows/s.")  # fmt: skip
@click.option(
    "--seconds",
    type=Number(0, min_open=True, infinite=True),
    help="End so long after the first row [the demo: 75; inf: never].",
)
@click.option("--vms", "slots", default="4", show_default=True, metavar="4,4", help="Slots of each VM.")
@click.option(
    "--max-vms", type=click.IntRange(1, 256), help="At most so many VMs [default: as --vms; the demo: 2]."
)
@click.option(
    "--slot-cores",
    type=Number(),
    help=f"Cores of a slot, at most 1 [{SLOT_CORES:g}].",
)
@setting("--slot-memory", "slot_memory_bytes", type=click.IntRange(1), default=SLOT_MEMORY_BYTES,
              show_default=True, metavar="BYTES", help="Memory of a slot.")  # fmt: skip
@setting("--workers-as", default="agent", metavar="own|agent|USER",
              help="As root: whom tasks run as, a user of their own, you, or another [agent: you].")  # fmt: skip
@click.option("--models", type=FILE, help="A folder of models [default: learned from the rows of runs].")
@click.option("--measure", type=click.Choice(["first"]),
              help="Measure tasks without a model before the run, some seconds each [default: start at once, learn "
              "from its rows].")  # fmt: skip
@setting(
    "--measure-side-effects",
    is_flag=True,
    help="With --measure first: run sinks and tasks with side effects on sample rows, too.",
)
@setting("--demo-kill", "kill", type=bool, default=True, show_default=True,
              help="The demo kills one of its own workers once, to show that no row is lost.")  # fmt: skip
@run_settings(PLAIN)
@setting("--max-dead", type=Number(0, 1), default=1.0, show_default=True, metavar="SHARE",
              help="Exit code 8 when this share of the rows, or more, became dead letters.")  # fmt: skip
@click.option("--state-dir", type=FILE, help="Keep the run's state here.")
@click.option("--resume", is_flag=True,
              help="Go on with a run whose `up` was killed: that of --state-dir, or the latest.")  # fmt: skip
@click.option("--trace-dir", type=FILE, default=Path("traces"), show_default=True)
@setting(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Where agents find the controller [any].",
)
@click.option("--dashboard", is_flag=True, help="Show the run on a live page; its address is printed.")
@setting("--dashboard-port", type=click.IntRange(1, 65535), metavar="PORT", help="Its port [any].")
@click.option("--metrics-port", type=click.IntRange(1, METRICS_MOST), metavar="PORT",
              help="Prometheus metrics: the controller's on PORT, vm1's on PORT + 1, …")  # fmt: skip
@click.option("--quiet-tasks", is_flag=True, help="Do not show what tasks print; `headgate logs` does.")
@format_options
@click.pass_context
def up(context: click.Context, /, output: Format, **options: Any) -> None:
    """Run TOPOLOGY on this machine until Ctrl-C (or --seconds; the demo
    ends after 75 s): controller, agents, workers.

    TOPOLOGY is FILE.json|yaml|toml, file.py, file.py:attribute or module:attribute; without it the built-in demo
    runs. It ends by itself once every source has ended. A first Ctrl-C stops reading and finishes what is in flight, a
    second one ends at once.
    """
    from headgate.dashboards.up.up_run import resume_up, run_up

    if not options.pop("resume"):
        run_up(settings_of(options), output)
        return
    default = click.core.ParameterSource.DEFAULT
    given = {name: value for name, value in options.items() if context.get_parameter_source(name) != default}
    resume_up(options["state_dir"], given, output)


def settings_of(options: dict[str, Any]) -> UpSettings:
    given = {name: value for name, value in options.items() if value is not None}
    if given.get("topology") == DEMO:  # the same as none
        del given["topology"]
    given["slots"] = parse_slots(options["slots"])
    parse_triggers(options["traffic_triggers"])
    parse_spread(options["topology_spread"])
    parse_keep(options["trace_keep"])  # so that what is wrong with it is said at once
    given["rate_scale"] = parse_rate_scale(options["rate_scale"])
    return check(UpSettings(**given))
