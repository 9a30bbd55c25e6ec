"""`headgate backtest`: which rule for following a rate would have needed how many slots, and carried how much."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headgate.controller.knowledge.config import ControllerSettings
from headgate.topology_runtime.errors import InvalidInput, UsageError
from headgate.topology_runtime.faults.words import did_you_mean
from headgate.topology_runtime.output import Format, emit, format_options, write_table

if TYPE_CHECKING:
    from headgate.controller.backtesting.series import RateSeries
    from headgate.controller.backtesting.trying import BacktestTrial
    from headgate.controller.backtesting.world import BacktestQuestion
    from headgate.controller.knowledge.season_data import LearnedSeason

SCHEMA, CURVE_SCHEMA = "headgate/backtest/v1", "headgate/backtest-curve/v1"
TOPOLOGY = "linear"  # the shipped example with published models: about seven slots for every 100 tuples/s
PEAK_TPS = (
    400.0  # of made series and of files, unless told otherwise: 29 slots, so that one more or less shows
)
CUT = 99.9
MADE = "made:"
HEADROOM = ControllerSettings(run="").headroom
SHOWN = (
    "series", "rank", "policy", "of_static", "of_bare", "short_share", "late_share", "planned_of_offered", "plans",
    "plans_in_a_minute_most", "moves", "usd",
)  # fmt: skip


@click.command()
@click.argument("rates", nargs=-1, metavar="RATES...")
@click.option(
    "--policy", "policies", multiple=True, metavar="P", help="foresight, static, … (default: the first five)."
)
@click.option("--topology", default=TOPOLOGY, show_default=True, metavar="T", help="Plan for this topology.")
@click.option("--models", metavar="DIR", help="… by these models (default: those of an example).")
@click.option(
    "--peak", type=float, metavar="R", help=f"Scale each series to this peak (default: {PEAK_TPS:g})."
)
@click.option("--rate-scale", type=float, metavar="X", help="Instead: tuples/s = value × X.")
@click.option(
    "--time-scale", "time_scales", metavar="X,Y", default="1", help="Seconds = time / X; several: each."
)
@click.option(
    "--seconds", type=float, metavar="N", help="Of each file only the first N (default: all of it)."
)
@click.option(
    "--cut", type=float, default=CUT, show_default=True, metavar="P", help="Cut at this percentile."
)
@click.option(
    "--headroom", type=float, default=HEADROOM, show_default=True, metavar="H", help="Of every policy."
)
@click.option(
    "--enact-s", type=float, default=1.0, show_default=True, metavar="S", help="To bring a plan into force."
)
@click.option(
    "--machine-s", type=float, default=2.0, show_default=True, metavar="S", help="To get a VM, besides."
)
@click.option("--season", type=click.Path(path_type=Path), metavar="FILE", help="Hand foresight this season.")
@click.option("--vary", metavar="NAME=X,Y", help="Instead: foresight with other values of one constant.")
@click.option(
    "--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw the first series: .svg or .png."
)
@format_options
def backtest(rates: tuple[str, ...], output: Format, plot: Path | None, **options: Any) -> None:
    """Try rules for following a rate in virtual time, on RATES: rates files (as for `up --rates`), recorded runs, or
    made series (made:sine-120s; made:all, made:few).

    Each policy plans with the same planner and models; what comes above the plan in force waits. Of each is told:
    slot-seconds as a share of those of one plan for the peak, known in hindsight, with the headroom that every
    plan has (of_static) and without (of_bare); rows that came above the plan in force (short_share), and that
    waited longer than the tightest latency constraint, else 5 s (late_share); plans, moves, cost. The best carries
    99 % on most series, with least slots.

    \b
    foresight   what the controller does
    static      one plan for the peak, with headroom
    bare        the same without
    ds2         the right size for the mean of the last ten seconds
    hpa         the size × measured use / wanted use, every 15 s
    lsa+rsm     only by name: as the controller, with plans as in the paper
    mba+sam     likewise

    \b
    headgate backtest made:all
    headgate backtest rates.csv --time-scale 144,720 -o json
    headgate backtest made:all --vary short_share=0.001,0.003,0.01"""
    from headgate.controller.backtesting.deciders import DECIDERS, MEASURES, OURS, RULES
    from headgate.controller.backtesting.questions import question_of
    from headgate.controller.offline.answers import refuse_picture
    from headgate.controller.offline.policy_names import chosen_policies

    chosen = chosen_policies(options["policies"], DECIDERS, RULES)
    curve = curve_of(options["vary"]) if options["vary"] is not None else None
    check_numbers(options)
    refuse_picture(plot)
    found = series_of(rates, options)
    question = question_of(options)
    if curve is not None:
        return show_curve(output, *curve, found, question, options)
    names = tuple(dict.fromkeys((*chosen, *MEASURES)))
    season = season_of(options["season"], options["topology"])
    trials = [[trial_of(one, name, question, options["headroom"], season) for name in names] for one in found]
    gone_through([trial for of_series in trials for trial in of_series], "backtesting")
    show(output, found, trials, chosen, question, options["headroom"])
    if plot is not None:
        from headgate.controller.backtesting.chart import backtest_picture

        ours = next(trial for trial in trials[0] if trial.policy == (OURS if OURS in chosen else chosen[0]))
        backtest_picture(f"{ours.policy} on {ours.series.name}", ours.world.score.timeline, plot)


# ── what is asked ───────────────────────────────────────────────────────────────────────────────


def curve_of(text: str) -> tuple[str, tuple[float, ...]]:
    """`NAME=X,Y` → the constant and its values. Raises UsageError."""
    from headgate.controller.backtesting.trying import CONSTANTS

    name, _, values = text.partition("=")
    hint = "--vary quiet_s=5,10,20"
    if name not in CONSTANTS:
        known = f"there are {', '.join(CONSTANTS)}{did_you_mean(name, CONSTANTS)}"
        raise UsageError(f"--vary: there is no constant {name!r}", cause=known, hint=hint)
    try:
        numbers = tuple(float(value) for value in values.split(","))
    except ValueError as error:
        raise UsageError(f"--vary: {values!r} is no list of numbers", hint=hint) from error
    if not all(math.isfinite(number) and number >= 0 for number in numbers):
        raise UsageError(f"--vary: {values!r} has a value that is not finite and at least 0", hint=hint)
    return name, numbers


def check_numbers(options: dict[str, Any]) -> None:
    """Raises UsageError, InvalidInput with every fault."""
    from headgate.controller.offline.number_options import number_faults

    if options["peak"] is not None and options["rate_scale"] is not None:
        raise UsageError("--peak and --rate-scale both scale the rates: give one")
    limits = {
        "peak": (1e-3, 1e6), "seconds": (1.0, 1e7), "cut": (50.0, 100.0), "headroom": (1.0, 10.0),
        "enact_s": (0.0, 600.0), "machine_s": (0.0, 3600.0),
    }  # fmt: skip
    if faults := number_faults(options, limits):
        raise InvalidInput("nothing can be tried with these numbers", faults=faults)


def series_of(rates: Sequence[str], options: dict[str, Any]) -> list[RateSeries]:
    """Every series named, cut and scaled. Raises UsageError, InvalidInput."""
    from headgate.controller.backtesting import series as s
    from headgate.topology_runtime.rates import read

    if not rates:
        raise UsageError("which rates?", hint="headgate backtest FILE, or headgate backtest made:all")
    scales = scales_of(options["time_scales"])
    found = []
    for what in rates:
        if what.startswith(MADE):
            name = what.removeprefix(MADE)
            found += [s.made(one) for one in s.SETS.get(name, (name,))]
            continue
        for scale in scales:
            name = Path(what).stem + (f"/{scale:g}" if scale != 1 else "")
            given = read(what, options["rate_scale"] or 1.0, scale)
            found.append(s.of_rates(name, given, options["seconds"]))
    peak_tps = options["peak"] or (PEAK_TPS if options["rate_scale"] is None else None)
    cut = [one.cut(options["cut"]) for one in found]
    if faults := [f"{one.name}: nothing is offered" for one in cut if one.peak_tps <= 0]:
        raise InvalidInput("there are rates that cannot be followed", faults=faults, hint="--cut 100")
    return [one.scaled(peak_tps) if peak_tps is not None else one for one in cut]


def scales_of(text: str) -> tuple[float, ...]:
    """`144,720` → factors. Raises UsageError."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(
            f"--time-scale: {text!r} is no list of factors", hint="--time-scale 144,720"
        ) from error


