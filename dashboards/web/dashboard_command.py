"""`headgate dashboard run`: the live page of a controller, or of a trace."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headgate.dashboards.runs.connection import asked, contact_of, controller_option, place_of
from headgate.dashboards.terminal.status_commands import SHARED
from headgate.topology_runtime.commands.number_options import Number
from headgate.topology_runtime.commands.output import FILE
from headgate.topology_runtime.commands.rare_settings import WORDS, SettingsCommand, setting, without
from headgate.topology_runtime.errors import InvalidInput, Unreachable, UsageError
from headgate.topology_runtime.keys.key_pairs import Contact
from headgate.topology_runtime.platform.addresses import Listening, listening
from headgate.topology_runtime.platform.child_processes import headgate_command, owner_option
from headgate.topology_runtime.platform.http_options import certificate_of, names_of

if TYPE_CHECKING:
    from headgate.dashboards.web.page_api import Ask

NEEDED = ("starlette", "uvicorn", "websockets", "plotly")
TOKEN_LEAST, TOKEN_MOST = 16, 256  # characters of a token that is given


@click.command(cls=SettingsCommand)
@controller_option
@click.option("--key", type=FILE, metavar="FILE", help="The key file of an operator or viewer.")
@click.option("--trace", type=FILE, metavar="DIR", help="Show a recorded run instead.")
@setting("--speed", type=Number(0, 1000, min_open=True), help="Of the trace [1].")
@click.option(
    "--listen", metavar="HOST", help="Address for browsers [loopback]; off it with TLS and the token."
)
@setting("--advertise", metavar="HOST", help="Under which they reach it [as --listen].")
@click.option("--tls", is_flag=True, help="By https, with a certificate that is made here and kept.")
@setting("--certificate", type=FILE, metavar="FILE", help="… with this one, as PEM.")
@setting("--certificate-key", type=FILE, metavar="FILE", help="Its key.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="0: any.")
@setting("--token-file", type=FILE, help="Holds the token; made if not there.")
@setting("--clients", "clients_most", type=click.IntRange(1, 1000), default=64, show_default=True,
              help="Viewers at most.")  # fmt: skip
@click.option("--owner", default=0, type=click.IntRange(0), help="Die with this parent process.")
@click.pass_context
def run(context: click.Context, /, **options: Any) -> None:
    """Serve the live page until Ctrl-C, and print where: on this machine's loopback, or with --listen and --tls for
    other machines too.

    Of a controller that several topologies share it is a list, with a page for each.

    On loopback anybody on this machine may look, and changing something needs the token, which is part of the address
    that is printed (or stands in --set token-file=FILE). Off it looking needs the token too.
    """
    from headgate.topology_runtime.platform.processes import die_with

    if options["owner"]:
        die_with(options["owner"])
    check_installed()
    if options["trace"] is not None and options["controller"] is not None:
        raise UsageError("--controller and --trace: give one")
    if options["speed"] is not None and options["trace"] is None:
        raise UsageError("--set speed goes with --trace")
    start(options, context.meta[WORDS])


def check_installed() -> None:
    """Raises InvalidInput when the extra is not there."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise InvalidInput(f"the page needs {', '.join(missing)}", hint="pip install 'headgate[web]'")


