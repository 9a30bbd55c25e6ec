"""The offered load from `--rates FILE|R`: a step function of rows/s that repeats.

    R        a constant rate
    FILE     lines `seconds,rate_tps`, or CSV with the columns `timestamp,value`, as Prometheus' are, or as Grafana
             exports a panel: `Time` and one other column; `#` begins a comment
    FOLDER   a recorded run (`traces/TOPOLOGY/RUN`), or its folder `rates`: what was offered then

rate = value × rate scale; seconds = (t − t₀) / time scale. The last step is as long as the one before
it, then everything repeats. `parse` and all below it are pure; `read` is the only I/O.
"""

from __future__ import annotations

import csv
import math
import os
import re
import stat
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import cached_property
from itertools import dropwhile, pairwise
from pathlib import Path
from typing import Literal

import msgspec

from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import InvalidInput, UsageError
from headgate.topology_runtime.traces.trace_tables import DECISIONS
from headgate.topology_runtime.wording import counted, significant

MAX_BYTES = 8 << 20  # a day by the second, as Grafana writes it, is half of that
MAX_STEPS = 4096  # a schedule travels to every worker with every desired state (18 bytes a step)
MAX_RATE_TPS = 1e9  # beyond any machine; keeps every sum of a schedule finite
MAX_SECONDS = 1e10  # three centuries
MAX_FAULTS = 100  # faults listed one by one; the rest are counted
FIRST_ARRIVALS_TPS = (
    20.0  # planned for before any row came: a thread of each task does that; seconds later one knows
)
USUAL_TPS = 1000.0  # of sources that are read at a rate, where none is given
AUTO_SHARE = 0.8  # `--rate-scale auto`: the file's maximum is at this share of what can be carried

Steps = tuple[tuple[float, float], ...]


class Rates(msgspec.Struct, frozen=True, dict=True):
    """`steps` of (seconds after the start, rows/s), ascending from 0, repeating after `period_s`
    (0: the last rate goes on for ever): what `schedule.Schedule` takes.

    averaged: how many steps of the file one step stands for (1: exactly as in the file). uncapped: all rows are
    taken as they come, and the only step is what the first plan is made for. assumed: nobody gave a rate."""

    steps: Steps
    period_s: float = 0.0
    averaged: int = 1
    uncapped: bool = False
    assumed: bool = False

    @cached_property
    def max_tps(self) -> float:
        return max(rate for _, rate in self.steps)

    @cached_property
    def min_tps(self) -> float:
        return min(rate for _, rate in self.steps)

    def steps_for(self, seconds: float | None, most: int = MAX_STEPS) -> Rates:
        """What can occur in a run of `seconds` (None: an endless one) in at most `most` steps.

        Exact where that is possible. Else runs of neighbours are averaged, so that every run of
        steps still offers as many tuples in the same time; `averaged` says how many."""
        steps = self.steps
        if seconds is not None and (self.period_s <= 0 or seconds < self.period_s):
            steps = tuple(step for step in steps if step[0] < seconds) or steps[:1]
        steps = _merged(steps)
        if len(steps) <= most:
            return Rates(steps, self.period_s, self.averaged)
        size = math.ceil(len(steps) / most)
        return Rates(_averaged(steps, self.period_s, size), self.period_s, self.averaged * size)


def without_rates(topology: Topology) -> Rates:
    """Where no rate is given: all that comes; sources that are read at a rate, at a usual one. Raises UsageError where
    there are both: one rate is a cap to the one and an order to the other."""
    paced = ", ".join(task.name for task in topology.sources if not task.arriving)
    if not paced:
        return Rates(((0.0, FIRST_ARRIVALS_TPS),), uncapped=True)
    if topology.arriving:
        raise UsageError(
            f"the input rate of {topology.name} is missing: --rates R or --rates FILE",
            cause=f"{paced}: read at that rate (only rows of a LiveSource are taken as they come)",
        )
    return Rates(((0.0, USUAL_TPS),), assumed=True)


