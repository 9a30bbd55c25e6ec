"""Paper 0's numbers beside what headgate plans from its models (docs/explanation/papers.md tells of them).

.venv/bin/python scripts/experiments/paper_tables.py            prints them
.venv/bin/python scripts/experiments/paper_tables.py --write    puts them into tests/golden/paper_tables.md
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from experiments.paper_claims import claims
from experiments.paper_plans import (
    APPLICATIONS,
    LOGIC,
    MICRO,
    RATES,
    WHOLE,
    acquired,
    highest,
    saved,
    supported,
    totals,
)
from headgate.controller.knowledge.plans import usd_per_hour
from headgate.controller.plan.schedulers import PAIRS
from headgate.topology_runtime.examples import NAMES

PAGE = Path(__file__).resolve().parents[2] / "tests" / "golden" / "paper_tables.md"
TABLE = re.compile(r"(?<=<!-- table: )(\S+)( -->\n)(.*?)(?=<!-- end -->)", re.DOTALL)
SECTION_8_4 = ("lsa+rsm", "mba+sam")
READINGS = (("weighted", "cpu"), ("shuffle", "cpu"), ("weighted", "none"), ("shuffle", "none"))


def tables() -> dict[str, str]:
    """Name → Markdown table."""
    return {
        "claims": claims_table(),
        "slots": slots_table(),
        "rates": rates_table(),
        "pairs": pairs_table(),
        "examples": examples_table(),
        "savings": savings_table(),
    }


def filled(page: str, found: dict[str, str]) -> str:
    """The page with the tables between their marks as they are now."""
    return TABLE.sub(lambda match: match[1] + match[2] + found.get(match[1], match[3]), page)


def claims_table() -> str:
    """What the text says, what we find."""
    rows = [(c.section, c.what, c.paper, c.ours, "yes" if c.agrees else "**no**", c.note) for c in claims()]
    return _table("section | what | paper 0 | headgate | agree | remark", rows)


def slots_table() -> str:
    """Slots allocated, with what the mapper adds, and when source and sink are mapped too."""
    rows = []
    for name in MICRO:
        for rate in RATES:
            row: list[object] = [name.capitalize(), rate]
            for pair in SECTION_8_4:
                slots = acquired(name, rate, pair).slots
                row += [slots.estimated, slots.total, acquired(name, rate, pair, ends=True).slots.total]
            rows.append(row)
    return _table("topology | Ω | LSA | LSA+RSM | … with ends | MBA | MBA+SAM | … with ends", rows)


def rates_table() -> str:
    """What the plans of the table of slots support."""
    rows = []
    for name in MICRO:
        for rate in RATES:
            plans = [acquired(name, rate, pair) for pair in SECTION_8_4]
            found = [supported(name, plan, routing) for plan in plans for routing in ("weighted", "shuffle")]
            rows.append([name.capitalize(), rate, *(f"{rate_tps:.0f}" for rate_tps in found)])
    return _table("topology | Ω | LSA+RSM weighted | shuffle | MBA+SAM weighted | shuffle", rows)


def pairs_table() -> str:
    """Section 8.5: five VMs of four slots, all pairs: planned rate, and predicted rates by four readings."""
    rows = []
    for name in MICRO:
        for pair in PAIRS:
            plan = highest(name, pair)
            found = [supported(name, plan, *reading) for reading in READINGS]
            rows.append(
                [
                    name.capitalize(),
                    pair.upper(),
                    f"{plan.rate_tps:g}",
                    *(f"{rate_tps:.1f}" for rate_tps in found),
                ]
            )
    return _table(
        "topology | pair | planned | weighted | shuffle | weighted, no interference | shuffle, no interference",
        rows,
    )


def examples_table() -> str:
    """All six as shipped, source and sink mapped."""
    rows = []
    for name in NAMES:
        sink = f"1:{WHOLE[name].rates(1.0)['sink']:g}"
        needed = [_each(totals(name, pair, ends=True)) for pair in SECTION_8_4]
        price = _each(f"{usd_per_hour(acquired(name, rate, 'mba+sam', ends=True).vms):.2f}" for rate in RATES)
        rows.append(
            [f"`{name}`", len(LOGIC[name].tasks), sink, *needed, _part(saved((name,), ends=True)), price]
        )
    return _table(
        "example | tasks | source : sink | LSA+RSM slots | MBA+SAM slots | saved | MBA+SAM, $ an hour", rows
    )


def savings_table() -> str:
    """All slots of a group of topologies and rates added up."""
    groups = {
        "three micro topologies": (MICRO, RATES, "about half"),
        "three applications": (APPLICATIONS, RATES[:2], "33 to 50 %"),
    }
    rows = []
    for what, (names, rates, said) in groups.items():
        found = [_part(saved(names, ends, rates)) for ends in (False, True)]
        rows.append([what, _each(rates), said, *found])
    return _table("slots saved by MBA+SAM against LSA+RSM | Ω | paper 0 | logic alone | with ends", rows)


def _part(part: float) -> str:
    return f"{100 * part:.0f} %"


def _each(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


def _table(head: str, rows: Iterable[Sequence[object]]) -> str:
    lines = [f"| {head} |", "|" + "---|" * (head.count("|") + 1)]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="put the tables into tests/golden/paper_tables.md"
    )
    found = tables()
    if parser.parse_args().write:
        PAGE.write_text(filled(PAGE.read_text("utf-8"), found), "utf-8")
    else:
        print("\n".join(f"{name}\n{table}" for name, table in found.items()))


if __name__ == "__main__":
    main()
