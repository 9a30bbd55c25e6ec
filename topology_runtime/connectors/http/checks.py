"""Who may post: a bearer token, and the signatures of webhooks."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

GITHUB, STRIPE = "github", "stripe"
OLDEST_S = 300.0  # a signature that tells its time, and is older, is somebody's copy


def has_token(headers: Mapping[str, str], token: str) -> bool:
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return hmac.compare_digest(given.strip().encode("latin-1"), token.encode()) and scheme.lower() == "bearer"


def is_signed(kind: str, headers: Mapping[str, str], body: bytes, secret: str, now_s: float) -> bool:
    """Has who sent this body the secret?

    >>> is_signed("github", {"x-hub-signature-256": "sha256=00"}, b"{}", "secret", 0.0)
    False
    """
    if kind == GITHUB:
        given = headers.get("x-hub-signature-256", "")
        return hmac.compare_digest(given.encode("latin-1"), b"sha256=" + _digest(secret, body))
    pairs = [part.strip().partition("=") for part in headers.get("stripe-signature", "").split(",")]
    at = next((value for name, _, value in pairs if name == "t"), "")
    if not (at.isascii() and at.isdigit() and len(at) < 15) or abs(now_s - int(at)) > OLDEST_S:
        return False
    due = _digest(secret, at.encode() + b"." + body)
    found = [hmac.compare_digest(value.encode("latin-1"), due) for name, _, value in pairs if name == "v1"]
    return any(found)


def _digest(secret: str, data: bytes) -> bytes:
    return hmac.new(secret.encode(), data, hashlib.sha256).hexdigest().encode()
