"""What people see while a run goes on: a picture on a terminal, one line per tick elsewhere.

Functions only: a controller's `headgate/status/v1` and the rates seen so far in, text out.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from headgate.topology_runtime.commands.output import console
from headgate.topology_runtime.platform.clock import monotonic_ns
from headgate.topology_runtime.wording import counted

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

BARS = "▁▂▃▄▅▆▇█"
SPARKS = 48  # rates in the sparkline: what fits beside its label on 80 columns
LABEL = 9  # columns of the labels on the left

Status = Mapping[str, Any]


def value_at(status: Status, path: str) -> Any:
    """What stands there (`rates.lag_s`); None where nothing does."""
    found: Any = status
    for name in path.split("."):
        found = found.get(name) if found else None
    return found


def number(value: float | None, unit: str = "", digits: int = 0) -> str:
    """`12.3 ms`, or N/A: never NaN, and no `-0`."""
    return "N/A" if value is None else f"{value:z,.{digits}f}{unit}"


def figure(status: Status, path: str, unit: str = "", digits: int = 0) -> str:
    return number(value_at(status, path), unit, digits)


def count(status: Status, path: str) -> str:
    """How many; before it is known, none."""
    return f"{value_at(status, path) or 0:,}"


def sparkline(rates: Sequence[float], width: int = SPARKS) -> str:
    """The newest `width` rates as bars from 0 to the highest of them."""
    shown = list(rates)[-width:]
    top = max(shown, default=0.0)
    if top <= 0:
        return BARS[0] * len(shown)
    return "".join(BARS[min(len(BARS) - 1, int(rate / top * len(BARS)))] for rate in shown)


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(max(0.0, seconds)), 60)
    return f"{minutes:02d}:{rest:02d}"


def predicted_words(status: Status) -> str:
    """What the plan carries; not known while nothing is known of a task."""
    told = value_at(status, "rates.predicted_tps") is not None or not value_at(status, "plan")
    return figure(status, "rates.predicted_tps") if told else "not known yet"


def carries_words(predicted_tps: float | None) -> str:
    """`predicted to carry 120.0 rows/s`."""
    known = predicted_tps is not None
    return f"predicted to carry {predicted_tps:.1f} rows/s" if known else "not known yet what it carries"


def _headroom_words(status: Status) -> str:
    known = predicted_words(status) != "not known yet"
    return f"headroom {figure(status, 'rates.headroom_tps')} rows/s" if known else "headroom not known yet"


NS = 1_000_000_000
SAME_NS = 10 * NS  # a line that says what the last one said is shown so often


def tick_line(status: Status) -> str:
    stage = _draining_words(status)
    p50, p99 = (figure(status, f"latency_ms.window.{p}", " ms", 1) for p in ("p50", "p99"))
    return (
        f"{clock(value_at(status, 'seconds') or 0.0)} plan {plan_words(status)} | "
        f"{stage}{verdict(status)} | {slot_words(status)} on {counted(len(vms_of(status)), 'VM')} | "
        f"offered {figure(status, 'rates.offered_now_tps')} rows/s{_behind(status)}, "
        f"measured {figure(status, 'rates.acked_now_tps')}, "
        f"predicted {predicted_words(status)} | p50 {p50} p99 {p99}, {backlog_words(status)} | "
        f"acked {count(status, 'tuples.acked')} dead {count(status, 'tuples.dead_lettered')} "
        f"lost {count(status, 'tuples.lost')}"
    )


END_STEPS = {
    "hold": "rows on their way come to rest",
    "fire": "windows of {task} are given",
    "over": "what windows of {task} gave is finished",
    "finish": "{task} finishes",
    "again": "what is not done is sent again",
}


def _draining_words(status: Status) -> str:
    """`draining (minutes finishes; 3,402 keys with open windows or timers), `; nothing of a run that goes on."""
    if value_at(status, "stage") != "draining":
        return ""
    parts = []
    if step := value_at(status, "end_step"):
        parts.append(END_STEPS.get(step["step"], step["step"]).format(task=step["task"]))
    if keys := sum(one.get("open_keys") or 0 for one in value_at(status, "event_time") or ()):
        parts.append(open_words(keys))
    return f"draining ({'; '.join(parts)}), " if parts else "draining, "


def open_words(keys: int, task: str = "") -> str:
    """`3,402 keys of minutes with open windows or timers`."""
    return f"{counted(keys, 'key')}{f' of {task}' if task else ''} with open windows or timers"


class NewLines:
    """Lines of a run, but those that say the same as the one before at a later time: of these one in ten seconds.

    >>> lines = NewLines()
    >>> [lines.take(line, 0) for line in ("00:01 10 rows", "00:02 10 rows", "00:03 9 rows")]
    [True, False, True]
    """

    def __init__(self) -> None:
        self._said, self._next_ns = "", 0

    def take(self, line: str, now_ns: int) -> bool:
        """Is it to be shown?"""
        words = line.partition(" ")[2]
        if words == self._said and now_ns < self._next_ns:
            return False
        self._said, self._next_ns = words, now_ns + SAME_NS
        return True


def headline(status: Status) -> str:
    p50, p99 = (figure(status, f"latency_ms.window.{p}", " ms", 1) for p in ("p50", "p99"))
    behind = f" ({lag_words(status)})" if _arriving(status) else ""
    first = (
        f", next bottleneck {one['task']} on {one['slot']}" if (one := value_at(status, "bottleneck")) else ""
    )
    return (
        f"{topology_of(status)}: {verdict(status)}, plan {plan_words(status)}, "
        f"{slot_words(status)}, {figure(status, 'rates.offered_now_tps')} rows/s in{behind}, "
        f"{_headroom_words(status)}{first}, p50 {p50}, p99 {p99}, "
        f"{count(status, 'tuples.lost')} lost"
    )


def topology_of(status: Status) -> str:
    return value_at(status, "topology") or "no topology yet"


def plan_words(status: Status) -> str:
    """`#3 committed`."""
    return f"#{count(status, 'plan.epoch')} {_stage(status)}"


def _stage(status: Status) -> str:
    return value_at(status, "stage") or "unknown"


def slot_words(status: Status) -> str:
    return f"{count(status, 'slots.used')} of {count(status, 'slots.total')} slots"


def vms_of(status: Status) -> list[Status]:
    """Those that have not left."""
    return [vm for vm in value_at(status, "vms") or () if vm["state"] != "left"]


def _arriving(status: Status) -> bool:
    return value_at(status, "rates.source_kind") in ("arriving", "mixed")


def _behind(status: Status) -> str:
    """How far arriving sources are behind what comes; nothing of others."""
    if not _arriving(status):
        return ""
    capped = value_at(status, "rates.cap_tps") is not None
    cap = f", at most {figure(status, 'rates.cap_tps')} read" if capped else ""
    return f" as it comes ({lag_words(status)}{cap})"


def lag_words(status: Status) -> str:
    """`120 rows, 1.4 s behind`."""
    if not value_at(status, "rates.lag_rows"):
        return "nothing behind"
    return f"{count(status, 'rates.lag_rows')} rows, {figure(status, 'rates.lag_s', ' s', 1)} behind"


def verdict(status: Status) -> str:
    """`stable, slope 0.2 ms/s`, `catching up, 41 s behind, caught up in about 2 min`; and how many alarms there are."""
    word, slope = value_at(status, "verdict.verdict") or "unknown", value_at(status, "verdict.slope")
    words = value_at(status, "verdict.words") if word != "unknown" else None
    parts = [words or word]
    if slope is not None and word in ("stable", "unstable"):
        parts.append(f"slope {slope * 1000:+.1f} ms/s")
    if alarms := value_at(status, "alarms"):
        parts.append(counted(len(alarms), "alarm"))
    return ", ".join(parts)


def bottleneck_words(status: Status) -> str:
    """`score on vm2/1 saturates first, at 120 rows/s (load 0.84)`; empty where nothing is known to."""
    found = value_at(status, "bottleneck")
    if not found:
        return ""
    load = f" (load {found['load']:.2f})" if found["load"] is not None else ""
    return f"{found['task']} on {found['slot']} saturates first, at {found['at_tps']:,.0f} rows/s{load}"


def backlog_words(status: Status) -> str:
    """`1,200 rows not done, the oldest for 3.4 s`."""
    seconds = figure(status, "verdict.backlog_s", " s", 1)
    return f"{count(status, 'verdict.backlog_rows')} rows not done, the oldest for {seconds}"


YEAR_1_S, YEAR_10000_S = -62_135_596_800, 253_402_300_800  # what can be written as a date


def moment(seconds: float) -> str:
    """Seconds since 1970 as a date and a time; the number where it is no date.

    >>> moment(1790000000.25), moment(1.79e12)
    ('2026-09-21 14:13:20 UTC', '1,790,000,000,000 s since 1970')
    """
    if not YEAR_1_S <= seconds < YEAR_10000_S:
        return f"{seconds:,.0f} s since 1970"
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=math.floor(seconds))
    return f"{at:%Y-%m-%d %H:%M:%S} UTC".rjust(len("2026-09-21 14:13:20 UTC"), "0")


def event_times(status: Status, most: int | None = None) -> list[str]:
    """A line for each task with event time, at most so many, those furthest behind first; nothing where there is
    none."""
    found = sorted(value_at(status, "event_time") or (), key=_furthest_behind)
    left_out = len(found) - len(found[:most])
    more = [f"event time of {counted(left_out, 'more task')}: headgate status"] if left_out else []
    return [_event_time_words(one) for one in found[:most]] + more


def _furthest_behind(one: Status) -> float:
    return math.inf if one["lag_s"] is None else -one["lag_s"]


NO_WATERMARK = {
    "none yet": "no watermark yet",
    "ended": "its input has ended",
    "no timestamps": "no watermark: no source before it has timestamps",
}


def _event_time_words(one: Status) -> str:
    """`event time of minutes: watermark 2026-09-21 14:13:20 UTC, 12.3 s behind now; requests partition 0 holds it back;
    3 rows late`."""
    parts = [NO_WATERMARK.get(one.get("state", ""), "no watermark")]
    if one["watermark"] is not None and one["lag_s"] is not None:
        size_s, side = abs(one["lag_s"]), "behind" if one["lag_s"] >= 0 else "ahead of"
        parts = [
            f"watermark {moment(one['watermark'])}, {number(size_s, ' s', int(size_s < 100))} {side} now"
        ]
    if one["held_by"]:
        parts.append(f"{one['held_by']} holds it back")
    parts.append(f"{counted(one['late_rows'], 'row')} late")
    for source, rows in (one.get("rows_without_time") or {}).items():
        parts += [f"{counted(rows, 'row')} of {source} without a time"] * bool(rows)
    for source, other in (one.get("waiting") or {}).items():
        parts.append(f"{source} waits for {other}")
    parts += [open_words(keys)] if (keys := one.get("open_keys")) else []
    return f"event time of {one['task']}: {'; '.join(parts)}"


def notes(status: Status) -> list[str]:
    """What is not as it should be, in words."""
    found = [f"alarm since {one['since'][11:19]}: {one['text']}" for one in value_at(status, "alarms") or ()]
    for words, path in (
        ("advice", "advice"),
        ("no plan is made by itself", "held"),
        ("degraded plan", "plan.degraded"),
        ("what rows cost is", "learning.text"),
        ("to be run once its tasks are measured", "measuring.text"),
    ):
        if text := value_at(status, path):
            found.append(f"{words}: {text}")
    if proposal := value_at(status, "proposal"):
        found.append(f"plan {proposal['id']} waits for `headgate apply {proposal['id']}`: {proposal['text']}")
    return found


def picture(status: Status, rates: Sequence[float], seconds: float | None) -> Group:
    from rich.console import Group
    from rich.text import Text

    of = f" of {clock(seconds)}" if seconds else ""
    now = clock(value_at(status, "seconds") or 0.0)
    head = Text.assemble(
        ("headgate up", "bold"),
        f"  {topology_of(status)}  {now}{of}  {_stage(status)}",
    )
    times = (Text(line) for line in event_times(status))
    noted = (Text(note, "yellow") for note in notes(status))
    return Group(head, _facts(status, rates), _slot_map(status), *times, *noted)


def _said(status: Status) -> str:
    """What was predicted of the latency, where it was."""
    if value_at(status, "latency_ms.predicted") is None:
        return ""
    p50, p99 = (figure(status, f"latency_ms.predicted.{p}_ms", " ms", 1) for p in ("p50", "p99"))
    return f" (predicted {p50}, {p99})"


def _error(status: Status) -> str:
    """How exact latencies are: they are counted in buckets."""
    error = value_at(status, "latency_ms.error")
    return f" (±{error:.1%})" if isinstance(error, float) else ""


def _facts(status: Status, rates: Sequence[float]) -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 1))
    table.add_column(min_width=LABEL, style="dim")
    table.add_column(no_wrap=True)
    p50, p99 = (figure(status, f"latency_ms.window.{p}", " ms", 1) for p in ("p50", "p99"))
    offered = f"{figure(status, 'rates.offered_now_tps')} rows/s offered{_behind(status)}"
    planned, predicted = figure(status, "rates.planned_tps"), predicted_words(status)
    measured = figure(status, "rates.acked_now_tps")
    tuples = {"acked": "acked", "in_flight": "in flight", "replayed": "replayed", "dead_lettered": "dead letters",
              "lost": "lost"}  # fmt: skip
    table.add_row("rate", f"{offered}  {sparkline(rates)}")
    table.add_row("", f"{measured} measured, {planned} planned for, {predicted} predicted to fit")
    table.add_row("verdict", _verdict(status))
    table.add_row("latency", f"p50 {p50}, p99 {p99}{_error(status)}{_said(status)}; {backlog_words(status)}")
    on = counted(len(vms_of(status)), "VM")
    table.add_row("plan", f"#{count(status, 'plan.epoch')}: {slot_words(status)} on {on}")
    if first := bottleneck_words(status):
        table.add_row("", first)
    table.add_row(
        "rows", ", ".join(f"{count(status, f'tuples.{name}')} {words}" for name, words in tuples.items())
    )
    return table


def _verdict(status: Status) -> Text:
    """The word says it; the colour only helps (blue and dark red: told apart by everyone)."""
    from rich.text import Text

    styles = {"stable": "bold blue", "catching_up": "bold yellow", "unstable": "bold red"}
    return Text(verdict(status), styles.get(value_at(status, "verdict.verdict"), "dim"))


def _slot_map(status: Status) -> Table:
    """VM × slot: threads by task, measured CPU."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(min_width=LABEL, style="dim")
    vms = vms_of(status)
    for _ in range(max((len(vm["slots"]) for vm in vms), default=0)):
        table.add_column(overflow="fold", ratio=1)
    for vm in vms:
        states = [vm["state"] if vm["state"] != "joined" else None, vm.get("cordon"), _speed(vm)]
        state = f" ({', '.join(filter(None, states))})" if any(states) else ""
        table.add_row(vm["vm"] + state, *map(_slot, vm["slots"]))
    return table


