"""`headgate lab backtest`: which rule for following a rate would have needed how many slots, and carried how much."""

from __future__ import annotations

import itertools
import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from headgate.controller.analyze.forecast import Tuning
from headgate.controller.pictures import drawing
from headgate.controller.pictures.drawing import AMBER, BLUE, DARK_RED, INK, tint
from headgate.lab.rate_policies.backtest_inputs import RateSeries
from headgate.lab.rate_policies.backtest_world import (
    SHORT_MOST,
    BacktestQuestion,
    FluidWorld,
    Row,
    rank_of,
    with_planner,
)
from headgate.lab.rate_policies.hindsight import fewest_slots, oracle_slot_seconds
from headgate.lab.rate_policies.policy_rules import BARE, DECIDERS, MEASURES, OURS, STATIC
from headgate.lab.rate_policies.rate_options import (
    check_numbers,
    chosen_policies,
    enact_s,
    headroom,
    machine_s,
    number,
    season,
)
from headgate.lab.rate_policies.rule_turns import DeciderQuestion
from headgate.topology_runtime.commands.output import Format, emit, format_options, write_table
from headgate.topology_runtime.commands.rare_settings import SettingsCommand, setting
from headgate.topology_runtime.errors import InvalidInput, UsageError
from headgate.topology_runtime.rates.learned_season import LearnedSeason
from headgate.topology_runtime.rates.schedule import Schedule
from headgate.topology_runtime.wording import did_you_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from headgate.lab.rate_policies.backtest_world import ScoreSeries

SCHEMA, CURVE_SCHEMA = "headgate/backtest/v1", "headgate/backtest-curve/v1"
TOPOLOGY = "linear"  # the shipped example with published models: about seven slots for every 100 rows/s
PEAK_TPS = (
    400.0  # of made series and of files, unless told otherwise: 29 slots, so that one more or less shows
)
CUT = 99.9
MADE = "made:"
SHOWN = (
    "series", "rank", "policy", "of_static", "of_oracle", "short_share", "late_share", "p99_wait_s", "behind_s",
    "plans", "plans_in_a_minute_most", "moves", "repeated", "usd",
)  # fmt: skip


@click.command(cls=SettingsCommand)
@click.argument("rates", nargs=-1, metavar="RATES...")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="P",
    help="foresight, static, … (default: all but the last two).",
)
@click.option("--topology", default=TOPOLOGY, show_default=True, metavar="T", help="Plan for this topology.")
@click.option("--models", metavar="DIR", help="… by these models (default: those of an example).")
@setting("--peak", type=float, metavar="R", help=f"Scale each series to this peak (default: {PEAK_TPS:g}).")
@setting("--rate-scale", type=float, metavar="X", help="Instead: rows/s = value × X.")
@setting("--time-scale", "time_scales", metavar="X,Y", default="1", help="Seconds = time / X; several: each.")
@setting(
    "--take",
    "seconds",
    type=float,
    metavar="S",
    help="Of each file only the first N (default: all of it).",
)
@setting("--skip", "skips", metavar="S,T", default="0", help="… from S seconds on; several: each.")
@number("--cut", CUT, "P", "Cut at this percentile.")
@headroom
@enact_s
@machine_s
@number(
    "--restart-s", 0.0, "S", "Rules of others stop everything for so long, and repeat what no checkpoint has."
)
@setting("--headroom-fixed", is_flag=True, help="Do not measure it: of each plan, to the end.")
@number("--models-off", 1.0, "X", "Rows cost so many times what models say.")
@number("--plans-off", 0.0, "S", "… with this standard deviation (of ln) from plan to plan, besides.")
@season
@setting("--vary", metavar="NAME=X,Y", help="Instead: foresight with other values of one constant.")
@click.option(
    "--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw the first series: .svg or .png."
)
@format_options
def backtest(rates: tuple[str, ...], output: Format, plot: Path | None, **options: Any) -> None:
    """Try rules for following a rate in virtual time, on RATES: rates files (as for `up --rates`), recorded runs, or
    made series (made:sine-120s; made:all, made:few).

    Each policy plans with the same planner and models; what comes above the plan in force waits. Of each is reported:
    slot-seconds as a share of those of one plan for the peak, known in hindsight, with the headroom that every
    plan has (of_static), and of an oracle's (of_oracle), who has what each moment needs; rows that came above the
    plan in force (short_share), and that waited longer than the tightest latency constraint, else 5 s (late_share);
    the wait of 99 of 100 rows; behind_s: from a rise until a plan is in force that carries it; plans, moves, cost.
    The best carries 99 % on most series, with least slots; `wins` counts series on which it needed the fewest of
    those with at most 1 % late rows.

    \b
    foresight   what the controller does
    static      one plan for the peak, with headroom
    bare        the same without
    ds2         DS2: the right size for the last ten seconds, from true rates
    hpa         Kubernetes: the size × use / 80 %, every 15 s
    flink       Flink's autoscaler: utilisation of 70 ± 30 %, with its defaults
    daedalus    recovers in ten minutes, by measured capacity and a forecast
    phoebe      recovers in three minutes, by models and a forecast
    conttune    by what sizes did before
    lsa+rsm     only by name: as the controller, with plans as in the paper
    mba+sam     likewise

    \b
    headgate lab backtest made:all
    headgate lab backtest rates.csv --set time-scale=144,720 -o json
    headgate lab backtest rates.csv --set skip=0,86400 --set take=86400 --policy foresight,flink
    headgate lab backtest made:all --set vary=short_share=0.001,0.003,0.01"""
    from headgate.controller.planning_commands.plan_request import refuse_picture
    from headgate.lab.rate_policies.backtest_inputs import question_of
    from headgate.lab.rate_policies.policy_rules import DECIDERS, MEASURES, OURS, RULES

    chosen = chosen_policies(options["policies"], DECIDERS, RULES)
    curve = curve_of(options["vary"]) if options["vary"] is not None else None
    check_scales(options)
    refuse_picture(plot)
    found = series_of(rates, options)
    question = replace(
        question_of(options),
        restart_s=options["restart_s"],
        models_off=options["models_off"],
        plans_off=options["plans_off"],
        headroom_measured=not options["headroom_fixed"],
    )
    if curve is not None:
        return show_curve(output, *curve, found, question, options)
    names = tuple(dict.fromkeys((*chosen, *MEASURES)))
    known = season_of(options["season"], options["topology"])
    trials = [
        [BacktestTrial(one, name, question, options["headroom"], season=known) for name in names]
        for one in found
    ]
    gone_through([trial for of_series in trials for trial in of_series], "backtesting")
    show(output, found, trials, chosen, question, options["headroom"])
    if plot is not None:
        ours = next(trial for trial in trials[0] if trial.policy == (OURS if OURS in chosen else chosen[0]))
        backtest_picture(f"{ours.policy} on {ours.series.name}", ours.world.score.timeline, plot)


