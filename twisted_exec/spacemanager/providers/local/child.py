"""
twistd in a process group of its own, for one local space.

Usage: ``python -m twisted_exec.spacemanager.providers.local.child PLUGIN [options]``.

The group, including orphaned children, can be killed as a whole, and a ``^C`` for the manager does
not reach it.
"""

from __future__ import annotations

import os
import sys

from twisted.scripts.twistd import run


def main() -> None:
    """Start a process group, then run twistd."""
    os.setsid()
    sys.argv = ["twistd", "-n", "--pidfile=", *sys.argv[1:]]
    run()


if __name__ == "__main__":
    main()
