"""Policies tried with series of rates, one after the other, and what came of it: rows, ranks, curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from headgate.controller.analyze.forecast import Tuning
from headgate.controller.backtesting.deciders import BARE, DECIDERS, OURS, STATIC, DeciderQuestion
from headgate.controller.backtesting.policy_score import SHORT_MOST, Row, rank_of
from headgate.controller.backtesting.series import RateSeries
from headgate.controller.backtesting.world import BacktestQuestion, FluidWorld, with_planner
from headgate.controller.knowledge.season_data import LearnedSeason
from headgate.topology_runtime.schedule import Schedule

TURNS = 60  # in a piece of a trial


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
        asked = DeciderQuestion(
            self.question.topology, self.headroom, self.series.peak_tps, self.tuning, self.season
        )
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
    rows = [trial.row(needed[STATIC], needed[BARE]) for trial in trials]
    return [{**row, "rank": place} for place, row in enumerate(sorted(rows, key=rank_of), 1)]


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
    found = []
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
