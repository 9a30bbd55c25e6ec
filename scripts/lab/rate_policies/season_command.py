"""`headgate lab season`: what comes back, learned from rates of before, as a file for `up` and `backtest`."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headgate.controller.pictures import drawing
from headgate.controller.pictures.drawing import AMBER, BLUE, tint
from headgate.lab.rate_policies.rate_options import check_numbers, number, rate_scale
from headgate.topology_runtime.commands.output import Format, emit, format_options
from headgate.topology_runtime.commands.rare_settings import SettingsCommand, setting
from headgate.topology_runtime.errors import InvalidInput, UsageError

if TYPE_CHECKING:
    from headgate.topology_runtime.rates.learned_season import LearnedSeason
    from headgate.topology_runtime.rates.offered_rates import Rates
    from headgate.topology_runtime.stability.slopes import Floats

SECONDS_MOST = 1_000_000


@click.command(cls=SettingsCommand)
@click.argument("sources", nargs=-1, metavar="TRACE|RATES...")
@click.option(
    "--output", "out", type=click.Path(path_type=Path), metavar="FILE", help="Write the season here."
)
@click.option("--topology", metavar="NAME", help="Whose rates they are (default: the trace's topology).")
@setting("--period", type=float, metavar="S", help="Of so many seconds (default: the best that is found).")
@number("--time-scale", 1.0, "X", "Seconds = time / X, as in the run.")
@rate_scale
@number("--skip", 0.0, "S", "Leave out the first S seconds of each.")
@setting("--take", "seconds", type=float, metavar="S", help="Take only the next N of each.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw it: .svg, .png or .pdf.")
@format_options
def learn(sources: tuple[str, ...], output: Format, **options: Any) -> None:
    """Learn what comes back from recorded runs (traces/TOPOLOGY/RUN) or rates files, and say how well it predicts.

    The last third of the longest is held out: a season is written only if it was off by at most half as much there as
    what came 15 s before. Give the file to `headgate up --set season=FILE`, or try it with `headgate lab backtest`.
    Periods of 30 s to an hour; in longer ones the rate changes so slowly that level and trend follow it.

    \b
    headgate lab season learn traces/day/run1 traces/day/run2 --output season.json --plot season.svg
    headgate lab season learn taxi.csv --set time-scale=720 --set skip=3600 --output season.json"""
    from headgate.controller.files.season_files import write_season
    from headgate.controller.planning_commands.plan_request import refuse_picture

    if options["out"] is None:
        raise UsageError(
            "missing --output FILE",
            hint="write it to a file: headgate lab season learn TRACE --output season.json",
        )
    check_numbers(options)
    refuse_picture(options["plot"])
    season = learned(sources, options)
    write_season(options["out"], season)
    show_season(output, season, options["plot"])


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw it: .svg, .png or .pdf.")
@format_options
def show(file: Path, plot: Path | None, output: Format) -> None:
    """What a season's file says: its period, where it is from, how well it foresaw what was held out."""
    from headgate.controller.files.season_files import read_season
    from headgate.controller.planning_commands.plan_request import refuse_picture

    refuse_picture(plot)
    show_season(output, read_season(file), plot)


# ── learning ────────────────────────────────────────────────────────────────────────────────────


def learned(sources: Sequence[str], options: dict[str, Any]) -> LearnedSeason:
    """Raises UsageError, InvalidInput."""
    from importlib.metadata import version

    from headgate.controller.planning_commands.planning_options import with_progress_bar
    from headgate.topology_runtime.platform.clock import wall_ns
    from headgate.topology_runtime.rates.learned_season import SCHEMA, LearnedFrom, LearnedSeason
    from headgate.topology_runtime.rates.offered_rates import read
    from headgate.topology_runtime.rates.season_learning import learned_of
    from headgate.topology_runtime.wording import utc_iso

    if not sources:
        hint = "headgate lab season learn TRACE --output season.json"
        raise UsageError("missing rates: no trace and no file of rates", hint=hint)
    topology = topology_of(sources, options["topology"])
    series = [
        by_second(source, read(source, options["rate_scale"], options["time_scale"]), options)
        for source in sources
    ]
    found = learned_of(series, options["period"], lambda items: with_progress_bar(items, "learning"))
    return LearnedSeason(
        SCHEMA,
        topology,
        round(found.period_s, 3),
        rounded(found.middle),
        rounded(found.high),
        LearnedFrom(
            tuple(str(source) for source in sources),
            float(sum(len(rates) for rates in series)),
            found.periods,
            utc_iso(wall_ns()),
            version("headgate"),
            found.held_out,
        ),
    )