def _speed(vm: Status) -> str | None:
    """`speed 0.5 by rows for 42 s`; None of a VM that is as fast as others."""
    if (speed := vm.get("speed", 1.0)) == 1.0:
        return None
    seen = f" by {vm['speed_by']} for {vm['speed_age_s']:.0f} s" if vm.get("speed_age_s") is not None else ""
    return f"speed {speed:.2g}{seen}"


def _slot(slot: Status) -> Text:
    from rich.text import Text

    if slot["state"] == "quarantined":
        return Text(f"{slot['slot']} quarantined", "bold red")
    if slot["state"] == "withheld":
        return Text(f"{slot['slot']} others'", "dim")
    if not slot["threads"]:
        return Text(f"{slot['slot']} –", "dim")
    threads = " ".join(f"{task}×{threads}" for task, threads in slot["threads"].items())
    cpu = f" {slot['cpu']:.0%}" if slot["cpu"] is not None else ""
    return Text(f"{slot['slot']} {threads}{cpu}")


# ── Where a run is shown while it goes on: a picture drawn in place on a terminal, or lines. Always stderr

TICK_NS = NS


class Screen(Protocol):
    """What `up` shows to."""

    def show(self, status: Status) -> None:
        """The run as it is now."""

    def say(self, line: str) -> None:
        """A line that stays."""

    def close(self) -> None: ...