def words_of(found: Rates, topology: Topology) -> str:
    """What the rates mean to sources whose rows are taken as they come; empty where there are none."""
    names = ", ".join(task.name for task in topology.arriving)
    if found.assumed:
        return f"each source is read at {USUAL_TPS:,.0f} rows/s: --rates R for another rate"
    if not names:
        return ""
    if found.uncapped:
        return (
            f"rows of {names} are taken as they come: the first plan is for {FIRST_ARRIVALS_TPS:g} rows/s, those "
            "after it for what comes"
        )
    most = f"at most {significant(found.max_tps, 6)} rows/s are read"
    return f"rows of {names} are taken as they come: --rates is a cap, {most}"


def _merged(steps: Steps) -> Steps:
    """Without steps that change nothing."""
    return tuple(step for i, step in enumerate(steps) if i == 0 or steps[i - 1][1] != step[1])


def _averaged(steps: Steps, period_s: float, size: int) -> Steps:
    ends = [at_s for at_s, _ in steps[1:]] + [max(period_s, steps[-1][0])]
    out = []
    for first in range(0, len(steps), size):
        group = range(first, min(first + size, len(steps)))
        long_s = ends[group[-1]] - steps[first][0]
        tuples = sum((ends[i] - steps[i][0]) * steps[i][1] for i in group)
        out.append((steps[first][0], tuples / long_s if long_s > 0 else steps[first][1]))
    return tuple(out)


RateScale = float | Literal["auto"]

NUMBER = re.compile(r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|nan|inf(inity)?)", re.IGNORECASE)
PER_SECOND = re.compile(r" ?\b(req/s|reqps|rps|r/s|ops/s|ops|rows/s|rec/s|events/s|msg/s|c/s)$| ?/s$")
SEPARATOR = re.compile('"?sep=,"?')  # Grafana's first line for Excel
DATE = re.compile("(19|20)[0-9]{2}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])([0-9]{4}|[0-9]{6})?")
MILLISECONDS, MICROSECONDS = 1e11, 1e14  # times since 1970 from here on are milliseconds, and above no more


def read(
    what: str,
    rate_scale: RateScale = 1.0,
    time_scale: float = 1.0,
    capacity_tps: Callable[[], float] | None = None,
) -> Rates:
    """`--rates WHAT`: a number, a file, or the folder of a trace. `capacity_tps`: what can be carried, asked
    for by `auto` only.

    Raises InvalidInput with every fault."""
    number = _number(what)
    if number is not None:
        return constant(number * _scale(rate_scale, number, capacity_tps), what)
    if os.path.isdir(what):
        points = [(number, *point) for number, point in enumerate(points_of(what), 1)]
        return _rates(points, [], what, rate_scale, time_scale, capacity_tps)
    return parse(read_text(what), what, rate_scale, time_scale, capacity_tps)


def constant(rate_tps: float, where: str = "the rate") -> Rates:
    """One rate for ever; InvalidInput unless it is above 0 and finite."""
    fault = _rate_fault(rate_tps) or ("0 offers nothing" if rate_tps == 0 else None)
    if fault:
        raise InvalidInput(f"no rate to offer: {where}", faults=[f"{where}: {fault}"])
    return Rates(((0.0, rate_tps),))


