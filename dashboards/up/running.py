"""One run of `up` from nothing to a running topology and back to nothing.

places → controller begun → work → services → models → rates → session (controller, agents) → summary → nothing left
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headgate.dashboards.up.capacity import capacity_tps
from headgate.dashboards.up.places import Places, places_of
from headgate.dashboards.up.preparation import (
    Work,
    demo_scaled,
    models_of,
    rates_of,
    work_of,
    write_rates,
    write_work,
)
from headgate.dashboards.up.resuming import (
    go_to,
    hold,
    keep,
    latest,
    options_again,
    places_again,
    resumable,
    settings_now,
    work_again,
)
from headgate.dashboards.up.run_summary import (
    check_dead,
    check_lost,
    check_state,
    next_steps,
    print_summary,
    read_summary,
)
from headgate.dashboards.up.screens import Screen, screen
from headgate.dashboards.up.session import AT_ONCE_S, CONTROLLER, Interrupts, Session
from headgate.dashboards.up.settings import UpSettings
from headgate.dashboards.up.supervisor import BegunAhead, stop_all
from headgate.topology_runtime.output import Format
from headgate.topology_runtime.rates import of_arrivals, words_of
from headgate.topology_runtime.trace_tables import CORRECTED

REFUSALS = (2, 3, 4, 5)  # invalid, infeasible, unreachable: nothing has run, so there is nothing to keep
LINGER = "the state and the logs of this run are kept in"


def run_up(settings: UpSettings, output: Format) -> None:
    """Raises what went wrong; leaves nothing but traces, and the state of a run that failed."""
    places = places_of(settings)
    shown = screen(settings.ends_after_s)
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
                options = options_again(kept, places)
                session = Session(settings, places, options, work.services, shown, interrupts, begun)
            except BaseException:
                stop_all(work.services, AT_ONCE_S)
                raise
        run_to_its_end(session, work, output)


@contextmanager
def controller_begun(places: Places) -> Iterator[BegunAhead]:
    """The controller's first process, from before it is known what it runs. It ends when that fails."""
    known = ["--run", places.run, "--state-dir", str(places.state)]
    begun = BegunAhead(CONTROLLER, known, places.log("controller"))
    try:
        yield begun
    except BaseException:
        begun.end()
        raise


def run_to_its_end(session: Session, work: Work, output: Format) -> None:
    """Everything from the start of its processes on."""
    settings, places, shown = session.settings, session.places, session.screen
    try:
        session.run()
        summary = read_summary(places.summary)
        print_summary(summary, output)
        check_lost(summary)
        check_dead(summary, settings.max_dead)
        check_state(summary)
    except BaseException as error:
        if getattr(error, "exit_code", 1) in REFUSALS and settings.state_dir is None:
            places.remove()
        else:
            shown.say(f"{LINGER} {places.state}")
        raise
    keep_measured(settings, work, places, shown.say)
    if settings.state_dir is None:
        places.remove()
    for line in next_steps(places.trace(work.topology.name), summary["tuples"]["dead_lettered"]):
        shown.say(line)


def prepared(settings: UpSettings, places: Places, shown: Screen) -> tuple[Work, list[str]]:
    """Everything that the controller must be told, its options last. Services run already: models of tasks
    that ask one cannot be measured without it. They end when this fails."""
    work = work_of(settings, places)
    if settings.topology is not None and settings.rates is None:
        of_arrivals(work.topology)
    try:
        for service in work.services:
            service.start()
        models = models_of(settings, work, shown.say)
        options = controller_options(settings, places, work, models, shown.say)
        keep(places, settings, options, work)
    except BaseException:
        stop_all(work.services, AT_ONCE_S)
        raise
    return work, options


def keep_measured(settings: UpSettings, work: Work, places: Places, say: Callable[[str], None]) -> None:
    """Models that the run measured on its first rows, or corrected, for the next one."""
    from headgate.topology_runtime.calibration import store

    trace = places.trace(work.topology.name)
    if settings.models is not None:
        if corrected := ", ".join(sorted(path.stem for path in (trace / CORRECTED).glob("*.json"))):
            say(
                f"corrected by what rows really cost: {corrected}. Runs with these models do so by themselves; to keep "
                f"it: headgate model import {trace / CORRECTED} --to {settings.models} --force"
            )
        return
    folder = store.folder(work.topology, work.user_paths, settings.slot_cores, settings.slot_memory_bytes)
    if taken := store.take_corrections(folder, trace / CORRECTED):
        say(f"corrected by what rows really cost: {', '.join(taken)}; kept for next time in {folder}")
    taken = store.take_up(work.topology, folder, trace / "profiled")
    if taken:
        say(f"measured on the run's own rows: {', '.join(taken)}; kept for next time in {folder}")


def controller_options(
    settings: UpSettings,
    places: Places,
    work: Work,
    models: Path,
    say: Callable[[str], None] = lambda _: None,
) -> list[str]:
    """The controller's command line."""
    topology = write_work(places, work)
    rates = rates_of(settings, lambda: capacity_tps(settings, topology, models), work.topology)
    for meaning in filter(None, (words_of(rates, work.topology), demo_scaled(settings, rates))):
        say(meaning)
    vms = ",".join(f"{vm.vm}={vm.slots}" for vm in settings.vms)
    options = {
        "topology": topology,
        "models": models,
        "schedule": write_rates(places, rates),
        "initial-vms": vms,
        "slot-cores": settings.slot_cores,
        "slot-memory": settings.slot_memory_bytes,
        "max-vms": settings.most_vms,
        "mode": settings.mode,
        "allocator": settings.allocator,
        "mapper": settings.mapper,
        "traffic-triggers": settings.traffic_triggers,
        "routing": settings.routing,
        "state-dir": places.state,
        "trace-dir": places.trace(work.topology.name),
        "trace-keep": settings.trace_keep,
        "run": places.run,
        "port": places.control_port,
        "command-port": places.command_port,
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    if settings.ends_after_s:
        words += ["--seconds", str(settings.ends_after_s)]
    if settings.plan is not None:
        words += ["--plan", str(settings.plan)]
    if settings.season is not None:
        words += ["--season", str(settings.season)]
    if settings.margin is not None:
        words += ["--margin", str(settings.margin)]
    if settings.sure is not None:
        words += ["--sure", str(settings.sure)]
    if settings.chaining != "off":
        words += ["--chaining", settings.chaining]
    words += ["--hide-keys"] * settings.hide_keys
    if settings.gap != 1.0:
        words += ["--gap", str(settings.gap)]
    if settings.profile_spare:
        words += ["--profile-spare", str(settings.profile_spare)]
    if settings.metrics is not None:
        words += ["--metrics-port", str(settings.metrics)]
    return words + [word for path in work.user_paths for word in ("--user-path", path)]
