"""A topology's file to plain data, and back: JSON, YAML or TOML, at most 1 MiB, nothing in it is executed.

YAML is read by the safe loader, without aliases (a few of them can stand for gigabytes) and without
keys that occur twice; JSON likewise without keys that occur twice and without NaN.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.topology_runtime.api.validate import MAX_BYTES
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.wording import did_you_mean, shown

if TYPE_CHECKING:
    import yaml

MAX_DEPTH = 64  # mappings in lists in mappings …; a topology needs five


def read_data(path: Path) -> object:
    """The data of a `.json`, `.yaml`, `.yml` or `.toml` file. Raises InvalidInput: absent, unreadable,
    too large, or not of its format (with the line)."""
    parse = PARSERS.get(path.suffix.lower())
    if parse is None:
        raise InvalidInput(
            f"{path}: a topology's file ends in {', '.join(PARSERS)}",
            hint="or name a Python object: file.py:attribute, module:attribute",
        )
    text = _read_text(path)
    try:
        return parse(text)
    except RecursionError as error:
        raise InvalidInput(f"{path}: nested too deeply", cause="a topology needs five levels") from error
    except ValueError as error:
        raise InvalidInput(f"{path}: not {path.suffix[1:].upper()}", cause=str(error)) from error


def _read_text(path: Path) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a named pipe would wait for its writer
            raise InvalidInput(f"{path}: not a regular file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise InvalidInput(f"{path}: no such file{near_file(path)}") from error
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read", cause=error.strerror) from error
    if len(data) > MAX_BYTES:
        raise InvalidInput(f"{path}: larger than the {MAX_BYTES:,} bytes allowed")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: not UTF-8 text", cause=f"byte {error.start}: {error.reason}") from error


def near_file(path: Path) -> str:
    """`; did you mean 'linear.json'?` for a file that is not there, or nothing."""
    try:
        return did_you_mean(path.name, [other.name for other in path.parent.iterdir()])
    except OSError:
        return ""  # no such directory either


def _json(text: str) -> object:
    return json.loads(text, object_pairs_hook=_no_key_twice, parse_constant=_no_constant)


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {shown(max(keys, key=keys.count))} occurs twice in one mapping")
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")


def _toml(text: str) -> object:
    import tomllib

    return tomllib.loads(text)


def _yaml(text: str) -> object:
    import yaml

    kind = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_events(yaml.parse(text, Loader=kind))
        loader = kind(text)
        try:
            node = loader.get_single_node()
            _check_keys(node)
            return None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        problem = error.problem or error.context or "not YAML"
        raise ValueError(f"{problem}{_line(error.problem_mark)}") from error
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _check_events(events: Iterable[Any]) -> None:
    """No alias and no deep nesting: seen in the flat events, for libyaml crashes in building deep trees."""
    import yaml

    depth = 0
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"an alias, *{event.anchor}{_line(event.start_mark)}; write it out")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH}{_line(event.start_mark)}")


def _check_keys(node: yaml.Node | None) -> None:
    """No key twice in one mapping (YAML's loader would keep the last)."""
    import yaml

    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            if name in seen:
                raise ValueError(f"the key {shown(name)} occurs twice in one mapping{_line(key.start_mark)}")
            seen.add(name)
            _check_keys(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _check_keys(item)


def _line(mark: Any) -> str:
    return f", line {mark.line + 1}" if mark is not None else ""


PARSERS: dict[str, Callable[[str], object]] = {".json": _json, ".yaml": _yaml, ".yml": _yaml, ".toml": _toml}
