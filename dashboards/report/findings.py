"""What was found of slots, tasks and threads, in sentences: slow slots, pairs that disturb each other, memory that only
grew, threads that took in too much. Where nothing was found it is said, and where nothing could be told, that."""

from __future__ import annotations

from collections.abc import Iterator

from headgate.dashboards.analytics.results import Leak, PairCost, SkewedThread, SlotSpeed, TaskResidual
from headgate.dashboards.report.analysis_files import Analysis
from headgate.dashboards.report.wording import count, duration, listed, number, percent

SLOW, DISTURBING = 0.9, 1.1  # of a speed and of a factor: as in docs/figures-of-a-run.md

Finding = tuple[str | None, str]  # what was found: slow, pair, leak, skew; None: nothing. The sentence


def findings(analysis: Analysis, run: str) -> Iterator[Finding]:
    """One sentence or more of each kind, whether something was found or not."""
    if not analysis.rows(TaskResidual, run) and not any(
        analysis.rows(kind, run) for kind in (SlotSpeed, PairCost, Leak, SkewedThread)
    ):
        yield None, "Nothing is known of slots and threads: no samples of tasks were recorded."
        return
    yield from slow_slots(analysis.rows(SlotSpeed, run))
    yield from disturbing_pairs(analysis.rows(PairCost, run))
    yield from leaks(analysis.rows(Leak, run))
    yield from skewed_threads(analysis.rows(SkewedThread, run))


def slow_slots(speeds: list[SlotSpeed]) -> Iterator[Finding]:
    for row in sorted((row for row in speeds if row.slow), key=lambda row: row.speed):
        yield (
            "slow",
            f"{place(row).capitalize()} is slow: it does {percent(row.speed, 2)} of what the others do with the same "
            f"CPU time ({percent(row.low, 2)} to {percent(row.high, 2)}).",
        )
    if any(row.slow for row in speeds):
        return
    sure = sum(row.low >= SLOW for row in speeds)
    if not speeds:
        yield None, "How fast its slots are against each other cannot be told from this run."
    elif not sure:
        few = f"the speeds of {count(len(speeds), 'slot')} are known too roughly"
        yield None, f"Whether a slot was slow cannot be told: {few}."
    else:
        rest = _rest(len(speeds) - sure)
        yield (
            None,
            f"No slot was found to be slow: {sure} of {count(len(speeds), 'slot')} surely are not{rest}.",
        )


def place(row: SlotSpeed) -> str:
    """`slot vm1/0`, or the whole `VM vm1`."""
    return f"VM {row.vm}" if row.slot is None else f"slot {row.vm}/{row.slot}"


def disturbing_pairs(costs: list[PairCost]) -> Iterator[Finding]:
    told: set[tuple[str, str]] = set()
    bad = {(row.task, row.beside): row for row in costs if row.disturbs}
    for (task, beside), row in sorted(bad.items(), key=lambda pair: -pair[1].factor):
        if (beside, task) in told:
            continue
        told.add((task, beside))
        other = bad.get((beside, task))
        both = f"; a row of {beside} beside {task} × {number(other.factor)}" if other else ""
        yield (
            "pair",
            f"A row of {task} costs × {number(row.factor)} the CPU time with {beside} in its slot (× {number(row.low)} "
            f"to {number(row.high)}){both}.",
        )
    if bad:
        return
    sure = sum(row.high <= DISTURBING for row in costs)
    if not costs:
        yield None, "What tasks cost each other in a slot cannot be told from this run."
    elif not sure:
        few = f"the costs of {count(len(costs), 'pair')} are known too roughly"
        yield None, f"Whether tasks disturb each other in a slot cannot be told: {few}."
    else:
        rest = _rest(len(costs) - sure)
        yield (
            None,
            f"No task was found to disturb another in its slot: {sure} of {count(len(costs), 'pair')} surely do "
            f"not{rest}.",
        )


def _rest(unsure: int) -> str:
    if not unsure:
        return ""
    return (
        f", of the other {unsure} it cannot be told" if unsure > 1 else ", of the other one it cannot be told"
    )


def leaks(found: list[Leak]) -> Iterator[Finding]:
    for row in sorted(found, key=lambda row: row.full_in_s):
        pace = f" by {number(row.bytes_per_s / 1024)} KiB/s" if row.bytes_per_s is not None else ""
        yield (
            "leak",
            f"The memory of slot {row.vm}/{row.slot} ({listed(row.tasks)}) only grew{pace}, from "
            f"{duration(row.from_s)} to {duration(row.to_s)}: {percent(row.held)} of it was held then, and "
            f"{duration(row.full_in_s)} later it would have been full.",
        )
    if not found:
        yield None, "No slot's memory only grew."


def skewed_threads(found: list[SkewedThread]) -> Iterator[Finding]:
    for task in dict.fromkeys(row.task for row in found):
        mine = [row for row in found if row.task == task]
        worst = max(mine, key=lambda row: row.times)
        epochs = len({row.epoch for row in mine})
        often = f" (in {count(epochs, 'epoch')}; the worst)" if len(mine) > 1 else ""
        yield (
            "skew",
            f"A thread of {task} took in {number(worst.times, digits=2)} times what its median thread did{often}: in "
            f"epoch {worst.epoch} thread {worst.thread} in {worst.vm}/{worst.slot} {number(worst.rate_tps)} rows/s "
            f"against {number(worst.middle_tps)}.",
        )
    if not found:
        yield None, "No thread took in twice what others of its task did."