class Lines:
    """One line per tick, and the lines that stay between them."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._next_ns = 0
        self._new = NewLines()

    def show(self, status: Status) -> None:
        now_ns = monotonic_ns()
        if now_ns >= self._next_ns:
            self._next_ns = now_ns + TICK_NS
            if self._new.take(line := tick_line(status), now_ns):
                self.say(line)

    def say(self, line: str) -> None:
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except OSError:  # its file is full, or nobody reads: the run goes on without being told of
            return

    def close(self) -> None:
        return


class TerminalPicture:
    """The picture in place; lines that stay scroll above it."""

    def __init__(self, stream: TextIO, seconds: float | None) -> None:
        self._console = console(stream)
        self._seconds = seconds
        self._rates: deque[float] = deque(maxlen=SPARKS)
        self._live: Live | None = None
        self._second = -1

    def show(self, status: Status) -> None:
        if int(status["seconds"]) != self._second:  # one bar a second
            self._second = int(status["seconds"])
            self._rates.append(value_at(status, "rates.offered_now_tps") or 0.0)
        if self._live is None:
            from rich.live import Live

            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        self._live.update(picture(status, self._rates, self._seconds), refresh=True)

    def say(self, line: str) -> None:
        self._console.print(line, soft_wrap=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()


def screen(seconds: float | None) -> Screen:
    if sys.stderr.isatty():
        return TerminalPicture(sys.stderr, seconds)
    return Lines(sys.stderr)


def at(seconds: float, text: str) -> str:
    """A line of a run with its time since the first tuple was due."""
    return f"{clock(seconds)} {text}"
