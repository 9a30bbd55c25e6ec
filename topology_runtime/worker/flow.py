"""What one task thread does with one frame: run the logic, fill the buffers, work out the acks. Pure but
for the user's code; the thread around it is in threads.py, the simulator drives it as it is.

The ack of a root in a frame is: the frame's id for it ⊕ the shares of what went out ⊕ the shares of what
is kept. It is sent once, when the frame is done.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from topology_runtime.cluster import Slot
from topology_runtime.errors import BadRow
from topology_runtime.logic import To
from topology_runtime.messages import Ack, DeadLetter, Frame, RootPart
from topology_runtime.worker import attempts
from topology_runtime.worker import rows as wire
from topology_runtime.worker import runs as r
from topology_runtime.worker.held import Bucket, HeldRows, Kept
from topology_runtime.worker.outputs import Outputs, Shares
from topology_runtime.worker.runs import Run

ROW_TEXT_MOST = 2000  # characters of a row in a dead letter

Addressed = tuple[Slot, Ack]  # an ack and the slot of its ledger
Finished = tuple[RootPart, int, int, int]  # root, offset, count, variant of rows done at a sink


@dataclass(frozen=True)
class Around:
    """What a flow needs to know of the topology: names of sources by number, names of the tasks that
    feed it by edge, key functions of its in-edges, and whether it is a sink."""

    task: str
    thread: int
    sources: tuple[str, ...]
    feeders: dict[int, str]
    sink: bool


@dataclass
class Flow:
    """Map, flat-map and filter tasks."""

    around: Around
    kind: str
    logic: Any
    outputs: Outputs
    pause: Callable[[float], None]
    letters: list[DeadLetter] = field(default_factory=list)
    finished: list[Finished] = field(default_factory=list)
    tuples_out: int = 0

    def __post_init__(self) -> None:
        call = self.logic
        self._call = (lambda row: list(call(row))) if self.kind == "flat_map" else call

    # ── frames ──────────────────────────────────────────────────────────────────────────────────

    def take(self, frame: Frame, now_ns: int) -> list[Addressed]:
        """One frame through the logic; returns its acks."""
        rows, runs = self._run(frame.rows, frame.runs, frame.roots)
        if self.around.sink:
            self._finish(frame.roots, frame.runs)
        given = self.emit(rows, runs, frame.roots, now_ns)
        return [(root.home, Ack(root.key, root.id ^ given.get(root.key, 0))) for root in frame.roots]

    def emit(
        self, rows: Sequence[Any], runs: Sequence[Run], roots: Sequence[RootPart], now_ns: int
    ) -> Shares:
        """Rows into the output buffers (those that can travel)."""
        rows, runs = self._plain_only(rows, runs, roots)
        self.tuples_out += len(rows)
        given = self.outputs.put(rows, runs, roots, now_ns)
        self._bury_unroutable(rows, runs, roots)
        return given

    def _bury_unroutable(self, rows: Sequence[Any], runs: Sequence[Run], roots: Sequence[RootPart]) -> None:
        failures = [attempts.failure(place, error) for place, error in self.outputs.unroutable()]
        if failures:
            self._bury(rows, runs, roots, failures)

    def on_time(self, now_ns: int, draining: bool) -> list[Addressed]:
        """Work that is due by time; nothing for tasks that keep no rows."""
        return []

    def hand_over(self, keeper: Callable[[int, Any], int | None], now_ns: int) -> list[Addressed]:
        """Pass on what other threads keep from now on; nothing for tasks that keep no rows."""
        return []

    @property
    def holding(self) -> int:
        """Rows kept now."""
        return 0

    # ── the logic over rows ─────────────────────────────────────────────────────────────────────

    def _run(
        self, rows: Sequence[Any], runs: Sequence[Run], roots: Sequence[RootPart]
    ) -> tuple[Sequence[Any], Sequence[Run]]:
        results, failures = attempts.each(self._call, rows, self.pause)
        if failures:
            self._bury(rows, runs, roots, failures)
            runs, rows = _without({f.place for f in failures}, runs, rows)
        if self.kind == "flat_map":
            return _flattened(results, runs)
        if self.kind == "filter":
            keep = [place for place, yes in enumerate(results) if yes]
            if len(keep) == len(rows):
                return rows, runs
            singles = list(r.single(runs))
            return [rows[place] for place in keep], r.joined(singles[place] for place in keep)
        return results, runs

    def _plain_only(
        self, rows: Sequence[Any], runs: Sequence[Run], roots: Sequence[RootPart]
    ) -> tuple[Sequence[Any], Sequence[Run]]:
        if not self.outputs.edges:
            return rows, runs
        try:
            wire.shape_of(rows)
        except BadRow:
            bare = [row.row if isinstance(row, To) else row for row in rows]
            _, bad = wire.good_rows(bare)
            if bad:
                self._bury(bare, runs, roots, [attempts.failure(place, error) for place, error in bad])
                runs, rows = _without({place for place, _ in bad}, runs, rows)
        return rows, runs

    def _bury(
        self,
        rows: Sequence[Any],
        runs: Sequence[Run],
        roots: Sequence[RootPart],
        failures: Iterable[attempts.Failure],
    ) -> None:
        """Dead letters for the rows that failed for good; they count as done."""
        singles = list(r.single(runs))
        for failed in failures:
            number, offset, _ = singles[failed.place]
            root = roots[number]
            self.letters.append(
                DeadLetter(
                    self.around.task,
                    self.around.thread,
                    self.around.sources[root.source],
                    root.partition,
                    root.position + offset,
                    repr(rows[failed.place])[:ROW_TEXT_MOST],
                    failed.error,
                    failed.traceback,
                )
            )

    def _finish(self, roots: Sequence[RootPart], runs: Sequence[Run]) -> None:
        self.finished += [(roots[number], offset, count, variant) for number, offset, count, variant in runs]


@dataclass
class HoldFlow(Flow):
    """A task that keeps rows in buckets (`logic.Hold`)."""

    random64: Callable[[], int] = lambda: 0
    held: HeldRows = field(default_factory=HeldRows)

    @property
    def holding(self) -> int:
        return self.held.rows

    def take(self, frame: Frame, now_ns: int) -> list[Addressed]:
        self.held.see(frame.roots)
        shares = {root.key: (root, root.id, 0) for root in frame.roots}
        acks: list[Addressed] = []
        complete: dict[Hashable, Bucket] = {}
        for row, (number, offset, variant) in zip(frame.rows, r.single(frame.runs), strict=True):
            root = frame.roots[number]
            if self.held.stale(root.key):
                continue
            kept = Kept(row, frame.edge, root, offset, variant, self.random64())
            bucket = self._keep(kept, now_ns, complete)
            if bucket is not None:
                _, value, count = shares[root.key]
                shares[root.key] = root, value ^ kept.share, count + 1
        acks += [(root.home, Ack(root.key, value, count)) for root, value, count in shares.values()]
        for bucket in complete.values():
            acks += self._let_go(bucket, now_ns)
        return acks

    def _keep(self, kept: Kept, now_ns: int, complete: dict[Hashable, Bucket]) -> Bucket | None:
        source = self.around.feeders[kept.edge]
        found, failed = attempts.once(lambda: self.logic.key(kept.row, source), self.pause)
        if failed is not None:
            self._bury([kept.row], [(0, kept.offset, 1, kept.variant)], [kept.root], [failed])
            return None
        bucket = self.held.keep(found, kept, now_ns)
        if bucket is None:
            return None
        done, failed = attempts.once(lambda: self.logic.ready(found, bucket.rows()), self.pause)
        if done or failed is not None:
            complete[found] = bucket
        return bucket

    def _let_go(self, bucket: Bucket, now_ns: int) -> list[Addressed]:
        """Finish a bucket: emit its output and let its rows go, in one ack per row's root."""
        if not bucket.size:
            return []
        kept = list(bucket.kept())
        rows = [one.row for one in kept]
        out, failed = attempts.once(lambda: list(self.logic.finish(bucket.key, rows)), self.pause)
        roots = [one.root for one in kept]
        runs = [(number, one.offset, 1, one.variant) for number, one in enumerate(kept)]
        releases = self.held.release(bucket)
        if failed is not None:
            every = [attempts.Failure(i, failed.error, failed.traceback) for i in range(len(kept))]
            self._bury(rows, runs, roots, every)
            return [(root.home, ack) for root, ack in zip(roots, releases, strict=True)]
        if self.around.sink:
            self._finish(roots, runs)
        given = self._emit_for_all(out, runs, roots, now_ns)
        return [
            (root.home, Ack(ack.key, ack.value ^ given.pop(ack.key, 0), ack.held))
            for root, ack in zip(roots, releases, strict=True)
        ]

    def _emit_for_all(
        self, out: Sequence[Any], runs: Sequence[Run], roots: Sequence[RootPart], now_ns: int
    ) -> Shares:
        """Output rows of a bucket keep *every* root of the bucket open until they are done: each row
        is put with the identity of the bucket's first row, and an empty-handed share for the others."""
        if not out or not self.outputs.edges:
            return {}
        _, offset, _, variant = runs[0]
        named = [(0, offset, 1, r.over_index(variant, index)) for index in range(len(out))]
        distinct = list({root.key: root for root in roots}.values())
        rows, its_runs = self._plain_only(out, named, distinct)
        self.tuples_out += len(rows)
        given = self.outputs.put_with(rows, its_runs, distinct, now_ns)
        self._bury_unroutable(rows, its_runs, distinct)
        return given

    def on_time(self, now_ns: int, draining: bool) -> list[Addressed]:
        """Finish buckets that are old enough; while the run drains, those with an age limit at once."""
        self.held.sweep()
        limit_s = self.logic.max_age_s
        if limit_s is None:
            return []
        born_ns = now_ns if draining else now_ns - int(limit_s * 1e9)
        acks: list[Addressed] = []
        for bucket in self.held.older_than(born_ns):
            acks += self._let_go(bucket, now_ns)
        return acks

    def hand_over(self, keeper: Callable[[int, Any], int | None], now_ns: int) -> list[Addressed]:
        """Rows of buckets whose key another thread keeps now go there, by the edge they came by.

        `keeper(edge, row)`: the thread that keeps such a row now, or None when it is this one."""
        acks: list[Addressed] = []
        for bucket in list(self.held.buckets.values()):
            kept = list(bucket.kept())
            targets = [keeper(one.edge, one.row) for one in kept]
            if all(target is None for target in targets):
                continue
            releases = self.held.release(bucket)
            for one, target, ack in zip(kept, targets, releases, strict=True):
                to = target if target is not None else next(t for t in targets if t is not None)
                run = (0, one.offset, 1, one.variant)
                given = self.outputs.forward(one.edge, to, one.row, run, [one.root], now_ns)
                acks.append((one.root.home, Ack(ack.key, ack.value ^ given[ack.key], ack.held)))
        return acks

    def finish_all(self, now_ns: int) -> list[Addressed]:
        """Finish every bucket now (a leaver whose rows no other thread can take over)."""
        acks: list[Addressed] = []
        for bucket in list(self.held.buckets.values()):
            acks += self._let_go(bucket, now_ns)
        return acks


def _without(places: set[int], runs: Sequence[Run], rows: Sequence[Any]) -> tuple[list[Run], list[Any]]:
    singles = list(r.single(runs))
    left = [place for place in range(len(singles)) if place not in places]
    kept = [rows[place] for place in left] if len(rows) == len(singles) else list(rows)
    return r.joined(singles[place] for place in left), kept


def _flattened(results: Sequence[Sequence[Any]], runs: Sequence[Run]) -> tuple[list[Any], list[Run]]:
    rows: list[Any] = []
    singles: list[tuple[int, int, int]] = []
    for result, (number, offset, variant) in zip(results, r.single(runs), strict=True):
        rows += result
        singles += [(number, offset, r.over_index(variant, index)) for index in range(len(result))]
    return rows, r.joined(singles)
