"""Traffic-based scheduling (paper 1, section 3.2, online), two greedy phases: threads to slots, slots to VMs. Pure.

1. Pairs of communicating executors by falling traffic. Two that are nowhere go to the least loaded slot; else both go
   where the least is said between slots, of all their assignments to that slot and the slots that hold them: so one
   that is placed may move.
2. Pairs of slots in use by falling traffic, likewise onto VMs, each within its bound B of CPU (Eq. 1).

As printed (`Room.as_printed`) a slot also has at most M(α) executors, and exactly min(E, W) slots are in use (Eq. 2).

Readings: load is CPU (a share of a slot's core), of which no slot is over its core, and memory has to fit as well. Of
assignments that leave as much the one that moves less is taken, then the first of (least loaded, where one is, where
the other is). Where none has room, or would leave too few executors for empty slots, each that is nowhere goes alone
where it says most, the least loaded of equals; so does, at the end, what speaks with nobody. Pairs of two components,
which are equal, come by turns of both.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import product

from headgate.controller.models.plans import Allocation, Placement
from headgate.controller.models.task_models import EPSILON
from headgate.controller.plan.mappers.free_slots import Room, SlotRoom, refuse_beyond
from headgate.controller.plan.mappers.topology_based import most_in_slot
from headgate.controller.plan.placing.placement_problem import by_turns, in_turns
from headgate.topology_runtime.errors import Infeasible

MOST_LOOKS = 4_000_000  # threads times slots
MOST_PAIRS = 100_000  # of threads: of more, only those are looked at by which each thread has its turn
MOST_SLOTS = 400  # of which each pair is looked at
NOWHERE = -1
TINY = 1e-9  # of a pair's traffic: less is rounding


def traffic_based(allocation: Allocation, room: Room) -> Placement:
    """Raises Infeasible when threads fit into no slot, or a VM is over its bound. Pinned threads stay, and so does
    what is with them."""
    refuse_beyond("traffic", allocation, room, MOST_LOOKS)
    board = SlotRoom(allocation, room)
    _Workers(board).fill()
    board.refuse_left()
    onto_vms(board)
    _refuse_over_bounds(board)
    return board.placement()


def _assignments(
    places: Sequence[int], at: tuple[int, int], kept: tuple[bool, bool]
) -> list[tuple[int, int]]:
    """Of a pair to these places, of which each is tried once; what is kept stays where it is."""
    once = tuple(dict.fromkeys(place for place in places if place != NOWHERE))
    first, second = ((place,) if stays else once for place, stays in zip(at, kept, strict=True))
    return list(product(first, second))


def _best(
    choices: Iterable[tuple[int, int]],
    at: tuple[int, int],
    worth: Callable[[int, int], float],
    slack: float,
) -> tuple[int, int] | None:
    """The assignment that is worth most; of equals the one that moves less, then the first."""
    best, most, fewest = None, 0.0, 0
    for choice in choices:
        value = worth(*choice)
        moves = sum(old not in (NOWHERE, new) for old, new in zip(at, choice, strict=True))
        if best is None or value > most + slack or (value >= most - slack and moves < fewest):
            best, most, fewest = choice, value, moves
    return best


# ── Phase 1: executors to workers ───────────────────────────────────────────────────────────────────────


class _Workers:
    """Slots as they are filled. `where`: per task, the slot of each of its threads; `pinned` ones stay there."""

    def __init__(self, board: SlotRoom) -> None:
        self.board = board
        threads, slots = sum(task.threads for task in board.tasks), len(board.slots)
        printed = board.room.as_printed
        self.most = most_in_slot(threads, slots, board.room.spread.alpha) if printed else threads
        self.count = [sum(held.values()) for held in board.held]
        self.to_fill = (min(threads, slots) if printed else 0) - sum(map(bool, self.count))
        self.left = sum(board.left)
        self.kept = [sum(pinned[task] for pinned in board.pinned) for task in range(len(board.tasks))]
        self.where = [
            [slot for slot, pinned in enumerate(board.pinned) for _ in range(pinned[task])]
            + [NOWHERE] * board.left[task]
            for task in range(len(board.tasks))
        ]
        self.emptiest = self._emptiest()
        self.looked: set[tuple[int, int, int, int]] = set()  # and nothing has changed since

    def fill(self) -> None:
        links = {(a, b): link for a, of in enumerate(self.board.links) for b, link in of.items() if a < b}
        sizes = [len(where) for where in self.where]
        few = sum(sizes[a] * sizes[b] for a, b in links) <= MOST_PAIRS
        for a, b in sorted(links, key=lambda pair: -links[pair]):  # stable: ties in breadth-first order
            for m, n in (in_turns if few else by_turns)(sizes[a], sizes[b]):
                self._pair(a, m, b, n)
        for task, where in enumerate(self.where):
            for thread, slot in enumerate(where):
                if slot == NOWHERE:
                    self._alone(task, thread)

    def _pair(self, a: int, m: int, b: int, n: int) -> None:
        at = self.where[a][m], self.where[b][n]
        kept = m < self.kept[a], n < self.kept[b]
        key = (a, at[0], b, at[1])
        if key in self.looked or all(kept):
            return
        link, pull = self.board.links[a][b], self.board.pull

        def worth(p: int, q: int) -> float:
            return pull(a, p) - link * (at[1] == p) + pull(b, q) - link * (at[0] == q) + link * (p == q)

        choices = (
            choice
            for choice in _assignments((self.emptiest, *at), at, kept)
            if self._holds((a, b), at, choice)
        )
        best = _best(choices, at, worth, TINY * link)
        if best is None:
            for task, thread, slot in ((a, m, at[0]), (b, n, at[1])):
                if slot == NOWHERE:
                    self._alone(task, thread)
        elif best == at:
            self.looked.add(key)
        else:
            self._move(a, m, best[0])
            self._move(b, n, best[1])

    def _holds(self, tasks: Sequence[int], at: Sequence[int], to: Sequence[int]) -> bool:
        """Is there room for one thread of each of these tasks, and are enough left for slots to be filled?"""
        board, more = self.board, Counter(to)
        more.subtract(at)
        for slot in set(to):
            if more[slot] > 0 and self.count[slot] + more[slot] > self.most:
                return False
            for free, which in ((board.cpu[slot], 0), (board.memory[slot], 1)):
                need = sum(
                    board.needs[task][which] * ((new == slot) - (old == slot))
                    for task, old, new in zip(tasks, at, to, strict=True)
                )
                if need > 0 and need > free + EPSILON:
                    return False
        filled = sum(
            bool(self.count[slot] + more[slot]) - bool(self.count[slot]) for slot in more if slot != NOWHERE
        )
        return self.left - sum(slot == NOWHERE for slot in at) >= self.to_fill - filled

    def _alone(self, task: int, thread: int) -> None:
        """To the slot with which it speaks most of those that hold it, the least loaded of equals."""
        board = self.board
        free = [slot for slot in range(len(board.slots)) if self._holds((task,), (NOWHERE,), (slot,))]
        if free:
            self._move(
                task, thread, max(free, key=lambda slot: (board.pull(task, slot), board.cpu[slot], -slot))
            )

    def _move(self, task: int, thread: int, to: int) -> None:
        board, slot = self.board, self.where[task][thread]
        if slot == to:
            return
        before = self._in_use(slot) + self._in_use(to)
        if slot == NOWHERE:
            self.left -= 1
        else:
            board.put(task, slot, -1)
            self.count[slot] -= 1
            if not board.held[slot][task]:
                del board.held[slot][task]
            self._free_anew(slot)
        board.put(task, to)
        self.count[to] += 1
        self.to_fill -= self._in_use(slot) + self._in_use(to) - before
        self.where[task][thread] = to
        self.emptiest = self._emptiest()
        self.looked.clear()

    def _in_use(self, slot: int) -> int:
        return int(slot != NOWHERE and self.count[slot] > 0)

    def _free_anew(self, slot: int) -> None:
        """Summed up, so that what comes and goes leaves no rounding behind."""
        board, held = self.board, self.board.held[slot]
        board.cpu[slot] = board.cpus[slot] - sum(board.needs[task][0] * n for task, n in held.items())
        board.memory[slot] = board.room.memory - sum(board.needs[task][1] * n for task, n in held.items())

    def _emptiest(self) -> int:
        """The least loaded slot, the first of equals."""
        cpu = self.board.cpu
        return max(range(len(cpu)), key=cpu.__getitem__)


# ── Phase 2: workers to nodes ───────────────────────────────────────────────────────────────────────────


def onto_vms(board: SlotRoom) -> None:
    """Exchange contents of slots, so that slots that say much to each other are on one VM. Nothing is exchanged where
    no VM has two slots (nor a bound), slots are too many to look at each pair, or VMs are of several speeds.

    Raises Infeasible when a VM would be over its bound."""
    places = Counter(slot.vm for slot in board.slots)
    alike = max(places.values()) < 2 and not board.room.bounds
    if alike or len(board.slots) > MOST_SLOTS or len(set(board.cpus)) > 1:
        return
    _Nodes(board).fill()


class _Nodes:
    """VMs, by their place in the room, as slots come to them. `home`: of each content of a slot."""

    def __init__(self, board: SlotRoom) -> None:
        self.board = board
        number = {vm.vm: place for place, vm in enumerate(board.room.vms)}
        self.own = [number[slot.vm] for slot in board.slots]
        self.places: list[list[int]] = [[] for _ in number]
        for place, vm in enumerate(self.own):
            self.places[vm].append(place)
        self.free = [len(places) for places in self.places]
        self.load = [0.0] * len(number)
        self.most = [_bound(board, vm) for vm in range(len(number))]
        self.between = _between(board)
        self.told: list[dict[int, float]] = [{} for _ in board.slots]
        for (one, other), said in self.between.items():
            self.told[one][other] = self.told[other][one] = said
        self.home = [NOWHERE] * len(board.slots)

    def fill(self) -> None:
        board = self.board
        for place, pinned in enumerate(board.pinned):
            if pinned:
                self._move(place, self.own[place])
        for pair in sorted(self.between, key=lambda pair: (-self.between[pair], pair)):
            self._pair(*pair)
        used = [place for place, held in enumerate(board.held) if held]
        for place in sorted(used, key=lambda place: -self._weight(place)):
            if self.home[place] == NOWHERE:
                self._alone(place)
        held = [Counter[int]() for _ in board.slots]
        free = [[place for place in places if not board.pinned[place]] for places in self.places]
        for place in used:
            at = place if board.pinned[place] else free[self.home[place]].pop(0)
            held[at] = board.held[place]
        board.held = held

    def _pair(self, one: int, other: int) -> None:
        at = self.home[one], self.home[other]
        kept = bool(self.board.pinned[one]), bool(self.board.pinned[other])
        said = self.between[one, other]

        def worth(p: int, q: int) -> float:
            near = self._pull(one, p) - said * (at[1] == p) + self._pull(other, q) - said * (at[0] == q)
            return near + said * (p == q)

        choices = (
            choice
            for choice in _assignments((self._emptiest(), *at), at, kept)
            if self._holds((one, other), at, choice)
        )
        best = _best(choices, at, worth, TINY * said)
        for content, place in zip((one, other), best or at, strict=True):
            if place == NOWHERE:
                self._alone(content)
            else:
                self._move(content, place)

    def _holds(self, contents: Sequence[int], at: Sequence[int], to: Sequence[int]) -> bool:
        for vm in set(to):
            come = [(new == vm) - (old == vm) for old, new in zip(at, to, strict=True)]
            more = sum(self._weight(content) * n for content, n in zip(contents, come, strict=True))
            if sum(come) > self.free[vm] or (more > 0 and self.load[vm] + more > self.most[vm] + EPSILON):
                return False
        return True

    def _alone(self, content: int) -> None:
        vms = [vm for vm in range(len(self.load)) if self._holds((content,), (NOWHERE,), (vm,))]
        if not vms:
            raise Infeasible("a slot's threads are more than any VM has left below its bound of CPU")
        self._move(content, max(vms, key=lambda vm: (self._pull(content, vm), -self.load[vm], -vm)))

    def _move(self, content: int, to: int) -> None:
        for vm, sign in ((self.home[content], -1), (to, 1)):
            if vm != NOWHERE:
                self.load[vm] += sign * self._weight(content)
                self.free[vm] -= sign
        self.home[content] = to

    def _pull(self, content: int, vm: int) -> float:
        return sum(said for other, said in self.told[content].items() if self.home[other] == vm)

    def _weight(self, content: int) -> float:
        return self.board.used(content)

    def _emptiest(self) -> int:
        """The least loaded VM with a free slot, NOWHERE if there is none."""
        free = [vm for vm, slots in enumerate(self.free) if slots > 0]
        return min(free, key=self.load.__getitem__, default=NOWHERE)


def _bound(board: SlotRoom, vm: int) -> float:
    """B: what the slots of a VM may use of CPU together, in slots of one speed."""
    name = board.room.vms[vm].vm
    return board.room.bound_of(name) * sum(slot.vm == name for slot in board.slots)


def _refuse_over_bounds(board: SlotRoom) -> None:
    """Raises Infeasible with every VM that is over its bound."""
    used: defaultdict[str, float] = defaultdict(float)
    there: defaultdict[str, float] = defaultdict(float)
    for slot, cpu, held in zip(board.slots, board.cpus, board.held, strict=True):
        there[slot.vm] += cpu
        used[slot.vm] += sum(board.needs[task][0] * threads for task, threads in held.items())
    over = [
        f"VM {vm!r} uses {used[vm] / there[vm]:.3f} of its CPU, at most {board.room.bound_of(vm):g}"
        for vm in there
        if used[vm] > board.room.bound_of(vm) * there[vm] + EPSILON
    ]
    if over:
        raise Infeasible("; ".join(over))


def _between(board: SlotRoom) -> dict[tuple[int, int], float]:
    """What the contents of two slots say to each other, where they do."""
    found: dict[tuple[int, int], float] = {}
    where: list[list[int]] = [[] for _ in board.tasks]
    for slot, held in enumerate(board.held):
        for task in held:
            where[task].append(slot)
    for a, links in enumerate(board.links):
        for b, link in links.items():
            if a > b:
                continue
            for one in where[a]:
                for other in where[b]:
                    if one != other:
                        said = link * board.held[one][a] * board.held[other][b]
                        pair = min(one, other), max(one, other)
                        found[pair] = found.get(pair, 0.0) + said
    return found
