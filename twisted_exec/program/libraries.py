"""
Libraries that only servers need, and that an installation of the client may lack.
"""

from __future__ import annotations

_OF_SERVERS = ("grpc", "google")
"""Packages of grpcio and protobuf."""


def missing_library(error: ModuleNotFoundError) -> str:
    """Return the one line for a module that cannot be imported, with the remedy."""
    name = (error.name or "").partition(".")[0]
    if name in _OF_SERVERS:
        return "needs grpcio: pip install 'twisted-exec[server]'"
    return f"needs the Python module {error.name}: {error}"
