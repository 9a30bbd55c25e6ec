"""The live page: its own process, fed by a controller's picture or by a trace, serving one page on loopback."""

from __future__ import annotations
