"""`scripts/services start|stop|status`: emulated and real services of this machine."""

from __future__ import annotations

import fcntl
import math
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from emulated_services import service_processes as azurite
from emulated_services import service_processes as processes
from emulated_services.proxy import ProxyRoute
from emulated_services.request_limits import Terms
from emulated_services.seeding import ROWS_MOST, seed_azure_blobs, seed_azure_rows, seed_files, seed_sqlite
from headgate.topology_runtime.commands.output import Format, Step, bar, emit, format_options
from headgate.topology_runtime.errors import Conflict, HeadgateError, InvalidInput
from headgate.topology_runtime.measuring.model_store import cache_home
from headgate.topology_runtime.tasks.ready_made import BLOBS, ROWS
from headgate.topology_runtime.tasks.service_addresses import BLOB_PORT, HOST, SDKS, TABLE_PORT, Address, sdk
from real_services import SERVICES, started_services

AZURITE_ROWS_MOST = 200_000  # it keeps all in memory, and stands still while it saves them (2 to 3 s)
READY_PATIENCE_S = 60.0  # the emulator reads its tables first
LOOK_EVERY_S = 0.05
PORT_MOST = 65_535
SETTINGS = "services.json"
ROOTS_FOLDER = Path("/var/lib/headgate-services")
AZURE = "azure"
NAMES = (AZURE, *sorted(SERVICES))
names_argument = click.argument("names", nargs=-1, type=click.Choice(NAMES), metavar="[NAME]...")


def _default_folder() -> Path:
    """Root's home lets no other user in, and Postgres and RabbitMQ run as users of their own."""
    return ROOTS_FOLDER if os.geteuid() == 0 else cache_home() / "headgate" / "services" / "data"


directory_option = click.option(
    "--folder",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=_default_folder,
    help=f"Where data and logs are (default: ~/.cache/headgate/services/data, root's: {ROOTS_FOLDER}).",
)


class ServiceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was asked for; kept beside the processes while they run."""

    embedded: bool
    blobs: int
    rows: int
    blob_mbps: float
    table_rps: float
    latency_ms: float
    blob_port: int
    table_port: int

    @property
    def backend(self) -> str:
        return "embedded" if self.embedded else "azurite"

    @property
    def blob_terms(self) -> Terms:
        return Terms(bytes_per_s=self.blob_mbps * 1e6, latency_s=self.latency_ms / 1000)

    @property
    def table_terms(self) -> Terms:
        return Terms(requests_per_s=self.table_rps, latency_s=self.latency_ms / 1000)

    def faults(self) -> Iterator[str]:
        most = ROWS_MOST if self.embedded else AZURITE_ROWS_MOST
        more = "" if self.embedded else " (more is too slow in the emulator; --embedded holds 2,000,000)"
        if not 1 <= self.rows <= most:
            yield f"--rows {self.rows}: must be 1 to {most:,}{more}"
        if not 1 <= self.blobs <= 9999:
            yield f"--blobs {self.blobs}: must be 1 to 9,999"
        for name, value in (("--blob-mbps", self.blob_mbps), ("--table-rps", self.table_rps)):
            if not (math.isfinite(value) and value > 0):
                yield f"{name} {value:g}: must be above 0"
        for name, port in (("--blob-port", self.blob_port), ("--table-port", self.table_port)):
            if not 0 <= port <= PORT_MOST:
                yield f"{name} {port}: must be 0 to {PORT_MOST:,}"
        if self.blob_port == self.table_port != 0:
            yield f"--blob-port and --table-port are both {self.blob_port}: must differ"
        if not 0 <= self.latency_ms <= 60_000:
            yield f"--latency-ms {self.latency_ms:g}: must be 0 to 60,000"


@click.group()
def services() -> None:
    """Services on loopback, each with its own folder and port.

    NAME is azure (emulated blobs and tables, with a cloud's limits), kafka (librdkafka's mock cluster),
    mosquitto, nats, postgres, rabbitmq, redis or s3 (moto).
    """


@services.command()
@names_argument
@click.option("--embedded", is_flag=True, help="Without Node: files and SQLite instead of Azurite.")
@click.option("--blobs", default=BLOBS, show_default=True, help="Blobs of 2 MB.")
@click.option("--rows", default=ROWS, show_default=True, help="Rows of the table, 20 columns each.")
@click.option("--blob-mbps", default=60.0, show_default=True, help="Limit of the blob service, MB/s.")
@click.option("--table-rps", default=200.0, show_default=True, help="Limit of the table service, requests/s.")
@click.option("--latency-ms", default=100.0, show_default=True, help="Added to each request.")
@click.option("--blob-port", default=BLOB_PORT, show_default=True, help="0: any free one.")
@click.option("--table-port", default=TABLE_PORT, show_default=True, help="0: any free one.")
@directory_option
@format_options
def start(names: tuple[str, ...], directory: Path, output: Format, **options: Any) -> None:
    """Install what is missing, start (default: azure), and wait until it answers.

    The options of blobs, rows and limits are azure's.
    """
    names = names or (AZURE,)
    settings = ServiceSettings(**options)
    faults = list(settings.faults())
    if faults:
        raise InvalidInput("these services cannot be", faults=faults)
    with _alone(directory):
        if AZURE in names:
            _start_azure(directory, settings)
        started_services.start(_real(names), directory)
    _show(directory, names, output)


@services.command()
@names_argument
@directory_option
@format_options
def stop(names: tuple[str, ...], directory: Path, output: Format) -> None:
    """End the processes that `start` started (default: of all), and nothing else. The data stay."""
    names = names or NAMES
    rows: list[Mapping[str, Any]] = []
    with _alone(directory):
        if AZURE in names:
            for record in _in_front_first(directory):
                lived = processes.end(record, directory)
                rows.append({"process": record.name, "pid": record.pid, "ended": lived})
            (directory / SETTINGS).unlink(missing_ok=True)
        rows += started_services.stop(_real(names), directory)
    emit(output, {"schema": "headgate/services-stopped/v1", "processes": rows}, rows)


@services.command()
@names_argument
@directory_option
@format_options
def status(names: tuple[str, ...], directory: Path, output: Format) -> None:
    """What runs (default: of all), where, with which limits."""
    _show(directory, names or NAMES, output)


# ── start ───────────────────────────────────────────────────────────────────────────────────────


def _start_azure(directory: Path, settings: ServiceSettings) -> None:
    have = _settings(directory)
    if have is not None and _all_live(directory):
        _refuse_other(have, settings)
    else:
        _start(directory, settings)


def _start(directory: Path, settings: ServiceSettings) -> None:
    """All or nothing: what has been started is ended again when something fails."""
    for record in processes.records(directory):
        processes.end(record, directory)  # left from before
    settings = msgspec.structs.replace(
        settings, blob_port=_port(settings.blob_port), table_port=_port(settings.table_port)
    )
    try:
        (_start_embedded if settings.embedded else _start_azurite)(directory, settings)
        processes.write(directory / SETTINGS, msgspec.json.encode(settings))
    except BaseException:
        for record in _in_front_first(directory):
            processes.end(record, directory)
        raise


def _start_azurite(directory: Path, settings: ServiceSettings) -> None:
    azurite.node()
    for module in SDKS:
        sdk(module)  # said before npm is asked for the emulator
    if not azurite.installed():
        with bar("azurite installed from npm (once)"):
            azurite.install()
    data = directory / "azurite"
    data.mkdir(exist_ok=True)
    blob, queue, table = (_port(0) for _ in range(3))
    emulator = processes.spawn("azurite", azurite.command(data, blob, queue, table), directory)
    _wait_for(emulator, blob, table)
    _fill("blobs", settings.blobs, lambda step: seed_azure_blobs(_inside(blob), settings.blobs, step))
    _fill("rows", settings.rows, lambda step: seed_azure_rows(_inside(table), settings.rows, step))
    routes = [
        ProxyRoute(settings.blob_port, blob, settings.blob_terms),
        ProxyRoute(settings.table_port, table, settings.table_terms),
    ]
    words = [_json(route) for route in routes]
    proxy = processes.spawn("limits", [*_python("proxy"), *words], directory)
    _wait_for(proxy, settings.blob_port, settings.table_port)


def _start_embedded(directory: Path, settings: ServiceSettings) -> None:
    data = directory / "embedded"
    _fill("blobs", settings.blobs, lambda step: seed_files(data, settings.blobs, step))
    _fill("rows", settings.rows, lambda step: seed_sqlite(data, settings.rows, step))
    words = ["--directory", str(data), "--blob-port", str(settings.blob_port)]
    words += ["--blob-terms", _json(settings.blob_terms), "--table-port", str(settings.table_port)]
    words += ["--table-terms", _json(settings.table_terms)]
    server = processes.spawn("embedded", [*_python("embedded"), *words], directory)
    _wait_for(server, settings.blob_port, settings.table_port)


def _fill(what: str, total: int, seed: Callable[[Step], None]) -> None:
    with bar(f"{what} made", total) as step:
        seed(step)


def _wait_for(record: processes.ProcessRecord, *ports: int) -> None:
    """Until the process takes connections. HeadgateError with its last words if it does not."""
    give_up_s = time.monotonic() + READY_PATIENCE_S
    for port in ports:
        while not _answers(port):
            processes.reap(record.pid)
            if not processes.lives(record) or time.monotonic() > give_up_s:
                what = f"{record.name} did not start (its log: {record.log})"
                raise HeadgateError(what, cause=processes.last_words(record))
            time.sleep(LOOK_EVERY_S)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), 1.0):
            return True
    except OSError:
        return False


def _port(desired: int) -> int:
    """`desired` if it is free, for 0 any free one. Conflict when it is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, desired))
        except OSError as error:
            what = f"port {desired} of {HOST} is taken"
            raise Conflict(what, cause=error.strerror, hint="--blob-port, --table-port") from error
        found: int = probe.getsockname()[1]
        return found


