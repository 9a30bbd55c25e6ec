"""Options that the commands about rates share, and what their numbers may be."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from headgate.controller.knowledge.controller_config import ControllerSettings
from headgate.topology_runtime.commands.rare_settings import setting
from headgate.topology_runtime.errors import InvalidInput, UsageError
from headgate.topology_runtime.wording import did_you_mean

Command = TypeVar("Command", bound=Callable[..., Any])
HEADROOM = ControllerSettings(run="").headroom
LIMITS: dict[str, tuple[float, float]] = {
    "rate_scale": (1e-9, 1e9), "time_scale": (1e-6, 1e9), "past": (0.0, 1e6), "step": (1.0, 300.0),
    "every": (0.1, 3600.0), "max_vms": (1, 4096), "vm_slots": (1, 1024), "headroom": (1.0, 10.0),
    "enact_s": (0.0, 600.0), "machine_s": (0.0, 3600.0), "peak": (1e-3, 1e6), "cut": (50.0, 100.0),
    "period": (1.0, 1e7), "skip": (0.0, 1e9), "restart_s": (0.0, 3600.0),
    "models_off": (0.2, 5.0), "plans_off": (0.0, 0.5),
}  # fmt: skip


def number(name: str, default: float, letter: str, text: str) -> Callable[[Command], Command]:
    """A setting that is a number and has a default."""
    return setting(
        name,
        type=type(default),
        default=default,
        show_default=True,
        metavar=letter,
        help=text,
    )


enact_s = number("--enact-s", 1.0, "S", "To bring a plan into force.")
machine_s = number("--machine-s", 2.0, "S", "To get a VM, besides.")
headroom = number("--headroom", HEADROOM, "H", "Of plans, to begin with.")
season = setting(
    "--season", type=click.Path(path_type=Path), metavar="FILE", help="A season that was learned."
)
rate_scale = number("--rate-scale", 1.0, "X", "Rows/s = value × X.")


def check_numbers(
    options: Mapping[str, Any], seconds: tuple[float, float] = (1.0, 1e9), more: Sequence[str] = ()
) -> None:
    """Raises InvalidInput with every fault. seconds: limits of the option of that name; more: other faults."""
    faults = [
        f"--{name.replace('_', '-')}: expected {least:g} to {most:g}, got {options[name]:g}"
        for name, (least, most) in {**LIMITS, "seconds": seconds}.items()
        if options.get(name) is not None and not least <= options[name] <= most
    ] or list(more)
    if faults:
        raise InvalidInput("these numbers cannot be used", faults=faults)


def chosen_policies(given: Sequence[str], known: Collection[str], default: Sequence[str]) -> tuple[str, ...]:
    """Each once, in their order; texts may hold several with commas between. Raises UsageError with every one that
    there is not."""
    names = [name.strip() for text in given for name in text.split(",")]
    faults = [
        f"{name!r}: there are {', '.join(known)}{did_you_mean(name, known)}"
        for name in names
        if name not in known
    ]
    if faults:
        raise UsageError("there is no such policy", faults=faults)
    return tuple(dict.fromkeys(names)) or tuple(default)
