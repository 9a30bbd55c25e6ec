"""`pytest tests/simulation --seeds 17` runs seed 17 alone, `--seeds 200:2200` two thousand fresh ones. Without it, a
hundred that are always the same; `scripts/test full` runs a hundred more and two hundred that are others every day. But
for the first few they are marked `seeds`, which `scripts/test` runs as a part of its own."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

FIXED, GATE, QUICK = 200, 100, 8
TODAY = 1_000_000 + FIXED * datetime.now(UTC).toordinal()
USUAL = f"0:{FIXED},{TODAY}:{TODAY + FIXED}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seeds", default=USUAL, help="seeds to simulate: one, or FROM:TO, or several (default %(default)s)"
    )


def pytest_report_header(config: pytest.Config) -> str:
    return f"simulated seeds: --seeds {config.getoption('--seeds', default=USUAL)}"


def seeds_of(text: str) -> list[int]:
    """ "3,10:12" → 3, 10, 11."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition(":")
        found += range(int(first), int(last) if last else int(first) + 1)
    return found


def marks_of(place: int) -> tuple[pytest.MarkDecorator, ...]:
    """What the seed at this place of the list is marked with."""
    late = (pytest.mark.full,) if place >= GATE else ()
    return (pytest.mark.seeds, *late) if place >= QUICK else ()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames and "seed" not in {
        name for mark in metafunc.definition.iter_markers("parametrize") for name in mark.args[0].split(",")
    }:
        seeds = seeds_of(str(metafunc.config.getoption("--seeds", default=USUAL)))
        metafunc.parametrize(
            "seed",
            [pytest.param(seed, marks=marks_of(n)) for n, seed in enumerate(seeds)],
        )