def _inside(port: int) -> Address:
    """The emulator itself, behind the limits."""
    return Address("azurite", HOST, port)


def _python(module: str) -> list[str]:
    return [sys.executable, "-P", "-m", f"emulated_services.{module}"]


def _json(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value).decode()


# ── what is there ───────────────────────────────────────────────────────────────────────────────


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """One command at a time."""
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _in_front_first(directory: Path) -> list[processes.ProcessRecord]:
    """The limits before what is behind them, so that nobody is told of a broken service."""
    return sorted(processes.records(directory), key=lambda record: record.name != "limits")


def _settings(directory: Path) -> ServiceSettings | None:
    try:
        return msgspec.json.decode((directory / SETTINGS).read_bytes(), type=ServiceSettings)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _all_live(directory: Path) -> bool:
    """Does everything live that was started? What is left of less is ended and started again."""
    found = processes.records(directory)
    return bool(found) and all(map(processes.lives, found))


def _refuse_other(have: ServiceSettings, asked: ServiceSettings) -> None:
    """Running already is fine when it is what was asked for. Conflict otherwise."""
    ports = {name: getattr(have, name) for name in ("blob_port", "table_port") if not getattr(asked, name)}
    if have != msgspec.structs.replace(asked, **ports):
        raise Conflict("services with other settings are running", hint="scripts/services stop, then start")
    click.echo("already running", err=True)


def _real(names: tuple[str, ...]) -> list[str]:
    return [name for name in names if name != AZURE]


def _show(directory: Path, names: tuple[str, ...], output: Format) -> None:
    rows = status_rows(directory) if AZURE in names else []
    rows += started_services.status(_real(names), directory)
    emit(output, {"schema": "headgate/services/v1", "directory": str(directory), "services": rows}, rows)
    if not rows:
        click.echo("nothing runs; start it with scripts/services start", err=True)


def status_rows(directory: Path) -> list[Mapping[str, Any]]:
    """One row per service. `state`: up, or down when a process is gone or does not answer."""
    settings = _settings(directory)
    if settings is None:
        return []
    alive = _all_live(directory)
    pids = [record.pid for record in processes.records(directory)]
    common = {"pids": pids, "latency_ms": settings.latency_ms}
    blob = {"holds": settings.blobs, "mb_per_s": settings.blob_mbps, "requests_per_s": None}
    table = {"holds": settings.rows, "mb_per_s": None, "requests_per_s": settings.table_rps}
    ports = (("blob", settings.blob_port, blob), ("table", settings.table_port, table))
    return [
        {
            "service": name,
            "address": str(Address(settings.backend, HOST, port)),
            "state": "up" if alive and _answers(port) else "down",
            **more,
            **common,
        }
        for name, port, more in ports
    ]


def main() -> None:
    try:
        services(prog_name="scripts/services")
    except HeadgateError as error:
        print("\n".join(error.lines()), file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