# ── what is asked ───────────────────────────────────────────────────────────────────────────────


def curve_of(text: str) -> tuple[str, tuple[float, ...]]:
    """`NAME=X,Y` → the constant and its values. Raises UsageError."""

    name, _, values = text.partition("=")
    hint = "--set vary=quiet_s=5,10,20"
    if name not in CONSTANTS:
        known = f"there are {', '.join(CONSTANTS)}{did_you_mean(name, CONSTANTS)}"
        raise UsageError(f"vary: there is no constant {name!r}", cause=known, hint=hint)
    try:
        numbers = tuple(float(value) for value in values.split(","))
    except ValueError as error:
        raise UsageError(f"vary: {values!r} is no list of numbers", hint=hint) from error
    if not all(math.isfinite(number) and number >= 0 for number in numbers):
        raise UsageError(f"vary: {values!r} has a value that is not finite and at least 0", hint=hint)
    return name, numbers


def check_scales(options: dict[str, Any]) -> None:
    """Raises UsageError, InvalidInput with every fault."""
    if options["peak"] is not None and options["rate_scale"] is not None:
        raise UsageError("peak and rate-scale both scale the rates: give one")
    check_numbers(options, (1.0, 1e7))


def series_of(rates: Sequence[str], options: dict[str, Any]) -> list[RateSeries]:
    """Every series named, cut and scaled. Raises UsageError, InvalidInput."""
    from headgate.lab.rate_policies import backtest_inputs as s
    from headgate.topology_runtime.rates.offered_rates import read

    if not rates:
        raise UsageError(
            "missing rates to try",
            hint="name them: headgate lab backtest FILE, or headgate lab backtest made:all",
        )
    scales = numbers_of("--time-scale", "factors", options["time_scales"])
    skips = numbers_of("--skip", "seconds", options["skips"])
    found = []
    for what in rates:
        if what.startswith(MADE):
            name = what.removeprefix(MADE)
            found += [s.made(one) for one in s.SETS.get(name, (name,))]
            continue
        for scale, skip_s in itertools.product(scales, skips):
            name = (
                Path(what).stem
                + (f"/{scale:g}" if scale != 1 else "")
                + (f"@{skip_s:.15g}" if skip_s else "")
            )
            given = read(what, options["rate_scale"] or 1.0, scale)
            found.append(s.of_rates(name, given, options["seconds"], skip_s))
    peak_tps = options["peak"] or (PEAK_TPS if options["rate_scale"] is None else None)
    cut = [one.cut(options["cut"]) for one in found]
    if faults := [f"{one.name}: nothing is offered" for one in cut if one.peak_tps <= 0]:
        raise InvalidInput("there are rates that cannot be followed", faults=faults, hint="--set cut=100")
    return [one.scaled(peak_tps) if peak_tps is not None else one for one in cut]


