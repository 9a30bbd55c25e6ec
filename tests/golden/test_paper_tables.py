"""paper_tables.md holds exactly the tables that the planner gives today."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headgate.lab.reproduction.paper_tables import Claim, claims, filled, tables

PAGE = (Path(__file__).parent / "paper_tables.md").read_text("utf-8")
REDO = "python -m headgate.lab.reproduction.paper_tables --write"


def test_every_table_of_the_page_is_as_computed():
    found = tables()
    assert sorted(re.findall(r"<!-- table: (\S+) -->", PAGE)) == sorted(found)
    assert filled(PAGE, found) == PAGE, f"run {REDO}"


def test_the_page_has_no_other_table():
    emptied = filled(PAGE, dict.fromkeys(tables(), ""))
    assert [line for line in emptied.splitlines() if line.startswith("|")] == []


def test_a_claim_that_does_not_agree_says_why():
    assert [claim for claim in claims() if not claim.agrees and not claim.note] == []


@pytest.mark.parametrize(
    ("printed", "found", "agrees"),
    [
        ("50, 337 %", "50, 336.5 %", True),
        ("≈ 3", "3.8", False),
        ("≈ 23", "22.6", True),
        ("242 %", "242.9 %", True),
        ("18", "17", False),
        ("22.98 %", "22.987 %", True),
        ("6.23", "6.31", False),
        ("1 to 3", "0 to 3", False),
        ("20 to 175 %", "35 to 175 %", True),
        ("30", "29.4", False),
        ("Linear at 50", "Linear at 200", False),
    ],
)
def test_to_agree_is_to_be_the_same_once_rounded_or_cut_off(printed, found, agrees):
    assert Claim("8", "what", printed, found).agrees is agrees
