"""Messages of pgoutput that PostgreSQL 15 wrote, against what its other plugin, test_decoding, said of the same
transactions."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.topology_runtime.connectors.databases.pgoutput import Decoder, TransactionBegin, TransactionEnd
from headgate.topology_runtime.connectors.databases.postgres_values import Values
from headgate.topology_runtime.errors import BadRow

BEGIN = "4200000000015f58f8000304663a955cb1000002fe"
COMMIT = "430000000000015f58f800000000015f5928000304663a955cb1"
ORDERS = (
    "520000402b73686f70006f7264657273006400050169640000000017ffffffff00707269636500000006a4ffffffff"
    "007461677300000003f1ffffffff00696e666f0000000edaffffffff006269670000000019ffffffff"
)
ORDERS_WITH_NOTE = (
    "520000402b73686f70006f7264657273006400060169640000000017ffffffff00707269636500000006a4ffffffff"
    "007461677300000003f1ffffffff00696e666f0000000edaffffffff006269670000000019ffffffff"
    "006e6f7465000000041300000009"
)
OTHER = "520000403273686f70006f746865720066000201610000000010ffffffff01620000000011ffffffff"
LARGE = (
    "490000402b4e00057400000001317400000004312e353074000000097b612c22622063227d740000000f7b226e223a20"
    "5b312c20322e355d7d7400000bb8" + "78" * 3000
)
NULLS = "490000402b4e00057400000001326e6e6e6e"
PRICE = (
    "550000402b4e000574000000013174000000013274000000097b612c22622063227d740000000f7b226e223a205b312c"
    "20322e355d7d75"
)
NEW_KEY = "550000402b4b00057400000001326e6e6e6e4e00057400000001336e6e6e6e"
DELETE = "440000402b4b00057400000001336e6e6e6e"
INSERT_OTHER = "49000040324e000274000000017474000000065c7830306666"
NOTE = (
    "550000402b4e000674000000013174000000013274000000097b612c22622063227d740000000f7b226e223a205b312c"
    "20322e355d7d757400000002c3a4"
)
DELETE_OTHER = "44000040324f000274000000017474000000065c7830306666"
TRUNCATE = "5400000002000000402b00004032"


def decoder() -> Decoder:
    return Decoder(Values())


def rows(*messages: str) -> list[Any]:
    one, found = decoder(), list[Any]()
    for message in (BEGIN, *messages):
        item = one.take(bytes.fromhex(message))
        found += item if isinstance(item, list) else []
    return found


def parts(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["op"], row["table"], row["row"], row["old"], row["unchanged"]


def test_rows_of_a_transaction_have_its_commit() -> None:
    one = decoder()
    assert one.take(bytes.fromhex(BEGIN)) == TransactionBegin(0x15F58F8, 1795946846.174385)
    one.take(bytes.fromhex(ORDERS))
    (row,) = one.take(bytes.fromhex(NULLS))  # type: ignore[misc]
    assert row["lsn"] == "0/15F58F8"
    assert one.take(bytes.fromhex(COMMIT)) == TransactionEnd(0x15F5928)


def test_inserted_values_have_their_types() -> None:
    large, nulls = rows(ORDERS, LARGE, NULLS)
    known = {"id": 1, "price": "1.50", "tags": ["a", "b c"], "info": {"n": [1, 2.5]}, "big": "x" * 3000}
    assert parts(large) == ("insert", "shop.orders", known, None, [])
    assert nulls["row"] == {"id": 2, "price": None, "tags": None, "info": None, "big": None}


def test_a_large_value_that_has_not_changed_is_named_and_absent() -> None:
    (row,) = rows(ORDERS, PRICE)
    known = {"id": 1, "price": "2", "tags": ["a", "b c"], "info": {"n": [1, 2.5]}}
    assert parts(row) == ("update", "shop.orders", known, None, ["big"])


def test_the_key_of_before_is_old() -> None:
    changed, deleted = rows(ORDERS, NEW_KEY, DELETE)
    assert (changed["row"]["id"], changed["old"]) == (3, {"id": 2})
    assert parts(deleted) == ("delete", "shop.orders", None, {"id": 3}, [])


def test_with_full_identity_the_whole_row_is_old() -> None:
    assert parts(rows(OTHER, DELETE_OTHER)[0]) == (
        "delete",
        "shop.other",
        None,
        {"a": True, "b": b"\x00\xff"},
        [],
    )


def test_columns_are_those_of_the_time_of_the_change() -> None:
    before, _, after = rows(ORDERS, PRICE, OTHER, INSERT_OTHER, ORDERS_WITH_NOTE, NOTE)
    assert "note" not in before["row"]
    assert after["row"]["note"] == "ä"


def test_a_truncate_is_a_row_for_each_table() -> None:
    found = rows(ORDERS, OTHER, TRUNCATE)
    assert [parts(row) for row in found] == [
        ("truncate", table, None, None, []) for table in ("shop.orders", "shop.other")
    ]
    assert decoder().count(bytes.fromhex(TRUNCATE)) == 2


@pytest.mark.parametrize("message", [ORDERS, PRICE, NEW_KEY, DELETE_OTHER, TRUNCATE, COMMIT, BEGIN])
def test_a_message_that_was_cut_is_an_error(message: str) -> None:
    one = decoder()
    for known in (ORDERS, OTHER):
        one.take(bytes.fromhex(known))
    data = bytes.fromhex(message)
    for size in range(1, len(data)):
        with pytest.raises(ValueError, match="no message of pgoutput"):
            one.take(data[:size])


def test_a_message_of_an_unknown_kind_or_table_is_an_error() -> None:
    for message in (b"Z", bytes.fromhex(NULLS)):
        with pytest.raises(ValueError, match="no message of pgoutput"):
            decoder().take(message)


def test_what_rows_cannot_have_is_a_bad_row_with_its_table_and_place() -> None:
    number = b"123456789012345678901234567890"
    message = bytes.fromhex("490000402b4e00057400000001316e6e74") + len(number).to_bytes(4) + number + b"n"
    (bad,) = rows(ORDERS, message.hex())
    assert isinstance(bad, BadRow)
    assert str(bad).startswith("insert of shop.orders at 0/15F58F8: ")


def test_a_row_that_is_too_large_is_a_bad_row() -> None:
    size = 800_000
    message = bytes.fromhex("490000402b4e00057400000001316e6e6e74") + size.to_bytes(4) + b"x" * size
    (bad,) = rows(ORDERS, message.hex())
    assert isinstance(bad, BadRow) and "800,0" in str(bad)
