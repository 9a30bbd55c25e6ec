"""Price lists: what a VM of each size is and costs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headgate.controller import offline
from headgate.controller.files.price_files import read_prices
from headgate.controller.plan.acquire import cheapest
from headgate.topology_runtime.cluster import Vm
from headgate.topology_runtime.errors import InvalidInput

SHIPPED = Path(offline.__file__).parent / "prices" / "azure-d.toml"
HEAD = 'schema = "headgate/prices/v1"\n'
SIZE = '[[size]]\nname = "D1"\nslots = 1\nusd_per_hour = 0.098\n'


@pytest.fixture
def faults(tmp_path):
    def faults_of(text: str) -> list[str]:
        path = tmp_path / "prices.toml"
        path.write_text(text, "utf-8")
        with pytest.raises(InvalidInput) as refused:
            read_prices(path)
        assert refused.value.exit_code == 3
        return [*refused.value.faults] or refused.value.lines()

    return faults_of


def test_the_shipped_list_is_that_of_the_paper():
    sizes = read_prices(SHIPPED)
    assert [(size.vm, size.slots, size.usd_per_hour) for size in sizes] == [
        ("D1", 1, 0.098), ("D2", 2, 0.196), ("D3", 4, 0.392), ("D4", 8, 0.784),
    ]  # fmt: skip
    assert {(size.slot_memory_bytes, size.slot_cores, size.speed, size.rack) for size in sizes} == {
        (3_758_096_384, 1.0, 1.0, "r1")
    }
    assert [vm.slots for vm in cheapest(15, sizes)] == [8, 4, 2, 1]


def test_what_may_be_left_out_may_be_given(tmp_path):
    path = tmp_path / "own.toml"
    more = 'slot_memory_bytes = 1000\nspeed = 2\nslot_cores = 0.5\nrack = "r7"\n'
    path.write_text(HEAD + SIZE + more, "utf-8")
    assert read_prices(path) == (Vm("D1", 1, 0.5, 1000, 0.098, "r7", 2),)


def test_every_fault_is_listed_with_its_place(faults):
    second = '[[size]]\nname = "D1"\nslots = 0\nusd_per_hour = nan\nslot_memry_bytes = 1\nspeed = -1\n'
    third = '[[size]]\nname = "a b"\nslots = true\nrack = 3\n'
    assert faults('schema = "headgate/prices/v2"\nsizes = 1\n' + SIZE + second + third) == [
        "sizes: unknown key; did you mean 'size'?",
        "schema: expected 'headgate/prices/v1', got 'headgate/prices/v2'",
        "size[1].slot_memry_bytes: unknown key; did you mean 'slot_memory_bytes'?",
        "size[1].name: 'D1' is listed twice",
        "size[1].slots: expected a whole number from 1 to 1024, got 0",
        "size[1].usd_per_hour: expected a number above 0 and at most 1e+06, got nan",
        "size[1].speed: expected a number above 0 and at most 1000, got -1",
        "size[2].usd_per_hour: is missing",
        "size[2].name 'a b': names are 1 to 64 of A-Z a-z 0-9 _ . - and not only dots",
        "size[2].rack: expected a name, got 3",
        "size[2].slots: expected a whole number from 1 to 1024, got True",
    ]


@pytest.mark.parametrize("value", ["0", "-0.1", "inf", "-inf", "nan", '"0.1"', "true"])
def test_a_price_is_a_number_above_zero(faults, value):
    found = faults(HEAD + SIZE.replace("0.098", value))
    assert [fault.split(":")[0] for fault in found] == ["size[0].usd_per_hour"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD, "size: expected at least one [[size]]"),
        (HEAD + "size = 3\n", "size: expected at least one [[size]]"),
        (HEAD + "size = [3]\n", "size[0]: expected a table, got 3"),
        ("", "schema: expected 'headgate/prices/v1', got None"),
        ("[[size", "is not TOML"),
        (HEAD + HEAD, "is not TOML"),
        ("#" * (1024 * 1024), "is not TOML"),
        ("#" * (1024 * 1024 + 1), "is larger than"),
    ],
)
def test_what_is_no_price_list_is_refused(faults, text, words):
    if text.startswith("##") and len(text) == 1024 * 1024:
        words = "schema: expected"  # a comment as long as is allowed
    assert any(words in fault for fault in faults(text))


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_prices(tmp_path / "absent.toml")
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(InvalidInput, match="is not a regular file"):
        read_prices(tmp_path / "pipe.toml")
    (tmp_path / "latin.toml").write_bytes(b"# \xff\n")
    with pytest.raises(InvalidInput, match="not TOML"):
        read_prices(tmp_path / "latin.toml")
