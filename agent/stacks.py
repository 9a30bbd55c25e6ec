"""The stacks that a worker wrote into its log before its end, read out of the text. Pure.

faulthandler writes one paragraph per thread, the most recent call first:

    Thread 0x00007f1c2a7fc640 (most recent call first):
      File "rows.py", line 12 in work
"""

from __future__ import annotations

import re
import sysconfig

HEAD = re.compile(r"^(?:Current thread|Thread) 0x([0-9a-f]+)\b.*:$")
CALL = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')
OURS = "/topology_runtime/worker/"
LIBRARIES = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
STACK_MOST = 4000  # characters


def of_thread(log: str, ident: int) -> str:
    """The last stack in a log of the thread with this ident; empty when there is none."""
    found: list[str] = []
    inside = False
    for line in log.splitlines():
        head = HEAD.match(line)
        if head is not None:
            inside = int(head[1], 16) == ident
            if inside:
                found = []
        elif inside and CALL.match(line):
            found.append(line)
        else:
            inside = False
    return "\n".join(found)[:STACK_MOST]


def line_of(stack: str) -> str:
    """`file:line in function` of the innermost call that is the user's own; empty when none is seen."""
    calls = [call for line in stack.splitlines() if (call := CALL.match(line)) is not None]
    users = []
    for call in calls:
        if OURS in call[1]:
            break
        users.append(call)
    own = [call for call in users if not call[1].startswith(LIBRARIES)] or users
    return f"{own[0][1]}:{own[0][2]} in {own[0][3]}" if own else ""
