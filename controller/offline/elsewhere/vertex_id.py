"""The id that Flink gives the vertex of an operator with a uid: MurmurHash3 (x64, 128 bits, seed 0) of the uid. Pure.

As in Flink's StreamGraphHasherV2; a chain of operators has the id of its first one.
"""

from __future__ import annotations

_ONES = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def vertex_id(uid: str) -> str:
    """32 hex digits."""
    data = uid.encode()
    whole = len(data) // 16 * 16
    one = two = 0
    for start in range(0, whole, 16):
        one = (_turned(one ^ _first(data[start : start + 8]), 27) + two) * 5 + 0x52DCE729 & _ONES
        two = (_turned(two ^ _second(data[start + 8 : start + 16]), 31) + one) * 5 + 0x38495AB5 & _ONES
    one ^= _first(data[whole : whole + 8]) ^ len(data)
    two ^= _second(data[whole + 8 :]) ^ len(data)
    one = (one + two) & _ONES
    two = (two + one) & _ONES
    one, two = _mixed(one), _mixed(two)
    one = (one + two) & _ONES
    two = (two + one) & _ONES
    return (one.to_bytes(8, "little") + two.to_bytes(8, "little")).hex()


def _first(eight: bytes) -> int:
    return _turned(int.from_bytes(eight, "little") * _C1 & _ONES, 31) * _C2 & _ONES


def _second(eight: bytes) -> int:
    return _turned(int.from_bytes(eight, "little") * _C2 & _ONES, 33) * _C1 & _ONES


def _turned(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _ONES


def _mixed(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _ONES
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _ONES
    return value ^ value >> 33
