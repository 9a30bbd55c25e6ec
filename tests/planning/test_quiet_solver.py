"""What a command prints is read by programs: a library that greets on standard output would be in the middle of it."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
from headgate.controller.plan.linear_program import LinearProgram

program = LinearProgram([1.0, 2.0])
program.add(1.0, 1.0, {0: 1.0, 1: 1.0})
print(len(program.solve()[0]))
"""


def test_the_solver_says_nothing() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("2\n", "")
