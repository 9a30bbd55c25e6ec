"""Who owns a key range, and that its state follows it: whatever is slow, is killed or comes late."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from keyed_family import Family, Tally, all_of
from keyed_rows_made import keyed_rows
from msgspec.structs import replace

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import KEY_RANGES
from headgate.topology_runtime.wire.messages import Frame, RootKey, RootPart
from headgate.topology_runtime.wire.state_moves import RangeCopy, StateMove
from headgate.topology_runtime.worker.calls.router import range_of
from headgate.topology_runtime.worker.keyed_state.key_ranges import Layer, Ranges, Standing
from headgate.topology_runtime.worker.keyed_state.range_answers import MOVE_MOST_BYTES, WINDOW_BYTES, Moves

ONE, TWO, THREE = 1, 2, 3
HERE = {ONE: "a", TWO: "b", THREE: "c"}
ALL = set(range(KEY_RANGES))


def running(table: list[int], rows: int = 200) -> Family:
    """A family under a first plan in force, with rows counted."""
    family = Family(HERE)
    family.plan(table)
    family.settle()
    family.offer(rows)
    family.all_done()
    return family


def is_exact(family: Family) -> None:
    family.all_done()
    assert family.counts() == family.expected()
    assert not family.lost


def test_the_first_plan_begins_at_once_and_loses_nothing() -> None:
    family = Family(HERE)
    family.plan(all_of(ONE, TWO))
    family.run(0.2)
    assert family.in_force
    family.offer(100)
    is_exact(family)


def test_a_first_plan_that_is_replaced_in_its_switch_is_asked_for_what_it_has() -> None:
    family = Family(HERE)
    family.plan(all_of(ONE, TWO))
    family.run(0.3)
    family.offer(100)
    family.run(0.5)
    family.plan(all_of(TWO, THREE))
    family.settle()
    is_exact(family)


def test_a_range_moves_with_its_state_and_its_rows() -> None:
    family = running(all_of(ONE))
    family.plan(all_of(TWO))
    family.offer(50)
    family.offer(50)
    family.settle()
    assert family.members[TWO].rows.ranges.owned == ALL
    is_exact(family)


def test_a_long_call_in_the_old_owner_is_waited_for() -> None:
    """No timer decides who owns a range."""
    family = running(all_of(ONE))
    family.plan(all_of(TWO))
    family.members[ONE].hangs = True
    family.offer(50)
    family.run(60.0)
    assert not family.members[TWO].rows.ranges.owned and not family.in_force
    family.members[ONE].hangs = False
    family.settle()
    is_exact(family)


def test_a_restarted_old_owner_does_not_bring_back_what_it_gave_away() -> None:
    family = running(all_of(ONE))
    stale = dict(family.disks["a"])
    family.plan(all_of(TWO))
    family.settle()
    family.offer(100)
    family.run(2.0)
    family.kill(ONE)
    family.disks["a"] = stale  # as if it had been killed before it saved that they are gone
    family.restart(ONE)
    family.run(5.0)
    is_exact(family)
    family.plan(all_of(ONE))
    family.settle()
    is_exact(family)


def test_what_was_given_away_is_saved_as_gone_before_the_plan_is_in_force() -> None:
    family = running(all_of(ONE))
    family.plan(all_of(TWO, THREE))
    family.settle()
    store = family.members[ONE].keyed.store
    saved = store.load()
    assert saved is not None and not saved.ranges


@pytest.mark.parametrize("at_s", [0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 1.0])
@pytest.mark.parametrize("victim", [ONE, TWO])
def test_whoever_is_killed_during_the_move_comes_back_to_it(victim: int, at_s: float) -> None:
    family = running(all_of(ONE))
    family.plan(all_of(TWO))
    family.offer(50)
    family.run(at_s)
    family.kill(victim)
    family.offer(50)
    family.run(7.0)
    family.restart(victim)
    family.settle()
    is_exact(family)


def test_going_back_does_not_thaw_what_the_new_owner_may_have() -> None:
    family = running(all_of(ONE))
    family.plan(all_of(TWO))
    family.run(1.0)
    family.offer(50)
    family.run(1.0)
    family.members[TWO].hangs = True
    family.plan(all_of(ONE))
    family.run(30.0)
    assert not family.members[ONE].rows.ranges.owned
    family.members[TWO].hangs = False
    family.settle()
    is_exact(family)


def test_going_back_a_frozen_copy_is_no_match_for_a_newer_one() -> None:
    """The new owner took the state and counted on; the old one never heard so."""
    family = running(all_of(ONE))
    family.plan(all_of(TWO))
    family.deaf = {ONE}
    family.run(1.0)
    family.offer(50)
    family.run(1.0)
    assert ALL == family.members[ONE].rows.ranges.versions.keys() == family.members[TWO].rows.ranges.owned
    family.plan(all_of(ONE))
    family.settle()
    is_exact(family)


def test_a_range_that_came_back_before_it_was_taken_leaves_again_with_what_was_counted_since() -> None:
    family = running(all_of(ONE))
    family.plan(all_of(TWO))
    family.members[TWO].hangs = True
    family.run(1.0)
    family.members[TWO].inbox.clear()  # what was sent is lost on its way
    family.plan(all_of(ONE))
    family.members[TWO].hangs = False
    family.settle()
    family.offer(50)
    is_exact(family)
    family.plan(all_of(TWO))
    family.settle()
    is_exact(family)


def test_what_was_answered_by_older_routes_is_answered_again_by_newer_ones() -> None:
    """The plan between never came into force, so both that had the range are asked."""
    family = running(all_of(ONE))
    family.plan(all_of(TWO))
    family.run(2.0)
    assert not family.members[ONE].rows.ranges.pending
    family.plan(all_of(THREE))
    family.settle()
    is_exact(family)


def test_a_range_that_goes_to_and_fro_brings_its_state_each_time() -> None:
    """An answer by older routes is none by newer ones."""
    family = running(all_of(ONE))
    for thread in (TWO, ONE, TWO):
        family.plan(all_of(thread))
        family.offer(30)
        family.settle()
    is_exact(family)


def test_rows_at_the_side_follow_their_range() -> None:
    family = running(all_of(ONE))
    family.plan(all_of(TWO))
    family.members[ONE].hangs = True
    family.offer(50)
    family.run(1.0)
    assert family.members[TWO].rows.holding >= 50
    family.plan(all_of(THREE))
    family.run(1.0)
    assert family.members[TWO].rows.holding == len(family.members[TWO].rows.ranges.pending)
    family.members[ONE].hangs = False
    family.settle()
    family.run(3.0)
    assert not family.open, "without any replay"
    is_exact(family)


def test_a_state_by_older_routes_is_refused() -> None:
    """What was said before these routes is no answer by them."""
    family = running(all_of(ONE))
    family.plan(all_of(TWO))
    family.members[ONE].hangs = True
    family.run(1.0)
    two = family.members[TWO].core
    nothing = tuple(RangeCopy(key_range) for key_range in sorted(ALL))
    two.hear(StateMove(ONE, TWO, two.switched - 1, nothing), family.now_ns)
    assert not family.members[TWO].rows.ranges.owned
    two.hear(StateMove(ONE, TWO, two.switched, nothing), family.now_ns)
    assert family.members[TWO].rows.ranges.owned == ALL


def test_a_state_by_routes_to_come_waits_for_them() -> None:
    family = running(all_of(ONE))
    family.plan(all_of(TWO))
    family.members[TWO].hangs = True
    family.run(1.0)
    family.members[TWO].hangs = False
    family.members[TWO].inbox.sort(key=lambda what: not isinstance(what, StateMove))
    family.run(0.2)
    assert family.members[TWO].rows.ranges.owned == ALL, "without waiting for it to be sent again"
    is_exact(family)


# ── keepers that are gone ───────────────────────────────────────────────────────────────────────────


def quarantined(places: dict[int, str], after: list[int]) -> Family:
    """Thread 1 had everything and is gone with its slot, not with its VM; others are to have it."""
    family = Family(places)
    family.plan(all_of(ONE))
    family.settle()
    family.offer(100)
    family.all_done()
    family.kill(ONE)
    family.plan(after, gone=[ONE])
    return family


def test_the_snapshot_of_a_thread_that_is_gone_is_read_on_its_vm() -> None:
    family = quarantined({ONE: "a", TWO: "a"}, all_of(TWO))
    family.settle()
    is_exact(family)


def test_the_snapshot_of_a_thread_that_is_gone_is_had_from_its_vm() -> None:
    """Any thread that lives there reads it out."""
    family = quarantined({ONE: "a", TWO: "b", THREE: "a"}, all_of(TWO, THREE))
    family.settle()
    assert family.members[TWO].rows.ranges.owned
    is_exact(family)


def test_a_vm_that_lives_without_any_thread_cannot_be_asked() -> None:
    family = quarantined(HERE, all_of(TWO))
    family.settle()
    assert family.lost == ALL


def test_a_snapshot_that_does_not_read_is_a_loss_and_no_end() -> None:
    family = quarantined({ONE: "a", TWO: "b", THREE: "a"}, all_of(TWO, THREE))
    family.disks["a"][ONE] = b"torn"
    family.settle()
    assert family.lost == ALL


def test_what_was_on_a_vm_that_is_lost_is_said_to_be_lost() -> None:
    family = running(all_of(ONE, TWO))
    before = family.expected()
    family.lose("a")
    family.plan(all_of(TWO), gone=[ONE])
    family.settle()
    family.offer(100)
    family.all_done()
    theirs = {r for r, thread in enumerate(all_of(ONE, TWO)) if thread == ONE}
    assert family.lost == theirs
    missing = family.expected() - family.counts()
    assert missing == {key: n for key, n in before.items() if range_of(key) in theirs}


def test_an_older_copy_is_used_and_the_range_said_to_be_lost_too() -> None:
    """The new owner may have taken the state, counted rows, and gone with its VM."""
    family = running(all_of(ONE))
    family.plan(all_of(TWO))
    family.deaf = {ONE}
    family.run(1.0)
    family.deaf.clear()
    family.lose("b")
    family.plan(all_of(THREE), gone=[TWO])
    family.settle()
    assert family.lost == ALL
    family.all_done()
    assert family.counts() == family.expected()


def test_an_older_copy_beside_a_snapshot_that_does_not_read_is_said_to_be_lost() -> None:
    """Wherever the snapshot is looked at: by the new owner, or by a thread there that it asks."""
    four = 4
    family = Family({**HERE, four: "b"})
    family.plan(all_of(ONE))
    family.settle()
    family.plan(all_of(TWO))
    family.deaf = {ONE}
    family.run(1.0)
    family.offer(100)
    family.run(1.0)
    family.deaf.clear()
    family.kill(TWO)
    family.disks["b"][TWO] = b"torn"
    family.plan(all_of(THREE, four), gone=[TWO])
    family.settle()
    assert family.lost == ALL


def test_a_disk_that_was_emptied_is_no_fresh_start() -> None:
    """The plan is in force, so its owner had the state."""
    family = running(all_of(ONE))
    family.kill(ONE)
    family.disks.clear()
    family.restart(ONE)
    family.run(3.0)
    assert family.in_force and family.lost == ALL


# ── one thread's view ───────────────────────────────────────────────────────────────────────────────


def ranges_of(me: int, *stands: Standing) -> Ranges:
    ranges = Ranges(me)
    for now in stands:
        ranges.stand(now)
        for key_range in ranges.claimable():
            ranges.claim(key_range, -1)
    return ranges


def standing(number: int, owner: int, *layers: tuple[int, int]) -> Standing:
    """Of one range; layers: (routes, who owned it by them), and that by these routes."""
    of = tuple(Layer(routes, (thread,)) for routes, thread in (*layers, (number, owner)))
    return Standing(number, (owner,), of, frozenset({ONE, TWO}))


def test_who_owned_a_range_owns_it_no_more_when_another_may_have_a_newer_copy() -> None:
    ranges = ranges_of(ONE, standing(1, ONE), standing(3, ONE, (1, ONE), (2, TWO)))
    assert not ranges.owned and ranges.missing == {0} and ranges.waits_for(0) == {TWO}
    ranges.hear(TWO, [0])
    assert ranges.claimable() == [0]


def test_what_is_still_processed_here_is_not_forgotten_when_its_answer_is_taken() -> None:
    ranges = ranges_of(ONE, standing(1, ONE), standing(2, TWO, (1, ONE)))
    assert ranges.owned and ranges.told([0]) == [] and ranges.pending == {0}
    assert ranges.let_go() == {0} and ranges.told([0]) == [0] and ranges.settled


def test_what_was_answered_stays_so_while_the_routes_do() -> None:
    now = standing(2, TWO, (1, ONE))
    ranges = ranges_of(ONE, standing(1, ONE), now)
    ranges.let_go()
    ranges.told([0])
    ranges.stand(Standing(2, now.owners, now.layers, frozenset({ONE, TWO, THREE})))
    assert ranges.settled


class Large(Tally):
    """A state of most of a message."""

    def new(self, key: int) -> str:
        return "x" * (MOVE_MOST_BYTES * 3 // 4)

    def process(self, key: int, row: int, state: str) -> tuple[str, tuple[int, ...]]:
        return state, ()


def test_more_state_than_may_be_under_way_leaves_in_turns() -> None:
    rows = keyed_rows(Large(), lambda row: row)
    count = 3 * WINDOW_BYTES // MOVE_MOST_BYTES
    part = RootPart(RootKey(3, 1, 0, 0), Slot("vm", 0), 0, 0, 0, 0, 0, 1)
    rows.take(Frame(0, 3, part.home, 1, 5, [part], [(0, 0, count, 0)], list(range(count)), 0, 0), 0)
    theirs = (TWO,) * KEY_RANGES
    rows.ranges.stand(Standing(2, theirs, (Layer(1, (5,) * KEY_RANGES), Layer(2, theirs))))
    rows.ranges.let_go()
    moves, sizes = Moves(5), list[int]()
    while rows.ranges.pending and len(sizes) < count:
        copies = [copy for move in moves.due(2, rows, 0) for copy in move.copies]
        sizes.append(sum(len(copy.data) for copy in copies))
        rows.ranges.told(copy.key_range for copy in copies)
    assert rows.ranges.settled and max(sizes) <= WINDOW_BYTES + MOVE_MOST_BYTES
    assert sum(sizes) > WINDOW_BYTES


def test_a_range_goes_on_once_its_part_has_come_and_those_that_stay_go_on_all_the_while() -> None:
    """The new owner, to whom the old one is thread 9, has the first message only; the rest is on its way yet."""
    old, new = keyed_rows(Large(), lambda row: row), keyed_rows(Large(), lambda row: row, owns=False)
    count = 24
    part = RootPart(RootKey(3, 1, 0, 0), Slot("vm", 0), 0, 0, 0, 0, 0, 1)

    def rows_of(keys: Sequence[int], position: int) -> Frame:
        root = replace(part, position=position, id=position + 1)
        return Frame(0, 3, part.home, 1, 5, [root], [(0, 0, len(keys), 0)], list(keys), 0, 0)

    old.take(rows_of(range(count), 0), 0)
    places = {key: range_of(key) for key in range(count)}
    middle = sorted(places.values())[count // 2]
    owners = [TWO if place < middle else 5 for place in range(KEY_RANGES)]
    old.ranges.stand(
        Standing(2, owners, (Layer(1, (5,) * KEY_RANGES), Layer(2, owners)), frozenset({5, TWO}))
    )
    mine = [5 if owner == TWO else 9 for owner in owners]
    new.ranges.stand(Standing(2, mine, (Layer(1, (9,) * KEY_RANGES), Layer(2, mine)), frozenset({5, 9})))
    old.ranges.let_go()
    moves = Moves(5).due(2, old, 0)
    assert len(moves) > 2
    new.offered(9, moves[0].copies)
    new.claim(0)
    came = {copy.key_range for copy in moves[0].copies}
    here = [key for key, place in places.items() if place in came]
    waits = [key for key, place in places.items() if place < middle and place not in came]
    assert (
        here and waits and came <= new.ranges.owned and {places[key] for key in waits} <= new.ranges.missing
    )
    new.take(rows_of([here[0], waits[0]], 100), 0)
    assert new.uncovered_rows == 1 and list(new.side.places) == [places[waits[0]]]
    stays = next(key for key, place in places.items() if place >= middle)
    before = old.uncovered_rows
    old.take(rows_of([stays], 200), 0)
    assert old.uncovered_rows == before + 1 and not len(old.side)


# ── disks ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_full_disk_covers_nothing_and_loses_nothing() -> None:
    family = running(all_of(ONE))
    family.disk_full = True
    family.offer(50)
    family.run(10.0)
    core = family.members[ONE].core
    assert len(family.open) == 50 and "No space" in core.now(idle=True).unsaved
    assert 9 <= family.members[ONE].keyed.saves_failed <= 11, "tried once a second"
    family.disk_full = False
    family.run(2.0)
    assert not family.open and core.now(idle=True).unsaved == ""
    is_exact(family)


def test_on_a_full_disk_a_range_is_not_taken() -> None:
    family = running(all_of(ONE))
    family.plan(all_of(TWO))
    family.disk_full = True
    family.run(5.0)
    assert not family.in_force
    family.kill(TWO)
    family.disk_full = False
    family.restart(TWO)
    family.settle()
    is_exact(family)


def test_a_snapshot_is_not_written_for_every_frame() -> None:
    family = running(all_of(ONE))
    before = family.saves
    for _ in range(40):
        family.offer(3)
        family.run(0.05)
    assert family.saves - before <= 3


# ── each row once ───────────────────────────────────────────────────────────────────────────────────


def test_a_row_that_comes_again_after_a_restart_counts_once() -> None:
    """Its root was still open elsewhere, so its source sends it again: the snapshot knows it."""
    family = running(all_of(ONE))
    family.kill(ONE)
    family.restart(ONE)
    for row in family.rows:
        family.send(row, 5)
    is_exact(family)


def test_a_row_that_comes_again_after_a_move_counts_once() -> None:
    family = running(all_of(ONE))
    family.plan(all_of(TWO))
    family.settle()
    for row in family.rows:
        family.send(row, 5)
    is_exact(family)


def test_what_is_forgotten_is_counted() -> None:
    family = running(all_of(ONE), rows=0)
    rows = family.members[ONE].rows
    rows.applied.most = 100
    family.offer(300)
    family.all_done()
    assert rows.applied.again_at_most == 0
    for row in family.rows[:250]:
        family.send(row, 5)
    family.all_done()
    again = sum((family.counts() - family.expected()).values())
    assert 0 < again <= rows.applied.again_at_most
