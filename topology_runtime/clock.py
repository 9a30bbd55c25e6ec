"""Clocks. Durations and leases: monotonic. Intended emit times and records: UTC."""

from __future__ import annotations

import time

monotonic_ns = time.monotonic_ns
wall_ns = time.time_ns
