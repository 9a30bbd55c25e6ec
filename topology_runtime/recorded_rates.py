"""The offered load of a recorded run: `rates/*.parquet` of its trace → points of (seconds, tuples/s).

A row's `offered_tps` is the mean of the ten seconds before it, once a second. The decision of the same turn has
the rate of the last second as its evidence, so that counts where there is one: steps come back as steps. Every
source takes in the same rate, so the first of them tells. pyarrow is imported here, on use.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime
from itertools import dropwhile
from pathlib import Path

import msgspec

from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.rates import MAX_RATE_TPS
from headgate.topology_runtime.trace_tables import DECISIONS

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
    """(seconds after the first tuple was offered, tuples/s), ascending, of a trace or of its folder
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
    points = _points([(at_us, source, sharp.get(at_us, tps)) for at_us, source, tps in rows])
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
    """(UTC in µs, source, tuples/s). Raises InvalidInput."""
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
            raise InvalidInput(f"row {number}: offered_tps {rate:g} is no rate")
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


def _points(rows: Iterable[tuple[int, str, float]]) -> list[Point]:
    """In order of time, one a moment, of the first source; without what came before the first tuple."""
    ordered = sorted(set(rows))
    first = min((source for _, source, _ in ordered), default="")
    by_time = {time_us: rate for time_us, source, rate in ordered if source == first}
    offered = list(dropwhile(lambda point: point[1] == 0.0, by_time.items()))
    return [((time_us - offered[0][0]) / US, rate) for time_us, rate in offered]
