"""Every message comes out as it went in; an independent decoder sees the same; hostile bytes do no harm."""

from __future__ import annotations

import tracemalloc
import typing
from typing import Any

import msgpack
import msgspec
import pytest
from examples import searching
from hypothesis import given
from hypothesis import strategies as st
from wire_values import frames_of_rows, of_type, same

from headgate.topology_runtime import channels, messages
from headgate.topology_runtime.errors import BadMessage
from headgate.topology_runtime.worker import rows as wire

UNIONS: dict[str, Any] = {
    name: getattr(messages, name)
    for name in ("FromController", "FromAgent", "FromAgentToWorker", "FromWorker", "Tuples")
}
KINDS: dict[str, tuple[str, type]] = {
    f"{union}-{kind.__name__}": (union, kind) for union in UNIONS for kind in typing.get_args(UNIONS[union])
} | {"Request": ("", messages.Request), "Reply": ("", messages.Reply)}
DECODERS = {name: msgspec.msgpack.Decoder(union) for name, union in UNIONS.items()}


def read(reading: msgspec.msgpack.Decoder[Any], data: bytes) -> Any:
    """As a channel reads what it received."""
    return channels.decode(reading, data)


def decoder(kind: str) -> msgspec.msgpack.Decoder[Any]:
    union, of = KINDS[kind]
    return DECODERS[union] if union else msgspec.msgpack.Decoder(of)


@pytest.mark.parametrize("kind", KINDS)
def test_every_message_comes_out_as_it_went_in(kind: str) -> None:
    @searching(15)
    @given(of_type(KINDS[kind][1]))
    def check(message: Any) -> None:
        data = channels.encode(message)
        back = decoder(kind).decode(data)
        assert type(back) is type(message)
        assert channels.encode(back) == data  # Raw parts do not compare, their bytes do
        assert msgpack.unpackb(data, strict_map_key=False) == lists(msgspec.msgpack.decode(data))

    check()


def lists(value: Any) -> Any:
    """msgspec's untyped view, with tuples (its dict keys) as they are and nothing else changed."""
    if isinstance(value, (list, tuple)):
        return [lists(item) for item in value]
    return {key: lists(item) for key, item in value.items()} if isinstance(value, dict) else value


@searching(150)
@given(frames_of_rows, of_type(messages.Frame))
def test_a_frame_brings_its_rows(rows: list[Any], frame: messages.Frame) -> None:
    shape = wire.check(rows)
    frame.rows = []
    data = channels.encode(messages.WireFrame(frame, shape, msgspec.Raw(wire.write(rows, shape))))
    back = DECODERS["Tuples"].decode(data)
    assert isinstance(back, messages.WireFrame) and back.frame == frame
    assert same(wire.read(back.rows, back.shape), rows)


# ── hostile bytes ───────────────────────────────────────────────────────────────────────────────────


@searching(400)
@given(st.binary(max_size=80), st.sampled_from(sorted(UNIONS)))
def test_random_bytes_are_refused_or_read(data: bytes, union: str) -> None:
    try:
        read(DECODERS[union], data)
    except BadMessage:
        return


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_message_is_refused_or_read(kind: str) -> None:
    @searching(15)
    @given(of_type(KINDS[kind][1]), st.data())
    def check(message: Any, data: st.DataObject) -> None:
        whole = bytearray(channels.encode(message))
        for cut in (0, len(whole) // 2, len(whole) - 1):
            with pytest.raises(BadMessage):
                read(decoder(kind), bytes(whole[:cut]))
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
        try:
            read(decoder(kind), bytes(whole))
        except BadMessage:
            return

    check()


HOSTILE = {
    "a list of four thousand million": b"\xdd\xff\xff\xff\xff",
    "a dict of four thousand million": b"\xdf\xff\xff\xff\xff",
    "a text of four gigabytes": b"\xdb\xff\xff\xff\xff",
    "bytes of four gigabytes": b"\xc6\xff\xff\xff\xff",
    "acks without end": b"\x94\xa1a\x92\xa1v\x01\x05\xdd\x7f\xff\xff\xff",
    "a frame without end": b"\x94\xa1f\x9a\x00\x01\x92\xa1v\x01\x05\x02\xdd\x7f\xff\xff\xff",
    "deep lists": b"\x91" * 200_000,
    "deep dicts": b"\x81\xa1a" * 100_000,
    "a request with deep arguments": b"\x83\xa4type\xa7request\xa7command\xa1a\xa9arguments"
    + b"\x81\xa1a" * 50_000,
    "nothing": b"",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_sizes_are_refused_without_eating_memory(what: str) -> None:
    tracemalloc.start()
    try:
        for reading in (*DECODERS.values(), channels.requests, channels.replies):
            with pytest.raises(BadMessage):
                read(reading, HOSTILE[what])
        for shape in (wire.PLAIN, wire.TUPLES, wire.NESTED):
            with pytest.raises(msgspec.DecodeError):
                wire.read(HOSTILE[what], shape)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000
