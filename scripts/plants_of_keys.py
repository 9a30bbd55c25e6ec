"""Bugs in state that is worked on by the frame, in its snapshots, in what is said of hot keys, and in what holds
a source back."""

from __future__ import annotations

from planting import APPLIED, KEYED_ROWS, LEDGER, WORKER, Plant, one

STATES, SNAPSHOTS = f"{WORKER}/keyed_states.py", f"{WORKER}/snapshots.py"
ROUTER = f"{WORKER}/router.py"
FORM, KEY_WATCH, HOT = (
    f"{WORKER}/keyed_snapshots.py",
    f"{WORKER}/key_watch.py",
    "controller/monitor/hot_keys.py",
)
KNOWN, FRAMES, FILES = (
    f"tests/worker/test_{name}.py" for name in ("applied_rows", "keyed_frames", "snapshot_files")
)
WATCHED, TOLD = "tests/worker/test_key_watch.py", "tests/enactment/test_hot_keys_told.py"

BY_FRAME = (
    one(
        "frames of a root are kept under one share",
        KEYED_ROWS,
        "root, share = batch.roots[number], self.random64()",
        "root, share = batch.roots[number], 7",
        test="tests/worker/test_tuples_in_flight.py",
    ),
    one(
        "two attempts of a row in a frame count twice",
        KEYED_ROWS,
        "        if twice_in(groups):\n",
        "        if not groups:\n",
        test=FRAMES,
    ),
    one(
        "the last row of a frame is not known",
        APPLIED,
        "            top[place] = max(top.get(place, 0), last + 1)\n",
        "            top[place] = max(top.get(place, 0), last)\n",
        test=KNOWN,
    ),
    one(
        "rows that left with their range are still known",
        APPLIED,
        "        self._since[key_range] = self._next\n",
        "        self._since[key_range] = 0\n",
        test=KNOWN,
    ),
    one(
        "what is forgotten is not said",
        APPLIED,
        "                self.take_floors([(*place[:2], last + 1)])\n",
        "                self.take_floors([])\n",
        test=KNOWN,
    ),
    one(
        "a call that raises leaves states behind",
        STATES,
        "            found = dict(zip(keys, map(there.__getitem__, keys), strict=True))\n",
        "            found = there if set(keys) <= there.keys() else there[keys[-1], 0]\n",
        test=FRAMES,
    ),
    one(
        "keys that are equal and of several types are one",
        ROUTER,
        "        kind = kinds.pop() if len(kinds) == 1 else None\n",
        "        kind = kinds.pop()\n",
        test=FRAMES,
    ),
)

SAVED = (
    one(
        "states are saved without the rows that made them",
        KEYED_ROWS,
        "self.states.pack_new(), applied.pack_new(), applied",
        "self.states.pack_new(), Applied().pack_new(), applied",
        test=FILES,
    ),
    one(
        "new states of a frame are not saved",
        STATES,
        "        states.new.update(found)\n",
        "",
        test=FILES,
    ),
    one(
        "changes are added behind a failure",
        SNAPSHOTS,
        '        self._whole = -1\n        with open(self._path, "r+b")',
        '        with open(self._path, "r+b")',
        test=FILES,
    ),
    one(
        "a torn end is taken for a snapshot",
        FORM,
        "        if len(found) < length or crc32(found) != told:\n",
        "        if len(found) < length and crc32(found) != told and at < len(data):\n",
        test=FILES,
    ),
    one(
        "damage between snapshots ends them silently",
        FORM,
        "            if at < len(data):\n",
        "            if at < 0:\n",
        test=FILES,
    ),
)

HOT_KEYS = (
    one(
        "the coldest keys are named",
        KEY_WATCH,
        "counts.most_common(TOLD_MOST)",
        "counts.most_common()[-TOLD_MOST:]",
        test=WATCHED,
    ),
    one(
        "keys are counted in the first large frame only",
        KEY_WATCH,
        "        return ((self._frames * GOLDEN) & 0xFFFFFFFF) * ONE_IN >> 32 == 0\n",
        "        return self._frames == 1\n",
        test=WATCHED,
    ),
    one(
        "a hot key is no alarm",
        HOT,
        "HOT, OVER = 0.5, 0.4",
        "HOT, OVER = 1.5, 0.4",
        test=TOLD,
    ),
    one(
        "a hot key that cooled stays an alarm",
        HOT,
        "        if key is None or key.share <",
        "        if key is None or 0.0 <",
        test=TOLD,
    ),
)

HELD_BACK = (
    one(
        "kept rows have no end",
        LEDGER,
        "        if self.again or self._kept >= KEPT_ROWS_MOST:\n",
        "        if self.again:\n",
        test="tests/worker/test_ledger.py",
    ),
    one(
        "a source is not held back by what is in flight",
        LEDGER,
        "        self.in_flight += len(rows)\n",
        "        self.in_flight += 0\n",
        test="tests/worker/test_ledger.py",
    ),
)

OF_KEYS: tuple[Plant, ...] = (*BY_FRAME, *SAVED, *HOT_KEYS, *HELD_BACK)
