"""Which files of a listing are new and whole.

Left out are names that begin with `.` or `_` (folders too, but not `_x=1`), and those of unfinished files (`.tmp`,
`.part`, …). A file is whole once it has stayed as it is for so many seconds between two looks, by our own clock: the
store's may be off. Or, with the name of a marker, once that lies beside it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import unquote

from headgate.topology_runtime.connectors.lake.file_order import OrderedFile
from headgate.topology_runtime.connectors.lake.stores import NONE, ListedFile

UNFINISHED = (".tmp", ".temp", ".part", ".partial", ".filepart", ".crdownload", ".swp", "._copying_", "~")
MAGIC = "*?["
NONES = (NONE, "__HIVE_DEFAULT_PARTITION__")  # of FolderSink, and of Hive


def parts_of(address: str) -> tuple[str, str]:
    """The folder to list, and the pattern of names in it; "" is any.

    >>> parts_of("in/2026-*/*.csv"), parts_of("s3://logs/in")
    (('in', '2026-*/*.csv'), ('s3://logs/in', ''))
    """
    parts = address.split("/")
    magic = next((n for n, part in enumerate(parts) if any(mark in part for mark in MAGIC)), len(parts))
    return "/".join(parts[:magic]) or ("/" if magic else "."), "/".join(parts[magic:])


def matches(name: str, pattern: str) -> bool:
    """`*` stands within a name, `**` for any folders.

    >>> matches("a/b/c.csv", "**/*.csv"), matches("a/c.csv", "*.csv"), matches("a/c.csv", "")
    (True, False, True)
    """
    return not pattern or _matches(name.split("/"), pattern.split("/"))


def _matches(parts: list[str], pattern: list[str]) -> bool:
    if not parts or not pattern:
        return not parts and set(pattern) <= {"**"}
    if pattern[0] == "**":
        return _matches(parts, pattern[1:]) or _matches(parts[1:], pattern)
    return fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])


def is_data(name: str) -> bool:
    """
    >>> [is_data(name) for name in ("a.csv", "_headgate/new/a.csv", "day=1/a", "_day=1/a", ".a", "a.csv.tmp")]
    [True, False, True, True, False, False]
    """
    parts = name.split("/")
    hidden = any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in parts)
    return not hidden and not name.lower().endswith(UNFINISHED)


def columns_in(name: str) -> dict[str, Any]:
    """What folders such as `day=2026-11-29` say of their rows, as text.

    >>> columns_in("day=1/city=Aix%20/part-0.csv")
    {'day': '1', 'city': 'Aix '}
    """
    pairs = (part.split("=", 1) for part in name.split("/")[:-1] if "=" in part)
    return {unquote(key): None if value in NONES else unquote(value) for key, value in pairs}


class NewFiles:
    """ready: seconds, or the name of a marker."""

    def __init__(self, pattern: str, ready: float | str) -> None:
        self._pattern, self._ready = pattern, ready
        self._since: dict[str, tuple[ListedFile, float]] = {}

    @property
    def waiting(self) -> frozenset[str]:
        """Files that were there at the last look and not whole."""
        return frozenset(self._since)

    def look(
        self, listing: Mapping[str, ListedFile], known: Container[str], now_s: float
    ) -> list[OrderedFile]:
        """Of what is there now, what is new and whole: the oldest first. known: names that are not new."""
        before, self._since = self._since, {}
        found = []
        for name, seen in listing.items():
            if name in known or not is_data(name) or not matches(name, self._pattern):
                continue
            was, since_s = before.get(name, (None, now_s))
            since_s = since_s if was == seen else now_s
            if self._whole(name, listing, now_s - since_s):
                found.append(OrderedFile(name, seen.size, seen.mtime_s, seen.version))
            else:
                self._since[name] = seen, since_s
        return sorted(found, key=lambda file: (file.mtime_s, file.name))

    def _whole(self, name: str, listing: Mapping[str, ListedFile], unchanged_s: float) -> bool:
        if isinstance(self._ready, str):
            folder, slash, _ = name.rpartition("/")
            return f"{folder}{slash}{self._ready}" in listing
        return unchanged_s >= self._ready
