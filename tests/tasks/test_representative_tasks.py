"""The five tasks of paper 0 and their neighbours, each alone."""

from __future__ import annotations

import http.server
import math
import os
import random
import sqlite3
import statistics
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar
from xml.sax import SAXParseException

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headgate.topology_runtime.api.loading import load
from headgate.topology_runtime.api.logic import Context, Keyed
from headgate.topology_runtime.api.shipped_examples import NAMES
from headgate.topology_runtime.errors import HeadgateError, InvalidInput, Unreachable
from headgate.topology_runtime.tasks import representative
from headgate.topology_runtime.tasks.computing import Pi, viete
from headgate.topology_runtime.tasks.parsers import ParseXml, XmlReader, text_of
from headgate.topology_runtime.tasks.ready_made import number_of, scattered
from headgate.topology_runtime.tasks.service_calls import BlobDownload, HttpCall, SqlQuery, TableQuery
from headgate.topology_runtime.tasks.sinks import FileWrite
from headgate.topology_runtime.tasks.stateful import DropSeen, Kalman, SlidingMean, bucket, size_of, step

ROWS = (7, -7, (7, "a"), [7], {"id": 7, "x": 1}, "seven", 7.5, None, b"7", True, (), {"x": 7})


def context(folder: Path) -> Context:
    return Context("task", 3, 0, 1, str(folder))


def through(task: Keyed, rows: Iterable[Any]) -> list[Any]:
    """What comes out of one key, its state saved and restored before every row as in a move."""
    state, out = task.new("k"), []
    for row in rows:
        state, more = task.process("k", row, task.restore(task.snapshot(state)))
        out += more
    return out


class TestAnyRowHasANumber:
    def test_whole_numbers_are_their_own(self) -> None:
        assert [number_of(row) for row in ROWS[:5]] == [7] * 5

    @pytest.mark.parametrize("row", ROWS)
    def test_never_negative_and_always_the_same(self, row: Any) -> None:
        assert number_of(row) == number_of(row) >= 0

    @given(st.integers(0, 2**63 - 1), st.integers(1, 2_000_000))
    def test_scattered_numbers_stay_inside(self, number: int, among: int) -> None:
        assert 0 <= scattered(number, among) < among

    def test_neighbours_reach_everything(self) -> None:
        assert len({scattered(n, 1000) for n in range(5000)}) > 990


class TestParseXml:
    def test_one_pass_finds_every_leaf(self) -> None:
        found = XmlReader().read("<a><b k='1'>x &amp; y</b><c/><d> z </d></a>")
        assert (found.elements, found.leaves) == (4, [("b.k", "1"), ("b", "x & y"), ("d", "z")])

    def test_a_parser_is_used_again_also_after_a_broken_document(self) -> None:
        reader = XmlReader()
        with pytest.raises(SAXParseException):
            reader.read("<a><b></a>")
        assert reader.read("<a>1</a>").leaves == [("a", "1")]

    @given(st.integers(0, 50), st.integers(200, 20_000))
    def test_documents_have_their_size(self, number: int, size_bytes: int) -> None:
        text = text_of(number, size_bytes)
        assert size_bytes - 160 < len(text.encode()) <= size_bytes
        assert XmlReader().read(text).elements % 4 == 1  # the root, and four for each reading

    def test_gives_one_row_for_each_with_what_all_documents_hold(self) -> None:
        found = [XmlReader().read(text_of(number, 600)) for number in range(2)]
        elements = sum(each.elements for each in found)
        characters = sum(len(text) for each in found for _, text in each.leaves)
        assert ParseXml(documents=2, document_bytes=600)(5) == {
            "id": 5, "elements": elements, "characters": characters,
        }  # fmt: skip

    def test_impossible_sizes(self) -> None:
        with pytest.raises(ValueError, match="documents"):
            ParseXml(documents=0)


