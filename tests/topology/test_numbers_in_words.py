"""Numbers in sentences have the digits that count, and no exponent that a person has to work out."""

from __future__ import annotations

from decimal import Context, Decimal

import pytest
from examples import searching
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.topology_runtime.faults.words import significant


@pytest.mark.parametrize(
    ("value", "told"),
    [(0.0, "0"), (0.01234, "0.01234"), (103.24, "103.2"), (999.96, "1,000"), (1234.5, "1,234"), (9999.7, "10,000"),
     (25_570.4, "25,570"), (1_572_934.0, "1,572,934"), (1e300, "1e+300"), (float("inf"), "inf")],
)  # fmt: skip
def test_as_a_person_would_write_it(value: float, told: str) -> None:
    assert significant(value) == told


@searching(300)
@given(st.floats(1e-3, 1e14), st.integers(3, 6))
@example(999_999.5, 6)
def test_they_are_told_to_so_many_digits_or_to_the_last_whole_one(value: float, digits: int) -> None:
    told = significant(value, digits)
    assert "e" not in told
    rounded = Context(prec=digits).create_decimal(Decimal(value))
    whole = Decimal(value).quantize(Decimal(1), context=Context(prec=30))
    assert Decimal(told.replace(",", "")) == (whole if rounded >= 10**digits else rounded)
