"""`headgate keys`: who may speak to a controller. The keys stay in a folder that its owner alone reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import click

from headgate.topology_runtime.errors import Conflict, InvalidInput, UsageError
from headgate.topology_runtime.keys.keyring import LOCAL, KeyFile, Keyring, keep_whole
from headgate.topology_runtime.keys.pairs import GIVEN, Role
from headgate.topology_runtime.output import Format, emit, format_options
from headgate.topology_runtime.packages import signing_keys
from headgate.topology_runtime.settings_folder import settings_folder

role_argument = click.argument("role", type=click.Choice(GIVEN))
name_argument = click.argument("name")


def default_folder() -> Path:
    """Keys that are not of one run."""
    return settings_folder() / "keys"


def keys_option(command: Any) -> Any:
    return click.option(
        "--keys",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="The folder: of a local run .headgate/RUN/keys [~/.config/headgate/keys].",
    )(command)


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), required=False)
def init(directory: Path | None) -> None:
    """Make a folder of keys: the controller's own, one for you (operator local), and one that signs packages of code.

    Give it to `headgate controller run --keys DIR`. Each agent needs a key of its own: `headgate keys add agent VM`; by
    that key it trusts the packages that you sign.
    """
    folder = directory or default_folder()
    Keyring.make(folder).ensure("operator", LOCAL)
    if not (folder / signing_keys.SECRET).exists():
        signing_keys.make(folder, signing_keys.own_name())
    click.echo(f"{folder}: a controller's key, and yours ({Keyring(folder).path('operator', LOCAL)})")
    click.echo(f"next: headgate keys add agent vm1 --keys {folder}")


@click.command()
@role_argument
@name_argument
@keys_option
def add(role: str, name: str, keys: Path | None) -> None:
    """A key for ROLE NAME; prints the one file that he needs.

    \b
    agent VM        says hello, samples and reports as this VM only
    operator NAME   all commands
    viewer NAME     looks at everything, changes nothing
    """
    click.echo(Keyring(keys or default_folder()).add(cast(Role, role), name))


@click.command()
@click.argument("role", type=click.Choice((*GIVEN, "controller")))
@click.argument("name", required=False)
@keys_option
def rotate(role: str, name: str | None, keys: Path | None) -> None:
    """A new key in place of ROLE NAME's old one, which counts no more within a second.

    `rotate controller`: every file names the new key then; give them out anew and start the controller again.
    """
    if name is None and role != "controller":
        raise UsageError(
            f"which {role}?", hint=f"headgate keys rotate {role} NAME; `headgate keys list` shows them"
        )
    click.echo(Keyring(keys or default_folder()).rotate(cast(Role, role), name or "controller"))


@click.command()
@role_argument
@name_argument
@keys_option
def revoke(role: str, name: str, keys: Path | None) -> None:
    """ROLE NAME's key counts no more: within a second, on links that stand too."""
    Keyring(keys or default_folder()).revoke(cast(Role, role), name)
    click.echo(f"{role} {name} may not come in any more")


@click.command("list")
@keys_option
@format_options
def list_keys(keys: Path | None, output: Format) -> None:
    """Who may come in, since when, and who may no more. Secret halves are never shown."""
    folder = keys or default_folder()
    trust = Keyring(folder).trust()
    rows = [
        {"role": k.role, "name": k.name, "key": k.public, "since": k.since, "revoked": k.revoked or None}
        for k in trust.keys
    ]
    document = {
        "schema": "headgate/keys/v1",
        "folder": str(folder),
        "controller": trust.controller,
        "keys": rows,
    }
    if output != "table":
        emit(output, document, rows)
        return
    click.echo(f"controller {trust.controller}  ({folder})")
    for row in rows:
        gone = f"  revoked {row['revoked']}" if row["revoked"] else ""
        click.echo(f"{row['role']:9} {row['name']:20} {row['key']}  since {row['since']}{gone}")


@click.command()
@role_argument
@name_argument
@click.option(
    "-o", "--output", "to", type=click.Path(path_type=Path), required=True, help="Where it is written."
)
@keys_option
def export(role: str, name: str, to: Path, keys: Path | None) -> None:
    """Write the one file that ROLE NAME needs, readable by you alone. It holds his secret: bring it by ssh."""
    key: KeyFile = Keyring(keys or default_folder()).key(role, name)
    if to.exists():
        raise Conflict(f"{to} is there already")
    try:
        keep_whole(to, key)
    except OSError as error:
        raise InvalidInput(f"{to} cannot be written", cause=error.strerror) from error
    click.echo(to)