def read_text(path: str) -> str:
    """The text of a rates file; InvalidInput when it cannot be had (also for a FIFO or a device)."""
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InvalidInput(f"cannot read the rates {path}", cause="it is no plain file")
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        hint = "--rates takes a number of rows/s, a file or a trace"
        raise InvalidInput(f"cannot read the rates {path}", cause=error.strerror, hint=hint) from error
    if len(data) > MAX_BYTES:
        raise InvalidInput(f"the rates {path} are too large", cause=f"more than {MAX_BYTES} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"cannot read the rates {path}", cause=f"not UTF-8 text: {error}") from error


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # opening a FIFO must not wait for a writer


def parse(
    text: str,
    where: str,
    rate_scale: RateScale = 1.0,
    time_scale: float = 1.0,
    capacity_tps: Callable[[], float] | None = None,
) -> Rates:
    """The text of a rates file → rates. Raises InvalidInput with every fault and its line."""
    faults: list[str] = []
    points = list(_points(text, faults))
    faults += _faults_in_order(points)
    return _rates(points, faults, where, rate_scale, time_scale, capacity_tps)


def _rates(
    points: list[tuple[int, float, float]],
    faults: list[str],
    where: str,
    rate_scale: RateScale,
    time_scale: float,
    capacity_tps: Callable[[], float] | None,
) -> Rates:
    """(line, seconds, value) → rates; `faults` found already. Raises InvalidInput with every fault."""
    if not points and not faults:
        faults.append("no line holds a rate")
    if points and not faults and max(value for _, _, value in points) <= 0:
        faults.append("no rate is above 0")
    if not (math.isfinite(time_scale) and time_scale > 0):
        faults.append(f"time scale: {time_scale:g} is not a finite number above 0")
    if faults:
        raise _invalid(where, faults)
    scale = _scale(rate_scale, max(value for _, _, value in points), capacity_tps)
    first_s = points[0][1]
    steps = tuple(((at_s - first_s) / time_scale, value * scale) for _, at_s, value in points)
    _check_range(steps, points, where)
    last_s = steps[-1][0] - steps[-2][0] if len(steps) > 1 else 0.0
    return Rates(steps, steps[-1][0] + last_s if len(steps) > 1 else 0.0)


def _invalid(where: str, faults: list[str]) -> InvalidInput:
    shown = faults[:MAX_FAULTS]
    if len(faults) > MAX_FAULTS:
        shown.append(f"and {len(faults) - MAX_FAULTS} more")
    return InvalidInput(
        f"the rates {where} are invalid",
        faults=shown,
        hint="lines `seconds,rate_tps`, or CSV with the columns timestamp,value",
    )


def _scale(scale: RateScale, highest: float, capacity_tps: Callable[[], float] | None) -> float:
    if scale == "auto":
        if capacity_tps is None:
            raise InvalidInput("rate scale auto cannot be used here", cause="the capacity is not known")
        return AUTO_SHARE * capacity_tps() / highest if highest > 0 else 1.0
    if not (math.isfinite(scale) and scale > 0):
        raise InvalidInput("invalid rate scale", faults=[f"{scale:g} is not a finite number above 0"])
    return scale


def _check_range(steps: Steps, points: list[tuple[int, float, float]], where: str) -> None:
    faults = []
    for (at_s, rate), (line, _, _) in zip(steps, points, strict=True):
        if fault := _rate_fault(rate):
            faults.append(f"line {line}: scaled: {fault}")
        if not at_s <= MAX_SECONDS:
            faults.append(f"line {line}: scaled: {at_s:g} s is more than {MAX_SECONDS:g} s")
    if any(b[0] <= a[0] for a, b in pairwise(steps)):
        faults.append("time scale: two lines fall on the same instant")
    if faults:
        raise _invalid(where, faults)


def _rate_fault(rate_tps: float) -> str | None:
    if not math.isfinite(rate_tps):
        return f"{rate_tps} is not a finite number"
    if rate_tps < 0:
        return f"a rate of {significant(rate_tps, 6)} is negative"
    above = f"a rate of {significant(rate_tps, 6)} is above {significant(MAX_RATE_TPS)}"
    return above if rate_tps > MAX_RATE_TPS else None


def _points(text: str, faults: list[str]) -> Iterable[tuple[int, float, float]]:
    """(line number, seconds, value) of each good line; what is wrong goes to `faults`."""
    time_column, value_column, stamps, first, width = 0, 1, False, True, 2
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#") or (first and SEPARATOR.fullmatch(line)):
            continue
        cells = _cells(line)
        if first and not any(_number(cell) is not None or _stamp(cell) for cell in cells):
            columns = _columns(cells)
            if columns is None:
                faults.append(f"line {number}: the columns are {line!r:.60}, not timestamp,value{_why(line)}")
                return
            time_column, value_column, stamps = columns
            width = len(cells)
            first = False
            continue
        first = False
        try:
            if len(cells) != width:
                raise ValueError(f"{line!r:.60} has {counted(len(cells), 'column')}, not {width}{_why(line)}")
            at_s = _time(cells[time_column], stamps)
            value = _value(cells[value_column])
        except ValueError as error:
            faults.append(f"line {number}: {error}")
        else:
            yield number, at_s, value


def _cells(line: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line]))]
    except csv.Error:  # a cell longer than the csv module takes
        return [line]


