"""Addresses of services as users write them."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit


def parts_of_address(url: object) -> SplitResult | None:
    """Its parts; None for what is no address, and says no more: whoever forgets to quote a character of a password has
    a part of it where the port should be, and Python's error has it, too.

    >>> parts_of_address("amqp://ada:pass/word@host") is None, parts_of_address("amqp://host:5672").port
    (True, 5672)
    """
    if not isinstance(url, str):
        return None
    try:
        parts = urlsplit(url)
        return parts if parts.port is None or parts.port >= 0 else None
    except ValueError:
        return None
