"""Many seeds, on many cores, and what they amount to."""

from __future__ import annotations

import multiprocessing
import signal
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from zlib import crc32

from headgate.lab.simulation.simulated_world import Options, SimWorld

# ── What a number of seeds must have met at least once: a simulator that never gets there proves nothing ───

SEEDS_LEAST = 2000  # so many seeds of all shapes meet all of this

EXPECTED = (
    *(f"fault {kind}" for kind in (
        "kill_worker", "kill_worker_somewhere", "kill_worker_at_mark", "kill_agent", "kill_agent_somewhere",
        "kill_controller", "kill_controller_somewhere", "cut_vm", "lose_vm", "fail_journal", "break_data",
        "reorder_data", "half_open_data", "fill_disk",
        "lose_vm_at_move", "forge_report", "wear_out", "rotate_keys",
    )),
    *(f"killed at {place}" for place in ("deliver", "ack", "record", "word", "agent", "controller",
      "move")),
    *(f"{who} killed in {phase}" for who in ("worker", "controller")
      for phase in ("prepared", "switched", "probation", "committed")),
    "marks lost", "frames lost", "acks lost", "frames out of order", "replays by fault", "replays by deadline",
    "sources restarted", "sources read again", "spools drained", "events accepted again",
    "dead letters", "exclusive hand-overs",
    "ranges moved", "ranges taken over", "ranges thawed",
    "ranges restored", "snapshots restored", "snapshots of changes", "journal failures",
    "ranges taken over elsewhere", "snapshots gone on from",
    "VMs held dead", "no fault at all", "rests without contact",
    "dead letters replayed", "dead letters died again",
    *(f"code failed in {what}" for what in ("open", "restore", "snapshot", "process")), "threads started again",
    "code fails in memory", "stretches without faults", "sinks in workers of their own", "sinks on VMs of their own",
)  # fmt: skip


def missing(coverage: Counter[str]) -> list[str]:
    """What of the expected was never met."""
    return [name for name in EXPECTED if not coverage[name]]


def together(parts: Iterable[Counter[str]]) -> Counter[str]:
    found: Counter[str] = Counter(dict.fromkeys(EXPECTED, 0))
    for part in parts:
        found.update(part)
    return found


CHUNK = 4  # seeds that a process takes at once


@dataclass(frozen=True)
class Outcome:
    """One seed. error: what was not as it must be; empty: nothing."""

    seed: int
    shape: str
    hash: int
    faults: tuple[str, ...]
    error: str
    met: Counter[str]
    trail: tuple[str, ...]
    again: str  # the command that runs it again


@dataclass
class Sum:
    """What seeds amount to, in order: the same whoever ran them."""

    seeds: int = 0
    hash: int = 0
    violations: list[Outcome] = field(default_factory=list)
    coverage: Counter[str] = field(default_factory=lambda: together(()))

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.hash = crc32(f"{outcome.seed}:{outcome.hash}".encode(), self.hash)
        self.coverage.update(outcome.met)
        if outcome.error:
            self.violations.append(outcome)


def run(seed: int, options: Options, whole: bool = False) -> Outcome:
    """One seed; whatever it raises is its error. whole: the trail is all of what happened, not its end."""
    world = SimWorld(seed, options)
    if whole:
        world.clock.trail = deque()
    error = ""
    try:
        world.run()
    except Exception as found:  # an error of the cores is a violation like a broken invariant
        error = str(found) if isinstance(found, AssertionError) else f"{type(found).__name__}: {found}"
        error = error or "an assertion without words"
    trail = tuple(world.clock.trail)
    again = f"headgate lab sim --first-seed {seed}{f' --set shape={options.shape!r}' if options.shape else ''} --steps"
    faults = tuple(world.faults.done)
    return Outcome(seed, world.name, world.clock.hash, faults, error, world.met, trail, again)


def _told(seed: int, options: Options) -> Outcome:
    """As `run`, without what only a look at one seed wants."""
    return replace(run(seed, options), trail=())


@contextmanager
def outcomes(seeds: range, options: Options, jobs: int) -> Iterator[Iterator[Outcome]]:
    """Their outcomes, in order; the processes are gone at the end."""
    if jobs == 1:
        yield (_told(seed, options) for seed in seeds)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        yield pool.imap(partial(_told, options=options), seeds, CHUNK)
