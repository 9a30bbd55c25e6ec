"""JSON merge patches (RFC 7386) between snapshots, and their history, which is appended. Pure.

A few lines of our own: documents are shared with whoever reads them, so a patch makes a new one in which what it
leaves alone is the same object; json-merge-patch, the library for it, changes the document in place.
"""

from __future__ import annotations

from typing import Any

from headgate.topology_runtime.snapshot import HISTORY_S

Document = dict[str, Any]

APART = frozenset({"number", "boot", "now", "history"})  # what a delta says beside its patch


def patch_between(before: Document, after: Document) -> Document:
    """The merge patch that makes `after` of `before`. Neither holds a null."""
    patch: Document = {}
    for key, value in after.items():
        old = before.get(key)
        if value is old or value == old:
            continue
        patch[key] = patch_between(old, value) if isinstance(value, dict) and isinstance(old, dict) else value
    patch.update(dict.fromkeys(before.keys() - after.keys()))
    return patch


def patched(document: Document, patch: Document) -> Document:
    """The document with the patch; neither is changed."""
    after = dict(document)
    for key, value in patch.items():
        if value is None:
            after.pop(key, None)
        elif isinstance(value, dict):
            old = after.get(key)
            after[key] = patched(old if isinstance(old, dict) else {}, value)
        else:
            after[key] = value
    return after


def advanced(document: Document, delta: Document) -> Document | None:
    """The snapshot after the delta; None when it does not follow: something is missing in between."""
    if (delta["boot"], delta["number"]) != (document["boot"], document["number"] + 1):
        return None
    after = patched(document, delta["patch"])
    for key in ("number", "boot", "now"):
        after[key] = delta[key]
    if delta.get("history"):
        after["history"] = appended(document["history"], delta["history"])
    return after


def appended(history: Document, rows: Document) -> Document:
    """The history with new rows at its end, and without those that are older than it reaches."""
    if not rows.get("time"):
        return history
    since = rows["time"][-1] - HISTORY_S
    before = history.get("time", [])
    cut = next((n for n, time in enumerate(before) if time > since), len(before))
    return {name: [*history.get(name, [])[cut:], *values] for name, values in rows.items()}
