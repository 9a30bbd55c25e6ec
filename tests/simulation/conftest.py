"""`pytest tests/simulation --seeds 17` runs seed 17 alone, `--seeds 200:2200` two thousand fresh ones."""

from __future__ import annotations

import pytest

USUAL = "0:200"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seeds", default=USUAL, help="seeds to simulate: one, or FROM:TO (default %(default)s)"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames and "seed" not in {
        name for mark in metafunc.definition.iter_markers("parametrize") for name in mark.args[0].split(",")
    }:
        first, _, last = str(metafunc.config.getoption("--seeds", default=USUAL)).partition(":")
        metafunc.parametrize("seed", range(int(first), int(last) if last else int(first) + 1))
