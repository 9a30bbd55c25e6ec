"""When positions that are done are settled: nothing that comes of them is still to be read in a log. Pure.

A row is in its sink's log before it is acked. So once every VM has told its logs to their ends again after a position
was known to be done, all its rows are counted, and need not be remembered. A block that left nothing behind tells a log
to its end as of when it was made; the third after that moment was certainly made after it. Once the tally of what is
settled has been kept for a moment, agents may throw away their logs of it.
"""

from __future__ import annotations

from collections import Counter

from headgate.controller.knowledge.knowledge import Knowledge
from headgate.controller.knowledge.membership import Membership
from headgate.controller.knowledge.turn import Turn
from headgate.controller.knowledge.turns import Send
from headgate.controller.monitor.sink_logs import FinishedRows
from headgate.topology_runtime.finished_kept import FinishedKept
from headgate.topology_runtime.messages import SampleBlock

NS = 1_000_000_000
WHOLE_BLOCKS, LEAST_NS = 3, 6 * NS  # a VM that is silent for so long is not counted on
WHOLE_BYTES = 200 * 1024  # a block with more may have left something behind
GAP_BLOCKS = 10  # more of them after one was lost: what was in it comes again first
KEPT_NS = 3 * NS  # tallies are kept once a second

Done = dict[tuple[int, int], int]  # (source number, partition) → all below is done


class Settling:
    """One candidate after the other: positions that are done, and how much was read since."""

    def __init__(self) -> None:
        self._done: Done = {}
        self._since_ns = -1
        self._whole: Counter[str] = Counter()
        self._last: dict[str, tuple[int, int]] = {}  # VM → boot and number of its last block
        self._tally_ns = 0  # since when there is a tally that agents have not been told of

    def block(self, block: SampleBlock) -> None:
        boot, number = self._last.get(block.vm, (block.boot, block.sequence - 1))
        self._last[block.vm] = block.boot, block.sequence
        if (block.boot, block.sequence) != (boot, number + 1):
            self._whole[block.vm] = -GAP_BLOCKS
        elif sum(len(runs.runs) for runs in block.finished) < WHOLE_BYTES:
            self._whole[block.vm] += 1

    def go_on(self, turn: Turn, members: Membership, finished: FinishedRows) -> None:
        """Once a second: settle what can be, and tell agents what is kept."""
        k, now_ns = turn.knowledge, turn.now.mono_ns
        up = {member.vm.vm for member in members.up()}
        silent = any(member.state == "silent" for member in members.up())
        if finished.settle(self.look(now_ns, done_of(k), up, silent)):
            k.counts.finished = finished.tally
            self._tally_ns = now_ns
        elif self._tally_ns and now_ns - self._tally_ns >= KEPT_NS and "disk the controller" not in k.alarms:
            self._tally_ns = 0
            for vm in sorted(up):
                turn.do(Send(vm, FinishedKept(finished.tally.floors, finished.tally.logs)))

    def look(self, now_ns: int, done: Done, up: set[str], silent: bool) -> Done:
        """What is settled now; nothing while a VM is silent. `done`: as known now; `up`: VMs heard."""
        if silent or self._since_ns < 0:
            self._begin(now_ns, done)
        elif now_ns - self._since_ns >= LEAST_NS and all(self._whole[vm] >= WHOLE_BLOCKS for vm in up):
            settled = self._done
            self._begin(now_ns, done)
            return settled
        return {}

    def _begin(self, now_ns: int, done: Done) -> None:
        self._done, self._since_ns = done, now_ns
        for vm, whole in list(self._whole.items()):
            self._whole[vm] = min(whole, 0)


def done_of(k: Knowledge) -> Done:
    """As far as every source is done."""
    sources = [task.name for task in k.topology.sources] if k.topology else []
    return {
        (sources.index(task), partition): known.acked
        for (task, partition), known in k.counts.sources.items()
        if task in sources
    }
