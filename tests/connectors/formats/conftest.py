"""What tests of formats share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from registry_server import Registry

from headgate.topology_runtime.connectors.formats.format import Format
from headgate.topology_runtime.connectors.formats.format_factory import open_format


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def opened_format(registry: Registry) -> Iterator[Callable[..., Format]]:
    """As `open_format`; closed when the test ends."""
    with ExitStack() as stack:
        yield lambda *name, **options: stack.enter_context(closing(open_format(*name, **options)))
