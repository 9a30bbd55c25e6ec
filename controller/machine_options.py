"""Options of `headgate controller run` that say where more VMs come from, what they are and what they may cost."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headgate.topology_runtime.errors import InvalidInput, UsageError
from headgate.topology_runtime.keys.keyring import Keyring

if TYPE_CHECKING:
    from headgate.controller.files.machines import Machines
    from headgate.topology_runtime.cluster import Vm

F = TypeVar("F", bound=Callable[..., Any])
WAIT_S, CALL_S = 120.0, 120.0
MACHINES = "machines"  # in the state directory


def machine_options(command: F) -> F:
    """The options that the functions below take."""
    seconds = click.FloatRange(0, 7 * 86400)
    for option in reversed((
        click.option("--machines-command", metavar="COMMAND", help="Has VMs beyond the first, and gives them back."),
        click.option("--machines-timeout", type=click.FloatRange(1, 3600), default=CALL_S, show_default=True,
                     metavar="S", help="Of each call of it."),
        click.option("--machines-wait", type=seconds, default=WAIT_S, show_default=True, metavar="S",
                     help="How long a plan waits for a VM."),
        click.option("--machine-life", type=seconds, default=0.0, show_default=True, metavar="S",
                     help="A VM is not given back before."),
        click.option("--prices", type=click.Path(path_type=Path), metavar="FILE", help="Price list of VMs."),
        click.option("--machine-size", metavar="NAME", help="Which of its sizes [the only one]."),
        click.option("--max-usd-per-hour", type=click.FloatRange(0), metavar="X", help="All VMs cost no more."),
    )):  # fmt: skip
        command = option(command)
    return command


def check(options: dict[str, Any], grows: bool) -> None:
    """Raises UsageError for options that do not go together."""
    faults = []
    if not grows:
        given = [
            name for name in ("machines_command", "prices", "max_usd_per_hour") if options[name] is not None
        ]
        faults += [
            f"--{name.replace('_', '-')} goes with --max-vms above the number of VMs" for name in given
        ]
    if options["machine_size"] is not None and options["prices"] is None:
        faults.append("--machine-size goes with --prices")
    if options["max_usd_per_hour"] is not None and options["prices"] is None:
        faults.append("--max-usd-per-hour goes with --prices: what a VM costs is not known without")
    if options["machines_command"] is not None and not words_of(options["machines_command"]):
        faults.append("--machines-command names no command")
    if faults:
        raise UsageError("these options do not go together", faults=faults)


def words_of(command: str) -> tuple[str, ...]:
    """As a shell parts them. Raises UsageError."""
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        raise UsageError(f"--machines-command {command!r} is no command", cause=str(error)) from error


def priced(options: dict[str, Any], spare: Vm) -> Vm:
    """What a VM of the provider is: of the price list if there is one. Raises InvalidInput, UsageError."""
    if options["prices"] is None:
        return spare
    from headgate.controller.files.price_files import read_prices

    sizes = {size.vm: size for size in read_prices(options["prices"])}
    name = options["machine_size"]
    if name is None and len(sizes) > 1:
        raise UsageError(
            f"{options['prices']} has {len(sizes)} sizes", hint=f"--machine-size {'|'.join(sizes)}"
        )
    if name is not None and name not in sizes:
        raise InvalidInput(f"{options['prices']} has no size {name!r}", hint=", ".join(sizes))
    return sizes[name] if name is not None else next(iter(sizes.values()))


def machines_of(options: dict[str, Any], state: Path, ring: Keyring, grows: bool) -> Machines:
    """The provider."""
    from headgate.controller.files.machines import FileMachines, NoMachines

    if not grows:
        return NoMachines()
    if options["machines_command"] is None:
        return FileMachines(state / MACHINES)
    from headgate.controller.files.machines_command import CommandMachines, MachinesCall

    def facts() -> dict[str, Any]:
        told = json.loads((state / "controller" / "endpoint").read_bytes())
        return {"run": options["run_name"], "controller": told["control"]}

    def revoke(vm: str) -> None:
        if ring.trust().of("agent", vm) is not None:
            ring.revoke("agent", vm)

    call = MachinesCall(
        words_of(options["machines_command"]),
        options["machines_timeout"],
        facts,
        lambda vm: ring.ensure("agent", vm).absolute(),
        revoke,
    )
    return CommandMachines(state / MACHINES, call)
