"""The scenarios of a source. `contract` ones call an object of it in the test's process, the others a real run."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pytest

from headgate.topology_runtime.api.logic import OffsetSource
from headgate.topology_runtime.errors import ServiceAway
from headgate.topology_runtime.testing.conformance.needs import (
    CONFIRMED,
    LAG,
    OFFSETS,
    READ_AGAIN,
    needs,
    own,
)
from headgate.topology_runtime.testing.conformance.opened import OpenedSource, threads_now
from headgate.topology_runtime.testing.conformance.patience import OwnThread, until
from headgate.topology_runtime.testing.conformance.real_runs import SINK, SOURCE, RealRun, task
from headgate.topology_runtime.testing.conformance.row_files import AWAY, KeptFiles
from headgate.topology_runtime.testing.conformance.shared_runs import KillScenarios, Shared
from headgate.topology_runtime.testing.conformance.under_test import (
    MISSING,
    WRONG_SECRET,
    SourceUnderTest,
    numbered,
)

ROWS = 100
LOOKS, LOOK_S = 10, 0.2  # at a run that may have stopped reading
SECRET_WORDS = re.compile(
    "auth|password|login|denied|permission|credential|refused|secret|sasl", re.IGNORECASE
)
NAMES = count(1)
KEPT_ROWS = "headgate.topology_runtime.testing.conformance.row_files:KeptRows"


def fresh(of: type[Any], folder: Path) -> Any:
    """One of its own, started; stopped again when that fails."""
    made = of(folder, f"{of.__name__.lower()}{next(NAMES)}")
    try:
        made.start()
    except BaseException:
        made.stop()
        raise
    return made


class SourceRun:
    """A run that reads from the source, and what its sink has kept: every number under how many names."""

    def __init__(self, of: type[SourceUnderTest], folder: Path) -> None:
        for name in ("service", "rows", "run"):
            (folder / name).mkdir(parents=True)
        self.rows, self.next = folder / "rows", 0
        self.made: SourceUnderTest = fresh(of, folder / "service")
        self._kept, self.names = KeptFiles(self.rows), dict[int, set[str]]()
        sink = task(SINK, KEPT_ROWS, {"folder": str(self.rows)}, 1)
        try:
            self.run = RealRun(
                folder / "run", task(SOURCE, of.connector, self.made.params(), of.threads), sink
            )
        except BaseException:
            self.made.stop()
            raise

    def close(self) -> None:
        self.run.close()
        self.made.stop()

    def give(self, rows: int = ROWS, text_bytes: int = 0) -> None:
        self.made.produce(numbered(self.next, rows, text_bytes))
        self.next += rows

    def look(self) -> None:
        for name, row in self._kept.new():
            self.names.setdefault(self.made.number(row), set()).add(name)

    def memory_when_full(self) -> int:
        """Bytes of the worker of the source, once it has read as much as it holds."""
        read, seen = [-1], [0]
        while len(set(read[-LOOKS:])) > 1 or max(seen) > max(seen[:-LOOKS], default=0):  # it still reads
            time.sleep(LOOK_S)
            read.append(self.run.rows_read())
            seen.append(self.run.memory_bytes(SOURCE))
        return max(seen)

    def all_there(self) -> bool:
        self.look()
        return len(self.names) >= self.next

    def wait(self) -> None:
        """Until every row that was produced is at the sink; and none twice under two names, none that was not there."""
        until(self.all_there, self._missing)
        strange = sorted(set(self.names) - set(range(self.next)))
        assert not strange, f"rows came that nobody produced: {strange[:5]}"
        twice = sorted(n for n, names in self.names.items() if len(names) > 1)
        assert not (twice and self.made.exactly_once), f"{len(twice)} rows came as two: {twice[:5]}"

    def _missing(self) -> str:
        lacks = sorted(set(range(self.next)) - set(self.names))
        return f"{len(lacks)} of {self.next} rows did not come, such as {lacks[:5]}; the run says:\n{self.run.log}"


class SourceScenarios(KillScenarios):
    """`scenarios(of)` makes a class of tests of this."""

    of: ClassVar[type[SourceUnderTest]]
    tested = SOURCE

    @pytest.fixture
    def made(self, tmp_path: Path) -> Iterator[SourceUnderTest]:
        made = fresh(self.of, tmp_path)
        yield made
        made.stop()

    @pytest.fixture(scope="class")
    @classmethod
    def runs(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared[SourceRun]]:
        shared = Shared(lambda: SourceRun(cls.of, tmp_path_factory.mktemp("run")))
        yield shared
        shared.close()

    # ── contract ────────────────────────────────────────────────────────────────────────────────

    def test_rows_come_whole_and_in_the_order_of_their_partition(self, made: SourceUnderTest) -> None:
        for partition in range(made.threads):
            made.produce(numbered(1000 * partition, ROWS), partition)
        for partition in range(made.threads):
            with OpenedSource(made, partition=partition) as source:
                source.open_when_there()
                rows = [row for _, row in source.take(ROWS)]
            wanted = list(range(1000 * partition, 1000 * partition + ROWS))
            assert [made.number(row) for row in rows] == wanted, (
                "rows are not those of the partition, in order"
            )
            assert made.text(rows[-1]) == f"row {wanted[-1]}", "a row is not whole"

    @needs(READ_AGAIN)
    def test_a_row_read_again_has_the_offset_that_it_had(self, made: SourceUnderTest) -> None:
        made.produce(numbered(0, ROWS))
        with OpenedSource(made) as source:
            source.open_when_there()
            given = [(at, made.number(row)) for at, row in source.take(ROWS)]
        for again_from in (0, ROWS // 2, ROWS - 1):
            with OpenedSource(made) as source:
                source.open_when_there()
                source.next = given[again_from][0]
                again = [(at, made.number(row)) for at, row in source.take(ROWS - again_from)]
            assert again == given[again_from:], (
                f"from offset {given[again_from][0]} other rows came than before"
            )

    @needs(CONFIRMED)
    def test_rows_that_were_not_confirmed_come_again(self, made: SourceUnderTest) -> None:
        made.produce(numbered(0, ROWS))
        with OpenedSource(made) as source:
            source.open_when_there()
            first = {made.number(row) for _, row in source.take(ROWS // 2)}
            source.durable()
            source.poll(1)
            source.take(ROWS // 4 - (source.polled - ROWS // 2))
        with OpenedSource(made) as source:
            source.open_when_there()
            again = {made.number(row) for _, row in source.take(ROWS // 2)}
            source.durable()
        lost = set(range(ROWS)) - first - again
        assert not lost, f"{len(lost)} rows that were given and not confirmed did not come again"

    @needs(own("done"))
    def test_the_service_learns_which_rows_are_done(self, made: SourceUnderTest) -> None:
        made.produce(numbered(0, ROWS))
        with OpenedSource(made) as source:
            source.open_when_there()
            given = source.take(ROWS // 2)
            if isinstance(source.logic, OffsetSource):
                source.logic.done(given[-1][0] + 1)
            source.durable()
            until(
                lambda: made.done() == ROWS // 2, f"for the service to know of {ROWS // 2} rows that are done"
            )

    @needs(LAG)
    def test_lag_is_reported(self, made: SourceUnderTest) -> None:
        made.produce(numbered(0, ROWS))
        with OpenedSource(made) as source:
            source.open_when_there()
            source.take(ROWS // 4)
            last: list[Any] = []

            def told() -> bool:
                last.append(source.logic.lag())
                return bool(last[-1] == ROWS - source.polled)

            until(told, lambda: f"for a lag of {ROWS - source.polled}, and it says {last[-1]}")

    def test_a_large_row_comes_whole(self, made: SourceUnderTest) -> None:
        made.produce(numbered(0, 1, made.row_bytes) + numbered(1, 1))
        with OpenedSource(made) as source:
            source.open_when_there()
            large, small = (row for _, row in source.take(2))
        assert len(made.text(large)) == made.row_bytes, "the large row is not whole"
        assert made.number(small) == 1, "the row behind the large one did not come"

    @needs(own("produce_bad"))
    def test_a_row_that_cannot_be_decoded_is_an_error_in_its_place(self, made: SourceUnderTest) -> None:
        made.produce(numbered(0, 1))
        made.produce_bad()
        made.produce(numbered(1, 1))
        with OpenedSource(made) as source:
            source.open_when_there()
            rows = [row for _, row in source.take(3)]
        numbers = [repr(row)[:80] if isinstance(row, Exception) else made.number(row) for row in rows]
        assert [n for n in numbers if isinstance(n, int)] == [0, 1], (
            f"rows around a bad one did not come: {numbers}"
        )
        assert isinstance(rows[1], Exception), f"a row that cannot be decoded came as {numbers[1]}"

    @needs(own("wrong_secret"))
    def test_a_wrong_password_is_reported_and_not_shown(self, made: SourceUnderTest) -> None:
        with OpenedSource(made, made.wrong_secret()) as source:
            error = source.refuses()
        said = "\n".join([str(error), *getattr(error, "lines", list)()])
        assert WRONG_SECRET not in said, "the message has the password"
        assert SECRET_WORDS.search(said), f"the message does not say that it is the password: {said}"

    @needs(own("missing"))
    def test_a_missing_topic_is_named(self, made: SourceUnderTest) -> None:
        with OpenedSource(made, made.missing()) as source:
            error = source.refuses()
        said = "\n".join([str(error), *getattr(error, "lines", list)()])
        assert MISSING in said, f"the message does not name {MISSING}: {said}"

    @needs(own("kill"))
    def test_a_service_that_is_away_at_open_is_waited_for(self, made: SourceUnderTest) -> None:
        made.produce(numbered(0, ROWS))
        made.kill()
        with OpenedSource(made) as source:
            error = source.refuses()
            made.start_again()
            assert error is not None
            source.close()
            source.open_when_there()
            numbers = [made.number(row) for _, row in source.take(ROWS)]
        assert numbers == list(range(ROWS)), "rows are missing after the service came back"

    @needs(own("kill"))
    def test_close_ends_its_threads_while_the_service_is_away(self, made: SourceUnderTest) -> None:
        made.produce(numbered(0, ROWS))
        with OpenedSource(made) as source, OwnThread() as thread:
            thread.call(source.open_when_there, "`open`")
            thread.call(lambda: source.take(1), "`poll`")
            made.kill()
            with contextlib.suppress(Exception):  # what it says of the service is another scenario
                thread.call(source.poll, "`poll`, whose service was killed,")
            thread.call(source.close, "`close`, whose service was killed,")
        until(
            lambda: threads_now() <= source.threads_before,
            lambda: f"for the threads of the client to end; {threads_now() - source.threads_before} are left",
        )

    @needs(OFFSETS, own("forget"))
    def test_rows_that_the_service_keeps_no_more_are_an_error_and_not_passed_over(
        self, made: SourceUnderTest
    ) -> None:
        """A run that goes on after a long time."""
        made.produce(numbered(0, ROWS))
        with OpenedSource(made) as source:
            source.open_when_there()
            source.take(ROWS // 2)
            at = source.next
        made.forget()
        with OpenedSource(made) as source:
            source.open_when_there()
            source.next = at
            error = source.refuses(unless=lambda: source.polled > 0)
        assert error is not None, f"rows from offset {at} are no more, and it gave later ones without a word"

    def test_two_runs_do_not_take_rows_from_each_other(self, made: SourceUnderTest) -> None:
        """Two that do not know of each other, with the same params."""
        with OpenedSource(made) as one, OpenedSource(made) as other:
            one.open_when_there()
            other.open_when_there()
            one.poll()
            other.poll()
            made.produce(numbered(0, ROWS))
            if issubclass(made.connector_class(), OffsetSource):
                each = [[made.number(row) for _, row in source.take(ROWS)] for source in (one, other)]
                assert each == [list(range(ROWS))] * 2, "one of two runs did not get every row"
                return
            found: set[int] = set()

            def all_of_them() -> bool:
                for source in (one, other):
                    with contextlib.suppress(ServiceAway):  # one may take the place of the other
                        found.update(made.number(row) for _, row in source.poll())
                        source.durable()
                return len(found) == ROWS

            until(all_of_them, lambda: f"for {ROWS} rows at two runs together; {len(found)} came")

    @needs(own("end"))
    def test_the_end_of_the_input_is_reported(self, made: SourceUnderTest) -> None:
        made.produce(numbered(0, ROWS))
        made.end()
        with OpenedSource(made) as source:
            source.open_when_there()
            source.take(ROWS)
            until(lambda: source.poll() == [] and source.ended, "for `Exhausted` at the end")

    @needs(own("add_partition"))
    def test_a_partition_that_is_added_is_noticed(self, made: SourceUnderTest) -> None:
        made.produce(numbered(0, ROWS))
        with OpenedSource(made) as source:
            source.open_when_there()
            source.take(ROWS)
            made.produce(numbered(1000, 1), made.add_partition())
            gauge = source.context.metrics.gauge("partitions_unread")
            until(lambda: (source.poll(), gauge.value)[1], "for the gauge `partitions_unread` to say so")
            made.produce(numbered(ROWS, 1))
            assert made.number(source.take(1)[0][1]) == ROWS, "it reads its own partition no more"

    @needs(own("delete"))
    def test_a_topic_that_is_deleted_is_reported(self, made: SourceUnderTest) -> None:
        made.produce(numbered(0, ROWS))
        with OpenedSource(made) as source:
            source.open_when_there()
            source.take(ROWS)
            made.delete()
            source.refuses()

    # ── a real run ──────────────────────────────────────────────────────────────────────────────

    @needs(own("produce_bad"))
    def test_a_bad_row_is_a_dead_letter_and_the_rows_behind_it_come(self, runs: Shared[SourceRun]) -> None:
        with runs.use() as run:
            before = run.run.dead_letters()
            run.give()
            run.made.produce_bad()
            run.give()
            run.wait()
            until(lambda: run.run.dead_letters() == before + 1, "for one dead letter")

    def test_memory_stays_flat_while_the_sink_is_stopped(self, runs: Shared[SourceRun]) -> None:
        rows, row_bytes = self.of.flood
        with runs.use() as run:
            run.give()
            run.wait()
            (run.rows / AWAY).touch()
            run.give(rows, row_bytes)
            before = run.memory_when_full()
            run.give(rows, row_bytes)
            grown, more = run.memory_when_full() - before, rows * row_bytes
            (run.rows / AWAY).unlink()
            run.wait()
        assert grown < more // 4, f"its worker took {grown >> 20} MB when {more >> 20} MB more waited outside"

    def test_no_row_is_left_when_a_run_is_stopped(self, runs: Shared[SourceRun]) -> None:
        with runs.use() as run:
            run.give()
            run.wait()
            tuples = run.run.end()["tuples"]
        runs.close()
        assert not tuples["left"] and not tuples["lost"], f"rows are left: {tuples}"
