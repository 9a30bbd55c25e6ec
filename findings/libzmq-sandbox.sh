#!/usr/bin/env bash
# libzmq: a sandbox that forbids sched_setscheduler
#
# Guess     A ZeroMQ program runs under systemd's usual sandbox of a network service (SystemCallFilter=@system-service,
#           then ~@privileged @resources, with SystemCallErrorNumber=EPERM): it changes no priorities, and what a call
#           refuses comes back as an error.
# Fact      1. libzmq sets the scheduling policy of each of its threads, also where no policy was asked for
#              (ZMQ_THREAD_SCHED_POLICY at its default). sched_setscheduler is in @resources.
#           2. It asserts that this works: the process is ended by SIGABRT at its first socket, with "Operation not
#              permitted (src/thread.cpp:315)" as its only words. No exception reaches Python.
#           3. So one call more must be allowed: SystemCallFilter=sched_setscheduler. The rest of @resources may go.
# Versions  libzmq 4.3.5, pyzmq 27.3.0, systemd 252, libseccomp 2.5.4, Python 3.11
# Date      2026-11-29
# Source    this script; libzmq/src/thread.cpp (applySchedulingParameters)
#
# Needs a network that reaches PyPI, systemd-analyze and libseccomp.so.2. Ends with 1 when anything behaves otherwise
# than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check pyzmq==27.3.0
tools/bin/python --version

cat >first_socket.py <<'PY'
"""Forbids the calls that are named, then makes a socket."""
import ctypes
import errno
import sys

library = ctypes.CDLL("libseccomp.so.2")
library.seccomp_init.restype = ctypes.c_void_p
found = ctypes.c_void_p(library.seccomp_init(0x7FFF0000))  # all else is allowed
for name in sys.argv[1:]:
    number = library.seccomp_syscall_resolve_name(name.encode())
    if number >= 0:
        library.seccomp_rule_add_array(found, 0x00050000 | errno.EPERM, number, 0, None)
assert library.seccomp_load(found) == 0

import zmq

zmq.Context().socket(zmq.PUB).bind("tcp://127.0.0.1:*")
PY

failed=0
check() { # what, wanted exit code, forbidden calls
    local what=$1 wanted=$2 seen=0
    shift 2
    tools/bin/python first_socket.py "$@" 2>words || seen=$?
    printf '%-62s %s %s\n' "$what" "$seen" "$(head -c 80 words)"
    if [ "$wanted" != "$seen" ]; then
        printf '    changed: it was %s\n' "$wanted"
        failed=1
    fi
}
resources=$(systemd-analyze syscall-filter @resources 2>/dev/null | sed -n 's/^    \([a-z].*\)/\1/p')
check "nothing forbidden" 0
check "all of @resources forbidden" 134 $resources
check "sched_setscheduler alone forbidden" 134 sched_setscheduler
check "@resources forbidden but for sched_setscheduler" 0 $(grep -vx sched_setscheduler <<<"$resources")
exit $failed
