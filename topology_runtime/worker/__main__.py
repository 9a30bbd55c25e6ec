"""`python -P -m headgate.topology_runtime.worker …`: started by an agent, never by a person."""

from __future__ import annotations

import argparse
import os
import sys

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.platform.addresses import LOOPBACK, Listening
from headgate.topology_runtime.platform.containment import (
    NOT_CONTAINED,
    NotContained,
    become,
    check,
    give_up,
    read,
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="headgate.topology_runtime.worker")
    parser.add_argument("--agent", required=True)
    parser.add_argument("--vm", required=True)
    parser.add_argument("--slot", type=int, required=True)
    parser.add_argument("--incarnation", type=int, required=True)
    parser.add_argument("--meter-fd", type=int, required=True)
    parser.add_argument("--key-fd", type=int, required=True)
    parser.add_argument("--directory", required=True)
    parser.add_argument("--listen", default=LOOPBACK)
    parser.add_argument("--advertise", default=LOOPBACK)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--owner", type=int, default=os.getppid())
    parser.add_argument("--user", default="")
    parser.add_argument("--memory", type=int, default=0)
    a = parser.parse_args()
    user = read(a.user) if a.user else None
    try:
        if user is not None:
            become(user)
        give_up()
        if user is not None:
            check(user)
    except NotContained as error:
        print(f"headgate worker: {error}", file=sys.stderr)
        return NOT_CONTAINED
    from headgate.topology_runtime.keys.key_pairs import contact_at
    from headgate.topology_runtime.keys.worker_keys import handed
    from headgate.topology_runtime.worker.process.worker_process import WorkerPlace, run

    return run(
        WorkerPlace(
            contact_at(a.agent, handed(a.key_fd)),
            Slot(a.vm, a.slot),
            a.incarnation,
            a.meter_fd,
            a.directory,
            Listening(a.listen, a.advertise, a.port),
            a.owner,
            a.memory,
        )
    )


if __name__ == "__main__":
    sys.exit(main())
