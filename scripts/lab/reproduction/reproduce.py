"""Paper 0's experiments (sections 8.4 to 8.6) on this machine: runs, their analysis, docs/experiments/reproduction.md.

What was run is kept in --work; the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from headgate.controller.files.planning_inputs import read_models  # noqa: E402
from headgate.controller.models.plan_data import plan_data  # noqa: E402
from headgate.lab.reproduction import reproduction_cells as c  # noqa: E402
from headgate.lab.reproduction import reproduction_runs as e  # noqa: E402
from headgate.lab.reproduction.rate_stair import Pace  # noqa: E402
from headgate.lab.reproduction.reproduction_runs import Place, Store, alone_in, run  # noqa: E402  # noqa: E402
from headgate.lab.reproduction.reproduction_writing import analysed, data_of, machine, write  # noqa: E402
from headgate.topology_runtime.api.loading import check_runs  # noqa: E402
from headgate.topology_runtime.errors import HeadgateError, Infeasible, UsageError  # noqa: E402
from headgate.topology_runtime.wording import did_you_mean  # noqa: E402

DOCS = ROOT / "docs" / "experiments"
MODELS = DOCS / "models-fresh"
WORK = ROOT / ".headgate" / "reproduce"
SHORT = {"shapes": ("linear",), "pairs": ("lsa+rsm", "mba+sam"), "routings": ("weighted",)}
SHORT_PACE = Pace(first=0.6, step=0.3, short_s=4.0, long_s=6.0, longest_s=16.0)
ANALYSIS_S = 120.0  # of a budget
CELL_S = 55.0  # until one is known


def main(words: Sequence[str]) -> int:
    options = arguments(words)
    try:
        with stopped_by_signals():
            settle(options)
            with alone_in(options.work):
                if options.short and not options.analyse_only:
                    (options.work / "cells.jsonl").unlink(missing_ok=True)  # always anew
                print(reproduce(options, words))
    except KeyboardInterrupt:
        print("stopped; the same command goes on with the next cell", file=sys.stderr)
        return 130
    except HeadgateError as error:
        print("\n".join(error.lines()), file=sys.stderr)
        return error.exit_code
    return 0


def arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/reproduce", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="one shape, two pairs: a minute, for CI")
    parser.add_argument("--budget", type=float, metavar="MINUTES", help="begin no cell that would end later")
    parser.add_argument(
        "--models", type=Path, default=MODELS, metavar="DIR", help="of `headgate model profile`"
    )
    parser.add_argument("--vms", default="3,3", help="slots of each VM [3,3]")
    parser.add_argument("--shapes", help=",".join(c.SHAPES))
    parser.add_argument("--pairs", help=f"{','.join(c.PAIRS)} and whatever else plans")
    parser.add_argument("--routings", help=",".join(c.ROUTINGS))
    parser.add_argument("--work", type=Path, help="state, traces and analysis [.headgate/reproduce]")
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="data and page [docs/experiments; short: --work]"
    )
    parser.add_argument("--analyse-only", action="store_true", help="run nothing more")
    return parser.parse_args(words)


def settle(options: argparse.Namespace) -> None:
    """The lists as tuples, what was not given as it is by default. Raises UsageError."""
    pairs = (*c.PAIRS, *c.other_pairs())
    faults = []
    for name, known in (("shapes", c.SHAPES), ("pairs", pairs), ("routings", c.ROUTINGS)):
        given = getattr(options, name)
        chosen = tuple(given.split(",")) if given else SHORT[name] if options.short else known
        faults += [
            f"--{name}: no {word!r}{did_you_mean(word, known)}" for word in chosen if word not in known
        ]
        setattr(options, name, tuple(dict.fromkeys(chosen)))
    slots = options.vms.split(",")
    if not all(part.isascii() and part.isdigit() and 1 <= int(part) <= 64 for part in slots):
        faults.append(f"--vms: {options.vms!r} is no list of slots like 3,3")
    if options.budget is not None and not 0 < options.budget < 1e6:
        faults.append(f"--budget: {options.budget:g} is no number of minutes")
    if faults:
        raise UsageError("the experiment cannot be made like that", faults=faults)
    options.vms = tuple(int(part) for part in slots)
    options.work = (options.work or (WORK.with_name("reproduce-short") if options.short else WORK)).resolve()
    options.output = (options.output or (options.work if options.short else DOCS)).resolve()


def reproduce(options: argparse.Namespace, words: Sequence[str]) -> Path:
    """All of it; the page."""
    pace = SHORT_PACE if options.short else Pace()
    models = read_models(options.models)
    shown = {shape: check_runs(c.topology_of(shape), ()) for shape in options.shapes}
    planner = c.Planner(c.setting(models, options.vms), shown)
    wanted = c.cells(options.shapes, options.pairs, options.routings)
    if options.short:
        wanted = [cell for cell in wanted if cell.section == c.FIXED]
    settings = settings_of(planner, options.vms, pace)
    store = Store(options.work, settings)
    ends_s = time.monotonic() + options.budget * 60 - ANALYSIS_S if options.budget else float("inf")
    place = Place(options.work, options.models.resolve())
    for shape in options.shapes:
        if options.analyse_only and not store.is_done(f"ends {shape}"):
            raise HeadgateError(f"nothing of {shape} was run yet", hint="leave out --analyse-only")
        planner.use(shape, e.with_ends(shown[shape], ends_of(shape, store, planner, place)))
    if not options.analyse_only:
        run_all(wanted, store, planner, place, pace, ends_s)
    records = [store.records[cell.key] for cell in wanted if cell.key in store.records]
    traces = [options.work / record["trace"] for record in records if not record.get("failed")]
    if not traces:
        raise HeadgateError("no cell was run, so there is nothing to report", hint="a larger --budget")
    tell = lambda step: print(f"analysis: {step}", file=sys.stderr)  # noqa: E731
    steps, slots = analysed(traces, options.work / "analysis", tell)
    times = sorted(record["ended"] for record in records)
    head = {
        "command": command([word for word in words if word != "--analyse-only"]),
        "machine": machine(),
        "began": min(record["began"] for record in records),
        "ended": times[-1],
        "run_minutes": sum(record["took_s"] for record in records) / 60,
        "wanted": len(wanted),
        "settings": settings,
        "ends": {shape: store.records[f"ends {shape}"]["ends"] for shape in options.shapes},
        "shapes": options.shapes,
        "pairs": options.pairs,
    }
    return write(data_of(head, records, steps, slots, planner), options.output)


def command(words: Sequence[str]) -> str:
    """The command line as strangers may read it: without where results went, and no folder of this machine."""
    kept, skip = ["scripts/reproduce"], False
    for word in words:
        name, equals, value = word.partition("=")
        if skip or name in ("--work", "--output"):
            skip = not skip and not equals
            continue
        path = Path(value or word)
        here = path.relative_to(ROOT) if path.is_relative_to(ROOT) else Path(path.name)
        kept.append(f"{name}{equals}{here}" if equals else str(here) if path.is_absolute() else word)
    return shlex.join(kept)


def settings_of(planner: c.Planner, vms: Sequence[int], pace: Pace) -> dict[str, Any]:
    """What makes results comparable: cells of one work folder have these in common."""
    vm, models = planner.of.vms[0], planner.of.models
    return {
        "vms": ",".join(map(str, vms)),
        "slot_cores": vm.slot_cores,
        "slot_memory_bytes": vm.slot_memory_bytes,
        "models": {name: str(model.more.get("measured_at", "")) for name, model in models.items()},
        **asdict(pace),
    }


# ── the runs ────────────────────────────────────────────────────────────────────────────────────


def ends_of(shape: str, store: Store, planner: c.Planner, place: Place) -> dict[str, Any]:
    """Task of fixed size → CPU of a slot per row/s (see reproducing.ends), measured once for a work folder."""
    key = f"ends {shape}"
    if not store.is_done(key):
        began, clock_s = now(), time.monotonic()
        plan = planner.plan(c.Cell(c.FIXED, shape, "mba+dsm", "weighted"))
        of = e.measured(place, planner.topologies[shape], plan)
        took_s = round(time.monotonic() - clock_s, 1)
        store.add({"key": key, "ends": of, "began": began, "took_s": took_s, "ended": now()})
        use = ", ".join(f"{task} {100 * cpu:.2g} %" for task, cpu in of.items())
        say(f"{key}: CPU of a slot per row/s: {use} ({took_s:.0f} s)")
    found_before: dict[str, Any] = store.records[key]["ends"]
    return found_before


def run_all(
    wanted: Sequence[c.Cell], store: Store, planner: c.Planner, place: Place, pace: Pace, ends_s: float
) -> None:
    """Every cell that is not done, as far as the time reaches (`ends_s` of the monotonic clock)."""
    todo = [cell for cell in wanted if not store.is_done(cell.key)]
    took = [store.records[cell.key]["took_s"] for cell in wanted if store.is_done(cell.key)]
    with bar(len(todo)) as show:
        for number, cell in enumerate(todo):
            each_s = sum(took) / len(took) if took else CELL_S
            if time.monotonic() + each_s > ends_s:
                say(
                    f"the budget is used up: {len(todo) - number} of {len(wanted)} cells are left for another time"
                )
                return
            show(number, f"{cell.key}, about {each_s * (len(todo) - number) / 60:.0f} min left")
            record = tried(cell, planner, place, pace)
            store.add(record)
            if record["took_s"] > 1:
                took.append(record["took_s"])
            say(f"{number + 1}/{len(todo)} {cell.key}: {said(record)}")


def tried(cell: c.Cell, planner: c.Planner, place: Place, pace: Pace) -> dict[str, Any]:
    """The cell's record: plan and run, or why there is none."""
    began, clock_s = now(), time.monotonic()
    record: dict[str, Any] = {"key": cell.key, **asdict(cell), "began": began}
    try:
        plan = planner.plan(cell)
        record["plan"] = plan_data(plan)
        record |= run(place, cell.key.replace(" ", "-"), planner.topologies[cell.shape], plan, pace)
    except Infeasible as error:
        record["failed"] = error.what
    except HeadgateError as error:
        record["failed"] = ": ".join([error.what, *(error.cause or "").strip().splitlines()[-1:]])
    return record | {"took_s": round(time.monotonic() - clock_s, 1), "ended": now()}


def said(record: dict[str, Any]) -> str:
    if record.get("failed"):
        return f"not run: {record['failed']}"
    kept = [step["rate_tps"] for step in record["steps"] if step["keeps_up"]]
    plan, last = record["plan"], f"{kept[-1]:.4g}" if kept else "nothing"
    predicted = plan["prediction"]["rate_tps"]
    return (
        f"planned {plan['rate_tps']:.4g}, predicted {predicted:.4g}, kept up to about {last} rows/s "
        f"({len(record['steps'])} steps, {record['took_s']:.0f} s)"
    )


@contextmanager
def bar(total: int) -> Iterator[Any]:
    """A progress bar on a terminal; a line for each cell elsewhere."""
    if not sys.stderr.isatty():
        yield lambda done, text: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from headgate.topology_runtime.commands.output import console

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console(sys.stderr), transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda done, text: progress.update(task, completed=done, description=text)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M")


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """SIGTERM is as Ctrl-C."""

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
