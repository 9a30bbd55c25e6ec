"""What ended threads leave behind goes, though it was kept from the collector."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from headgate.topology_runtime.worker import garbage


class Part:
    """Refers to another that refers to it, as a thread and its core do."""

    def __init__(self) -> None:
        self.other = [self]


@pytest.fixture(autouse=True)
def unfrozen() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_a_frozen_cycle_goes_once_its_thread_has_ended() -> None:
    garbage.begin()
    part = Part()
    known = weakref.ref(part)
    garbage.keep()
    del part
    gc.collect()
    assert known() is not None, "what is kept is not looked at"
    garbage.let_go()
    assert known() is None
    assert gc.get_freeze_count() > 1000, "all else is kept as before"
