"""One message's bytes ↔ one row: what a format holds comes back, what is no row says where."""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec
import pytest

from headgate.topology_runtime.connectors.formats.format_factory import open_format
from headgate.topology_runtime.errors import BadRow, InvalidInput

TYPED = f"{__name__}:User"


def bad(format: Any, data: bytes) -> str:
    with pytest.raises(BadRow) as caught:
        format.decode(data)
    return caught.value.what


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "$: no JSON: Input data was truncated"),
        (b'{"a":1', "$: no JSON: Input data was truncated"),
        (b'{"a": NaN}', "$: no JSON: invalid character (byte 6)"),
        (b'{"a":"\xff"}', "$: byte 6 is no UTF-8"),
        (b'{"a":[0,123456789012345678901234567890]}', "$.a[1]: expected a whole number of 64 bits, got int"),
        (b"[" * 100 + b"]" * 100, "$" + "[0]" * 33 + ": nested more than 32 levels deep"),
        (b"[" * 100_000 + b"]" * 100_000, "$: nested more than 32 levels deep"),
        (b'"' + b"x" * 100_000_000 + b'"', "$: 100,000,002 bytes are more than a row may have, 786,176"),
    ],
)
def test_what_is_no_json_says_where(data: bytes, what: str) -> None:
    assert bad(open_format("json"), data) == what


def test_a_format_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidInput, match="there is no format 'xml'"):
        open_format("xml")
    with pytest.raises(InvalidInput, match="'json' has no option 'columns'"):
        open_format("json", columns=["a"])


class State(Enum):
    NEW = "NEW"


class Order(msgspec.Struct):
    n: int
    state: State = State.NEW


def test_json_of_a_newer_or_older_writer() -> None:
    format = open_format("json", type=f"{__name__}:Order")
    assert format.decode(b'{"n":1,"added":2}') == {"n": 1, "state": "NEW"}
    assert bad(format, b'{"state":"NEW"}') == "$: object missing required field n"
    assert bad(format, b'{"n":1,"state":"PAID"}').startswith("$.state: ")
    assert bad(format, b'{"n":"1"}') == "$.n: expected int, got str"


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"a": 1 << 64}, "$.a: expected a whole number of 64 bits, got int"),
        ({"a": -(1 << 63) - 1}, "$.a: expected a whole number of 64 bits, got int"),
        ({"a": 1.5, "b": float("nan")}, "$.b: expected a number that is finite, got float"),
        ({"a": float("-inf")}, "$.a: expected a number that is finite, got float"),
        ({"a": "\ud800"}, "$.a: expected text that is valid Unicode, got str"),
        ({"\ud800": 1}, "$: expected keys that are valid Unicode"),
        ({1: 1}, "$: expected keys that are str, got int"),
        ({"a": b"x"}, "$.a: expected what JSON has, got bytes"),
        ({"a": [{"b": float("inf")}]}, "$.a[0].b: expected a number that is finite, got float"),
    ],
)
def test_what_json_cannot_hold_says_where(row: Any, what: str) -> None:
    format = open_format("json")
    for encode in (format.encode, lambda row: format.encode_all([{"a": 1}, row])):
        with pytest.raises(BadRow) as caught:
            encode(row)
        assert caught.value.what == what


@pytest.mark.parametrize(
    "row", [{"a": (1 << 64) - 1, "b": -(1 << 63)}, {"a": "1" * 30}, {"a": "\\u{d800"}, {}]
)
def test_json_that_looks_doubtful_and_is_good_comes_back(row: Any) -> None:
    format = open_format("json")
    assert format.decode(format.encode(row)) == row
    assert format.encode_all([row, [row], None]) == [format.encode(one) for one in (row, [row], None)]


@pytest.mark.parametrize("name", ["json", "msgpack"])
@pytest.mark.parametrize("row", [None, {"a": None}, [None, {"b": [None]}]])
def test_null_comes_back_wherever_it_stands(name: str, row: Any) -> None:
    format = open_format(name)
    assert format.decode(format.encode(row)) == row


def test_half_a_character_is_no_text() -> None:
    assert bad(open_format("json"), b'{"a":"\\ud800"}').startswith("$")
