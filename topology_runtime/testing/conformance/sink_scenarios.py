"""The scenarios of a sink. `contract` ones call an object of it in the test's process, the others a real run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from headgate.topology_runtime.errors import ServiceAway
from headgate.topology_runtime.testing.conformance.needs import needs, own
from headgate.topology_runtime.testing.conformance.opened import OpenedSink, threads_now
from headgate.topology_runtime.testing.conformance.patience import OwnThread, until
from headgate.topology_runtime.testing.conformance.real_runs import SINK, SOURCE, RealRun, task
from headgate.topology_runtime.testing.conformance.row_files import GIVEN, append
from headgate.topology_runtime.testing.conformance.shared_runs import KillScenarios, Shared
from headgate.topology_runtime.testing.conformance.source_scenarios import ROWS, SECRET_WORDS, fresh
from headgate.topology_runtime.testing.conformance.under_test import (
    MISSING,
    WRONG_SECRET,
    SinkUnderTest,
    numbered,
)

GIVEN_ROWS = "headgate.topology_runtime.testing.conformance.row_files:RowsOfFile"


class SinkRun:
    """A run that writes to the sink rows that a test gives."""

    def __init__(self, of: type[SinkUnderTest], folder: Path) -> None:
        for name in ("service", "rows", "run"):
            (folder / name).mkdir(parents=True)
        self.rows, self.next = folder / "rows", 0
        self.made: SinkUnderTest = fresh(of, folder / "service")
        source = task(SOURCE, GIVEN_ROWS, {"folder": str(self.rows)}, 1)
        try:
            sink = task(SINK, of.connector, self.made.params(), of.threads)
            way = "global" if of.connector_class().one_thread else "shuffle"
            self.run = RealRun(folder / "run", source, sink, way)
        except BaseException:
            self.made.stop()
            raise

    def close(self) -> None:
        self.run.close()
        self.made.stop()

    def give(self, rows: int = ROWS) -> None:
        append(self.rows / GIVEN, [self.made.row(row) for row in numbered(self.next, rows)])
        self.next += rows

    def wait(self) -> None:
        """Until every row that was given is in the target; and none twice, if it is to be exactly once."""
        until(
            lambda: not self._lacks(), lambda: f"{self._said()}; the run says:\n{self.run.log}", every_s=0.1
        )
        check(self.made, self.next)

    def _lacks(self) -> list[int]:
        return sorted(set(range(self.next)) - set(self.made.stored()))

    def _said(self) -> str:
        lacks = self._lacks()
        return f"{len(lacks)} of {self.next} rows are not in the target, such as {lacks[:5]}"


def check(made: SinkUnderTest, count: int) -> None:
    """The target has these rows, each once where that is to hold, and no others."""
    stored = made.stored()
    lacks, strange = set(range(count)) - set(stored), set(stored) - set(range(count))
    assert not lacks, f"{len(lacks)} of {count} rows are not in the target, such as {sorted(lacks)[:5]}"
    assert not strange, f"the target has rows that nobody wrote: {sorted(strange)[:5]}"
    twice = len(stored) - len(set(stored))
    assert not (twice and made.exactly_once), f"{twice} rows are in the target twice"


class SinkScenarios(KillScenarios):
    """`scenarios(of)` makes a class of tests of this."""

    of: ClassVar[type[SinkUnderTest]]
    tested = SINK

    @pytest.fixture
    def made(self, tmp_path: Path) -> Iterator[SinkUnderTest]:
        made = fresh(self.of, tmp_path)
        yield made
        made.stop()

    @pytest.fixture(scope="class")
    @classmethod
    def runs(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared[SinkRun]]:
        shared = Shared(lambda: SinkRun(cls.of, tmp_path_factory.mktemp("run")))
        yield shared
        shared.close()

    # ── contract ────────────────────────────────────────────────────────────────────────────────

    def test_rows_are_in_the_target_when_write_returns(self, made: SinkUnderTest) -> None:
        rows = [made.row(row) for row in numbered(0, ROWS)]
        with OpenedSink(made) as sink:
            sink.open_when_there()
            sink.write_when_there(rows, 0)
            stored = made.stored()
        assert sorted(stored) == list(range(ROWS)), (
            f"`write` returned, and {len(set(stored))} of {ROWS} rows are there"
        )
        assert stored == sorted(stored) or not made.ordered, "rows of one call are not in order"

    def test_rows_written_again_under_the_same_names(self, made: SinkUnderTest) -> None:
        """A replay, by the same object and by another one."""
        rows = [made.row(row) for row in numbered(0, ROWS)]
        for first, count in ((0, ROWS // 2), (ROWS // 4, ROWS // 2), (0, ROWS)):
            with OpenedSink(made) as sink:
                sink.open_when_there()
                for _ in range(2):
                    sink.write_when_there(rows[first : first + count], first)
        check(made, ROWS)

    def test_a_large_row_is_stored_or_refused_alone(self, made: SinkUnderTest) -> None:
        large, small = (made.row(row) for row in numbered(0, 1, made.row_bytes) + numbered(1, 1))
        with OpenedSink(made) as sink:
            sink.open_when_there()
            error = sink.refuses([large], 0)
            sink.write_when_there([small], 1)
            stored = set(made.stored())
        assert not isinstance(error, ServiceAway), (
            "a large row was taken for a service that is away: it blocks all"
        )
        assert stored == ({1} if error else {0, 1}), f"stored are {sorted(stored)}; the large row: {error!r}"

    @needs(own("bad_row"))
    def test_a_bad_row_is_refused_alone(self, made: SinkUnderTest) -> None:
        rows = [made.row(row) for row in numbered(0, 2)]
        with OpenedSink(made) as sink:
            sink.open_when_there()
            error = sink.refuses([made.bad_row()], 7)
            sink.write_when_there(rows, 0)
            stored = made.stored()
        assert error is not None, "`write` returned, though the target cannot take the row"
        assert not isinstance(error, ServiceAway), (
            "a bad row was taken for a service that is away: it blocks all"
        )
        assert sorted(stored) == [0, 1], f"stored are {stored}"

    @needs(own("wrong_secret"))
    def test_a_wrong_password_is_reported_and_not_shown(self, made: SinkUnderTest) -> None:
        with OpenedSink(made, made.wrong_secret()) as sink:
            error = sink.refuses([made.row(row) for row in numbered(0, 1)], 0)
        assert error is not None, "`write` returned with a wrong password"
        said = "\n".join([str(error), *getattr(error, "lines", list)()])
        assert WRONG_SECRET not in said, "the message has the password"
        assert SECRET_WORDS.search(said), f"the message does not say that it is the password: {said}"

    @needs(own("missing"))
    def test_a_missing_topic_is_named(self, made: SinkUnderTest) -> None:
        with OpenedSink(made, made.missing()) as sink:
            error = sink.refuses([made.row(row) for row in numbered(0, 1)], 0)
        said = "\n".join([str(error), *getattr(error, "lines", list)()])
        assert error is not None and MISSING in said, f"the message does not name {MISSING}: {said}"

    @needs(own("delete"))
    def test_a_topic_that_is_deleted_is_reported_or_made_again(self, made: SinkUnderTest) -> None:
        rows = [made.row(row) for row in numbered(0, ROWS)]
        with OpenedSink(made) as sink:
            sink.open_when_there()
            sink.write_when_there(rows[:1], 0)
            made.delete()
            error = sink.refuses(rows, 0)
        assert error is not None or set(made.stored()) == set(range(ROWS)), "rows are lost without a word"

    @needs(own("kill"))
    def test_a_service_that_is_away_is_waited_for(self, made: SinkUnderTest) -> None:
        rows = [made.row(row) for row in numbered(0, ROWS)]
        half = ROWS // 2
        with OpenedSink(made) as sink:
            sink.open_when_there()
            sink.write_when_there(rows[:half], 0)
            made.kill()
            error = sink.refuses(rows[half:], half)
            assert isinstance(error, ServiceAway), (
                f"a service that is away is not told as `ServiceAway`: {error!r}"
            )
            made.start_again()
            sink.write_when_there(rows[half:], half)
        check(made, ROWS)

    @needs(own("kill"))
    def test_a_service_that_is_away_at_open_is_waited_for(self, made: SinkUnderTest) -> None:
        rows = [made.row(row) for row in numbered(0, ROWS)]
        made.kill()
        with OpenedSink(made) as sink:
            error = sink.refuses(rows, 0)
            assert isinstance(error, ServiceAway), (
                f"a service that is away is not told as `ServiceAway`: {error!r}"
            )
            made.start_again()
            if sink.logic is None:
                sink.open_when_there()
            sink.write_when_there(rows, 0)
        check(made, ROWS)

    @needs(own("kill"))
    def test_close_ends_its_threads_while_the_service_is_away(self, made: SinkUnderTest) -> None:
        rows = [made.row(row) for row in numbered(0, ROWS)]
        with OpenedSink(made) as sink, OwnThread() as thread:
            thread.call(sink.open_when_there, "`open`")
            thread.call(lambda: sink.write_when_there(rows, 0), "`write`")
            made.kill()
            with contextlib.suppress(Exception):  # what it says of the service is another scenario
                thread.call(lambda: sink.write(rows, 0), "`write`, whose service was killed,")
            thread.call(sink.close, "`close`, whose service was killed,")
        until(
            lambda: threads_now() <= sink.threads_before,
            lambda: f"for the threads of the client to end; {threads_now() - sink.threads_before} are left",
        )

    # ── a real run ──────────────────────────────────────────────────────────────────────────────

    @needs(own("bad_row"))
    def test_a_bad_row_is_a_dead_letter_and_the_rows_behind_it_are_stored(
        self, runs: Shared[SinkRun]
    ) -> None:
        with runs.use() as run:
            before = run.run.dead_letters()
            run.give()
            append(run.rows / GIVEN, [run.made.bad_row()])
            run.give()
            run.wait()
            until(lambda: run.run.dead_letters() == before + 1, "for one dead letter")

    def test_no_row_is_left_when_a_run_is_stopped(self, runs: Shared[SinkRun]) -> None:
        with runs.use() as run:
            run.give()
            until(lambda: run.run.rows_read() >= run.next, "for the rows to be read")
            tuples = run.run.end()["tuples"]
            check(run.made, run.next)
        runs.close()
        assert not tuples["left"] and not tuples["lost"], f"rows are left: {tuples}"
