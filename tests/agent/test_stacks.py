"""Stacks read out of a worker's log (agent/stacks.py); the log is faulthandler's own."""

from __future__ import annotations

import faulthandler
import tempfile
import threading
import time

from headgate.agent.stacks import line_of, of_thread


def dumped() -> tuple[str, int]:
    """A dump of all threads, and the ident of one that sleeps in `slow`."""
    done = threading.Event()

    def slow() -> None:
        done.wait(5)

    sleeper = threading.Thread(target=slow)
    sleeper.start()
    time.sleep(0.05)
    with tempfile.TemporaryFile("w+") as file:
        file.write("words of the task\n")
        faulthandler.dump_traceback(file)
        file.seek(0)
        text = file.read()
    done.set()
    sleeper.join()
    assert sleeper.ident is not None
    return text, sleeper.ident


def test_the_stack_of_one_thread_and_the_users_line_in_it() -> None:
    text, ident = dumped()
    stack = of_thread(text + "more words\n", ident)
    assert "in slow" in stack and "in dumped" not in stack
    assert line_of(stack).startswith(__file__) and line_of(stack).endswith("in slow")


def test_the_last_stack_counts_and_only_this_threads() -> None:
    head = "Thread 0x00000000000000ff (most recent call first):\n"
    log = f'{head}  File "old.py", line 1 in old\n\nFatal\n\nCurrent {head.lower()}'
    log += '  File "new.py", line 2 in new\n  File "/x/topology_runtime/worker/flow.py", line 3 in take\n'
    assert of_thread(log, 255).startswith('  File "new.py"')
    assert of_thread(log, 254) == ""
    assert line_of(of_thread(log, 255)) == "new.py:2 in new"
    assert line_of('  File "/x/topology_runtime/worker/flow.py", line 3 in take') == ""
