"""
Libraries that an installation may lack, and the commands that install them.
"""

from __future__ import annotations

import sys

_GRPC = ("grpcio", "protobuf")
_PACKAGES = {"grpc": _GRPC, "google": _GRPC, "avt": ("pyavt",), "bcrypt": ("bcrypt",)}
"""Packages by module."""


def install(*packages: str) -> str:
    """Return the command that installs packages from an index into the running environment."""
    return f"{sys.executable} -m pip install {' '.join(packages)}"


def missing_library(error: ModuleNotFoundError) -> str:
    """Return the one line for a module that cannot be imported."""
    name = (error.name or "").partition(".")[0]
    packages = _PACKAGES.get(name)
    if packages is None:
        return f"needs the Python module {error.name}: {error}"
    if hasattr(sys, "frozen"):  # by PyInstaller
        return f"needs {packages[0]}, which the self-contained archive does not have: install twisted-exec with pip"
    return f"needs {packages[0]}: {install(*packages)}"