def season_of(path: Path | None, topology: str) -> LearnedSeason | None:
    """Raises InvalidInput. The shipped example that plans are made for by default has no rates of its own."""
    from headgate.controller.files.season_files import read_season

    return None if path is None else read_season(path, "" if topology == TOPOLOGY else topology)


def trial_of(
    series: RateSeries,
    policy: str,
    question: BacktestQuestion,
    headroom: float,
    season: LearnedSeason | None = None,
) -> BacktestTrial:
    from headgate.controller.backtesting.trying import BacktestTrial

    return BacktestTrial(series, policy, question, headroom, season=season)


def gone_through(trials: Sequence[BacktestTrial], text: str) -> None:
    """All turns of all trials, with a bar."""
    from headgate.controller.backtesting.trying import rounds_of
    from headgate.controller.offline.waiting import waited

    for trial in waited(rounds_of(trials), text):
        trial.go_on()


# ── what is printed ─────────────────────────────────────────────────────────────────────────────


def show(
    output: Format,
    found: Sequence[RateSeries],
    trials: Sequence[Sequence[BacktestTrial]],
    chosen: Sequence[str],
    question: BacktestQuestion,
    headroom: float,
) -> None:
    from headgate.controller.backtesting.trying import ranked, series_data, series_rows
    from headgate.controller.core.following import queue_s

    per_series = [[row for row in series_rows(of) if row["policy"] in chosen] for of in trials]
    rows = [row for of in per_series for row in of]
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "topology": question.topology.name,
        "headroom": headroom,
        "may_wait_s": queue_s(question.topology),
        "enact_s": question.delays.enact_s,
        "machine_s": question.delays.machine_s,
        "series": [series_data(one, of) for one, of in zip(found, per_series, strict=True)],
        "ranked": ranked(rows),
    }
    if output != "table":
        emit(output, document, rows)
        return
    write_table([{key: row[key] for key in SHOWN} for row in rows])
    if len(found) > 1:
        click.echo()
        write_table(document["ranked"], title=f"over {len(found)} series")


def show_curve(
    output: Format,
    name: str,
    values: Sequence[float],
    found: Sequence[RateSeries],
    question: BacktestQuestion,
    options: dict[str, Any],
) -> None:
    """Foresight with each value of one constant."""
    from headgate.controller.backtesting.deciders import MEASURES, OURS
    from headgate.controller.backtesting.trying import BacktestTrial, ranked, series_rows, tunings

    fixed = [[BacktestTrial(one, name, question, options["headroom"]) for name in MEASURES] for one in found]
    gone_through([trial for of in fixed for trial in of], "backtesting")
    rows = []
    for value, headroom, tuning in tunings(name, values, options["headroom"]):
        trials = [BacktestTrial(series, OURS, question, headroom, tuning) for series in found]
        gone_through(trials, f"{name} = {value:g}")
        of_series = [series_rows([one, *of]) for one, of in zip(trials, fixed, strict=True)]
        (row,) = ranked([row for of in of_series for row in of if row["policy"] == OURS])
        rows.append({"value": value, **{key: row[key] for key in row if key not in ("rank", "policy")}})
    emit(output, {"schema": CURVE_SCHEMA, "constant": name, "series": len(found), "curve": rows}, rows)
