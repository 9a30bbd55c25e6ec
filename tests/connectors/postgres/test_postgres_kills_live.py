"""Rows that are written while transactions commit late, over kills of worker, VM, controller and server: none is
missing, none is there under two names. Truth is what the table holds at the end."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres_under_test import Changes, OnServer, Table

from headgate.topology_runtime.testing.conformance.patience import until
from headgate.topology_runtime.testing.conformance.real_runs import SOURCE
from headgate.topology_runtime.testing.conformance.source_scenarios import SourceRun
from real_services import Postgres

pytestmark = [pytest.mark.live, pytest.mark.full]
ROWS, KILLS, WRITERS, SEED = 200_000, 20, 6, 7


class LateWriters:
    """Threads that insert until there are so many rows: small and large transactions, some of which stay open for
    seconds, or are rolled back, or are cut off."""

    def __init__(self, made: OnServer, first: int, rows: int) -> None:
        self.made, self.rows = made, rows
        self.begun = self.rolled_back = self.cut_off = self.late = 0
        self._numbers, self._lock = count(first), threading.Lock()
        self._threads = [threading.Thread(target=self._write, args=(n,)) for n in range(WRITERS)]
        for thread in self._threads:
            thread.start()

    def _write(self, number: int) -> None:
        dice = random.Random(SEED * 100 + number)
        while self.begun < self.rows:
            try:
                with psycopg.connect(self.made.server.url, password=self.made.password) as connection:
                    while self.begun < self.rows:
                        self._transaction(connection, dice)
            except psycopg.Error:
                self.cut_off += 1
                time.sleep(0.1)

    def _transaction(self, connection: Any, dice: random.Random) -> None:
        size = dice.choice([1, 1, 5, 20, 100, 1000])
        with self._lock:
            numbers = [next(self._numbers) for _ in range(size)]
        for first in range(0, size, 50):
            values = ",".join(f"({n}, 'row {n}')" for n in numbers[first : first + 50])
            connection.execute(f"insert into {self.made.name} (n, text) values {values}")
            time.sleep(dice.choice([0, 0, 0.02]))
        if dice.random() < 0.1:
            self.late += 1
            time.sleep(dice.uniform(0.5, 4.0))
        if dice.random() < 0.05:
            self.rolled_back += 1
            connection.rollback()
            return
        connection.commit()
        self.begun += size

    @property
    def busy(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)


@pytest.fixture(autouse=True)
def server(running_services: Callable[[type[Postgres]], Postgres]) -> Iterator[None]:
    OnServer.running.append(lambda: running_services(Postgres))
    yield
    OnServer.running.pop()


@pytest.mark.parametrize("of", [Table, Changes])
def test_no_row_is_missing_or_there_twice(of: type[OnServer], tmp_path: Path) -> None:
    run = SourceRun(of, tmp_path)
    try:
        killed = _killed_while_written(run)
        written = {n for (n,) in run.made.query(f"select n from {run.made.name}")}  # type: ignore[attr-defined]
        run.next = len(written)
        until(run.all_there, lambda: f"for {len(written)} rows; {len(run.names)} came:\n{run.run.log}")
        run.look()
    finally:
        run.close()
    twice = [n for n, names in run.names.items() if len(names) > 1]
    print(f"{of.__name__}: {len(written)} rows, {killed}; missing 0, twice {len(twice)}")
    assert set(run.names) == written
    assert not twice


def _killed_while_written(run: SourceRun) -> dict[str, int]:
    made, dice = run.made, random.Random(SEED)
    assert isinstance(made, OnServer)
    run.produce()
    run.wait()  # it reads while they write
    writers, killed = (
        LateWriters(made, run.next, ROWS),
        dict.fromkeys(["worker", "vm", "controller", "server"], 0),
    )
    kills = 0
    while writers.busy:
        run.look()
        if writers.begun >= ROWS * (kills + 1) // (KILLS + 1) and kills < KILLS:
            what = dice.choice(list(killed))
            kills, killed[what] = kills + 1, killed[what] + 1
            if what == "server":
                made.kill()
                made.start_again()
            else:
                {"worker": run.run.kill_worker, "vm": run.run.kill_vm}.get(
                    what, lambda _: run.run.kill_controller()
                )(SOURCE)
        time.sleep(0.05)
    return killed | {"late": writers.late, "rolled back": writers.rolled_back, "cut off": writers.cut_off}
