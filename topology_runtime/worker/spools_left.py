"""Events that earlier source threads accepted on this VM and did not see done: whoever reads their partition here
accepts them anew, at positions of its own, since theirs may be another's by now (protocol: Sources)."""

from __future__ import annotations

from headgate.topology_runtime.worker.orders import Orders
from headgate.topology_runtime.worker.spool import Left, Owner, Spool, folder_of, owners

AGAIN_NS = 100_000_000  # until the next is tried, or one that somebody still has


class SpoolsLeft:
    """Of one partition, for the thread that reads it."""

    def __init__(self, directory: str, mine: Owner) -> None:
        self._directory, self._mine = directory, mine
        self._found: list[Owner] = []
        self._taken: Left | None = None  # what the disk has not wholly taken yet, or still has
        self._orders: Orders | None = None
        self._again_ns = 0

    def look(self, orders: Orders) -> None:
        """Which spools of threads that are no more are there? Only a desired state makes any."""
        if orders is self._orders:
            return
        self._orders, mine = orders, self._mine
        desired = {thread.thread for thread in orders.desired.threads}
        self._found = [
            owner
            for owner in owners(self._directory)
            if owner[:2] == mine[:2]
            and (owner.run != mine.run or (owner.thread < mine.thread and owner.thread not in desired))
        ]

    @property
    def more(self) -> bool:
        """Is there one that is not wholly accepted yet?"""
        return bool(self._found or self._taken)

    def take(self, spool: Spool, now_ns: int) -> int:
        """Accept the next of them into `spool`; how many rows. OSError: the disk does not take, or give, them now."""
        if self._taken is not None:
            spool.accept()
            self._taken.forget()
            self._taken = None
        if not self._found or spool.full or now_ns < self._again_ns:
            return 0
        self._again_ns = now_ns + AGAIN_NS
        owner = self._found.pop(0)
        try:
            self._taken = Left(folder_of(self._directory, owner))
        except FileNotFoundError:
            return 0
        except OSError as error:
            self._found.append(owner)
            if isinstance(error, BlockingIOError):  # its thread is ending
                return 0
            raise
        number = len(self._taken.rows)
        spool.take(self._taken)
        return number

    def close(self) -> None:
        """Its thread ends: what is not forgotten yet is for the next one."""
        if self._taken is not None:
            self._taken.drop()
            self._taken = None
