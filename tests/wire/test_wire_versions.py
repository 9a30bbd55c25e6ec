"""A wire version and the one before run side by side: what is said today against what was written down of both."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from headgate.topology_runtime.wire import channels, wire_version
from headgate.topology_runtime.wire.messages import FromAgent, Hello, Request, Topology, Welcome
from headgate.topology_runtime.worker.rows import row_values as rows
from makers.freeze_wire import CHANNELS, FOLDER, RAISE, Frozen, breaks, described, example, frozen

DECODERS = {name: msgspec.msgpack.Decoder(union) for name, union in CHANNELS.items()}
VERSIONS = (wire_version.OLDEST, wire_version.WIRE)
Told = dict[str, Any]


@pytest.fixture(scope="module")
def now() -> Told:
    return described()


@pytest.fixture(params=VERSIONS, ids=lambda wire: f"wire {wire}")
def before(request: pytest.FixtureRequest) -> Frozen:
    return frozen(request.param)


def plain(value: Any) -> Any:
    """A message as plain values, whoever's type it is."""
    return msgspec.to_builtins(value, enc_hook=lambda raw: msgspec.msgpack.decode(raw))


def test_the_versions_are_neighbours_and_written_down() -> None:
    assert wire_version.OLDEST == wire_version.WIRE - 1
    assert sorted(path.name for path in FOLDER.iterdir()) == [f"wire_{wire}.json" for wire in VERSIONS]


def test_nothing_breaks_for_whoever_speaks_either_version(before: Frozen, now: Told) -> None:
    assert breaks(before.told, now) == []


def test_what_is_said_is_what_is_written_down(now: Told) -> None:
    same = json.loads(json.dumps(now)) == frozen(wire_version.WIRE).told
    assert same, (
        "no fault yet: `python -P scripts/makers/freeze_wire.py` writes it down, or says what would break"
    )


def test_what_the_other_version_says_is_read_and_loses_nothing(before: Frozen) -> None:
    for channel, data in before.examples():
        as_then = before.decoders[channel].decode(data)
        as_now = channels.decode(DECODERS[channel], data)
        assert plain(before.decoders[channel].decode(channels.encode(as_now))) == plain(as_then), channel


@pytest.mark.parametrize("variant", [None, 0, 1, 2, 3, 4])
def test_the_other_version_reads_what_is_said(before: Frozen, variant: int | None) -> None:
    for channel, kinds in before.told["channels"].items():
        union = CHANNELS[channel]
        for kind in getattr(union, "__args__", (union,)):
            if kind.__name__ in kinds:
                said = without(example(kind, variant), refused(before.told, frozen(wire_version.WIRE).told))
                heard = before.decoders[channel].decode(channels.encode(said))
                assert type(heard).__name__ == kind.__name__
                assert_part(plain(heard), plain(said), kind.__name__)


def refused(before: Told, now: Told) -> set[str]:
    """Fields that who speaks `before` refuses, because their type takes no unknown ones: a topology that uses one is
    not for it (docs/explanation/protocol.md, Versions, rule 5), all others are."""
    return {
        f"{name}.{field[3]}"
        for name, struct in before["structs"].items()
        if struct["forbid_unknown_fields"]
        for field in now["structs"][name]["fields"]
        if field[3] not in [known[3] for known in struct["fields"]]
    }


def without(value: Any, fields: set[str]) -> Any:
    """The same with the defaults of these fields."""
    if isinstance(value, list | tuple):
        return type(value)(without(part, fields) for part in value)
    if isinstance(value, dict):
        return {key: without(part, fields) for key, part in value.items()}
    if not isinstance(value, msgspec.Struct):
        return value
    kept = {
        one.name: without(getattr(value, one.name), fields)
        for one in msgspec.structs.fields(value)
        if f"{type(value).__name__}.{one.name}" not in fields
    }
    return type(value)(**kept)


def assert_part(heard: Any, said: Any, where: str) -> None:
    """All that is heard was said so; more may have been said."""
    if isinstance(heard, dict):
        for key, value in heard.items():
            assert_part(value, said[key], f"{where}.{key}")
    elif isinstance(heard, list | tuple):
        assert len(heard) <= len(said)
        for number, value in enumerate(heard):
            assert_part(value, said[number], f"{where}[{number}]")
    else:
        assert heard == said, where


def test_rows_that_were_written_then_are_read_now(before: Frozen) -> None:
    import base64

    for shape, data, said in before.told["rows"]:
        assert repr(tuple(rows.read(base64.b64decode(data), shape))) == said


