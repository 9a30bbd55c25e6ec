"""The journal: what was appended is read back; tears are cut off, corruption is refused, one writer only."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from headgate.controller.files import journal as j
from headgate.controller.knowledge.journal_records import Booted, Draining, HeldDead, Record, fold_all
from headgate.topology_runtime.errors import Conflict, InvalidInput

BOOTED, HELD, DRAINING = Booted(1, 10), HeldDead(("vm2",)), Draining("stop", 20, 0.1)


def append(directory: Path, *batches: tuple[Record, ...]) -> None:
    journal = j.Journal(directory)
    for batch in batches:
        journal.append(batch)
    journal.close()


def records(directory: Path) -> tuple[Record, ...]:
    journal = j.Journal(directory)
    journal.close()
    return journal.records


def test_what_was_appended_is_read_by_the_next_life(tmp_path: Path) -> None:
    append(tmp_path, (BOOTED,), (HELD, DRAINING))
    append(tmp_path, (Booted(2, 30),))
    assert records(tmp_path) == (BOOTED, HELD, DRAINING, Booted(2, 30))


@examples(40)  # each one fsyncs
@given(data=st.data())
def test_a_torn_tail_is_cut_off_wherever_it_tears(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("journal")
    append(directory, (BOOTED,), (HELD,))
    whole = (directory / "journal.bin").read_bytes()
    append(directory, (DRAINING,))
    longer = (directory / "journal.bin").read_bytes()
    cut = data.draw(st.integers(len(whole), len(longer) - 1))
    zeros = data.draw(st.integers(0, 20))
    (directory / "journal.bin").write_bytes(longer[:cut] + b"\0" * zeros)
    assert records(directory) == (BOOTED, HELD)
    assert (directory / "journal.bin").read_bytes() == whole
    append(directory, (DRAINING,))
    assert records(directory) == (BOOTED, HELD, DRAINING)


def test_a_last_frame_with_a_wrong_sum_was_never_acknowledged(tmp_path: Path) -> None:
    append(tmp_path, (BOOTED,), (HELD,))
    path = tmp_path / "journal.bin"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert records(tmp_path) == (BOOTED,)


@examples(40)  # each one fsyncs
@given(data=st.data())
def test_any_changed_byte_before_the_last_frame_is_refused(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("journal")
    append(directory, (BOOTED,))
    first = (directory / "journal.bin").stat().st_size
    append(directory, (HELD,), (DRAINING,))
    path = directory / "journal.bin"
    bad = bytearray(path.read_bytes())
    bad[data.draw(st.integers(0, first - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(bad)
    with pytest.raises(InvalidInput, match="offset 0"):
        j.read(path)
    assert path.read_bytes() == bytes(bad), "a refused journal is left as it is"


def test_a_second_controller_is_told_who_has_the_journal(tmp_path: Path) -> None:
    journal = j.Journal(tmp_path)
    with pytest.raises(Conflict, match=f"process {os.getpid()}"):
        j.Journal(tmp_path)
    journal.close()
    j.Journal(tmp_path).close()


def test_a_failed_append_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = j.Journal(tmp_path)
    journal.append((BOOTED,))

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="no space"):
            journal.append((HELD,))
    journal.append((DRAINING,))
    journal.close()
    assert records(tmp_path) == (BOOTED, DRAINING)


def test_a_long_journal_is_shortened_and_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(j, "LONG_BYTES", 1000)
    journal = j.Journal(tmp_path)
    written: list[Record] = []
    for boot in range(1, 100):
        written += [Booted(boot, boot), HeldDead((f"vm{boot}",))]
        journal.append(written[-2:])
    assert journal.long
    was = journal.path.stat().st_size
    journal.shorten()
    assert journal.path.stat().st_size < was / 2
    assert not journal.long, "else it is written anew every second"
    journal.append((DRAINING,))
    journal.close()
    assert fold_all(records(tmp_path)) == fold_all((*written, DRAINING))
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["journal.bin", "lock"]


def test_a_journal_that_cannot_be_shortened_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = j.Journal(tmp_path)
    journal.append((BOOTED, HELD))
    before = journal.path.read_bytes()

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="no space"):
            journal.shorten()
    assert journal.path.read_bytes() == before
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["journal.bin", "lock"]
    journal.append((DRAINING,))
    journal.close()
    assert records(tmp_path) == (BOOTED, HELD, DRAINING)


@pytest.mark.parametrize("spoil", ["its end", "its middle"])
def test_a_journal_that_does_not_read_back_is_not_shortened(tmp_path: Path, spoil: str) -> None:
    """What the disk damaged meanwhile must not pass for all there was; nor does it end who runs on it."""
    journal = j.Journal(tmp_path)
    for record in (BOOTED, HELD, DRAINING):
        journal.append((record,))
    data = bytearray(journal.path.read_bytes())
    at = len(data) - 1 if spoil == "its end" else 10
    data[at] ^= 1
    journal.path.write_bytes(data)
    with pytest.raises(OSError, match="does not read back"):
        journal.shorten()
    assert journal.path.read_bytes() == bytes(data)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["journal.bin", "lock"]
    journal.close()


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, bytes(data)[:3], at))
    append(tmp_path, (BOOTED,), (HELD,))
    monkeypatch.undo()
    assert records(tmp_path) == (BOOTED, HELD)


def test_the_fold_of_no_records_is_nothing() -> None:
    assert fold_all(()).boot == 0
    assert fold_all((BOOTED, HELD, DRAINING)).held_dead == ("vm2",)
