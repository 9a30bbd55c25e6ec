"""Says which key has most of a task's rows: they all go to one thread, whatever is planned. No clock, no I/O."""

from __future__ import annotations

from headgate.controller.knowledge.hot_keys import hot_keys
from headgate.controller.knowledge.turn import Turn
from headgate.topology_runtime.messages import Report

NS = 1_000_000_000
HOT, OVER = 0.5, 0.4  # of the rows of a task: above it is an alarm, below it is over
LASTING_NS = NS  # for so long
LOOK_NS = NS  # at all VMs so often
FORGOTTEN_NS = 3 * NS  # what a VM told
MOVED = 0.05  # of the rows: the alarm is worded anew


def hear(turn: Turn, report: Report) -> None:
    """What the threads of a VM sent in the last second."""
    k, now_ns = turn.knowledge, turn.now.mono_ns
    if k.topology is None or not (report.keys or report.vm in k.keys_seen):
        return
    k.keys_seen[report.vm] = now_ns, report.keys
    for vm in [vm for vm, (told_ns, _) in k.keys_seen.items() if now_ns - told_ns > FORGOTTEN_NS]:
        del k.keys_seen[vm]
    if now_ns - k.hot_looked_ns < LOOK_NS:
        return
    k.hot_looked_ns = now_ns
    k.hot_keys = hot_keys((one for _, keys in k.keys_seen.values() for one in keys), k.topology)
    hottest = {key.task: key for key in reversed(k.hot_keys)}
    for task in k.topology.by_name:
        key, what = hottest.get(task), f"hot key {task}"
        if key is None or key.share < (OVER if what in k.alarms else HOT):
            k.hot_since.pop(task, None)
            if k.alarms.pop(what, ""):
                turn.event("alarm_over", f"no key has half of the rows of {task} any more", what=what)
            continue
        since_ns, told = k.hot_since.get(task, (now_ns, key))
        if what in k.alarms and told.words == key.words and abs(told.share - key.share) < MOVED:
            continue
        k.hot_since[task] = since_ns, key
        if now_ns - since_ns < LASTING_NS:
            continue
        text = (
            f"{key.sentence}: one thread takes them all, and more threads do not help; "
            "give its rows keys of their own, or count them before they are sent"
        )
        if what not in k.alarms:
            turn.event("alarm", text, level="warning", what=what)
        k.alarms[what] = text
