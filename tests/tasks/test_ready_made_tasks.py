"""Ready-made tasks, each alone, and that the list of them is true."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.parsers.expat import ExpatError

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate import tasks as public
from headgate.topology_runtime.api.logic import Context, Exhausted
from headgate.topology_runtime.api.task_functions import build
from headgate.topology_runtime.api.topology import Task
from headgate.topology_runtime.errors import BadRow, InvalidInput
from headgate.topology_runtime.tasks.computing import Score, Spin, tag, tail
from headgate.topology_runtime.tasks.machine_telemetry import Telemetry
from headgate.topology_runtime.tasks.parsers import parse, parse_json, parse_senml, records
from headgate.topology_runtime.tasks.ready_made import READY_MADE
from headgate.topology_runtime.tasks.row_sources import Counter, FileLines
from headgate.topology_runtime.tasks.sinks import Archive, CollectToFile
from headgate.topology_runtime.tasks.stateful import CountByKey, Join
from headgate.topology_runtime.tasks.waiting import Lookup, Wait
from headgate.topology_runtime.worker.calls.batches import call_of, rows_read
from headgate.topology_runtime.worker.rows import row_values as wire


def context(tmp_path: Path, partition: int = 0, partitions: int = 1) -> Context:
    return Context("task", 7, partition, partitions, str(tmp_path))


class TestCounter:
    @given(st.integers(1, 5), st.integers(0, 50), st.integers(1, 20))
    def test_partitions_share_all_numbers_and_any_position_reads_again(
        self, partitions: int, position: int, limit: int
    ) -> None:
        seen: list[int] = []
        for k in range(partitions):
            source = Counter()
            source.open(Context("c", 1, k, partitions, ""))
            rows = list(source.read(0, position + limit))
            assert list(source.read(position, limit)) == rows[position:]
            seen += rows
        assert sorted(seen) == list(range(partitions * (position + limit)))

    def test_ends(self, tmp_path: Path) -> None:
        source = Counter(limit=5)
        source.open(context(tmp_path, 1, 2))
        assert list(source.read(0, 10)) == [1, 3]
        with pytest.raises(Exhausted):
            source.read(2, 1)


class TestFileLines:
    """What they are lines of is tested with `FilesSource` (tests/connectors)."""

    def test_each_line_has_its_number(self, tmp_path: Path) -> None:
        (tmp_path / "events.txt").write_bytes(b"a\r\n\n b \nc\xff\nd")
        for partition, wanted in ((0, [(0, "a"), BadRow]), (1, [(1, " b "), (3, "d")])):
            source = FileLines(str(tmp_path / "events.txt"))
            source.open(context(tmp_path, partition, 2))
            found = list(source.read(0, 5))
            assert [type(row) if isinstance(row, BadRow) else row for row in found] == wanted
            with pytest.raises(Exhausted):
                source.read(2, 1)
            source.close()

    def test_repeats_with_new_numbers(self, tmp_path: Path) -> None:
        (tmp_path / "events.txt").write_text("a\nb\n")
        source = FileLines(str(tmp_path / "events.txt"), repeat=True)
        assert list(source.read(1, 3)) == [(1, "b"), (2, "a"), (3, "b")]
        source.close()

    def test_absent(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInput, match="nowhere"):
            FileLines(str(tmp_path / "nowhere")).read(0, 1)


TAXI = (
    '1358101800000,{"e":[{"u":"string","n":"taxi_identifier","sv":"149298E6"},{"v":"1440","u":"second",'
    '"n":"trip_time_in_secs"},{"u":"lon","n":"pickup_longitude","sv":"-73.98"},{"n":"on","vb":true}],'
    '"bt":1358101800000}'
)


NOW_S = 1_800_000_000.0
OW, OW_AT = "urn:dev:ow:10e2073a01080063", 1320067464.0
RFC_8428 = [  # the packs of sections 5.1.1 to 5.1.7, and what they mean: name, time, unit, value
    (f'[{{"n":"{OW}","u":"Cel","v":23.1}}]', [(OW, NOW_S, "Cel", 23.1)]),
    (
        f'[{{"bn":"{OW}:","n":"voltage","u":"V","v":120.1}},{{"n":"current","u":"A","v":1.2}}]',
        [(f"{OW}:voltage", NOW_S, "V", 120.1), (f"{OW}:current", NOW_S, "A", 1.2)],
    ),
    (
        f'[{{"bn":"{OW}","bt":1.320067464e+09,"bu":"%RH","v":20}},{{"u":"lon","v":24.30621}},{{"u":"lat","v":60.07965}},'
        '{"t":60,"v":20.3},{"u":"lon","t":60,"v":24.30622},{"u":"%EL","t":150,"v":98},{"t":180,"v":21.2}]',
        [
            (OW, OW_AT, "%RH", 20),
            (OW, OW_AT, "lon", 24.30621),
            (OW, OW_AT, "lat", 60.07965),
            (OW, OW_AT + 60, "%RH", 20.3),
            (OW, OW_AT + 60, "lon", 24.30622),
            (OW, OW_AT + 150, "%EL", 98),
            (OW, OW_AT + 180, "%RH", 21.2),
        ],
    ),
    (
        f'[{{"n":"{OW}","u":"%RH","t":1.320067464e+09,"v":20}},{{"n":"{OW}","u":"lon","t":1.320067464e+09,"v":24.30621}}]',
        [(OW, OW_AT, "%RH", 20), (OW, OW_AT, "lon", 24.30621)],
    ),
    (
        f'[{{"bn":"{OW}:","n":"temp","u":"Cel","v":23.1}},{{"n":"label","vs":"Machine Room"}},'
        '{"n":"open","vb":false},'
        '{"n":"nfc-reader","vd":"aGkgCg"}]',
        [
            (f"{OW}:temp", NOW_S, "Cel", 23.1),
            (f"{OW}:label", NOW_S, None, "Machine Room"),
            (f"{OW}:open", NOW_S, None, False),
            (f"{OW}:nfc-reader", NOW_S, None, b"hi \n"),
        ],
    ),
    (
        '[{"bn":"2001:db8::2/","bt":1.320078429e+09,"n":"temperature","u":"Cel","v":25.2},{"n":"humidity","u":"%RH","v":30},'
        '{"bn":"2001:db8::1/","n":"temperature","u":"Cel","v":12.3},{"n":"humidity","u":"%RH","v":67}]',
        [
            ("2001:db8::2/temperature", 1320078429.0, "Cel", 25.2),
            ("2001:db8::2/humidity", 1320078429.0, "%RH", 30),
            ("2001:db8::1/temperature", 1320078429.0, "Cel", 12.3),
            ("2001:db8::1/humidity", 1320078429.0, "%RH", 67),
        ],
    ),
    (
        f'[{{"bn":"{OW}:"}},{{"n":"temp","u":"Cel","v":23.1}},{{"n":"heat","u":"/","v":1}},{{"n":"fan","u":"/","v":0}}]',
        [(f"{OW}:temp", NOW_S, "Cel", 23.1), (f"{OW}:heat", NOW_S, "/", 1), (f"{OW}:fan", NOW_S, "/", 0)],
    ),
]


class TestParse:
    def test_senml_line(self) -> None:
        assert parse((5, TAXI)) == {
            "taxi_identifier": "149298E6",
            "trip_time_in_secs": 1440,
            "pickup_longitude": -73.98,
            "on": True,
            "id": 5,
            "time_ms": 1358101800000,
            "subject": "149298E6",
        }

    def test_xml(self) -> None:
        text = '<p time_ms="12"><name>a &amp; b</name><io><read>3</read><free/></io><cpu>0.5</cpu></p>'
        row = parse(("x-1", text))
        assert row == {
            "name": "a & b",
            "read": 3,
            "cpu": 0.5,
            "id": "x-1",
            "time_ms": 12,
            "subject": "a & b",
        }

    def test_json_is_flattened(self) -> None:
        row = parse((1, '{"a": {"b": [1, "two"]}, "big": 99999999999999999999999}'))
        assert row["a.b.0"] == 1 and row["a.b.1"] == "two" and row["subject"] == "two"
        assert row["big"] == "99999999999999999999999" and row["time_ms"] is None

    def test_plain_text(self) -> None:
        assert parse((1, "12 apples, {red}"))["text"] == "12 apples, {red}"

    def test_an_event_keeps_its_own_fields(self) -> None:
        row = parse((1, '7,{"id": 9, "subject": 8, "time_ms": "noon", "name": "a", "bt": 3, "event_id": 0}'))
        assert row == {
            "id": 9, "subject": 8, "time_ms": "noon", "name": "a", "bt": 3, "event_id": 0,
            "_event_id": 1, "event_time_ms": 7, "event_subject": "noon",
        }  # fmt: skip
        assert parse((1, '{"time_ms": null}')) == {"time_ms": None, "id": 1, "subject": ""}
        assert parse((1, '<a id="x"><subject>s</subject></a>')) == {
            "id": "x", "subject": "s", "event_id": 1, "time_ms": None, "event_subject": "x",
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("12", 12),
            ("-5", -5),
            ("0", 0),
            ("1.50", 1.5),
            (".5", 0.5),
            ("0.25", 0.25),
            ("-9223372036854775808", -(2**63)),
            ("18446744073709551615", 2**64 - 1),
            ("18446744073709551616", "18446744073709551616"),
            ("-9223372036854775809", "-9223372036854775809"),
            ("0" * 3 + "7", "0007"),
            ("00.5", "00.5"),
            ("-01", "-01"),
            ("12E34", "12E34"),
            ("1_000", "1_000"),
            ("१२", "१२"),
            ("1,5", "1,5"),
        ],
    )
    def test_numbers_of_xml_and_older_senml_lose_nothing(self, text: str, value: Any) -> None:
        for row in (
            parse((1, f"<a><f>{text}</f></a>")),
            parse((1, f'<a f="{text}"/>')),
            parse((1, f'{{"e":[{{"n":"f","sv":"{text}"}}]}}')),
        ):
            assert (type(row["f"]), row["f"]) == (type(value), value)

    @pytest.mark.parametrize("number", [2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**30])
    def test_large_ids_keep_every_digit(self, number: int) -> None:
        expected = number if -(2**63) <= number < 2**64 else str(number)
        text = f'{{"id": {number}, "in": [{{"a": {number}}}]}}'
        assert parse_json(text) == parse_json(text.encode()) == {"id": expected, "in": [{"a": expected}]}
        assert parse((1, text))["id"] == parse((1, text))["in.0.a"] == expected
        (record,) = parse_senml(f'[{{"n":"a","v":{number}}}]')
        assert (type(record["value"]), record["value"]) == (type(expected), expected)

    def test_names_that_come_again_are_numbered(self) -> None:
        row = parse((1, '<a b="0"><b>1</b><c/><b>2</b></a>'))
        assert [row[name] for name in ("b", "b.1", "b.2")] == [0, 1, 2]

    def test_a_pack_of_senml(self) -> None:
        row = parse(
            (1, '[{"bn":"d:","bt":1700000000,"n":"t","v":1},{"n":"t","t":9,"v":2},{"n":"l","vs":"hall"}]')
        )
        assert row == {
            "d:t": 1,
            "d:t.1": 2,
            "d:l": "hall",
            "id": 1,
            "time_ms": 1_700_000_000_000,
            "subject": "hall",
        }
        assert parse((1, '[{"n":"t","v":1}]'))["time_ms"] is None
        assert parse((1, '[{"n":"t"}]'))["0.n"] == "t", "no SenML"

    @pytest.mark.parametrize(
        ("text", "error"),
        [
            ("<a><b></a>", ExpatError),
            ('{"a":', msgspec.DecodeError),
            ('<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', ValueError),
        ],
    )
    def test_what_is_broken_raises(self, text: str, error: type[Exception]) -> None:
        with pytest.raises(error):
            parse((1, text))

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=20,
        )
    )
    def test_any_json_becomes_a_row_that_can_travel(self, value: Any) -> None:
        row = parse((1, json.dumps(value)))
        assert wire.read(wire.write([row], wire.shape_of([row])), wire.shape_of([row])) == [row]

    def test_json_alone(self) -> None:
        assert parse_json('{"a": [1]}') == {"a": [1]}
        assert parse_json((3, "[1]")) == (3, [1])


class TestParseSenml:
    def test_the_pack_of_rfc_8428_section_5_1_2(self) -> None:
        text = (
            '[{"bn":"urn:dev:ow:10e2073a0108006:","bt":1.276020076001e+09,"bu":"A","bver":5,'
            '"n":"voltage","u":"V","v":120.1},{"n":"current","t":-5,"v":1.2},{"n":"current","t":-4,"v":1.3}]'
        )
        rows = parse_senml((9, text))
        assert [(row["name"].rpartition(":")[2], row["unit"], row["value"]) for row in rows] == [
            ("voltage", "V", 120.1), ("current", "A", 1.2), ("current", "A", 1.3),
        ]  # fmt: skip
        assert [row["time_s"] for row in rows] == [1276020076.001, 1276020071.001, 1276020072.001]
        assert all(row["id"] == 9 and row["name"].startswith("urn:dev:ow:10e2073a0108006:") for row in rows)

    def test_base_values_sums_and_other_kinds_of_value(self) -> None:
        text = '[{"bn":"a/","bv":20,"bs":5},{"n":"x","v":1.5},{"n":"y","vb":false},{"n":"z","s":2},{"n":"w","vs":"t"}]'
        assert [(row["name"], row["value"], row["sum"]) for row in parse_senml(text)] == [
            ("a/x", 21.5, 5), ("a/y", False, 5), ("a/z", 20, 7), ("a/w", "t", 5),
        ]  # fmt: skip

    def test_the_older_form(self) -> None:
        text = '{"e":[{"n":"taxi","sv":"149"},{"n":"fare","u":"$","v":6.5},{"n":"paid","bv":true}],"bt":1358101800}'
        rows = parse_senml(text)
        assert [(row["name"], row["value"]) for row in rows] == [
            ("taxi", "149"),
            ("fare", 6.5),
            ("paid", True),
        ]
        assert {row["time_s"] for row in rows} == {1358101800}

    @pytest.mark.parametrize(
        "text",
        ["3", '[{"v":1}]', "[1]", '{"e":[7]}', "[", '{"e":3}', '[{"n":"a","v":1,"t":"x"}]', '{"e":null}',
         '[{"n":"a","v":1,"bt":[]}]', '[{"n":"a","s":"x"}]', '[{"n":"a","s":1,"bs":true}]', b"\xff", None, 7,
         {"n": "a"}, (1,), (1, 2), (1, (2, "[]"))],
    )  # fmt: skip
    def test_what_is_no_senml_raises(self, text: Any) -> None:
        with pytest.raises(ValueError):
            parse_senml(text)

    @pytest.mark.parametrize(("text", "rows"), RFC_8428)
    def test_the_examples_of_the_rfc(self, text: str, rows: list[tuple[Any, ...]]) -> None:
        found = list(records(text, lambda: NOW_S))
        assert [(row["name"], row["time_s"], row["unit"], row["value"]) for row in found] == rows

    @pytest.mark.parametrize(
        ("times", "time_s"),
        [
            ({}, NOW_S),
            ({"t": -60}, NOW_S - 60),
            ({"t": 2**28 - 1}, NOW_S + 2**28 - 1),
            ({"t": 2**28}, 2**28),
            ({"bt": 2**28, "t": -1}, NOW_S + 2**28 - 1),
            ({"bt": 1.7e9, "t": 2}, 1.7e9 + 2),
        ],
    )
    def test_times_below_2_to_the_28_count_from_now(self, times: dict[str, float], time_s: float) -> None:
        (row,) = records(json.dumps([{"n": "a", "v": 1, **times}]), lambda: NOW_S)
        assert row["time_s"] == time_s

    @pytest.mark.parametrize(
        "pack",
        [
            [{"n": "a", "v": 1, "must_": 0}],
            [{"n": "a", "v": 1}, {"must_": 0}],
            [{"n": "a", "v": 1, "bver": 11}],
            [{"n": "a", "v": 1, "bver": 0}],
            [{"n": "a", "v": 1, "bver": 10.5}],
            [{"n": "a", "v": 1, "bver": True}],
            [{"n": "a", "v": 1, "bver": 5}, {"n": "b", "v": 1, "bver": 6}],
            [{"n": "a", "v": 1}, {"n": "b", "v": 1, "bver": 5}],
            [{"n": "a", "v": 1, "vs": "x"}],
            [{"n": "a", "v": "1"}],
            [{"n": "a", "vs": 1}],
            [{"n": "a", "vb": 1}],
            [{"n": "a", "vd": "a"}],
            [{"n": "a", "vd": "!!!!"}],
            [{"n": "a b", "v": 1}],
            [{"n": "_a", "v": 1}],
            [{"n": "a", "v": 1, "u": 3}],
            [{"n": "a", "v": 1, "ut": "x"}],
            [{"bn": 3, "v": 1}],
            [{"n": "a", "v": True}],
            [{"n": "a", "v": None}],
        ],
        ids=repr,
    )
    def test_what_the_rfc_does_not_allow_raises(self, pack: list[Any]) -> None:
        with pytest.raises(ValueError):
            parse_senml(json.dumps(pack))

    def test_what_is_not_known_and_need_not_be_is_passed_over(self) -> None:
        text = '[{"bver":10,"n":"a","v":1,"l":"link","my":[1],"ut":5},{"n":"b","v":2,"bver":10}]'
        assert [row["value"] for row in parse_senml(text)] == [1, 2]

    @given(
        st.lists(
            st.dictionaries(
                st.sampled_from(["bn", "bt", "bu", "bv", "bs", "n", "u", "t", "v", "vs", "vb", "s", "e"]),
                st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=2) | st.just([]),
            )
        )
    )
    def test_records_of_any_kind_give_rows_or_a_value_error(self, pack: list[dict[str, Any]]) -> None:
        with contextlib.suppress(ValueError):
            keys = {"name", "time_s", "unit", "value", "sum"}
            assert all(row.keys() == keys for row in parse_senml(json.dumps(pack)))


class TestScore:
    @pytest.mark.parametrize(("z", "p"), [(0.0, 0.5), (1.0, 0.158655), (2.5, 0.00620967)])
    def test_tail_of_the_normal_distribution(self, z: float, p: float) -> None:
        assert tail(z, 200) == pytest.approx(p, rel=1e-4)

    def test_larger_numbers_surprise_more(self) -> None:
        score = Score(steps=200)
        rows = [score({"id": 1, "a": 10.0**n, "b": "text", "time_ms": 10**12}) for n in range(8)]
        scores = [row["score"] for row in rows]
        assert scores == sorted(scores) and scores[0] < scores[-1]

    def test_without_numbers(self) -> None:
        assert Score()({"id": 1, "on": True})["score"] == 0.0


class TestJoin:
    def test_waits_for_both_and_unites(self) -> None:
        join = Join(["score", "weight"])
        score, weight = {"id": 1, "a": 5, "score": 0.5}, {"id": 1, "weight": 3}
        assert join.key(score, "score") == join.key(weight, "lookup") == 1
        assert not join.ready(1, [score]) and not join.ready(1, [score, score])
        assert join.ready(1, [weight, score])
        assert list(join.finish(1, [weight, score])) == [{"id": 1, "a": 5, "score": 0.5, "weight": 3}]

    def test_a_row_without_the_key_raises(self) -> None:
        for row in ({"weight": 3}, {}):
            with pytest.raises(KeyError):
                Join(["score"]).key(row, "lookup")

    def test_what_is_left_of_an_event_leaves_too(self) -> None:
        assert list(Join(["score", "weight"]).finish(1, [{"id": 1, "weight": 3}])) == [{"id": 1, "weight": 3}]


@pytest.mark.parametrize(
    ("row", "level"),
    [
        ({"score": 2.0, "weight": 50}, "high"),
        ({"score": 1.0, "weight": 40}, "medium"),
        ({"score": 1.0, "weight": 39}, "low"),
        ({"score": 1.0}, "unknown"),
    ],
)
def test_tag(row: dict[str, Any], level: str) -> None:
    assert tag(row) == {**row, "level": level}


class TestArchive:
    def rows(self, folder: Path) -> list[Any]:
        files = sorted(folder.glob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]

    @pytest.mark.parametrize("sync", [False, True])
    def test_batches_become_whole_files(self, tmp_path: Path, sync: bool) -> None:
        archive = Archive(str(tmp_path / "out"), rows=2, sync=sync)
        archive.open(context(tmp_path))
        assert not archive.ready(None, [1]) and archive.ready(None, [1, 2])
        assert list(archive.finish(None, [{"id": 1}, {"id": 2}])) == []
        archive.finish(None, [{"id": 3}])
        assert self.rows(tmp_path / "out") == [{"id": 1}, {"id": 2}, {"id": 3}]
        assert not list((tmp_path / "out").glob(".*"))

    def test_threads_and_restarts_never_share_a_name(self, tmp_path: Path) -> None:
        for _ in range(3):
            archive = Archive()
            archive.open(context(tmp_path))
            archive.finish(None, [1])
        assert self.rows(tmp_path) == [1, 1, 1]


def test_count_by_key() -> None:
    count = CountByKey(every=2)
    state, out = count.process("a", 1, count.new("a"))
    assert (state, list(out)) == (1, [])
    state, out = count.process("a", 1, count.restore(count.snapshot(state)))
    assert (state, list(out)) == (2, [("a", 2)])


class TestCollectToFile:
    def collected(self, rows: Iterable[Any], task: CollectToFile) -> None:
        for row in rows:
            assert task(row) == row
        task.close()

    def test_threads_share_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "rows"
        tasks = [CollectToFile(str(path), key="id") for _ in range(2)]
        for number, task in enumerate(tasks):
            task.open(context(tmp_path))
            task({"id": number})
        for task in tasks:
            self.collected([{"id": 5}], task)
        assert path.read_text() == "0\n1\n5\n5\n"

    def test_own_file_and_whole_rows(self, tmp_path: Path) -> None:
        task = CollectToFile()
        task.open(context(tmp_path))
        self.collected([(1, "a")], task)
        assert (tmp_path / "rows-task-7.jsonl").read_text() == '[1,"a"]\n'

    @pytest.mark.parametrize("torn", ['{"id', "5"])
    def test_a_line_that_somebody_else_left_torn_is_ended_first(self, tmp_path: Path, torn: str) -> None:
        path = tmp_path / "rows"
        path.write_text(f"1\n{torn}")
        task = CollectToFile(str(path))
        task.open(context(tmp_path))
        task(2)
        with path.open("a") as other:
            other.write(torn)
        self.collected([3, 4], task)
        assert path.read_text() == f"1\n{torn}\n2\n{torn}\n3\n4\n"

    def test_a_row_without_the_key_writes_nothing(self, tmp_path: Path) -> None:
        path = tmp_path / "rows"
        task = CollectToFile(str(path), key="id")
        task.open(context(tmp_path))
        for row in ({}, (), 3, "text"):
            with pytest.raises((KeyError, TypeError)):
                task(row)
        self.collected([{"id": 5}], task)
        assert path.read_text() == "5\n"

    def test_a_full_disk_raises(self, tmp_path: Path) -> None:
        if not os.path.exists("/dev/full"):
            pytest.skip("no /dev/full here")
        task = CollectToFile("/dev/full")
        task.open(context(tmp_path))
        with pytest.raises(OSError, match="No space"):
            task(1)
        task.close()


@pytest.mark.parametrize(
    ("run", "params", "bad", "good", "out"),
    [
        ("parsers:parse", {}, [(1, "<a>"), (1, '{"a"'), (1, None), "text", None], (1, "x"),
         {"text": "x", "id": 1, "time_ms": None, "subject": "x"}),
        ("parsers:parse_json", {}, ["{", b"\xff", None, 3, (1,), (1, 2)], "[1]", [1]),
        ("computing:Score", {"steps": 2}, [None, 3, "text", (1, 2)], {"on": True}, {"on": True, "score": 0.0}),
        ("computing:tag", {}, [None, 3, {"score": "a", "weight": 3}], {"score": 1}, {"score": 1, "level": "unknown"}),
    ],
)  # fmt: skip
def test_a_bad_row_raises_and_the_next_one_is_done(
    run: str, params: dict[str, Any], bad: list[Any], good: Any, out: Any
) -> None:
    task = build(Task("task", run=f"headgate.topology_runtime.tasks.{run}", params=params))
    for row in bad:
        with pytest.raises((ValueError, TypeError, AttributeError, IndexError, ExpatError)):
            task(row)
    assert task(good) == out


def test_a_row_without_a_subject_is_not_looked_up() -> None:
    for row in ({}, {"id": 1}):
        with pytest.raises(KeyError):
            Lookup("127.0.0.1:1")(row)


class TestTheList:
    def text(self) -> str:
        return Path(__file__).parents[2].joinpath("docs", "reference", "tasks.md").read_text("utf-8")

    def listed(self) -> dict[str, str]:
        """name → its params, as written."""
        rows = [line.strip().strip("|").split("|") for line in self.text().splitlines()]
        names = [(row[0].strip(" `"), row[-1]) for row in rows if re.fullmatch(r" ?`\w+` ?", row[0])]
        return {name: text for name, text in names if name in public.__all__}

    def test_names_every_task(self) -> None:
        assert set(self.listed()) == set(public.__all__)
        short = self.text().partition("model profile` knows ")[2].partition("by these")[0]
        assert re.findall(r"`(\w+)`", short) == list(READY_MADE)
        assert {run.rpartition(":")[2] for run in READY_MADE.values()} <= set(self.listed())

    def test_has_their_params_with_the_defaults(self) -> None:
        for name, text in self.listed().items():
            what = getattr(public, name)
            told = dict(re.findall(r"`(\w+)`(?: \(([^):]*)[^)]*\))?", text))
            params = inspect.signature(what).parameters if inspect.isclass(what) else {}
            assert list(told) == list(params), name
            for param, default in told.items():
                if default[:1].isdigit():
                    assert float(default.replace(",", "")) == params[param].default, (name, param)


def test_spin_burns_cpu_and_wait_does_not() -> None:
    cpu_ns = time.thread_time_ns()
    assert Spin(cpu_ms=2.0)("row") == "row"
    spun_ns = time.thread_time_ns() - cpu_ns
    assert spun_ns >= 2_000_000
    began_s = time.monotonic()
    assert Wait(ms=2.0)("row") == "row"
    assert time.monotonic() - began_s >= 0.002


def test_telemetry_gives_ever_new_documents_that_parse(tmp_path: Path) -> None:
    source = Telemetry()
    source.open(context(tmp_path, partition=3))
    rows = [row for _ in range(20) for row in source.poll(5)]
    assert len({name for name, _ in rows}) == len(rows) >= 20
    assert all("-3-" in name for name, _ in rows)
    parsed = [parse(row) for row in rows]
    own = Telemetry()
    while not any(row["pid"] == os.getpid() for row in parsed):  # round robin reaches us
        parsed = [parse(row) for row in own.poll(50)]
    us = next(row for row in parsed if row["pid"] == os.getpid())
    assert us["rss_bytes"] > 1e6 and us["threads"] >= 1 and us["user_s"] >= 0
    assert abs(us["time_ms"] - time.time() * 1000) < 60_000


# ── What docs/reference/tasks.md shows of batched tasks runs ──────────────────────────────────────────────────────

GUIDE = Path(__file__).parents[2].joinpath("docs", "how-to", "batch-rows.md").read_text("utf-8")


def blocks() -> list[str]:
    """Its Python: rows, then columns."""
    return re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


def names(block: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    exec(block, found)
    return found


def test_the_score_of_each_row_is_that_of_the_row_alone() -> None:
    score = names(blocks()[0])["score"]
    rows = [{"speed": n / 7, "load": n % 3, "age": 1 / (n + 1)} for n in range(20)]
    alone = [score([row])[0] for row in rows]
    assert [row["score"] for row in score(rows)] == pytest.approx([row["score"] for row in alone])
    assert all(0 < row["score"] < 1 for row in score(rows))


def test_columns_go_through_the_tasks_of_the_guide() -> None:
    found = names(blocks()[1])
    rows = rows_read(found["Sensors"](), 100, 200)
    task = call_of(found["mean"])
    assert task is not None and len(rows) == 200
    means = task(rows)
    assert [row["sensor"] for row in means] == [n % 50 for n in range(100, 300)]
    kept = means.where(list(call_of(found["unusual"])(means)))
    graded = list(call_of(found["Graded"]())(kept))
    assert 0 < len(graded) < 200 and [row["mean"] for row in graded] == [row["mean"] for row in kept]
    assert {row["grade"] for row in graded} == {"high", "low"}
    assert all((row["grade"] == "high") == (abs(row["mean"]) > 0.1) for row in graded)
    assert task.one({"sensor": 3, "waves": [1.0, 2.0]}) == {"sensor": 3, "mean": 1.5}
