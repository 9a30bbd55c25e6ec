"""The scenarios: what is offered in each, long in virtual time and short live, and on what machines."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

PUBLIC = Path(__file__).resolve().parents[2] / "../shared/data/rates"
LOW, HIGH = 20.0, 60.0  # rows/s
SPIKE = 90.0
CUT = 0.999  # public series are cut at this share of their time
LATE_VM_S = 30.0

RateAt = Callable[[float], float]


@dataclass(frozen=True)
class Scenario:
    """rate(s): rows/s at that second. long_s, live_s: how long in virtual time, live. machines: "slow": vm2 is half
    as fast as it says; "late": a VM comes half a minute after it was asked for. model: its rates are so often what a
    thread truly does. series: a public one, at these paces (its seconds in one) in virtual time and live."""

    name: str
    about: str
    rate: RateAt | None = None
    long_s: int = 1800
    live_s: int = 90
    live_rate: RateAt | None = None
    machines: str = ""
    model: float = 1.0
    series: str = ""
    paces: tuple[float, float] = (1.0, 1.0)

    def rates(self, live: bool, seconds: int) -> list[float]:
        """rows/s of each second. Raises FileNotFoundError where a public series is not there."""
        if self.series:
            return public(self.series, self.paces[live], seconds)
        rate = self.live_rate if live and self.live_rate is not None else self.rate
        assert rate is not None
        return [rate(float(second)) for second in range(seconds)]


def public(name: str, pace: float, seconds: int) -> list[float]:
    """The first seconds of a file at this pace, cut, with a peak of HIGH."""
    with open(PUBLIC / name, newline="") as file:
        rows = [
            (datetime.fromisoformat(row["timestamp"]), float(row["value"])) for row in csv.DictReader(file)
        ]
    most = sorted(value for _, value in rows)[int(CUT * (len(rows) - 1))]
    begin, found, at = rows[0][0], [], 0
    for second in range(seconds):
        while at + 1 < len(rows) and (rows[at + 1][0] - begin).total_seconds() <= second * pace:
            at += 1
        found.append(min(rows[at][1], most))
    factor = HIGH / max(found)
    return [max(1.0, value * factor) for value in found]


def steps(*changes: tuple[float, float]) -> RateAt:
    return lambda second: next(tps for at_s, tps in reversed(changes) if at_s <= second)


def ramp(up_s: float, down_s: float, long_s: float) -> RateAt:
    def rate(second: float) -> float:
        up = min(1.0, max(0.0, (second - up_s) / long_s))
        down = min(1.0, max(0.0, (second - down_s) / long_s))
        return LOW + (HIGH - LOW) * (up - down)

    return rate


def square(period_s: float) -> RateAt:
    return lambda second: LOW if second % period_s < period_s / 2 else HIGH


def spikes(every_s: float, long_s: float) -> RateAt:
    return lambda second: SPIKE if second % every_s >= every_s - long_s else LOW + 10


def sine(period_s: float) -> RateAt:
    middle, swing = (HIGH + LOW) / 2, (HIGH - LOW) / 2
    return lambda second: middle + swing * math.sin(2 * math.pi * second / period_s)


def saw(period_s: float) -> RateAt:
    return lambda second: LOW + (HIGH - LOW) * (second % period_s) / period_s


UP_AND_DOWN = steps((0, LOW), (600, HIGH), (1200, LOW))
SCENARIOS = {
    one.name: one
    for one in (
        Scenario("step", "×3, later ×1/3", UP_AND_DOWN, live_rate=steps((0, LOW), (25, HIGH), (60, LOW))),
        Scenario("ramp", "×3 and back, a minute each", ramp(600, 1200, 60), live_rate=ramp(15, 60, 20)),
        Scenario("square", "×3 and back each minute", square(120), live_s=180, live_rate=square(60)),
        Scenario("spikes", "×3 for 3 s a minute", spikes(60, 3), live_s=100, live_rate=spikes(20, 3)),
        Scenario("spike", "×3 for 1 s, once", steps((0, 30.0), (900, SPIKE), (901, 30.0)),
                 live_s=60, live_rate=steps((0, LOW), (30, HIGH), (31, LOW))),
        Scenario("sine", "a period of four minutes", sine(240), live_s=120, live_rate=sine(60)),
        Scenario("saw", "a period of two minutes", saw(120), live_s=120, live_rate=saw(60)),
        Scenario("day", "a day of taxis in ten minutes", long_s=3600, live_s=600,
                 series="nyc-taxi-30min.csv", paces=(144.0, 144.0)),
        Scenario("tweets", "tweets that name a company", long_s=3600, live_s=120,
                 series="tweets-amzn-5min.csv", paces=(60.0, 60.0)),
        Scenario("server", "network input of a server", long_s=3600, live_s=120,
                 series="ec2-network-in-5min.csv", paces=(60.0, 60.0)),
        Scenario("slow-vm", "step; vm2 is half as fast as it says", UP_AND_DOWN, live_s=120, machines="slow",
                 live_rate=steps((0, LOW), (25, 50.0), (75, 10.0))),
        Scenario("late-vm", "×3 and back; a VM takes 30 s to come", square(480), long_s=5200, live_s=330,
                 live_rate=square(160), machines="late"),
        Scenario("wrong-model", "step; a thread does a third of its model", UP_AND_DOWN, live_s=150, model=3.0,
                 live_rate=steps((0, LOW), (60, 45.0), (90, 10.0))),
    )
}  # fmt: skip
