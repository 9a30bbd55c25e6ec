"""Whether a port of one host can be reached from another: listening there, connecting here."""

from __future__ import annotations

import socket


def greet(listening: socket.socket, word: str) -> None:
    """The word to whoever connects, until the socket is closed."""
    while True:
        try:
            peer, _ = listening.accept()
        except OSError:
            return
        with peer:
            peer.settimeout(2.0)
            try:
                peer.sendall(word.encode())
            except OSError:
                continue


def unreached(address: str, port: int, word: str, timeout_s: float) -> str | None:
    """Why this port of that address does not answer with its word; None: it does."""
    try:
        with socket.create_connection((address, port), timeout_s) as peer:
            peer.settimeout(timeout_s)
            got = b""
            while len(got) < len(word):
                part = peer.recv(64)
                if not part:
                    break
                got += part
    except TimeoutError:
        return "no answer"
    except OSError as error:
        return error.strerror or str(error)
    return None if got.decode("utf-8", "replace") == word else "something else listens there"