class TestPi:
    @pytest.mark.parametrize(
        ("terms", "value"), [(1, 2 * math.sqrt(2)), (2, 3.0614674589), (3, 3.1214451523)]
    )
    def test_first_terms(self, terms: int, value: float) -> None:
        assert viete(terms) == pytest.approx(value, abs=1e-10)

    def test_each_term_makes_the_error_four_times_smaller(self) -> None:
        errors = [math.pi - viete(terms) for terms in range(5, 12)]
        ratios = [before / after for before, after in zip(errors, errors[1:], strict=False)]
        assert ratios == pytest.approx([4.0] * 6, rel=1e-3)

    def test_fifteen_terms(self) -> None:
        assert Pi(repeats=2)((4, "x")) == {"id": 4, "pi": pytest.approx(math.pi, abs=2e-9)}


class TestFileWrite:
    def test_a_full_batch_becomes_a_file_of_its_size(self, tmp_path: Path) -> None:
        task = FileWrite()
        task.open(context(tmp_path))
        rows = [(n, "row") for n in range(10_000)]
        assert [task(row) for row in rows[:-1]] == rows[:-1] and not list(tmp_path.iterdir())
        assert task(rows[-1]) == rows[-1]
        (file,) = tmp_path.iterdir()
        assert file.name == "task-3-0.txt" and file.stat().st_size == 1_000_000
        assert [int(line) for line in file.read_text("ascii").splitlines()] == list(range(10_000))

    def test_the_oldest_file_is_written_over_and_the_rest_at_the_end(self, tmp_path: Path) -> None:
        task = FileWrite(str(tmp_path / "out"), rows=2, row_bytes=4, files=2, sync=True)
        task.open(context(tmp_path))
        for n in range(7):
            task(n)
        task.close()
        files = sorted((tmp_path / "out").iterdir())
        assert [file.read_text("ascii") for file in files] == ["4  \n5  \n", "6  \n"]

    def test_a_full_disk_raises(self, tmp_path: Path) -> None:
        task = FileWrite(str(tmp_path), rows=1, files=1)
        task.open(context(tmp_path))
        if not os.path.exists("/dev/full"):
            pytest.skip("no /dev/full here")
        (tmp_path / "task-3-0.txt").symlink_to("/dev/full")
        with pytest.raises(OSError, match="No space"):
            task(1)

    def test_a_failed_write_leaves_the_batch_as_it_was(self, tmp_path: Path) -> None:
        if not os.path.exists("/dev/full"):
            pytest.skip("no /dev/full here")
        task = FileWrite(str(tmp_path), rows=2, row_bytes=4, files=2)
        task.open(context(tmp_path))
        file = tmp_path / "task-3-0.txt"
        file.symlink_to("/dev/full")
        task(1)
        for _ in range(3):  # the runtime tries a row that fails again
            with pytest.raises(OSError, match="No space"):
                task(2)
        file.unlink()
        task(3)
        task(4)
        task.close()
        written = [each.read_text("ascii") for each in sorted(tmp_path.iterdir())]
        assert written == ["1  \n3  \n", "4  \n"]


@pytest.mark.parametrize("backend", ["azurite", "embedded"])
@pytest.mark.parametrize("kind", [BlobDownload, TableQuery])
def test_an_absent_service_is_one_line_that_says_what_to_do(
    kind: Callable[..., BlobDownload | TableQuery], backend: str, tmp_path: Path
) -> None:
    if backend == "azurite":
        pytest.importorskip("azure.core", reason="Azure's SDKs are an extra")
    task = kind(f"{backend}://127.0.0.1:1")
    with pytest.raises(Unreachable) as error:
        task.open(context(tmp_path))
    task.close()
    text = str(error.value)
    assert f"{backend}://127.0.0.1:1" in text and "refused" in text and "`scripts/services start" in text
    assert "\n" not in text and len(text) < 200 and "object at 0x" not in text


