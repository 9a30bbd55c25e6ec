"""`headgate package build`: task code as one signed file, and what is in one."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import msgspec

from headgate.dashboards.runs.connection import asked, controller_option
from headgate.dashboards.terminal.access_commands import default_folder
from headgate.topology_runtime.api.loading import load
from headgate.topology_runtime.commands.output import FILE, Format, answer, emit, format_options, write_table
from headgate.topology_runtime.commands.rare_settings import SettingsCommand, setting
from headgate.topology_runtime.errors import InvalidInput, UsageError
from headgate.topology_runtime.keys import passphrases, signing_keys
from headgate.topology_runtime.packages import package_building as building
from headgate.topology_runtime.packages.package_archive import Reading
from headgate.topology_runtime.packages.package_files import travelling
from headgate.topology_runtime.packages.package_manifest import DIGEST, SHORT, BadPackage, revocation_of
from headgate.topology_runtime.wording import NAME, counted, utc_iso, utc_ns

READ_BYTES = 256 * 1024


def packing_options(command: Any) -> Any:
    """What a package is signed with, and what stays outside of it."""
    sign = setting("--sign", "signing_key", type=FILE, metavar="FILE",
                   help="The signing key [~/.config/headgate/keys/signing.key].")  # fmt: skip
    expires = setting("--expires", metavar="30d|DATE", help="From then on no host runs it [never].")
    return setting(
        "--on-every-host", multiple=True, metavar="TASK.PARAM", help="A param that names a file of each host."
    )(sign(expires(command)))


def expiry_of(text: str | None, now_ns: int) -> str:
    """30d, 12h, or 2027-01-31 (UTC). Raises UsageError."""
    if text is None:
        return ""
    try:
        if found := re.fullmatch(r"(\d{1,5})([dh])", text):
            until_ns = now_ns + int(found[1]) * (86400 if found[2] == "d" else 3600) * 10**9
        else:
            until_ns = utc_ns(f"{date.fromisoformat(text).isoformat()}T00:00:00Z")
    except ValueError as error:
        hint = "30d, 12h, or a day as 2027-01-31"
        raise UsageError(f"invalid --set expires={text}", cause=str(error), hint=hint) from error
    if until_ns <= now_ns:
        raise UsageError(f"invalid --set expires={text}", cause="that is over already")
    return utc_iso(until_ns)


@click.command(cls=SettingsCommand)
@click.argument("place", metavar="DIR|WHEEL", type=click.Path(path_type=Path))
@click.option("--output", "to", type=FILE, help="The file [NAME-DIGEST.package].")
@click.option("--name", help="The package's name [that of DIR or WHEEL].")
@click.option(
    "--topology", metavar="REFERENCE", help="The topology that is to be run by this code: sign it too."
)
@packing_options
@format_options
def build(
    place: Path,
    to: Path | None,
    name: str | None,
    topology: str | None,
    on_every_host: tuple[str, ...],
    signing_key: Path | None,
    expires: str | None,
    output: Format,
) -> None:
    """Pack the modules of DIR, or of WHEEL, into one signed file. `headgate submit --ship` does so by itself.

    \b
    headgate package key init     make the key that signs (once)
    headgate package show FILE    what is in a package
    headgate package verify FILE  is it whole, and whose is it?

    The same content has the same digest. Hidden files, caches and traces stay behind; what looks like a secret does
    too, and is named. Links are refused. At most 64 MiB and 4,096 files.
    """
    contents = building.contents_of(place)
    if name is not None:
        if not NAME.fullmatch(name):
            raise InvalidInput(
                f"invalid --name {name!r}: not a name of 1 to 64 letters, digits, '.', '_' and '-'"
            )
        contents = replace(contents, name=name)
    if topology is not None:
        root = place.resolve() if place.is_dir() else Path.cwd()
        found = load(topology, [str(root)], runs=True).topology
        contents = building.with_topology(contents, travelling(found, root, contents.files, on_every_host))
    packed = packed_of(contents, signing_key, to, expires)
    for left in packed.left_out:
        click.echo(f"left out: {left}", err=True)
    manifest = packed.manifest
    about = {
        "file": str(packed.path),
        "name": manifest.name,
        "digest": packed.digest,
        "files": len(manifest.files),
        "size_bytes": manifest.size,
        "left_out": list(packed.left_out),
    }
    words = f"{packed.path}: {counted(len(manifest.files), 'file')}, {manifest.size:,} bytes\ndigest {packed.digest}"
    answer(output, "headgate/packed/v1", about, words)


def packed_of(
    contents: building.PackageContents, signing_key: Path | None, to: Path | None, expires: str | None = None
) -> building.Packed:
    """Written and signed. Raises InvalidInput, UsageError."""
    contents = replace(contents, expires=expiry_of(expires, time.time_ns()))
    key = signing_keys.read_key(signing_key or default_folder() / signing_keys.SECRET)
    try:
        return building.build(contents, key.secret, to, version("headgate"))
    except OSError as error:
        raise InvalidInput(
            f"the package cannot be written to {to or Path.cwd()}", cause=error.strerror
        ) from error


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@format_options
def show(file: Path, output: Format) -> None:
    """What is in the package FILE, whose key signed it, what it needs."""
    reading = read(file)
    manifest, signature = reading.manifest, reading.signature
    assert manifest is not None and signature is not None
    rows: list[dict[str, Any]] = [
        {"path": f.path, "size_bytes": f.size, "sha256": f.sha256} for f in manifest.files
    ]
    if output != "table":
        document = {
            "schema": manifest.schema,
            "name": manifest.name,
            "digest": reading.digest,
            "signer": signature.signer,
            "headgate": manifest.headgate,
            "python": manifest.python,
            "requirements": list(manifest.requirements),
            "expires": manifest.expires or None,
            "files": rows,
        }
        emit(output, document, rows)
        return
    click.echo(f"{manifest.name} {reading.digest}")
    click.echo(
        f"signed by {signature.signer}, made by headgate {manifest.headgate} on Python {manifest.python}"
    )
    if manifest.expires:
        click.echo(f"no host starts it from {manifest.expires} on")
    for line in manifest.requirements:
        click.echo(f"needs {line}")
    write_table([{**row, "sha256": f"{row['sha256'][:SHORT]}…"} for row in rows])


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--trust-signer",
    "trusted",
    type=FILE,
    multiple=True,
    metavar="FILE",
    help="A public key (signing.pub) that may have signed it; several may be given [any].",
)
def verify(file: Path, trusted: tuple[Path, ...]) -> None:
    """Is FILE a whole package, signed by one of these keys? Ends 3 when it is not, and says why."""
    signers = {signer.public: signer.name for signer in map(signing_keys.read_signer, trusted)}
    reading = read(file)
    assert reading.signature is not None and reading.manifest is not None and reading.digest is not None
    reading.manifest.refuse_expired(reading.digest, time.time_ns())
    signer = reading.signature.signer
    if signers and signer not in signers:
        raise BadPackage(f"{file} is signed by somebody else", cause=f"key {signer}")
    whose = (
        f" ({signers[signer]})" if signers else "; whether it is to be trusted was not asked: --trust-signer"
    )
    click.echo(f"{file}: whole, digest {reading.digest}")
    click.echo(f"signed by {signer}{whose}")


def read(file: Path) -> Reading:
    """A package from disk, checked as a whole. Raises BadPackage, InvalidInput."""
    reading = Reading()
    try:
        with file.open("rb") as opened:
            while part := opened.read(READ_BYTES):
                reading.feed(part)
        reading.end()
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read", cause=error.strerror) from error
    except BadPackage as error:
        what = f"{file}: {error.what}"
        raise BadPackage(what, cause=error.cause, hint=error.hint, faults=error.faults) from error
    return reading


@click.command(cls=SettingsCommand)
@click.argument("package", metavar="FILE|DIGEST")
@setting("--sign", "signing_key", type=FILE, metavar="FILE",
         help="The key that signed it [~/.config/headgate/keys/signing.key].")  # fmt: skip
@controller_option
def revoke(package: str, signing_key: Path | None, controller: str | None) -> None:
    """Have no host start a package any more: signed like the package, kept by controller and agents for good.

    Where it runs it goes on, with an alarm, until it is replaced or stopped.
    """
    digest = package if DIGEST.fullmatch(package) else str(read(Path(package)).digest)
    key = signing_keys.read_key(signing_key or default_folder() / signing_keys.SECRET)
    one = revocation_of(digest, utc_iso(time.time_ns()), key.secret)
    told = asked(controller, "package_revoke", msgspec.to_builtins(one))
    click.echo(
        f"package {digest[:SHORT]} is revoked; {counted(len(told['vms']), 'VM')} that are there hear of it"
    )
    if told["runs"]:
        click.echo("it runs, and goes on: headgate replace, or headgate stop", err=True)


@click.command()
@click.option("--name", help="Whose it is [your user name].")
@click.option("--keys", type=FILE, metavar="DIR", help="Folder [~/.config/headgate/keys].")
@click.option("--passphrase", is_flag=True, help="Lock it: asked for, or of HEADGATE_PASSPHRASE_FILE.")
def init(name: str | None, keys: Path | None, passphrase: bool) -> None:
    """Make a key that signs packages, and its public half for `headgate agent run --trust-signer`.

    Whoever has the secret half can have any code run on the hosts that trust it: it stays yours alone (0600).
    """
    folder = keys or default_folder()
    words = passphrases.chosen(str(folder / signing_keys.SECRET)) if passphrase else ""
    if passphrase and not words:
        raise InvalidInput("the passphrase is empty", hint="leave out --passphrase for a key without")
    public = signing_keys.make(folder, name or signing_keys.own_name(), words)
    click.echo(f"{public.with_name(signing_keys.SECRET)}: your signing key; keep it to yourself")
    click.echo(
        f"{public}: its public half, for every host: headgate agent run --trust-signer {public.name} …"
    )


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), required=False)
def passphrase(directory: Path | None) -> None:
    """Give the signing key in DIRECTORY [~/.config/headgate/keys] a passphrase, another one, or an empty one: none.

    It is asked for, or read from the file that HEADGATE_PASSPHRASE_FILE names.
    """
    file = (directory or default_folder()) / signing_keys.SECRET
    key = signing_keys.read_key(file)
    words = passphrases.chosen(str(file))
    signing_keys.lock_key(file, key, words)
    click.echo(f"{file}: {'opens with its passphrase only' if words else 'has no passphrase any more'}")