def rounded(rates: Floats) -> tuple[float, ...]:
    return tuple(float(f"{tps:.5g}") for tps in rates)


def topology_of(sources: Sequence[str], given: str | None) -> str:
    """The one that the traces are of, or as given; empty where nobody says. Raises InvalidInput."""
    folders = [Path(source).resolve() for source in sources if Path(source).is_dir()]
    names = {(folder.parent if folder.name == "rates" else folder).parent.name for folder in folders}
    if len(names) > 1 and given is None:
        raise InvalidInput(
            "these traces are of several topologies",
            cause=", ".join(sorted(names)),
            hint="learn from one topology's, or say whose the season is: --topology NAME",
        )
    return given if given is not None else next(iter(names), "")


def by_second(source: str, rates: Rates, options: dict[str, Any]) -> Floats:
    """The mean rate of each second. Raises InvalidInput."""
    import numpy as np

    if not rates.period_s:
        raise InvalidInput(f"{source} has no end: there is nothing to learn from one rate")
    ends_s = min(rates.period_s, options["skip"] + (options["seconds"] or math.inf))
    seconds = math.floor(ends_s - options["skip"])
    if not 0 < seconds <= SECONDS_MOST:
        raise InvalidInput(
            f"{source} has {max(0, seconds)} s to learn from",
            cause=f"expected 1 to {SECONDS_MOST:,}",
            hint="change it by --set time-scale=, skip=, take=",
        )
    at_s = np.array([at_s for at_s, _ in rates.steps] + [rates.period_s])
    came = np.concatenate(([0.0], np.cumsum(np.diff(at_s) * np.array([tps for _, tps in rates.steps]))))
    return np.asarray(np.diff(np.interp(options["skip"] + np.arange(seconds + 1), at_s, came)))


# ── what is printed ─────────────────────────────────────────────────────────────────────────────


def show_season(output: Format, season: LearnedSeason, plot: Path | None) -> None:
    import msgspec

    learned_from, held_out = season.learned, season.learned.held_out
    row = {
        "topology": season.topology or "any",
        "period_s": season.period_s,
        "periods": learned_from.periods,
        "low_tps": round(min(season.middle), 3),
        "peak_tps": round(max(season.middle), 3),
        "held_out_s": held_out.seconds,
        "error": held_out.error,
        "error_of_level": held_out.error_of_level,
        "covered": held_out.covered,
    }
    emit(output, msgspec.to_builtins(season), [row])
    if plot is not None:
        season_picture(season, plot)


# ── What comes back within a period: the middle, and the most in 95 of 100 periods ──────────────────────

PANEL_IN, LEFT_IN, RIGHT_IN = 2.6, 0.75, 0.2


def season_picture(season: LearnedSeason, path: str | os.PathLike[str]) -> None:
    """Write the picture of a season. Raises as `plan_picture` does."""
    learned = season.learned
    whose = f" of {season.topology}" if season.topology else ""
    sentence = f"A season{whose} of {season.period_s:g} s, learned from {learned.periods} periods"
    beneath = (
        f"Off by {learned.held_out.error:.0%} of the mean on what was held out; what came 15 s before is off by "
        f"{learned.held_out.error_of_level:.0%}."
    )
    height_in = drawing.headline_in(sentence, beneath) + PANEL_IN + 0.75
    with drawing.drawn(path, height_in) as figure:
        top_in = drawing.headline(figure, sentence, beneath) + 0.2
        axes = drawing.axes_at(figure, LEFT_IN, top_in, drawing.WIDTH_IN - LEFT_IN - RIGHT_IN, PANEL_IN)
        parts = len(season.middle)
        at_s = [season.period_s * part / parts for part in range(parts)]
        axes.fill_between(at_s, season.middle, season.high, color=tint(AMBER), linewidth=0)
        axes.plot(at_s, season.high, color=AMBER, linewidth=0.9, label="at most, in 95 of 100 periods")
        axes.plot(at_s, season.middle, color=BLUE, label="in the middle of all periods")
        axes.set_xlim(0, season.period_s)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("seconds of a period")
        axes.set_ylabel("rows/s")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
