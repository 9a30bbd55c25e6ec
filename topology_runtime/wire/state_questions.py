"""What a controller asks threads of keyed tasks, and what they answer: the state of one key. Pure.

Nothing depends on it: a question that is lost is asked again by whoever wants to know.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from headgate.topology_runtime.api.cluster import Slot

KEY_MOST = 4096  # bytes of a key, as JSON and as a row
STATE_MOST = 256 << 10  # bytes of a state that is told


class StateQuestion(msgspec.Struct, frozen=True, tag="state_question"):
    """What has thread `thread` in `slot` of this key? key: as a row by itself (row_values.NESTED)."""

    number: int
    slot: Slot
    thread: int
    key_range: int
    key: bytes


class StateAnswer(msgspec.Struct, frozen=True, tag="state_answer"):
    """found: what is `saved` of the key, as a row by itself. none: nothing. elsewhere: its range is not processed there
    now. large: it has more than STATE_MOST bytes. failed: `snapshot` raised, or what it gave cannot be written (`why`).
    wall_ns: when it was looked up (UTC)."""

    vm: str
    slot: Slot
    incarnation: int
    number: int
    thread: int
    outcome: Literal["found", "none", "elsewhere", "large", "failed"]
    saved: bytes = b""
    why: str = ""
    wall_ns: int = 0