def test_whoever_does_not_tell_his_version_is_believed_to_be_of_the_last_that_did_not() -> None:
    old = frozen(2) if wire_version.OLDEST == 2 else None
    if old is None:
        pytest.skip("versions that do not tell are no longer spoken")
    welcome = old.kinds["Welcome"](boot=1, run="r", wall_ns=2)
    assert channels.decode(channels.from_controller, channels.encode(welcome)) == Welcome(1, "r", 2)
    assert Welcome(1, "r", 2).protocol == Request("status").protocol == 2
    assert Hello("vm1", 1, 1, 1.0, 1, "none", 1).protocol == wire_version.WIRE


# ── the check itself: changes that somebody might make ──────────────────────────────────────────


def _fields(told: Told, name: str) -> list[list[str]]:
    found: list[list[str]] = told["structs"][name]["fields"]
    return found


def _field(told: Told, name: str, field: str) -> list[str]:
    return next(one for one in _fields(told, name) if one[0] == field)


CHANGES: dict[str, tuple[Callable[[Told], Any], str]] = {
    "a field without a default": (
        lambda told: _fields(told, "Hello").append(["rack", "str", "", "rack"]), "Hello.rack has no default"),
    "a field less": (
        lambda told: _fields(told, "Report").remove(_field(told, "Report", "token")), "Report.token is gone"),
    "another name": (
        lambda told: _field(told, "Hello", "boot").__setitem__(3, "born"), "Hello.boot is gone or has another name"),
    "another type": (
        lambda told: _field(told, "Hello", "boot").__setitem__(1, "int | None"), "Hello.boot was int, is int | None"),
    "no default any more": (
        lambda told: _field(told, "Hello", "version").__setitem__(2, ""), "Hello.version has no default any more"),
    "another default, left out when it is that": (
        lambda told: _field(told, "DesiredState", "package").__setitem__(2, "'x'"), "DesiredState.package is left out"),
    "a field in the middle of an array": (
        lambda told: _fields(told, "ThreadSpec").insert(1, ["more", "int", "0", "more"]), "ThreadSpec is an array"),
    "a field that would be refused": (
        lambda told: _fields(told, "Static").append(["more", "int", "0", "more"]), "Static takes no unknown fields"),
    "another tag": (lambda told: told["structs"]["Hello"].update(tag="hi"), "Hello: tag was 'hello', is 'hi'"),
    "an array no more": (
        lambda told: told["structs"]["Token"].update(array_like=False), "Token: array_like was True, is False"),
    "a message less": (lambda told: told["channels"]["FromAgent"].remove("Goodbye"), "FromAgent says Goodbye no more"),
    "a message more": (lambda told: told["channels"]["FromAgent"].append("News"), "cannot read: say it only to who"),
    "a type less": (lambda told: told["structs"].pop("SpoolLeft"), "there is no SpoolLeft any more"),
    "columns in another order": (lambda told: told["columns"]["slots"].reverse(), "columns of slots are others"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_breaks_is_told_with_what_to_do(now: Told, change: str) -> None:
    do, said = CHANGES[change]
    changed = copy.deepcopy(now)
    do(changed)
    fault, *_ = breaks(now, changed)
    assert said in fault and (RAISE in fault or "NEW_KINDS" in fault)


def test_fields_with_defaults_may_come_and_retired_ones_go(now: Told) -> None:
    changed = copy.deepcopy(now)
    _fields(changed, "Hello").append(["rack", "str", "''", "rack"])
    _fields(changed, "ThreadSpec").append(["more", "int", "0", "more"])
    _fields(changed, "Task").append(["more", "int", "0", "more"])  # left out where it is not used
    _fields(changed, "Hello").remove(_field(changed, "Hello", "binding"))
    assert breaks({**now, "retired": ["Hello.binding"]}, changed) == []
    assert len(breaks(now, changed)) == 1


def test_a_retired_field_may_be_left_out(now: Told) -> None:
    for name in wire_version.RETIRED:
        struct, _, field = name.partition(".")
        assert any(one[0] == field and one[2] for one in _fields(now, struct)), f"{name} has no default"


def test_what_is_frozen_refuses_what_it_would_have_refused() -> None:
    """Its decoders are no rubber stamps."""
    for wire in VERSIONS:
        decoder = frozen(wire).decoders["FromAgent"]
        for wrong in ({"type": "hello", "vm": "vm1"}, {"type": "nothing"}, [1]):
            with pytest.raises(msgspec.ValidationError):
                decoder.decode(msgspec.msgpack.encode(wrong))
        with pytest.raises(msgspec.ValidationError, match="unknown field"):
            told = msgspec.to_builtins(Topology("t", ())) | {"colour": "red"}
            frozen(wire).decoders["FromController"].decode(
                msgspec.msgpack.encode({"type": "desired", "token": [1, 1, 1], "phase": "switched", "run": "r",
                                        "topology": told})
            )  # fmt: skip
    assert FromAgent is CHANNELS["FromAgent"]
