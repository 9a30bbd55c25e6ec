"""One run of `up` from nothing to a running topology and back to nothing.

places → controller begun → work → services → models → rates → session (controller, agents) → summary → nothing left
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headgate.dashboards.runs.live_view import Screen, screen
from headgate.dashboards.runs.open_windows import (
    going_on,
    late_lines,
    open_line,
    open_steps,
    open_tasks,
    timeless_lines,
)
from headgate.dashboards.runs.run_places import Places, places_of
from headgate.dashboards.runs.up_settings import UpSettings
from headgate.dashboards.up.up_preparation import (
    SUMMARY,
    Work,
    check_settings,
    demo_scaled,
    go_to,
    hold,
    keep,
    latest,
    models_of,
    options_again,
    places_again,
    rates_of,
    resumable,
    rows_left,
    settings_now,
    shelf_of,
    work_again,
    work_of,
    write_rates,
    write_work,
)
from headgate.dashboards.up.up_session import AT_ONCE_S, CONTROLLER, Interrupts, Session
from headgate.topology_runtime.api.event_time_rules import time_warnings
from headgate.topology_runtime.api.topology import KEY_RANGES
from headgate.topology_runtime.commands.output import Format, emit, write_table
from headgate.topology_runtime.commands.rare_settings import setting_words
from headgate.topology_runtime.commands.run_settings import RUN_SETTINGS
from headgate.topology_runtime.connectors.object_folder import absolute
from headgate.topology_runtime.errors import CheckFailed, HeadgateError, UsageError
from headgate.topology_runtime.platform.child_processes import (
    ChildRefused,
    Prestarted,
    headgate_command,
    stop_all,
)
from headgate.topology_runtime.rates.offered_rates import without_rates, words_of
from headgate.topology_runtime.traces.trace_tables import CORRECTED
from headgate.topology_runtime.wire.run_options import EVERY_SOURCE
from headgate.topology_runtime.wording import counted

# ── What the machines can carry, asked of the planner in a process of its own (`--rate-scale auto`) ─────

LIMIT_S = 300.0  # planning a thousand tasks takes a second; a busy machine takes its time


def capacity_tps(settings: UpSettings, topology: Path, models: Path, limit_s: float = LIMIT_S) -> float:
    """The highest input rate that fits all VMs there may be. Raises what the planner says."""
    command = headgate_command(
        "plan", str(topology), "--models", str(models), "--max-rate", "--rate-step", "fine"
    )
    command += ["--vms", ",".join(str(vm.slots) for vm in settings.all_vms)]
    command += ["--allocator", settings.allocator, "--mapper", settings.mapper, "--routing", settings.routing]
    given = {"topology-spread": settings.topology_spread, "as-printed": settings.as_printed or None}
    command += setting_words(given)
    command += ["-o", "json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise HeadgateError(
            f"what these slots carry was not worked out within {limit_s:g} s",
            cause="the planner did not get that far; a scale `auto` is 80 % of it",
            hint="is this machine busy? --rate-scale X, or --set peak=R, does without",
        ) from error
    if done.returncode != 0:
        raise ChildRefused("the planner", done.returncode, done.stderr.splitlines())
    found: dict[str, Any] = json.loads(done.stdout)
    if unknown := found.get("unmeasured"):
        raise UsageError(
            f"what these slots carry is not known yet: {', '.join(unknown)} have no model",
            cause="a scale `auto` is 80 % of it",
            hint="--measure first measures them now; --rate-scale X, or --set peak=R, needs no models",
        )
    rate_tps: float = found["rate_tps"]
    return rate_tps


# ── What `up` prints at its end: the run in numbers, and where to look next ─────────────────────────────

Summary = dict[str, Any]


def read_summary(file: Path) -> Summary:
    """What the controller left. Raises HeadgateError when it left nothing."""
    try:
        found: Summary = json.loads(file.read_bytes())
        return found
    except (OSError, ValueError) as error:
        raise HeadgateError("the run ended without a summary", cause=str(error)) from error


def print_summary(summary: Summary, output: Format) -> None:
    """As JSON: the whole; csv: its plans; a table: for people."""
    if output == "table":
        sys.stdout.write("\n".join(lines_of(summary)) + "\n\n")
        write_table(plan_rows(summary))
    else:
        emit(output, summary, summary["plans"] if output == "csv" else [summary])


def lines_of(summary: Summary) -> list[str]:
    t, latency = summary["tuples"], summary["latency_ms"]
    achieved = f"{summary['achieved_tps']:.1f} rows/s"
    if (offered := t["offered"] - t.get("before", 0)) > 0:
        achieved += f", {(t['acked'] - t.get('before', 0)) / offered:.1%} of what was offered"
    ms = ", ".join(
        f"{name} {value:.1f}" if value is not None else f"{name} N/A"
        for name, value in latency.items()
        if name != "error"
    )
    exact = f" (±{latency['error']:.1%})" if latency.get("p50") is not None and "error" in latency else ""
    on_vms, left = t.get("left_on_vms", 0), rows_left(summary)
    return [
        f"{summary['topology']} ran {summary['seconds']:.1f} s",
        f"offered   {t['offered']:,} rows ({summary['offered_tps']:.1f} rows/s)",
        f"acked     {t['acked']:,} ({achieved})",
        *([f"          {before:,} of them before the checkpoint"] if (before := t.get("before", 0)) else []),
        f"lost      {t['lost']:,}; dead letters {t['dead_lettered']:,}; "
        f"replayed {t['replayed']:,}; duplicates "
        f"{'at least ' * (not t['duplicates_exact'])}{t['duplicates']:,}",
        *(f"          maybe more: {why}" for why in t["duplicates_why"]),
        *([f"left      {left:,}: not done, `headgate up --resume` reads them again"] if left else []),
        *([f"left      about {on_vms:,} events on VMs that are lost, or have no slot"] if on_vms else []),
        f"latency   {ms} ms{exact}",
        *(f"no time   {line}" for line in timeless_lines(summary)),
        *(f"late      {line}" for line in late_lines(summary)),
        *(f"open      {open_line(one)}" for one in open_tasks(summary)),
        *(
            [f"no end    of the input came to {', '.join(late)}"]
            if (late := summary.get("unfinished"))
            else []
        ),
    ]


def plan_rows(summary: Summary) -> list[dict[str, Any]]:
    return [
        {
            "plan": plan["epoch"],
            "at s": plan["at_s"],
            "reason": plan["reason"],
            "rate rows/s": plan["rate_tps"],
            "slots": plan["slots"],
            "decided in s": plan["decided_s"],
            "in force after s": plan["enacted_s"],
            "pause ms": plan["pause_ms"],
            "rolled back": plan["rolled_back"],
        }
        for plan in summary["plans"]
    ]


def next_steps(trace: Path, summary: Summary) -> list[str]:
    dead, keys = summary["tuples"]["dead_lettered"], summary["letters"]["keys"]
    found = [f"{counted(dead, 'row')}"] * bool(dead) + [
        f"{counted(keys, 'call')} of `on_timer` or `finish`"
    ] * bool(keys)
    letters = (
        [f"dead letters of {' and '.join(found)}: headgate deadletter list --trace {trace}"] if found else []
    )
    return [
        *letters,
        f"the trace is in {trace}: samples, slots, rates, latency, links, decisions, views",
        f"why each plan: headgate explain --trace {trace}",
    ]


def demo_sentence(summary: Summary, killed: str) -> str:
    tuples, plans, p99 = summary["tuples"], len(summary["plans"]) - 1, summary["latency_ms"]["p99"]
    shown = [f"{tuples['acked']:,} rows at {summary['achieved_tps']:,.0f} a second"]
    shown += [f"99 % of them within {p99:.0f} ms"] * (p99 is not None)
    shown.append(f"planned again {counted(plans, 'time')}")
    shown += [f"{killed} killed"] * bool(killed)
    return f"the demo: {', '.join(shown)}, {tuples['lost']:,} rows lost"


def check_dead(summary: Summary, most: float) -> None:
    """Raises CheckFailed when so large a share of the rows, or a larger one, became dead letters."""
    mended = summary.get("letters", {}).get("mended", 0)  # processed after all
    dead, acked = summary["tuples"]["dead_lettered"] - mended, summary["tuples"]["acked"] + mended
    if dead > 0 and dead >= most * (dead + acked):
        share = f"{dead / (dead + acked):.0%} of the rows" if acked else "every row"
        raise CheckFailed(
            f"{share} became a dead letter: {dead:,} of {dead + acked:,}",
            cause="a task failed on them three times each",
            hint=f"headgate deadletter list --trace {summary['trace']}",
        )


def check_lost(summary: Summary) -> None:
    """Raises HeadgateError when tuples were lost: that is a promise broken, not a result. Raises CheckFailed when
    events went with a VM that is lost, which nobody promises to prevent."""
    lost, left = summary["tuples"]["lost"], summary["tuples"].get("left_on_vms", 0)
    if lost:
        raise HeadgateError(
            f"{lost:,} rows were lost",
            cause="a source read them, and they were neither acked nor dead-lettered when the run had ended",
            hint="the state of the run is kept; report it with its logs",
        )
    if left:
        raise CheckFailed(
            f"about {left:,} events were left on VMs",
            cause="a source had accepted them there, and the VM is lost, or has no slot that can be used",
            hint="`headgate events` says which VM; a source that can be read twice loses nothing then",
        )


def check_left(summary: Summary) -> None:
    """Raises CheckFailed when a run that ended by itself has not done all of its input. Who stops one knows that."""
    if summary["ended"] != EVERY_SOURCE:
        return
    cause = "no row got done for half a minute, or the time of --drain-timeout was over"
    if left := summary["tuples"]["left"]:
        raise CheckFailed(
            f"{counted(left, 'row')} left: read, and not done when the run ended",
            cause=cause,
            hint="`headgate up --resume` reads them again; `headgate logs` shows what tasks said",
        )
    if unfinished := summary.get("unfinished"):
        raise CheckFailed(
            f"the end of the input did not come to {', '.join(unfinished)}: what they give then is not all there",
            cause=cause,
            hint="`headgate up --resume` goes on there; `headgate events` shows what was not reached",
        )


def check_state(summary: Summary) -> None:
    """Raises CheckFailed when keyed state was lost: counts that people rely on are too low."""
    state = summary["state"]
    if state["lost_ranges"]:
        tasks = ", ".join(f"{task}: {ranges} of {KEY_RANGES}" for task, ranges in state["tasks"].items())
        raise CheckFailed(
            f"keyed state was lost ({tasks} key ranges)",
            cause="it lay on a VM that is gone, and snapshots stay on their VM; those ranges went on without it",
            hint="run again to count from the beginning; `headgate explain` says when it was lost",
        )


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

REFUSALS = (2, 3, 4, 5)  # invalid, infeasible, unreachable: nothing has run, so there is nothing to keep
LINGER = "the state and the logs of this run are kept in"


def run_up(settings: UpSettings, output: Format) -> None:
    """Raises what went wrong; leaves nothing but traces, and the state of a run that failed."""
    places = places_of(settings)
    shown = screen(settings.ends_after_s)
    check_settings(settings)
    places.make()
    hold(places.state)
    with Interrupts() as interrupts:
        try:
            with controller_begun(places) as begun:
                work, options = prepared(settings, places, shown)
                session = Session(settings, places, options, work.services, shown, interrupts, begun)
        except BaseException:
            places.remove()
            raise
        run_to_its_end(session, work, output)


def resume_up(state_dir: Path | None, given: dict[str, Any], output: Format) -> None:
    """Go on with a run whose `up` was killed. Raises what went wrong; what is left then can be resumed again."""
    kept = resumable(state_dir)
    state = (state_dir or latest()).absolute()
    settings = settings_now(kept, given)
    hold(state)
    (state / SUMMARY).unlink(missing_ok=True)
    go_to(kept)
    places = places_again(kept, state)
    shown = screen(settings.ends_after_s)
    shown.say(f"going on with run {kept.run}: {kept.topology}, from {state}")
    with Interrupts() as interrupts:
        with controller_begun(places) as begun:
            work = work_again(kept, settings, places)
            try:
                for service in work.services:
                    service.start()
                options = options_again(kept, places, settings)
                session = Session(settings, places, options, work.services, shown, interrupts, begun)
            except BaseException:
                stop_all(work.services, AT_ONCE_S)
                raise
        run_to_its_end(session, work, output)


@contextmanager
def controller_begun(places: Places) -> Iterator[Prestarted]:
    """The controller's first process, from before it is known what it runs. It ends when that fails."""
    known = ["--run", places.run, "--state-dir", str(places.state)]
    begun = Prestarted(CONTROLLER, known, places.log("controller"))
    try:
        yield begun
    except BaseException:
        begun.end()
        raise