@pytest.mark.parametrize(
    ("service", "said"),
    [
        ("azurit", "did you mean 'azurite'"),
        ("azurite://h:99999", "not azurite://host:port"),
        ("", "not azurite"),
    ],
)
def test_a_wrong_address_is_told(service: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        TableQuery(service)(1)


class TestHttpCall:
    @pytest.fixture
    def place(self) -> Iterator[str]:
        class Echo(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            statuses: ClassVar = {"/none": 404, "/broken": 503}

            def do_GET(self) -> None:
                body = f"{self.path} {self.client_address[1]}".encode()
                self.send_response(self.statuses.get(self.path, 200))
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Tests are quiet."""

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            yield f"http://127.0.0.1:{server.server_address[1]}"
            server.shutdown()
            thread.join()

    def test_fields_go_into_the_address_and_the_connection_stays(self, place: str, tmp_path: Path) -> None:
        task = HttpCall(place + "/item/{id}?of={name}")
        task.open(context(tmp_path))
        first, second = task({"id": 3, "name": "a b/c"}), task({"id": 4, "name": "é"})
        task.close()
        path, port = first["body"].split()
        assert (first["id"], first["status"], path) == (3, 200, "/item/3?of=a%20b%2Fc")
        assert second["body"] == f"/item/4?of=%C3%A9 {port}"

    def test_a_row_without_its_field_raises_and_the_next_one_is_answered(self, place: str) -> None:
        task = HttpCall(place + "/{name}")
        for row in (1, {"id": 1}):
            with pytest.raises(KeyError):
                task(row)
        assert task({"id": 1, "name": "a"})["body"].startswith("/a ")
        task.close()

    def test_a_refusal_is_an_answer_and_a_failure_is_not(self, place: str) -> None:
        none, broken = HttpCall(place + "/none"), HttpCall(place + "/broken")
        assert none(1)["status"] == 404
        with pytest.raises(Unreachable, match="503"):
            broken(1)
        none.close()
        broken.close()

    def test_nobody_there(self, tmp_path: Path) -> None:
        task = HttpCall("http://127.0.0.1:1/")
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1 does not answer"):
            task.open(context(tmp_path))

    def test_not_an_address(self) -> None:
        with pytest.raises(ValueError, match="http"):
            HttpCall("ftp://host/")


class TestSqlQuery:
    @pytest.fixture
    def database(self, tmp_path: Path) -> Path:
        path = tmp_path / "a b?#%41\udcff.sqlite"
        with sqlite3.connect(path) as made:
            made.execute("CREATE TABLE sensors (id INTEGER, room TEXT)")
            made.executemany("INSERT INTO sensors VALUES (?, ?)", [(1, "hall"), (2, "hall"), (3, "attic")])
        made.close()
        return path

    def test_the_rows_fields_are_parameters(self, database: Path, tmp_path: Path) -> None:
        task = SqlQuery(str(database), "SELECT id, room FROM sensors WHERE room = :room AND id >= :id")
        task.open(context(tmp_path))
        assert task({"id": 2, "room": "hall"}) == {"id": 2, "rows": [{"id": 2, "room": "hall"}]}
        assert task({"id": 9, "room": "hall"})["rows"] == []
        task.close()

    def test_an_answer_is_bounded(self, database: Path) -> None:
        task = SqlQuery(str(database), "SELECT id FROM sensors", rows_most=2)
        assert task(5) == {"id": 5, "rows": [{"id": 1}, {"id": 2}]}
        task.close()

    def test_a_row_without_its_parameter_raises_and_the_next_one_is_answered(self, database: Path) -> None:
        task = SqlQuery(str(database), "SELECT id FROM sensors WHERE room = :room")
        for row in (1, {"id": 1}, {"room": ["hall"]}):
            with pytest.raises(sqlite3.Error):
                task(row)
        assert task({"id": 1, "room": "attic"})["rows"] == [{"id": 3}]
        task.close()

    def test_it_only_reads(self, database: Path) -> None:
        task = SqlQuery(str(database), "DELETE FROM sensors")
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            task(1)
        task.close()

    def test_what_is_no_database_is_one_line(self, tmp_path: Path) -> None:
        (tmp_path / "text").write_text("no database, but long enough to be looked at as one" * 20)
        for name in ("text", "absent"):
            with pytest.raises(InvalidInput, match=f"cannot read the database .*{name}"):
                SqlQuery(str(tmp_path / name), "SELECT 1").open(context(tmp_path))


class TestKalman:
    def test_without_drift_it_is_the_mean(self) -> None:
        values = [4.0, 8.0, 3.0, 5.0, 1.0]
        rows = through(Kalman(drift=0.0, noise=2.0), [{"value": value} for value in values])
        means = [statistics.fmean(values[: n + 1]) for n in range(5)]
        assert [row["estimate"] for row in rows] == pytest.approx(means)

    def test_the_variance_settles_at_its_known_value(self) -> None:
        drift, noise, state = 0.5, 2.0, step(None, 1.0, 0.5, 2.0)
        for _ in range(100):
            state = step(state, 1.0, drift, noise)
        settled = (
            -drift + math.sqrt(drift * drift + 4 * drift * noise)
        ) / 2  # of the scalar Riccati equation
        assert state == pytest.approx((1.0, settled))

    def test_it_takes_noise_out(self) -> None:
        random_of = random.Random(1)
        truth = [math.sin(n / 200) for n in range(2000)]
        rows = [{"value": value + random_of.gauss(0, 1)} for value in truth]
        out = through(Kalman(drift=0.001, noise=1.0), rows)
        error = statistics.fmean(
            (row["estimate"] - value) ** 2 for row, value in zip(out, truth, strict=True)
        )
        assert error < 0.1

    def test_rows_without_a_number_go_on(self) -> None:
        rows = [{"value": "x"}, {}, {"value": True}, {"value": math.inf}, {"value": 3}]
        assert through(Kalman(), rows) == [*rows[:4], {"value": 3, "estimate": 3.0}]


class TestSlidingMean:
    def test_known_means(self) -> None:
        rows = through(SlidingMean(rows=3), [{"value": value} for value in (1, 2, 3, 4, 8)])
        assert [row["mean"] for row in rows] == [1.0, 1.5, 2.0, 3.0, 5.0]

    def test_rows_without_a_number_go_on(self) -> None:
        assert through(SlidingMean("x"), [{"value": 1}]) == [{"value": 1}]
        rows = [{"value": 2}, {"value": -math.inf}, {"value": math.inf}, {"value": "x"}, {"value": 4}]
        assert [row.get("mean") for row in through(SlidingMean(), rows)] == [2.0, None, None, None, 3.0]


class TestDropSeen:
    @given(st.lists(st.integers(0, 50)))
    def test_what_was_seen_never_passes_again(self, rows: list[int]) -> None:
        out = through(DropSeen(values=1000, buckets=1), rows)
        assert len(out) == len(set(out)) and set(out) <= set(rows)

    def test_it_loses_about_as_many_as_it_may(self) -> None:
        task = DropSeen(values=64 * 500, error=0.02)
        states: dict[int, bytearray] = {}
        lost = 0
        for n in range(64 * 500):
            key = bucket(n)
            states[key], out = task.process(key, n, states.get(key) or task.new(key))
            lost += not list(out)
        assert len(states) == 64 and 0 < lost < 0.02 * 64 * 500

    def test_the_textbook_size(self) -> None:
        assert size_of(1_000_000, 0.01) == (9_585_064, 7)  # 9.585 bits a value, 7 hashes

    def test_by_a_field(self) -> None:
        rows = [{"user": "a", "n": 1}, {"user": "a", "n": 2}, {"user": "b", "n": 3}]
        assert through(DropSeen("user"), rows) == [rows[0], rows[2]]
        task = DropSeen("user")
        with pytest.raises(KeyError):
            task.process("k", {"n": 1}, task.new("k"))


class TestTheMicroTopologies:
    @pytest.mark.parametrize("name", NAMES)
    def test_they_are_the_shipped_examples_with_code(self, name: str) -> None:
        made = getattr(representative, name.replace("-", "_"))()
        without = tuple(replace(task, run=None, params={}) for task in made.tasks)
        assert all(task.run for task in made.tasks)
        assert replace(made, tasks=without) == load(name).topology

    def test_their_code_can_be_run(self) -> None:
        topology = load("headgate.topology_runtime.tasks.representative:star", runs=True).topology
        assert topology.by_name["source"].kind == "source"

    def test_services_come_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HEADGATE_SERVICES", "embedded")
        monkeypatch.setenv("HEADGATE_TABLE_SERVICE", "embedded://127.0.0.1:5")
        monkeypatch.setenv("HEADGATE_TABLE_ROWS", "2000000")
        params = {task.name: task.params for task in representative.star().tasks}
        assert params["blob"]["service"] == "embedded"
        assert params["table"] == {"service": "embedded://127.0.0.1:5", "rows": 2_000_000}

    def test_a_wrong_count_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HEADGATE_BLOBS", "many")
        with pytest.raises(HeadgateError, match="HEADGATE_BLOBS='many'"):
            representative.linear()