def numbers_of(option: str, what: str, text: str) -> tuple[float, ...]:
    """`144,720` → numbers of at least 0. Raises UsageError."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = (math.nan,)
    if not all(math.isfinite(one) and one >= 0 for one in found):
        raise UsageError(f"{option}: {text!r} is no list of {what}", hint=f"--set {option[2:]}=144,720")
    return found


def season_of(path: Path | None, topology: str) -> LearnedSeason | None:
    """Raises InvalidInput. The shipped example that plans are made for by default has no rates of its own."""
    from headgate.controller.files.season_files import read_season

    return None if path is None else read_season(path, "" if topology == TOPOLOGY else topology)


def gone_through(trials: Sequence[BacktestTrial], text: str) -> None:
    """All turns of all trials, with a bar."""
    from headgate.controller.planning_commands.planning_options import with_progress_bar

    for trial in with_progress_bar(rounds_of(trials), text):
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
    from headgate.controller.core.rate_following import queue_s

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
    from headgate.lab.rate_policies.policy_rules import MEASURES, OURS

    fixed = [[BacktestTrial(one, name, question, options["headroom"]) for name in MEASURES] for one in found]
    gone_through([trial for of in fixed for trial in of], "backtesting")
    rows = []
    for value, high, tuning in tunings(name, values, options["headroom"]):
        kept = replace(question, headroom_measured=question.headroom_measured and name != "headroom")
        trials = [BacktestTrial(series, OURS, kept, high, tuning) for series in found]
        gone_through(trials, f"{name} = {value:g}")
        of_series = [series_rows([one, *of]) for one, of in zip(trials, fixed, strict=True)]
        (row,) = ranked([row for of in of_series for row in of if row["policy"] == OURS])
        rows.append({"value": value, **{key: row[key] for key in row if key not in ("rank", "policy")}})
    emit(output, {"schema": CURVE_SCHEMA, "constant": name, "series": len(found), "curve": rows}, rows)


# ── Policies tried with series of rates, one after the other, and what came of it: rows, ranks, curves ───

TURNS = 60  # in a piece of a trial
LATE_MOST = 0.01  # of the rows: who has more late needs no fewer slots


@dataclass
class BacktestTrial:
    """One policy with one series. `rounds`: some turns each; `row` once they are over."""

    series: RateSeries
    policy: str
    question: BacktestQuestion
    headroom: float
    tuning: Tuning = Tuning()
    season: LearnedSeason | None = None

    def __post_init__(self) -> None:
        peak_tps = self.series.peak_tps
        most = fewest_slots(self.question, peak_tps * self.headroom)  # a static plan's, as in their papers
        asked = DeciderQuestion(
            self.question.topology, self.headroom, peak_tps, self.tuning, self.season, most,
            self.question.headroom_measured,
        )  # fmt: skip
        self.world = FluidWorld(
            with_planner(self.policy, self.question),
            DECIDERS[self.policy](asked),
            Schedule(0, self.series.steps),
            DECIDERS[self.policy] is DECIDERS[OURS],
        )
        self._turns = self.world.seconds(self.series.seconds)

    @property
    def rounds(self) -> range:
        return range(int(self.series.seconds / TURNS) + 2)

    def go_on(self) -> None:
        """The next turns."""
        for _ in range(TURNS):
            if next(self._turns, None) is None:
                return

    def row(self, static: float, bare: float) -> Row:
        return {"series": self.series.name, **self.world.score.row(self.policy, static, bare)}


def rounds_of(trials: Sequence[BacktestTrial]) -> list[BacktestTrial]:
    """The trials in the order of their rounds, for a bar."""
    return [trial for trial in trials for _ in trial.rounds]


def series_rows(trials: Sequence[BacktestTrial]) -> list[Row]:
    """A row per trial of one series, the best first; some of them are of the static policies."""
    needed = {trial.policy: trial.world.score.slot_seconds for trial in trials}
    series, question = trials[0].series, trials[0].question
    oracle = oracle_slot_seconds(series.spans(), lambda rate_tps: fewest_slots(question, rate_tps))
    rows = []
    for trial in trials:
        of_oracle = round(needed[trial.policy] / (oracle * trial.world.score.seconds / series.seconds), 4)
        rows.append({**trial.row(needed[STATIC], needed[BARE]), "of_oracle": of_oracle})
    return [{**row, "rank": place} for place, row in enumerate(sorted(rows, key=rank_of), 1)]


def winners(rows: Sequence[Row]) -> dict[str, str]:
    """Series → the policy that needed the fewest slot-seconds of those with at most 1 % late rows; those that know
    the peak are not among them."""
    rivals = [row for row in rows if row["policy"] not in MEASURES and row["late_share"] <= LATE_MOST]
    return {row["series"]: row["policy"] for row in sorted(rivals, key=lambda row: -row["slot_seconds"])}


def series_data(series: RateSeries, rows: Sequence[Row]) -> Row:
    """A series as JSON has it."""
    return {
        "name": series.name,
        "seconds": series.seconds,
        "mean_tps": round(series.mean_tps, 3),
        "peak_tps": round(series.peak_tps, 3),
        "cut_share": round(series.cut_share, 6),
        "policies": list(rows),
    }


def ranked(rows: Sequence[Row]) -> list[Row]:
    """Each policy over all series; the one that carries enough on most of them first, then by what it needed."""
    found, won = [], Counter(winners(rows).values())
    for policy in dict.fromkeys(row["policy"] for row in rows):
        mine = [row for row in rows if row["policy"] == policy]
        shares = [row["short_share"] for row in mine]
        found.append(
            {
                "policy": policy,
                "series": len(mine),
                "carried_enough": sum(share <= SHORT_MOST for share in shares),
                "of_static": round(sum(row["of_static"] for row in mine) / len(mine), 4),
                "of_bare": round(sum(row["of_bare"] for row in mine) / len(mine), 4),
                "of_oracle": round(sum(row["of_oracle"] for row in mine) / len(mine), 4),
                "wins": won[policy],
                "late_enough": sum(row["late_share"] <= LATE_MOST for row in mine),
                "short_share": round(sum(shares) / len(mine), 6),
                "short_share_most": max(shares),
                "late_share": round(sum(row["late_share"] for row in mine) / len(mine), 6),
                "plans": sum(row["plans"] for row in mine),
                "plans_in_a_minute_most": max(row["plans_in_a_minute_most"] for row in mine),
                "moves": sum(row["moves"] for row in mine),
                "planned_of_offered": round(sum(row["planned_of_offered"] for row in mine) / len(mine), 4),
                "usd": round(sum(row["usd"] for row in mine), 6),
            }
        )
    found.sort(key=lambda row: (-row["carried_enough"], row["of_static"]))
    return [{"rank": place, **row} for place, row in enumerate(found, 1)]


def tunings(name: str, values: Sequence[float], headroom: float) -> Iterator[tuple[float, float, Tuning]]:
    """(value, headroom, constants) of a curve over one constant."""
    for value in values:
        if name == "headroom":
            yield value, value, Tuning()
        else:
            kind = type(getattr(Tuning(), name))
            yield value, headroom, msgspec.structs.replace(Tuning(), **{name: kind(value)})


CONSTANTS = ("headroom", *Tuning.__struct_fields__)


# ── What a policy planned for rates that came: the plan in force against the offer, and what waited ─────

PANEL_IN, BETWEEN_IN, LEFT_IN, RIGHT_IN = 2.2, 0.32, 0.75, 0.2


def backtest_picture(sentence: str, time: ScoreSeries, path: str | os.PathLike[str]) -> None:
    """Write the picture of one trial. Raises as `plan_picture` does."""
    beneath = "Red: what came above the plan in force."
    height_in = drawing.headline_in(sentence, beneath) + 2 * (PANEL_IN + BETWEEN_IN) + 0.4
    with drawing.drawn(path, height_in) as figure:
        top_in = drawing.headline(figure, sentence, beneath) + 0.1
        wide_in = drawing.WIDTH_IN - LEFT_IN - RIGHT_IN
        upper = drawing.axes_at(figure, LEFT_IN, top_in, wide_in, PANEL_IN)
        lower = drawing.axes_at(figure, LEFT_IN, top_in + PANEL_IN + BETWEEN_IN, wide_in, PANEL_IN)
        _rates(upper, time)
        lower.plot(time.at_s, time.backlog, color=AMBER)
        lower.set_ylabel("rows that wait")
        lower.set_xlabel("seconds")
        for axes in (upper, lower):
            axes.set_xlim(0, time.at_s[-1])
            axes.set_ylim(bottom=0)
        upper.tick_params(labelbottom=False)


def _rates(axes: Axes, time: ScoreSeries) -> None:
    axes.plot(time.at_s, time.offered_tps, color=INK, linewidth=0.9, label="offered")
    axes.plot(time.at_s, time.planned_tps, color=BLUE, drawstyle="steps-pre", label="planned")
    above = [offered > carried for offered, carried in zip(time.offered_tps, time.carried_tps, strict=True)]
    axes.fill_between(
        time.at_s,
        time.carried_tps,
        time.offered_tps,
        where=above,
        color=tint(DARK_RED),
        step="pre",
        linewidth=0,
    )
    axes.set_ylabel("rows/s")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
