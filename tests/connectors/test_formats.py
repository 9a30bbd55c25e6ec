"""One message's bytes ↔ one row: what a format holds comes back, what is no row says where."""

from __future__ import annotations

from typing import Any

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
