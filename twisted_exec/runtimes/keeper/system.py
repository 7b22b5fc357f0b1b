"""
Python's sockets and signals for the keeper, without ``enum`` and ``selectors``, which take 1 MiB.

The keeper imports this module without the rest of the project.
"""

from __future__ import annotations

__all__ = ["accept", "signals", "sockets"]

try:
    import _signal as signals  # type: ignore[import-not-found]
except ImportError:
    import signal as signals

try:
    import _socket as sockets

    accept = sockets.socket._accept  # type: ignore[attr-defined]
except (ImportError, AttributeError):
    import socket as sockets  # type: ignore[no-redef]

    def accept(listener: sockets.socket) -> tuple[int, object]:
        handle, where = listener.accept()  # type: ignore[attr-defined]
        return handle.detach(), where
