"""The offered load of a recorded run: `rates/*.parquet` of its trace → points of (seconds, tuples/s).

A row's `offered_tps` is the mean of the ten seconds before it, once a second: steps come back as ramps of ten
seconds. Every source takes in the same rate, so the first of them tells. pyarrow is imported here, on use.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import dropwhile
from pathlib import Path

from topology_runtime.errors import InvalidInput

COLUMNS = ("time", "source", "offered_tps")
US = 1_000_000
MAX_RATE_TPS = 1e9  # as for rates of any other file

Point = tuple[float, float]


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
    points = _points(rows)
    if not points:
        raise InvalidInput(f"the recorded rates {folder} cannot be used", cause="nothing was offered")
    return points


def _files(folder: str) -> list[Path]:
    """Finished segments in order: names that begin with `_` are not."""
    inner = Path(folder) / "rates"
    place = inner if inner.is_dir() else Path(folder)
    try:
        found = sorted(path for path in place.glob("*.parquet") if not path.name.startswith(("_", ".")))
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


def _points(rows: Iterable[tuple[int, str, float]]) -> list[Point]:
    """In order of time, one a moment, of the first source; without what came before the first tuple."""
    ordered = sorted(set(rows))
    first = min((source for _, source, _ in ordered), default="")
    by_time = {time_us: rate for time_us, source, rate in ordered if source == first}
    offered = list(dropwhile(lambda point: point[1] == 0.0, by_time.items()))
    return [((time_us - offered[0][0]) / US, rate) for time_us, rate in offered]