def start(options: dict[str, Any], words: Sequence[str]) -> None:
    from headgate.dashboards.web.feed_items import Feed
    from headgate.dashboards.web.live_feed import LiveFeed
    from headgate.dashboards.web.page_server import Web, hosts_of, serve
    from headgate.dashboards.web.page_server import listening as opened
    from headgate.dashboards.web.trace_feed import TraceFeed

    at = listening_of(options)
    certificate = certificate_of(at, options["tls"], options["certificate"], options["certificate_key"])
    feed: Feed
    ask: Ask | None = None
    token, shared = None, False
    if options["trace"] is not None:
        feed = TraceFeed(options["trace"], options["speed"] or 1.0)
    else:
        contact = contact_of(options["controller"], options["key"])
        feed, ask, token = LiveFeed(contact), asking(contact), token_of(options["token_file"])
        shared = is_shared(contact)
    if token is None and at.off_loopback:
        token = token_of(options["token_file"])
    sock = opened(options["port"], at.listen)
    names = (*names_of(at), *(certificate.names if certificate is not None else ()))
    hosts = hosts_of(sock.getsockname()[1], tuple(dict.fromkeys(names)), certificate is not None)
    web = Web(
        feed, ask, token, hosts, options["clients_most"], certificate=certificate, closed=at.off_loopback
    )
    secret = f"#token={token}" if token is not None and options["token_file"] is None else ""
    click.echo(f"{web.address}{secret}")
    if certificate is not None:
        click.echo(certificate.sentence(), err=True)
    if not shared:
        return serve(web, sock)
    from headgate.dashboards.web.topologies_page import application

    with tempfile.TemporaryDirectory(prefix="headgate-token-") as folder:  # its owner's alone
        kept = Path(folder) / "token"
        kept.touch(0o600)
        kept.write_text(f"{token}\n", "ascii")
        serve(web, sock, application(web, lambda name: page_of(name, options, words, kept)))


def is_shared(contact: Contact) -> bool:
    """Is it a controller that several topologies share? One that does not answer now is none."""
    try:
        return bool(asked(contact, "status")["schema"] == SHARED)
    except Unreachable:
        return False


def page_of(name: str, options: dict[str, Any], words: Sequence[str], token: Path) -> list[str]:
    """The command line of one topology's page: the same key, address and certificate, any port."""
    own = without(words, ("--controller", "--port", "--owner"), ("token-file",))
    where = options["controller"]
    where = f"{where}/{name}" if where is not None else f"{place_of()}/{name}"
    more = ["--controller", where, "--set", f"token-file={token}", *owner_option()]
    return headgate_command("dashboard", "run", *own, *more)


def listening_of(options: dict[str, Any]) -> Listening:
    """Off loopback only with TLS. Raises UsageError."""
    at = listening(options["listen"], options["advertise"], told_as="--set advertise=")
    if at.off_loopback and not options["tls"] and options["certificate"] is None:
        told = f" --set advertise={options['advertise']}" if options["advertise"] else ""
        raise UsageError(
            f"--listen {at.listen}: the page would go to other machines unencrypted, and its token with it",
            hint=f"headgate dashboard run --listen {at.listen}{told} --tls",
        )
    return at


def asking(contact: Contact) -> Ask:
    import asyncio

    from headgate.dashboards.runs.connection import data_of
    from headgate.topology_runtime.wire.channels import ask
    from headgate.topology_runtime.wire.messages import Request

    async def asked(command: str, arguments: dict[str, Any], seconds: float) -> Any:
        return data_of(await asyncio.to_thread(ask, contact, Request(command, arguments), seconds))

    return asked


def token_of(file: Path | None) -> str:
    """The token in the file, or a new one, which is written to it for its owner alone. Raises InvalidInput."""
    fresh = secrets.token_urlsafe(32)
    if file is None:
        return fresh
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _kept(file)
    except OSError as error:
        raise InvalidInput(f"the token cannot be written to {file}", cause=error.strerror) from error
    with os.fdopen(descriptor, "w", encoding="ascii") as written:
        written.write(fresh + "\n")
    return fresh


def _kept(file: Path) -> str:
    try:
        if file.stat().st_mode & 0o077:
            raise InvalidInput(f"others may read the token in {file}", hint=f"chmod 600 {file}")
        token = file.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file} holds no token", cause=str(error)) from error
    if not TOKEN_LEAST <= len(token) <= TOKEN_MOST or any(c.isspace() for c in token):
        raise InvalidInput(f"{file} holds no token of {TOKEN_LEAST} to {TOKEN_MOST} characters")
    return token
