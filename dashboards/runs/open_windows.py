"""Windows and timers that were open when a run was stopped: what is said of them, and what goes on with them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from headgate.dashboards.runs.live_view import moment, open_words
from headgate.dashboards.runs.up_settings import UpSettings
from headgate.topology_runtime.wire.run_options import EVERY_SOURCE
from headgate.topology_runtime.wording import counted


def open_tasks(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Tasks whose windows or timers are open, with what is known of their event time. Where they were not counted, they
    may be, unless all input had ended."""
    whole = summary.get("ended") == EVERY_SOURCE and not summary.get("unfinished")
    found: list[dict[str, Any]] = summary.get("event_time") or []
    return [one for one in found if one["open_keys"] != 0 and (one["open_keys"] or not whole)]


def timeless_lines(summary: dict[str, Any]) -> list[str]:
    """Of sources with timestamps that had rows without one."""
    sources: dict[str, int] = {}
    for one in summary.get("event_time") or ():
        sources |= one["rows_without_time"]
    return [
        f"{counted(rows, 'row')} of {name}, which moved no watermark"
        for name, rows in sources.items()
        if rows
    ]


def late_lines(summary: dict[str, Any]) -> list[str]:
    """Of tasks that had rows from before their watermark."""
    found = ((one["task"], one.get("late_rows") or 0) for one in summary.get("event_time") or ())
    return [f"{counted(rows, 'row')} for {task}, from before its watermark" for task, rows in found if rows]


def open_line(one: dict[str, Any]) -> str:
    """Of a task whose windows or timers were open when the run was stopped."""
    at = f"watermark {moment(one['watermark'])}" if one["watermark"] is not None else "no watermark yet"
    if one["open_keys"] is None:
        return f"windows or timers of {one['task']} may be open, they were not counted; {at}"
    return f"{open_words(one['open_keys'], one['task'])}, not given; {at}"


def going_on(settings: UpSettings, state: Path) -> list[str]:
    """The commands by which a run that was stopped goes on with its open windows and timers."""
    again = " --seconds inf" if settings.ends_after_s is not None else ""
    found = [f"headgate up --resume --state-dir {shlex.quote(str(state))}{again}"]
    if (url := settings.state_to) is not None:
        once = " --exactly-once" if settings.exactly_once else ""
        place, name = shlex.quote(url), shlex.quote(f"{url.rstrip('/')}/NAME")
        found += [
            f"headgate checkpoint create NAME --state {place} --state-dir {shlex.quote(str(state))}",
            f"headgate up {settings.topology}{once} --state-to {place} --from-checkpoint {name}",
        ]
    return found


def open_steps(commands: list[str]) -> list[str]:
    """What to do about open windows and timers, in words."""
    lines = [f"they go on with: {commands[0]}"]
    if len(commands) > 1:
        return [*lines, f"or as a checkpoint, also elsewhere: {commands[1]}", f"  and then: {commands[2]}"]
    return [*lines, "a run with `--state-to URL` can also be kept as a checkpoint, and go on elsewhere"]
