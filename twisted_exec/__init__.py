"""
twisted-exec: the serial console of any machine, through one Kubernetes-style
API server.

Applications that embed it import the interfaces from
:mod:`twisted_exec.interfaces`.
"""

from importlib import import_module

_RELEASE = "0.2.0"
"""The version, with ``.dev0`` until it is released."""


def _commit() -> str:
    try:
        # The build backend writes it into each build of a git checkout.
        return str(import_module("twisted_exec._commit").COMMIT)
    except ModuleNotFoundError:
        return ""


COMMIT = _commit()
__version__ = f"{_RELEASE}+g{COMMIT}" if COMMIT and ".dev" in _RELEASE else _RELEASE


def build() -> str:
    """Return the version, and the commit if it is known: ``0.2.0 (commit 1b2c3d4e5f60)``."""
    if not COMMIT or COMMIT in __version__:
        return __version__
    return f"{__version__} (commit {COMMIT})"