def run_to_its_end(session: Session, work: Work, output: Format) -> None:
    settings, places, shown = session.settings, session.places, session.screen
    try:
        session.run()
        summary = read_summary(places.summary)
        commands = going_on(settings, places.state) if open_tasks(summary) else []
        if commands:
            summary["go_on"] = commands
        print_summary(summary, output)
        if settings.topology is None:
            shown.say(demo_sentence(summary, session.demo_kill.killed if session.demo_kill else ""))
        check_lost(summary)
        check_dead(summary, settings.max_dead)
        check_state(summary)
        check_left(summary)
    except BaseException as error:
        if getattr(error, "exit_code", 1) in REFUSALS and settings.state_dir is None:
            places.remove()
        else:
            shown.say(f"{LINGER} {places.state}")
        raise
    keep_measured(settings, work, places, shown.say)
    if rows_left(summary) or commands:
        shown.say(f"{LINGER} {places.state}")
    elif settings.state_dir is None:
        places.remove()
    for line in open_steps(commands) if commands else ():
        shown.say(line)
    for line in next_steps(places.trace(work.topology.name), summary):
        shown.say(line)


def prepared(settings: UpSettings, places: Places, shown: Screen) -> tuple[Work, list[str]]:
    """Everything that the controller must be told, its options last. Services run already: models of tasks
    that ask one cannot be measured without it. They end when this fails."""
    work = work_of(settings, places)
    if settings.topology is not None and settings.rates is None:
        without_rates(work.topology)
    for text in time_warnings(work.topology):
        shown.say(f"warning: {text}")
    if settings.from_checkpoint is not None:
        from headgate.topology_runtime.worker.keyed_state import checkpoints

        found = checkpoints.begin_with(settings.from_checkpoint)
        checkpoints.check_fits(found, work.topology, settings.exactly_once)
    try:
        for service in work.services:
            service.start()
        models = models_of(settings, work, places, shown.say)
        options = controller_options(settings, places, work, models, shown.say)
        keep(places, settings, options, work)
    except BaseException:
        stop_all(work.services, AT_ONCE_S)
        raise
    return work, options


