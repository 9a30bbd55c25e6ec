"""`headgate keys`: who may speak to a controller. The keys stay in a folder that its owner alone reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import click
import msgspec

from headgate.dashboards.runs import connection as contexts
from headgate.topology_runtime.commands.number_options import Number
from headgate.topology_runtime.commands.output import FILE, Format, answer, format_options
from headgate.topology_runtime.errors import Conflict, InvalidInput, UsageError
from headgate.topology_runtime.keys import signing_keys
from headgate.topology_runtime.keys.key_files import keep_whole
from headgate.topology_runtime.keys.key_pairs import GIVEN, Role
from headgate.topology_runtime.keys.keyring import LOCAL, OVERLAP_S, KeyFile, Keyring, read_key
from headgate.topology_runtime.platform.addresses import parted
from headgate.topology_runtime.platform.http_options import settings_folder
from headgate.topology_runtime.wording import name_faults

role_argument = click.argument("role", type=click.Choice(GIVEN))
name_argument = click.argument("name")


def default_folder() -> Path:
    return settings_folder() / "keys"


def keys_option(command: Any) -> Any:
    return click.option(
        "--keys",
        type=FILE,
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
    """A key for ROLE NAME; prints the one file that they need.

    \b
    agent VM        says hello, samples and reports as this VM only
    operator NAME   all commands
    viewer NAME     looks at everything, changes nothing
    """
    click.echo(Keyring(keys or default_folder()).add(cast(Role, role), name))


@click.command()
@click.argument("role", type=click.Choice((*GIVEN, "controller")))
@click.argument("name", required=False)
@click.option(
    "--overlap",
    type=Number(0, 24 * 366),
    default=OVERLAP_S / 3600,
    show_default=True,
    metavar="HOURS",
    help="How long the old key still works; 0: it leaked, and stops at once.",
)
@keys_option
def rotate(role: str, name: str | None, overlap: float, keys: Path | None) -> None:
    """A new key in place of ROLE NAME's old one, which still works until the overlap ends. Nothing has to stop for it.

    Copy the file over the old one: a running agent changes to it within seconds.

    `rotate controller`: every file names the new key and, until the overlap ends, the old one. Give them all out, then
    start the controller again: it has the new one from then on.
    """
    if name is None and role != "controller":
        raise UsageError(
            f"which {role}?", hint=f"headgate keys rotate {role} NAME; `headgate keys list` shows them"
        )
    click.echo(
        Keyring(keys or default_folder()).rotate(cast(Role, role), name or "controller", overlap * 3600)
    )


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
        | {"until": k.until or None}
        for k in trust.keys
    ]
    lines = [f"controller {trust.controller}  ({folder})"]
    for row in rows:
        gone = f"  revoked {row['revoked']}" if row["revoked"] else ""
        gone = gone or (f"  rotated, until {row['until']}" if row["until"] else "")
        lines.append(f"{row['role']:9} {row['name']:20} {row['key']}  since {row['since']}{gone}")
    document = {"folder": str(folder), "controller": trust.controller, "keys": rows}
    answer(output, "headgate/keys/v1", document, "\n".join(lines), rows)


@click.command()
@role_argument
@name_argument
@click.option("--output", "to", type=FILE, required=True, help="Where it is written.")
@keys_option
def export(role: str, name: str, to: Path, keys: Path | None) -> None:
    """Write the one file that ROLE NAME needs, readable by you alone. It holds the secret key: copy it by ssh."""
    key: KeyFile = Keyring(keys or default_folder()).key(role, name)
    if to.exists():
        raise Conflict(f"{to} exists already", hint="choose another file")
    try:
        keep_whole(to, key)
    except OSError as error:
        raise InvalidInput(f"{to} cannot be written", cause=error.strerror) from error
    click.echo(to)


# ── `headgate context`: the controllers that somebody works with, by name ───────────────────────────────


@click.command()
@click.argument("name")
@click.option("--address", required=True, metavar="tcp://HOST:PORT", help="The controller's command port.")
@click.option("--key", type=FILE, required=True, help="Your key: operator or viewer.")
@click.option("--force", "replace", is_flag=True, help="Also where the name is known.")
def add_context(name: str, address: str, key: Path, replace: bool) -> None:
    """Remember a controller under NAME, with the key, and use it from now on."""
    if faults := list(name_faults("NAME", name)):
        raise InvalidInput("invalid context", faults=faults)
    parted(address)
    found = read_key(key)
    if name in contexts.read().contexts and not replace:
        raise Conflict(f"context {name} exists already", hint="replace it: --force")
    contexts.remember(name, contexts.KnownController(address, found))
    click.echo(f"commands speak to {name} now: {address}, as {found.role} {found.name}")


@click.command()
@click.argument("name")
def use(name: str) -> None:
    """Let commands speak to the controller NAME, where no run below .headgate goes on."""
    whole = contexts.read()
    if name not in whole.contexts:
        known = ", ".join(sorted(whole.contexts))
        raise InvalidInput(f"unknown context {name}", hint=known or "headgate context add")
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
    lines = [f"{'*' if row['used'] else ' '} {row['name']:20} {row['address']}  {row['as']}" for row in rows]
    none = f"no controller is remembered ({contexts.path()}); headgate context add NAME --address … --key …"
    answer(output, "headgate/contexts/v1", {"contexts": rows}, "\n".join(lines) or none, rows)
