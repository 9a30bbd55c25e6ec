"""`headgate controller export` and `import`: a controller as one file."""

from __future__ import annotations

from pathlib import Path

import click

from headgate.controller.moving import controller_archive
from headgate.topology_runtime.commands.output import FILE
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.keys import passphrases
from headgate.topology_runtime.keys.keyring import KEYS
from headgate.topology_runtime.wording import counted

file_argument = click.argument("file", type=FILE)
state_argument = click.argument("state", type=FILE)


@click.command()
@file_argument
@state_argument
@click.option("--keys", type=FILE, metavar="DIR", help="Its folder of keys [STATE/keys].")
@click.option("--passphrase", is_flag=True, help="Lock it: asked for, or of HEADGATE_PASSPHRASE_FILE.")
def export(file: Path, state: Path, keys: Path | None, passphrase: bool) -> None:
    """Write the controller in the state directory STATE to FILE: journal, keys, models, packages, audit log.

    It may run meanwhile. FILE holds its secret keys: it is readable by you alone, and locked with --passphrase.
    """
    words = passphrases.chosen(str(file)) if passphrase else ""
    if passphrase and not words:
        raise InvalidInput("the passphrase is empty", hint="leave out --passphrase for an archive without")
    found = controller_archive.export(state, keys or state / KEYS, file, words)
    click.echo(f"{file}: {counted(len(found.files), 'file')}, {found.size:,} bytes, plan {found.epoch}")
    if not words:
        click.echo("it holds secret keys, unlocked: copy it by ssh, or use --passphrase", err=True)


@click.command("import")
@file_argument
@state_argument
@click.option("--keys", type=FILE, metavar="DIR", help="Put its keys there [STATE/keys].")
def import_controller(file: Path, state: Path, keys: Path | None) -> None:
    """Make the controller that FILE holds in the new state directory STATE, to be started there.

    The old one must not run any more. Agents go on where they are when it starts at an address that they know.
    """
    found = controller_archive.restore(file, state, keys)
    place = f" --keys {keys}" if keys is not None else ""
    click.echo(f"{state}: run {found.run or 'without an id'}, plan {found.epoch}, not started")
    click.echo(f"next, with the options that it had: headgate controller run --state-dir {state}{place} …")
