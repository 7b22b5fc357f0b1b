"""
``python -m twisted_exec.spacemanager.providers.local.child PLUGIN [options]``: twistd in a process group of its own.

So it, and whatever it starts and loses, can be ended together; and a ``^C`` that is typed to the manager is
not the space's.
"""

from __future__ import annotations

import os
import sys

from twisted.scripts.twistd import run


def main() -> None:
    """Lead a group, then be twistd."""
    os.setsid()
    sys.argv = ["twistd", "-n", "--pidfile=", *sys.argv[1:]]
    run()


if __name__ == "__main__":
    main()
