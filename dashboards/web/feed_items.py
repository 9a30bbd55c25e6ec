"""What a feed brings: the whole document, a change of it, or the news that there is none."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import msgspec

Document = dict[str, Any]


@dataclass(frozen=True)
class Whole:
    """A snapshot (`headgate/snapshot/v1`): whatever was known before is out of date."""

    document: Document

    @cached_property
    def data(self) -> bytes:
        return msgspec.json.encode(self.document)


@dataclass(frozen=True)
class Change:
    """A delta (`headgate/delta/v1`) as it was sent, and the document after it."""

    delta: Document
    data: bytes
    document: Document


@dataclass(frozen=True)
class Stale:
    """Nothing was heard for `silent_s`: what is shown is old. why: what is known of that."""

    silent_s: float
    why: str

    @cached_property
    def data(self) -> bytes:
        said = {"schema": "headgate/stale/v1", "silent_s": round(self.silent_s, 1), "why": self.why}
        return msgspec.json.encode(said)


Item = Whole | Change | Stale


class Feed(Protocol):
    """Snapshots and what changes them, one after the other."""

    @property
    def document(self) -> Document | None:
        """The whole document as of the last item; None before the first."""
        ...

    def next(self, timeout_s: float) -> Item | None:
        """The next item; None when there is none within `timeout_s`."""
        ...

    def close(self) -> None: ...
