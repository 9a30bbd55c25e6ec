"""One look at the state of a key, between two frames of its thread. Pure but for the user's `snapshot`."""

from __future__ import annotations

import msgspec

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.wire.state_questions import STATE_MOST, StateAnswer, StateQuestion
from headgate.topology_runtime.worker.calls import attempts
from headgate.topology_runtime.worker.keyed_state.keyed_rows import KeyedRows
from headgate.topology_runtime.worker.keyed_state.savable_states import GONE, Aside, values_in
from headgate.topology_runtime.worker.keyed_state.state_snapshots import hashable
from headgate.topology_runtime.worker.rows import row_values as wire

WHY_MOST = 2000  # characters of what went wrong


def looked_up(rows: KeyedRows, asked: StateQuestion, home: tuple[Slot, int], wall_ns: int) -> StateAnswer:
    """What is there of the key now, whether a snapshot has it or not. It changes nothing, whatever `snapshot` does."""
    slot, incarnation = home
    answer = StateAnswer(slot.vm, slot, incarnation, asked.number, rows.thread, "none", wall_ns=wall_ns)
    if asked.key_range not in rows.ranges.owned:
        return msgspec.structs.replace(answer, outcome="elsewhere")
    try:
        key = hashable(wire.read(asked.key, wire.NESTED)[0])
        state = rows.states.there(key, asked.key_range)
        if state is GONE:
            return answer
        saved = state.saved if type(state) is Aside else rows.code.logic.snapshot(state)
        if values_in(saved, STATE_MOST) > STATE_MOST:
            return msgspec.structs.replace(answer, outcome="large")
        data = wire.write([saved], wire.NESTED)
    except BaseException as error:  # user code: it costs the answer alone
        why = f"{attempts.failure(0, error).error}{attempts.users_line(error)}"[:WHY_MOST]
        return msgspec.structs.replace(answer, outcome="failed", why=why)
    if len(data) > STATE_MOST:
        return msgspec.structs.replace(answer, outcome="large")
    return msgspec.structs.replace(answer, outcome="found", saved=data)
