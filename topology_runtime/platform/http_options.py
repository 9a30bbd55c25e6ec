"""Options of what may be asked over HTTP: where it listens, and, off loopback, with which certificate."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headgate.topology_runtime.commands.rare_settings import setting
from headgate.topology_runtime.errors import UsageError
from headgate.topology_runtime.platform.addresses import LOOPBACK, Listening, is_everywhere, listening

if TYPE_CHECKING:
    from headgate.topology_runtime.platform.certificates import Certificate


# ── Where a user's own settings are: keys, contexts, what belongs to clusters ───────────────────────────


def settings_folder() -> Path:
    """By the XDG base directory specification."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "headgate"


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class MetricsAt:
    """Where metrics are told; certificate None: over plain http. port 0: any."""

    host: str
    port: int
    certificate: Certificate | None = None


def metrics_options(command: F) -> F:
    """The options that `metrics_at` takes."""
    file = click.Path(path_type=Path)
    for option in reversed((
        click.option("--metrics-port", type=click.IntRange(0, 65535), help="Prometheus metrics; 0: any [none]."),
        setting("--metrics-host", default=LOOPBACK, show_default=True, help="Their address."),
        setting("--metrics-advertise", metavar="HOST", help="Where Prometheus reaches them [there]."),
        setting("--metrics-tls", is_flag=True, help="Serve them by https, with a certificate made here."),
        setting("--metrics-certificate", type=file, metavar="FILE", help="… with this certificate."),
        setting("--metrics-certificate-key", type=file, metavar="FILE", help="Its key."),
        setting("--metrics-plain", is_flag=True, help="Serve them unencrypted off loopback too."),
    )):  # fmt: skip
        command = option(command)
    return command


def metrics_at(options: dict[str, Any]) -> MetricsAt | None:
    """Takes its options out: where metrics are told; None: nowhere. Raises UsageError, InvalidInput."""
    port, host, advertise, tls, file, key, plain = (
        options.pop(f"metrics_{name}")
        for name in ("port", "host", "advertise", "tls", "certificate", "certificate_key", "plain")
    )
    at = _listening(host, advertise, plain)
    if port is None:
        return None
    certificate = certificate_of(at, tls, file, key, "metrics-")
    if certificate is not None and plain:
        raise UsageError("--set metrics-plain goes with no certificate")
    if at.off_loopback and certificate is None and not plain:
        raise UsageError(
            f"--set metrics-host={host}: metrics would go to other machines unencrypted",
            hint="--set metrics-tls=yes, or --set metrics-plain=yes if that network is to be trusted",
        )
    return MetricsAt(host, port, certificate)


def _listening(host: str, advertise: str | None, plain: bool) -> Listening:
    """Plain ones may be told everywhere: no certificate has to name an address."""
    if plain and is_everywhere(host) and advertise is None:
        return Listening(host, host)
    return listening(host, advertise, "--set metrics-host=", "--set metrics-advertise=")


def certificate_of(
    at: Listening, tls: bool, file: Path | None, key: Path | None, prefix: str = ""
) -> Certificate | None:
    """The one that the options name or have made; None without. Raises UsageError, InvalidInput."""
    if (file is None) != (key is None):
        raise UsageError(f"{prefix}certificate and {prefix}certificate-key go together")
    if tls and file is not None:
        raise UsageError(f"{prefix}tls makes a certificate, {prefix}certificate gives one: give one of them")
    if not tls and file is None:
        return None
    from headgate.topology_runtime.platform import certificates as c

    if file is not None and key is not None:
        return c.given_certificate(file, key, at.advertise)
    return c.own_certificate(settings_folder() / c.FOLDER, names_of(at))


def names_of(at: Listening) -> tuple[str, ...]:
    """What it may be called: as it is advertised first."""
    listened = () if is_everywhere(at.listen) else (at.listen,)
    local = () if listened and at.off_loopback else (LOOPBACK, "localhost")
    return tuple(dict.fromkeys((at.advertise, *listened, *local)))
