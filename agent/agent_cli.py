"""`headgate agent run`: the agent of one VM."""

from __future__ import annotations

from typing import Any

import click

from headgate.topology_runtime.api.cluster import SLOT_CORES
from headgate.topology_runtime.commands.number_options import Number
from headgate.topology_runtime.commands.rare_settings import WORDS, SettingsCommand, setting, without
from headgate.topology_runtime.platform.http_options import metrics_at, metrics_options


@click.command("run", cls=SettingsCommand)
@click.option("--controller", required=True, metavar="tcp://HOST:PORT[,…]",
              help="Where the controller listens; more: where it may be once it has moved.")  # fmt: skip
@click.option("--vm", required=True, metavar="NAME", help="This VM's name, unique in the run.")
@click.option("--key", default="", metavar="FILE", help="Its key: `headgate keys add agent VM` makes one.")
@click.option("--slots", type=int, default=4, show_default=True, help="How many slots it has.")
@click.option(
    "--slot-cores", type=Number(), default=SLOT_CORES, show_default=True, help="Cores of each, at most 1."
)
@click.option("--slot-memory", metavar="BYTES|512M", help="Memory of each [default: equal parts of 80 %].")
@click.option("--state-dir", "directory", help="The agent's own folder [default: .headgate/RUN/agents/VM].")
@click.option("--run", default="local", show_default=True, help="The run's name, for control groups.")
@click.option(
    "--trust-signer",
    "signers",
    multiple=True,
    metavar="FILE",
    help="A public key (signing.pub) whose packages are run here too; several may be given [those of its key].",
)
@setting(
    "--allow-folders", is_flag=True, help="Run code of folders too: not only what a trusted signer signed."
)
@setting(
    "--package-index",
    default="",
    metavar="URL",
    help="Where pip finds what packages require [only wheels that travel in them].",
)
@setting("--packages", default="", metavar="DIR", help="Where packages are kept [DIRECTORY/packages].")
@click.option(
    "--workers-as",
    default="",
    metavar="own|agent|USER",
    help="Whom your tasks run as: a user of their own, whoever the agent is, or a user of this machine [root: own].",
)
@click.option("--listen", metavar="HOST", help="Address for rows between workers [loopback].")
@click.option("--advertise", metavar="HOST", help="Under which other VMs reach it [as --listen].")
@setting(
    "--worker-port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Of the first slot's rows, one more for each slot, to forward them [any].",
)
@setting(
    "--slot-processes",
    type=click.IntRange(64, 4_000_000),
    default=2048,
    metavar="N",
    help="Processes and threads of each slot: a worker whose tasks want more is ended [2048].",
)
@setting(
    "--slot-disk",
    metavar="BYTES|20G",
    help="What each slot's tasks may keep in their folder, spools included [equal parts of 80 % of the disk].",
)
@setting("--rack", default="", metavar="NAME", help="Where it stands, for plans [r1].")
@setting(
    "--usd-per-hour",
    type=Number(0, 1e6),
    default=0.0,
    metavar="X",
    help="What it costs.",
)
@setting(
    "--bandwidth-mbps",
    type=Number(),
    default=0.0,
    metavar="X",
    help="Mbit/s of its link, each way: plans keep below [not known].",
)
@metrics_options
@click.option("--owner", type=int, default=0, metavar="PID", help="End when this parent process ends.")
@setting(
    "--shared", is_flag=True, help="An agent for each topology of a shared controller, which --controller is."
)
@click.pass_context
def run(
    context: click.Context,
    /,
    shared: bool,
    slot_memory: str | None,
    directory: str | None,
    listen: str | None,
    advertise: str | None,
    worker_port: int | None,
    slot_disk: str | None,
    **options: Any,
) -> None:
    """Keep one VM as the controller orders it: workers in slots, watched and sampled.

    `headgate up` starts agents by itself; this is for VMs of your own."""
    from msgspec.structs import replace

    from headgate.agent.process import agent_config as c
    from headgate.topology_runtime.api.cluster import parse_bytes
    from headgate.topology_runtime.platform.addresses import listening

    folder = directory or c.default_directory(options["run"], options["vm"])
    config = c.AgentConfig(
        slot_disk_bytes=parse_bytes(slot_disk) if slot_disk else c.default_disk(folder, options["slots"]),
        metrics=metrics_at(options),
        slot_memory_bytes=parse_bytes(slot_memory) if slot_memory else c.default_memory(options["slots"]),
        at=replace(listening(listen, advertise), port=worker_port or 0),
        directory=folder,
        **options,
    )
    checked = c.checked(config)
    if shared:
        from headgate.agent.process.shared_agents import SharedAgents

        own = ("--controller", "--run", "--state-dir", "--owner")
        return SharedAgents(checked, without(context.meta[WORDS], own, ("shared",))).run()
    import logging
    import time

    from headgate.agent.agent_process import Agent
    from headgate.topology_runtime.platform.process_logs import hold_out

    hold_out()
    logging.Formatter.converter = time.gmtime
    logging.basicConfig(level=logging.INFO, format="%(asctime)sZ %(levelname)-7s %(message)s")
    Agent(checked).run()
