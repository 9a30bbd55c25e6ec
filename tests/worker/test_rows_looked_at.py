"""Of large frames that stay in a worker a part is looked at: what cannot travel is found soon, and all of it then."""

from __future__ import annotations

import random

import pytest
from plane_tasks import S
from test_task_logic import flow, frame, outputs

from headgate.topology_runtime.logic import To
from headgate.topology_runtime.worker.row_checks import (
    CAREFUL_FRAMES,
    LOOKED_AT,
    ONE_IN,
    TURNS,
    WHOLE_MOST,
    RowChecks,
)

BAD = object()


def test_of_a_small_frame_every_row_is_looked_at() -> None:
    for place in range(WHOLE_MOST):
        rows: list[object] = [1] * WHOLE_MOST
        rows[place] = BAD
        assert not RowChecks().pass_on(rows)


@pytest.mark.parametrize("seed", range(5))
def test_a_place_of_large_frames_is_looked_at_once_in_so_many(seed: int) -> None:
    numbers = random.Random(seed)
    rows: list[object] = [1] * numbers.randint(WHOLE_MOST + 1, 2000)
    rows[numbers.randrange(len(rows))] = BAD
    checks = RowChecks()
    for _ in range(numbers.randrange(20)):
        assert checks.pass_on([1] * 100)
    turns = TURNS * max(ONE_IN, len(rows) // LOOKED_AT)
    assert [checks.pass_on(rows) for _ in range(turns)].count(False) >= 1


def test_after_one_that_cannot_travel_no_row_is_passed_over_for_a_while() -> None:
    checks = RowChecks()
    assert not checks.pass_on([BAD] * 100)
    for place in range(CAREFUL_FRAMES):
        rows: list[object] = [1] * 100
        rows[place % 100] = BAD
        assert not checks.pass_on(rows)


def test_care_ends() -> None:
    checks = RowChecks()
    assert not checks.pass_on([BAD])
    assert all(checks.pass_on([1] * 100) for _ in range(CAREFUL_FRAMES))
    assert sum(checks.pass_on([1] * 99 + [BAD]) for _ in range(TURNS * ONE_IN)) >= 1


def test_where_every_row_is_to_be_looked_at_none_is_passed_over() -> None:
    checks = RowChecks()
    checks.every = True
    checks.pass_on([1] * 1000)
    assert not checks.pass_on([1] * 999 + [BAD])


def test_the_rows_of_a_frame_that_was_found_out_are_dead_letters_and_no_others() -> None:
    task = flow(lambda row: BAD if row % 10 == 3 else row)
    for _ in range(2):
        task.take(frame(list(range(200))), S)
    frames = task.results.outputs.flush(S, everything=True)
    rows = [row for found in frames for row in found.rows]
    letters = [letter.position - 100 for letter in task.results.letters]
    assert {place % 10 for place in letters} == {3} and len(letters) >= 20
    assert len(rows) + len(letters) == 400
    assert sum(row is BAD for row in rows) == 40 - len(letters)


def test_an_address_without_an_edge_that_reads_it_cannot_travel() -> None:
    task = flow(lambda row: To(0, row), out=outputs("shuffle"))
    task.take(frame([1, 2]), S)
    assert [letter.error for letter in task.results.letters] and not task.results.outputs.buffers


def test_with_one_that_does_it_goes_bare_by_all_edges() -> None:
    task = flow(lambda row: To(0, row), out=outputs("shuffle", "direct"))
    task.take(frame(list(range(100))), S)
    frames = task.results.outputs.flush(S, everything=True)
    assert [found.rows for found in frames] == [list(range(100))] * 2 and not task.results.letters
