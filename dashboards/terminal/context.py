"""`headgate context`: the controllers that somebody works with, by name."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from headgate.dashboards.terminal import contexts
from headgate.topology_runtime.addresses import parted
from headgate.topology_runtime.errors import Conflict, InvalidInput
from headgate.topology_runtime.faults.words import name_faults
from headgate.topology_runtime.keys.keyring import read_key
from headgate.topology_runtime.output import Format, emit, format_options


@click.command()
@click.argument("name")
@click.option("--address", required=True, metavar="tcp://HOST:PORT", help="The controller's command port.")
@click.option("--key", type=click.Path(path_type=Path), required=True, help="Your key: operator or viewer.")
@click.option("--replace", is_flag=True, help="Also where the name is known.")
def add(name: str, address: str, key: Path, replace: bool) -> None:
    """Remember a controller under NAME, with the key, and use it from now on."""
    if faults := list(name_faults("NAME", name)):
        raise InvalidInput("there is no such name of a context", faults=faults)
    parted(address)
    found = read_key(key)
    if contexts.named(name) is not None and not replace:
        raise Conflict(f"there is a context {name}", hint="--replace")
    contexts.remember(name, contexts.KnownController(address, found))
    click.echo(f"commands speak to {name} now: {address}, as {found.role} {found.name}")


@click.command()
@click.argument("name")
def use(name: str) -> None:
    """Let commands speak to the controller NAME, where no run below .headgate goes on."""
    whole = contexts.read()
    if name not in whole.contexts:
        known = ", ".join(sorted(whole.contexts))
        raise InvalidInput(f"there is no context {name}", hint=known or "headgate context add")
    contexts.write(msgspec.structs.replace(whole, use=name))
    click.echo(f"commands speak to {name} now: {whole.contexts[name].address}")


@click.command("list")
@format_options
def list_contexts(output: Format) -> None:
    """The controllers that are remembered; * is the one in use."""
    whole = contexts.read()
    rows = [
        {
            "name": name,
            "address": one.address,
            "as": f"{one.key.role} {one.key.name}",
            "used": name == whole.use,
        }
        for name, one in sorted(whole.contexts.items())
    ]
    if output != "table":
        emit(output, {"schema": "headgate/contexts/v1", "contexts": rows}, rows)
        return
    for row in rows:
        click.echo(f"{'*' if row['used'] else ' '} {row['name']:20} {row['address']}  {row['as']}")
    if not rows:
        click.echo(
            f"no controller is remembered ({contexts.path()}); headgate context add NAME --address … --key …"
        )