def keep_measured(settings: UpSettings, work: Work, places: Places, say: Callable[[str], None]) -> None:
    """Models that the run measured on its first rows, or corrected, for the next one."""
    trace = places.trace(work.topology.name)
    if settings.models is not None:
        if corrected := ", ".join(sorted(path.stem for path in (trace / CORRECTED).glob("*.json"))):
            say(
                f"corrected by what rows really cost: {corrected}. Runs with these models do so by themselves; to keep "
                f"it: headgate model import {trace / CORRECTED} --output {settings.models} --force"
            )
        return
    shelf = shelf_of(settings, work)
    if taken := shelf.take_corrections(trace / CORRECTED):
        say(f"corrected by what rows really cost: {', '.join(taken)}; kept for next time in {shelf.folder}")
    if taken := shelf.take_up(trace / "profiled"):
        say(f"learned from the run's own rows: {', '.join(taken)}; kept for next time in {shelf.folder}")


def controller_options(
    settings: UpSettings,
    places: Places,
    work: Work,
    models: Path,
    say: Callable[[str], None] = lambda _: None,
) -> list[str]:
    topology = write_work(places, work)
    rates = rates_of(settings, lambda: capacity_tps(settings, topology, models), work.topology)
    for meaning in filter(None, (words_of(rates, work.topology), demo_scaled(settings, rates))):
        say(meaning)
    vms = ",".join(f"{vm.vm}={vm.slots}" for vm in settings.vms)
    options = {
        "topology": topology,
        "models": models,
        "vms": vms,
        "slot-cores": settings.slot_cores,
        "max-vms": settings.most_vms,
        "state-dir": places.state,
        "trace-dir": places.trace(work.topology.name),
        "run": places.run,
        "port": places.control_port,
        "command-port": places.command_port,
        "metrics-port": settings.metrics_port,
    }
    words = [
        word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))
    ]
    rare = {"schedule": write_rates(places, rates), "seconds": settings.ends_after_s}
    words += setting_words({**rare, "slot-memory": settings.slot_memory_bytes})
    run = {name: getattr(settings, name) for name in RUN_SETTINGS}
    run["from_checkpoint"] = settings.from_checkpoint and absolute(settings.from_checkpoint)
    words += setting_words({name.replace("_", "-"): value for name, value in run.items()})
    return words + [word for path in work.user_paths for word in ("--path", path)]
