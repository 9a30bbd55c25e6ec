"""The pytest fixture `run_flow`: `testing.run`, whose dead letters are shown when the test fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from headgate.topology_runtime.testing.run_results import Result


@pytest.fixture
def run_flow() -> Callable[..., Result]:
    """`headgate.testing.run`. Why rows failed is printed, which pytest shows of tests that fail."""

    def run(*arguments: Any, **options: Any) -> Result:
        from headgate.testing import run

        result = run(*arguments, **options)
        for letter in result.dead_letters:
            print(f"dead letter: {letter}")
        return result

    return run