def _columns(cells: list[str]) -> tuple[int, int, bool] | None:
    """(time column, value column, are times timestamps?) of a header line."""
    if (
        cells[0] == "Time" and len(cells) == 2
    ):  # a panel of Grafana, whose other column is the name of a series
        return 0, 1, True
    names = [cell.lower() for cell in cells]
    for time_name, value_name in (("timestamp", "value"), ("seconds", "rate_tps")):
        if names.count(time_name) == names.count(value_name) == 1:
            return names.index(time_name), names.index(value_name), time_name == "timestamp"
    return None


def _time(cell: str, stamps: bool) -> float:
    number = _number(cell)
    if number is None and stamps:
        stamp = _stamp(cell)
        if stamp is None:
            raise ValueError(f"{cell!r:.60} is no timestamp such as 2014-07-01 00:30:00{_why(cell)}")
        return stamp
    if number is None:
        raise ValueError(f"{cell!r:.60} is no number of seconds{_why(cell)}")
    if DATE.fullmatch(cell):
        raise ValueError(f"{cell!r} may be a date or a number of seconds; write dates as 2014-07-01")
    if MILLISECONDS <= number < MICROSECONDS:
        if not stamps:
            raise ValueError(
                f"{cell!r:.60} is no number of seconds; milliseconds want the header timestamp,value"
            )
        return number / 1000
    if not abs(number) <= MAX_SECONDS:
        raise ValueError(f"{cell!r:.60} is not within {MAX_SECONDS:g} s")
    return number


