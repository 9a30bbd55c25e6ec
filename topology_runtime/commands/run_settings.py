"""How a run is planned, traced and watched: options of `headgate up` that it hands on to `headgate controller run`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

import click

from headgate.topology_runtime.commands.number_options import Duration, Number
from headgate.topology_runtime.commands.output import FILE
from headgate.topology_runtime.commands.rare_settings import setting
from headgate.topology_runtime.wire.run_options import (
    DEFAULT_KEEP,
    DEFAULT_SPREAD,
    DEFAULT_TRIGGERS,
    TRIGGERS_HELP,
)

F = TypeVar("F", bound=Callable[..., Any])

# the controller's (controller/plan/schedulers.py), named here for help
ALLOCATORS = "lsa|mba|optimal"
MAPPERS = "dsm|rsm|sam|topology|traffic|task-level|top-down|greedy-matching|optimal"

RUN_SETTINGS: dict[str, dict[str, Any]] = {
    "mode": {
        "type": click.Choice(["advise", "approve", "auto"]), "default": "auto", "show_default": True,
        "help": "Only advise, ask before a re-plan, or re-plan by itself.",
    },
    "allocator": {
        "metavar": ALLOCATORS, "default": "mba", "show_default": True, "help": "How threads and slots are counted.",
    },
    "mapper": {
        "metavar": MAPPERS, "default": "sam", "show_default": True,
        "help": "How threads are put into slots; traffic and greedy-matching plan again by what they measure.",
    },
    "traffic_triggers": {
        "metavar": "WHEN", "default": DEFAULT_TRIGGERS, "show_default": True, "help": TRIGGERS_HELP,
    },
    "topology_spread": {
        "metavar": "A,B", "default": DEFAULT_SPREAD, "show_default": True,
        "help": "α and β of the mapper topology, α of traffic as printed: as of `headgate plan`.",
    },
    "as_printed": {
        "is_flag": True,
        "help": "Of traffic, task-level, top-down: what their paper prints; VMs of traffic stay below `load`.",
    },
    "routing": {"type": click.Choice(["weighted", "shuffle"]), "default": "weighted", "show_default": True},
    "plan": {
        "type": FILE, "metavar": "FILE", "help": "Run this plan (from `headgate plan -o json`), and never re-plan.",
    },
    "season": {
        "type": FILE, "metavar": "FILE",
        "help": "Forecast rises and falls by this season (`headgate lab season learn`).",
    },
    "margin": {
        "type": Number(0, 9), "metavar": "PART",
        "help": "Plan for so much more than the rate: 0.05 [optimal: by the models' spread].",
    },
    "p95": {
        "type": Duration(), "metavar": "50ms",
        "help": "Plan so that 95 of 100 rows are done so soon after they are due, by prediction.",
    },
    "sure": {
        "type": Number(0.5, 0.9999), "metavar": "P",
        "help": "Plans shall hold with this probability (0.95), by what is known of their errors.",
    },
    "chaining": {
        "type": click.Choice(["auto", "off"]), "default": "off", "show_default": True,
        "help": "Run a computing thread inside the one thread that sends to it.",
    },
    "hide_keys": {"is_flag": True, "help": "Report only the range of a hot key, not the key."},
    "gap": {
        "type": Number(0, 10_000), "default": 1.0, "show_default": True, "metavar": "MS",
        "help": "How long rows may wait in a buffer, unless a latency constraint says otherwise.",
    },
    "profile_spare": {
        "type": Number(0, 60), "default": 0.0, "metavar": "MINUTES",
        "help": "Of each hour, to profile tasks in spare slots, on copies of rows [none].",
    },
    "drain_timeout": {
        "type": Number(0, 7 * 86400), "default": 0.0, "metavar": "S",
        "help": "A run that ends waits so long at most; rows not done are left [as long as rows get done].",
    },
    "alarms_to": {
        "metavar": "URL", "help": "Post alarms there when they begin and end; ${FILE:/path} is a secret address.",
    },
    "otlp_to": {
        "metavar": "URL", "help": "Send metrics to a collector of OpenTelemetry there, by OTLP over HTTP.",
    },
    "exactly_once": {
        "is_flag": True,
        "help": "Keyed state counts each row once, and what comes of it goes on once a snapshot has it.",
    },
    "state_to": {
        "metavar": "URL", "help": "Keep snapshots of keyed state there (s3://…, a shared folder), not on VMs.",
    },
    "state_in_memory_mb": {
        "type": Number(0, 1 << 20, min_open=True), "metavar": "MB",
        "help": "Of each slot, for keyed state; what is more goes to a scratch file [half of the slot's memory].",
    },
    "from_checkpoint": {
        "metavar": "URL/NAME", "help": "Begin with the state and at the positions of `headgate checkpoint create`.",
    },
    "trace_keep": {
        "default": DEFAULT_KEEP, "show_default": True, "help": "Traces that stay: runs=N,gb=N,days=N; or: all.",
    },
}  # fmt: skip


def run_settings(plain: Collection[str] = ()) -> Callable[[F], F]:
    """All of them; those of these names as options, the others as settings."""

    def add(command: F) -> F:
        for name, about in reversed(RUN_SETTINGS.items()):
            made = click.option if name in plain else setting
            command = made(f"--{name.replace('_', '-')}", **about)(command)
        return command

    return add
