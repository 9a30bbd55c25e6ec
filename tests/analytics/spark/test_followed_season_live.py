"""A run whose rate comes back is followed in fast motion; its season is one that a controller comes to believe."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from followed import Follow, bring, rows_in

from headgate.controller.analyze.season_detection import SeasonWatch
from headgate.controller.core.rate_following import handed_of
from headgate.controller.files.season_files import read_season
from made_traces.generate_trace import Wanted, generate

pytestmark = pytest.mark.live
PERIOD_S, SECONDS, THREADS = 120.0, 900, 10
SHORT_SHARE = 0.002  # of the rows may wait
WITHIN = 0.1  # of the rate: what was foreseen of the next minute, in the middle


def offered(run: Path) -> list[float]:
    """Rows of each second, by the files."""
    files = sorted((run / "rates").glob("*.parquet"))
    rows = pa.concat_tables([pq.ParquetFile(file).read() for file in files]).to_pylist()
    return [row["offered_tps"] for row in sorted(rows, key=lambda row: row["time"])]


def test_a_season_that_was_learned_while_following_is_believed(tmp_path: Path) -> None:
    wanted = Wanted(
        SECONDS * THREADS,
        threads=THREADS,
        slots=8,
        epochs=1,
        season_s=PERIOD_S,
        segment_rows=1_000,
        planted=(),
    )
    generate(tmp_path / "made", wanted)
    whole, run = tmp_path / "made" / "made" / "run-1", tmp_path / "live" / "made" / "run-1"
    names = sorted(str(file.relative_to(whole)) for file in whole.glob("*/*.parquet"))
    ends_s = [name for name in names if int(Path(name).stem.rpartition("-")[2]) >= 2 * SECONDS // 3]
    for name in ("run.json", "decisions.jsonl"):
        bring(whole, run, name)
    bring(whole, run, *(name for name in names if name not in ends_s))
    followed = Follow(run, tmp_path / "out")
    followed.wait_for(f"{rows_in(run)} rows of samples in")
    bring(whole, run, *ends_s)
    (run / "views.jsonl").write_text('{"patch":{"stage":"over"}}\n')
    code, _ = followed.ended()
    assert code == 0, followed.said

    [file] = (tmp_path / "out" / "seasons").iterdir()
    season = read_season(file, "made")
    assert season.period_s == pytest.approx(PERIOD_S, rel=0.01)
    assert season.learned.periods == SECONDS // PERIOD_S and season.learned.held_out.error < 0.1

    rates, watch = offered(run), SeasonWatch(SHORT_SHARE, handed_of(season))
    known = rates[: math.floor(1.75 * PERIOD_S)]  # that a season is found in needs three periods
    for rate_tps in known:
        watch.hear(rate_tps, rate_tps)
    coming = watch.coming()
    assert coming is not None and coming.handed
    foreseen, came = coming.rates[:60], np.array(rates[len(known) : len(known) + 60])
    assert float(np.median(np.abs(foreseen / came - 1))) < WITHIN
    assert float(np.median(np.abs(rates[len(known) - 1] / came - 1))) > 2 * WITHIN, (
        "the last rate foresees worse"
    )