def _stamp(cell: str) -> float | None:
    """Seconds since 1970; a time without a zone counts as UTC."""
    try:
        stamp = datetime.fromisoformat(cell)
    except ValueError:
        return None
    return (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp()


def _value(cell: str) -> float:
    number = _number(PER_SECOND.sub("", cell))
    if number is None:
        raise ValueError(f"invalid rate {cell!r:.60}{_why(cell)}")
    fault = _rate_fault(number)
    if fault:
        raise ValueError(fault)
    return number


def _why(text: str) -> str:
    """What may be the matter with a line or a cell."""
    if ";" in text or "\t" in text:
        return "; columns are separated by commas"
    if re.search("[0-9],[0-9]", text):
        return "; decimals have a point, and thousands nothing between them"
    if re.search("[0-9]{1,2}[./][0-9]{1,2}[./][0-9]{2,4}", text):
        return "; nobody knows which is the month"
    return "; rates are rows/s, without a unit or per second" if re.search("[0-9] ?[A-Za-zµ%]", text) else ""


def _number(cell: str) -> float | None:
    return float(cell) if NUMBER.fullmatch(cell) else None


def _faults_in_order(points: list[tuple[int, float, float]]) -> list[str]:
    return [
        f"line {line}: time does not rise: {at_s:g} s after {before_s:g} s of line {before}"
        for (before, before_s, _), (line, at_s, _) in pairwise(points)
        if at_s <= before_s
    ]


# ── The offered load of a recorded run: `rates/*.parquet` of its trace → points of (seconds, rows/s) ───
#
# A row's `offered_tps` is the mean of the ten seconds before it, once a second. The decision of the same turn
# has the rate of the last second as its evidence, so that counts where there is one: steps come back as
# steps. Every source takes in the same rate, so the first of them tells. pyarrow is imported here, on use.

COLUMNS = ("time", "source", "offered_tps")
US = 1_000_000

Point = tuple[float, float]


class _Demand(msgspec.Struct, frozen=True):
    offered_tps: float | None = None


class _Evidence(msgspec.Struct, frozen=True):
    demand: _Demand = _Demand()


class _Decision(msgspec.Struct, frozen=True):
    time: str
    evidence: _Evidence = _Evidence()


_decisions = msgspec.json.Decoder(_Decision)


def points_of(folder: str) -> list[Point]:
    """(seconds after the first tuple was offered, rows/s), ascending, of a trace or of its folder
    `rates`. Raises InvalidInput with every file that cannot be used."""
    rows, faults = [], []
    for path in _files(folder):
        try:
            rows += _rows(path)
        except InvalidInput as error:
            faults.append(f"{path.name}: {error.what}")
    if faults:
        raise InvalidInput(f"the recorded rates {folder} cannot be used", faults=faults)
    sharp = _last_seconds(_place(folder).parent / DECISIONS)
    points = _demand_points([(at_us, source, sharp.get(at_us, tps)) for at_us, source, tps in rows])
    if not points:
        raise InvalidInput(f"the recorded rates {folder} cannot be used", cause="nothing was offered")
    return points


def _place(folder: str) -> Path:
    """Where the segments are."""
    inner = Path(folder) / "rates"
    return inner if inner.is_dir() else Path(folder)


def _files(folder: str) -> list[Path]:
    """Finished segments in order: names that begin with `_` are not."""
    try:
        found = sorted(
            path for path in _place(folder).glob("*.parquet") if not path.name.startswith(("_", "."))
        )
    except OSError as error:
        raise InvalidInput(f"cannot read the recorded rates {folder}", cause=error.strerror) from error
    if not found:
        hint = "name a trace (traces/TOPOLOGY/RUN) or its folder `rates`"
        raise InvalidInput(f"{folder} holds no recorded rates", cause="no *.parquet is in it", hint=hint)
    return found


def _rows(path: Path) -> list[tuple[int, str, float]]:
    """(UTC in µs, source, rows/s). Raises InvalidInput."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, columns=list(COLUMNS))
        times = table["time"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
        sources, rates = table["source"].to_pylist(), table["offered_tps"].to_pylist()
    except (pa.ArrowException, OSError, KeyError, TypeError) as error:
        raise InvalidInput(str(error).splitlines()[0][:200]) from error
    rows = list(zip(times, sources, rates, strict=True))
    for number, (time_us, source, rate) in enumerate(rows):
        if time_us is None or not isinstance(source, str) or not isinstance(rate, float):
            raise InvalidInput(f"row {number}: a time, a source and a rate are expected")
        if not (math.isfinite(rate) and 0 <= rate <= MAX_RATE_TPS):
            raise InvalidInput(f"row {number}: invalid offered_tps {rate:g}")
    return rows


def _last_seconds(path: Path) -> dict[int, float]:
    """UTC in µs → what was offered in the second before, according to the decision of then (its time is
    rounded, that of a row cut off: so it counts for a µs around). Lines that say nothing of it, or that are no
    decisions, are passed over."""
    found: dict[int, float] = {}
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return found
    for line in lines:
        try:
            decision = _decisions.decode(line)
            at = datetime.fromisoformat(decision.time)
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
            continue
        rate = decision.evidence.demand.offered_tps
        if rate is not None and 0 <= rate <= MAX_RATE_TPS:
            at_us = round(at.timestamp() * US)
            found |= dict.fromkeys((at_us - 1, at_us, at_us + 1), rate)
    return found


def _demand_points(rows: Iterable[tuple[int, str, float]]) -> list[Point]:
    """In order of time, one a moment, of the first source; without what came before the first tuple."""
    ordered = sorted(set(rows))
    first = min((source for _, source, _ in ordered), default="")
    by_time = {time_us: rate for time_us, source, rate in ordered if source == first}
    offered = list(dropwhile(lambda point: point[1] == 0.0, by_time.items()))
    return [((time_us - offered[0][0]) / US, rate) for time_us, rate in offered]
