"""Which stretches of a run are aggregated, and which were already."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.dashboards.analytics import aggregate_parts as ap
from headgate.dashboards.analytics.data_places import place
from headgate.dashboards.analytics.judging import Segment
from headgate.dashboards.analytics.manifest import SCHEMA as CURATED
from headgate.dashboards.analytics.manifest import Manifest, TracePart

MINUTE_US = 60_000_000


def spans(*minutes: tuple[float, float]) -> ap.Spans:
    """One segment for each (from, to)."""
    return {f"{n}": (round(a * MINUTE_US), round(b * MINUTE_US) - 1) for n, (a, b) in enumerate(minutes)}


def planned(
    known: ap.AggregateManifest, its: dict[str, ap.Spans], apart: bool, table: str = "rates"
) -> ap.Planned:
    """Of one table, by default the one that looks back; a stretch is a minute."""
    return ap.planned(known, {run: {table: of} for run, of in its.items()}, 60, apart)


def passed(
    known: ap.AggregateManifest, its: dict[str, ap.Spans], apart: bool, table: str = "rates"
) -> ap.AggregateManifest:
    """After a pass, and what it made; without fusing."""
    plan = planned(known, its, apart, table)
    number = ap.pass_of(plan.fresh[0]) if plan.fresh else known.passes
    spans = {run: {table: of} for run, of in its.items()}
    return ap.AggregateManifest(known.schema, known.of, number, spans, [*plan.kept, *plan.fresh])


def fused(known: ap.AggregateManifest, its: dict[str, ap.Spans]) -> ap.AggregateManifest:
    """After the same pass has fused what could be."""
    manifest, found = passed(known, its, apart=True), planned(known, its, apart=True).fused
    gone = {part for each in found for part in each.of}
    parts = [p for p in manifest.parts if p not in gone] + [each.part for each in found]
    assert all(ap.pass_of(each.part) == manifest.passes + 1 for each in found)
    return ap.AggregateManifest(
        manifest.schema, manifest.of, manifest.passes + bool(found), manifest.spans, parts
    )


def minutes_of(parts: list[ap.AggregatedPart]) -> list[int]:
    return sorted(minute for part in parts for minute in range(part.begin, part.end))


def ranges(manifest: ap.AggregateManifest, number: int) -> list[tuple[str, int, int]]:
    return [(p.run, p.begin, p.end) for p in manifest.parts if ap.pass_of(p) == number]


def test_runs_that_nobody_aggregated_are_a_part_each_of_one_number() -> None:
    found = passed(ap.empty("x"), {"a": spans((0, 25)), "b": spans((3, 4), (41, 42))}, apart=False)
    assert ranges(found, 1) == [("a", 0, 26), ("b", 3, 43)]
    assert len({part.number for part in found.parts}) == 1


@pytest.mark.parametrize("apart", [False, True])
def test_what_was_made_of_the_same_is_not_made_again(apart: bool) -> None:
    its = {"a": spans((0, 25)), "b": spans((3, 4), (41, 42))}
    found = passed(ap.empty("x"), its, apart)
    assert passed(found, its, False) == passed(found, its, True) == found


def test_of_a_run_that_goes_on_only_its_end_is_made_again_and_the_rest_is_fused() -> None:
    minutes = [(n / 6, n / 6 + 1 / 6) for n in range(1500)]  # of ten seconds each
    found, fusions = ap.empty("x"), 0
    its: ap.Spans = {}
    for count, one in enumerate(minutes):
        before = found
        its = its | {f"{count}": spans(one)["0"]}
        mine = ranges(passed(before, {"a": its}, apart=True), before.passes + 1)
        assert 1 <= sum(end - begin for _, begin, end in mine) <= 2
        found = fused(before, {"a": its})
        fusions += found.passes - before.passes - 1
        covered = minutes_of(found.parts)
        assert covered == list(range(max(covered) + 1)), "each minute once"
        assert len(found.parts) <= 2 + 10 + 10 + 11
    assert fusions == 24, "once for each ten that closed, the hundreds with the last of theirs"
    assert [(p.begin, p.end) for p in sorted(found.parts, key=lambda p: p.begin)][:4] == [
        (0, 100), (100, 200), (200, 210), (210, 220),
    ]  # fmt: skip


def test_what_has_to_be_made_again_is_not_fused_before_it_was() -> None:
    minutes = [(n + 0.0, n + 0.9) for n in range(14)]
    first = ap.empty("x")
    for count in range(1, 13):
        first = passed(first, {"a": spans(*minutes[:count])}, apart=True)
    late = {"a": spans(*minutes[:12]) | {"late": spans((3.2, 3.4))["0"]}}
    again = passed(first, late, apart=True)
    assert ranges(again, again.passes) == [("a", 3, 5)]
    assert fused(first, late) == again
    then = fused(again, late)
    assert [(p.begin, p.end) for p in then.parts if p.end - p.begin > 2] == [(0, 10)]
    assert passed(then, late, apart=True) == then, "what is fused counts as what it was made of"
    later = {"a": late["a"] | {"later": spans((5.2, 5.4))["0"]}}
    once_more = passed(then, later, apart=True)
    assert ranges(once_more, once_more.passes) == [("a", 0, 10)], "and costs as much when it is late"


def test_one_part_of_a_run_that_has_others_is_not_all_of_it() -> None:
    its = {"a": spans((0, 5), (12, 18)), "b": spans((0, 5))}
    first = passed(ap.empty("x"), its, apart=False)
    assert not ap.is_cut([], first.parts)
    more = its | {"a": spans((0, 5), (12, 18), (19.2, 19.5))}
    plan = planned(passed(ap.empty("x"), its, apart=True), more, False)
    assert len(plan.fresh) == 1 and ap.is_cut(plan.kept, plan.fresh)
    plan = planned(first, its | {"c": spans((0, 5))}, False)
    assert len(plan.kept) == 2 and [part.run for part in plan.fresh] == ["c"]
    assert not ap.is_cut(plan.kept, plan.fresh)


def test_each_table_has_parts_of_its_own() -> None:
    """What comes of one does not make another again; of rates alone a row counts from the one before."""
    its = {"a": {"samples": spans((0, 2.9)), "rates": spans((0, 2.9))}}
    plan = ap.planned(ap.empty("x"), its, 60, apart=True)
    assert [(p.table, p.begin, p.end) for p in plan.fresh] == [
        ("samples", 0, 1), ("samples", 1, 2), ("samples", 2, 3), ("rates", 0, 2), ("rates", 2, 3), ("rates", 3, 4),
    ]  # fmt: skip
    assert len({part.number for part in plan.fresh}) == 6
    known = ap.AggregateManifest(ap.SCHEMA, "x", 1, its, plan.fresh)
    its = {"a": its["a"] | {"samples": its["a"]["samples"] | {"new": spans((2.9, 3.1))["0"]}}}
    again = ap.planned(known, its, 60, apart=True)
    assert [(p.table, p.begin, p.end) for p in again.fresh] == [("samples", 2, 3), ("samples", 3, 4)]
    assert {part.table for part in again.kept} == {"samples", "rates"}


def test_tables_of_runs_that_are_begun_anew_have_a_number_each() -> None:
    its = {run: {"samples": spans((0, 9)), "slots": spans((0, 9))} for run in "ab"}
    plan = ap.planned(ap.empty("x"), its, 60, apart=False)
    assert sorted((p.table, p.number % ap.PARTS_MOST) for p in plan.fresh) == [
        ("samples", 0), ("samples", 0), ("slots", 1), ("slots", 1),
    ]  # fmt: skip


def test_a_segment_that_comes_late_costs_its_stretch() -> None:
    early, late = [(0.0, 0.5), (0.5, 1.0), (1.2, 2.0), (2.2, 2.9), (3.2, 3.9)], (1.0, 1.2)
    found = ap.empty("x")
    for count in range(1, 6):
        found = passed(found, {"a": spans(*early[:count])}, apart=True)
    found = passed(found, {"a": spans(*early, late)}, apart=True)
    assert minutes_of([p for p in found.parts if ap.pass_of(p) == found.passes]) == [1, 2]


def test_what_ends_within_a_minute_before_a_stretch_is_seen_from_it() -> None:
    """Rates look back so far."""
    first = passed(ap.empty("x"), {"a": spans((0, 0.9), (2.1, 4.9))}, apart=True)
    again = passed(first, {"a": spans((0, 0.9), (2.1, 4.9), (1.0, 1.5))}, apart=True)
    fresh = [part for part in again.parts if ap.pass_of(part) == again.passes]
    assert 2 in minutes_of(fresh), "what it sees of the minute before has changed"


def test_a_segment_whose_rows_are_gone_is_not_in_it_any_more() -> None:
    found = passed(ap.empty("x"), {"a": spans((0, 5), (15, 18))}, apart=True)
    less = passed(found, {"a": spans((0, 5))}, apart=True)
    assert minutes_of(less.parts) == [0, 1, 2, 3, 4, 5]


def test_parts_are_read_back_and_those_of_other_code_are_not(tmp_path: Path) -> None:
    found = passed(ap.empty("x"), {"a": spans((0, 25))}, apart=True)
    ap.write(place(tmp_path), found)
    assert ap.read(place(tmp_path), "x") == found
    assert ap.read(place(tmp_path), "y") == ap.empty("y")
    (tmp_path / "_manifest.json").write_text("torn")
    assert ap.read(place(tmp_path), "x") == ap.empty("x")


def test_a_segment_that_retention_deleted_is_where_it_was_seen() -> None:
    part = TracePart("rates", "1970-01-01", "p", 2, 2, {"there": "1", "gone": "2", "never seen": "3"})
    there = Segment(place("/x/1"), "rates", 1, 5, 6, "there")
    known = {"rates": {"gone": (7, 8), "merged no more": (1, 2)}, "samples": {"there": (1, 2)}}
    found = ap.spans_of(known, Manifest(CURATED, None, [part], {}), [there])
    assert found == {"rates": {"there": (5, 6), "gone": (7, 8), "never seen": (0, ap.DAY_US - 1)}}


def test_too_many_parts_are_one() -> None:
    holes = {"a": spans(*((20 * n, 20 * n + 1) for n in range(ap.PARTS_MOST + 5)))}
    found = passed(ap.empty("x"), holes, apart=True)
    assert len(found.parts) == 1
    assert passed(found, {"a": holes["a"] | {"new": (0, 1)}}, apart=True).passes == 2
