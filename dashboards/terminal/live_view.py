"""What people see while a run goes on: a picture on a terminal, one line per tick elsewhere.

Functions only: a `TerminalView` and the rates seen so far in, text out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from topology_runtime.faults.words import counted

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

BARS = "▁▂▃▄▅▆▇█"
SPARKS = 48  # rates in the sparkline: what fits beside its label on 80 columns
LABEL = 9  # columns of the labels on the left


@dataclass(frozen=True)
class SlotView:
    """One slot: its threads by task, CPU as a fraction of the slot."""

    number: int
    threads: dict[str, int]
    state: str = "running"
    cpu: float | None = None
    predicted_cpu: float | None = None


@dataclass(frozen=True)
class VmView:
    vm: str
    state: str
    slots: tuple[SlotView, ...]


@dataclass(frozen=True)
class TerminalView:
    """A run at one moment; None: not known (yet)."""

    topology: str
    seconds: float
    phase: str
    epoch: int
    verdict: str
    slots_used: int
    slots_total: int
    offered_tps: float | None = None
    arriving: bool = False  # rows are taken as they come
    lag_rows: int | None = None
    lag_s: float | None = None
    cap_tps: float | None = None
    measured_tps: float | None = None
    planned_tps: float | None = None
    predicted_tps: float | None = None
    slope: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    acked: int = 0
    in_flight: int = 0
    dead_lettered: int = 0
    replayed: int = 0
    lost: int = 0
    vms: tuple[VmView, ...] = ()
    notes: tuple[str, ...] = field(default=())


def number(value: float | None, unit: str = "", digits: int = 0) -> str:
    """`12.3 ms`, or N/A: never NaN."""
    return "N/A" if value is None else f"{value:,.{digits}f}{unit}"


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


def tick_line(view: TerminalView) -> str:
    """The run in one line, for logs and pipes."""
    return (
        f"{clock(view.seconds)} plan #{view.epoch} {view.phase} | {verdict(view)} | "
        f"{view.slots_used} of {view.slots_total} slots on {counted(len(view.vms), 'VM')} | "
        f"offered {number(view.offered_tps)} t/s{_behind(view)}, measured {number(view.measured_tps)}, "
        f"predicted {number(view.predicted_tps)} | "
        f"p50 {number(view.p50_ms, ' ms', 1)} p99 {number(view.p99_ms, ' ms', 1)} | "
        f"acked {view.acked:,} dead {view.dead_lettered} lost {view.lost}"
    )


def _behind(view: TerminalView) -> str:
    """How far arriving sources are behind what comes; nothing of others."""
    if not view.arriving:
        return ""
    cap = f", at most {number(view.cap_tps)} read" if view.cap_tps is not None else ""
    return f" as it comes ({lag_words(view.lag_rows, view.lag_s)}{cap})"


def lag_words(rows: int | None, seconds: float | None) -> str:
    """`120 rows, 1.4 s behind`."""
    return f"{rows:,} rows, {number(seconds, ' s', 1)} behind" if rows else "nothing behind"


def verdict(view: TerminalView) -> str:
    """`stable, slope 0.2 ms/s`."""
    if view.slope is None or view.verdict == "unknown":
        return view.verdict
    return f"{view.verdict}, slope {view.slope * 1000:+.1f} ms/s"


def picture(view: TerminalView, rates: Sequence[float], seconds: float | None) -> Group:
    """The whole picture as rich renderables."""
    from rich.console import Group
    from rich.text import Text

    of = f" of {clock(seconds)}" if seconds else ""
    head = Text.assemble(
        ("headgate up", "bold"), f"  {view.topology}  {clock(view.seconds)}{of}  {view.phase}"
    )
    return Group(head, _facts(view, rates), _slot_map(view), *(_note(note) for note in view.notes))


def _facts(view: TerminalView, rates: Sequence[float]) -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 1))
    table.add_column(min_width=LABEL, style="dim")
    table.add_column(no_wrap=True)
    offered = number(view.offered_tps)
    fits = f"{number(view.planned_tps)} planned for, {number(view.predicted_tps)} predicted to fit"
    slots = f"{view.slots_used} of {view.slots_total} slots on {counted(len(view.vms), 'VM')}"
    way = f"{view.acked:,} acked, {view.in_flight:,} in flight, {view.replayed:,} replayed"
    table.add_row("rate", f"{offered} t/s offered{_behind(view)}  {sparkline(rates)}")
    table.add_row("", f"{number(view.measured_tps)} measured, {fits}")
    table.add_row("verdict", _verdict(view))
    table.add_row("latency", f"p50 {number(view.p50_ms, ' ms', 1)}, p99 {number(view.p99_ms, ' ms', 1)}")
    table.add_row("plan", f"#{view.epoch}: {slots}")
    table.add_row("tuples", f"{way}, {view.dead_lettered:,} dead letters, {view.lost:,} lost")
    return table


def _verdict(view: TerminalView) -> Text:
    """The word says it; the colour only helps (blue and dark red: told apart by everyone)."""
    from rich.text import Text

    styles = {"stable": "bold blue", "unstable": "bold red"}
    return Text(verdict(view), styles.get(view.verdict, "dim"))


def _slot_map(view: TerminalView) -> Table:
    """VM × slot: threads by task, measured CPU."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(min_width=LABEL, style="dim")
    for _ in range(max((len(vm.slots) for vm in view.vms), default=0)):
        table.add_column(overflow="fold", ratio=1)
    for vm in view.vms:
        state = "" if vm.state == "joined" else f" ({vm.state})"
        table.add_row(vm.vm + state, *(_slot(slot) for slot in vm.slots))
    return table


def _slot(slot: SlotView) -> Text:
    from rich.text import Text

    if slot.state == "quarantined":
        return Text(f"{slot.number} quarantined", "bold red")
    if not slot.threads:
        return Text(f"{slot.number} –", "dim")
    threads = " ".join(f"{task}×{count}" for task, count in slot.threads.items())
    cpu = f" {slot.cpu:.0%}" if slot.cpu is not None else ""
    return Text(f"{slot.number} {threads}{cpu}")


def _note(note: str) -> Text:
    from rich.text import Text

    return Text(note, "yellow")
