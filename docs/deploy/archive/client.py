"""The program of the archive: the first argument is the path of the command that was typed, the others are its own."""

import os
import sys

from twisted_exec.cli import start

COMMANDS = {
    "kubectl-console": start.kubectl_console,
    "kubectl_complete-console": start.kubectl_complete_console,
    "twisted-exec": start.twisted_exec,
}


def main() -> int:
    """Run the command."""
    # PyInstaller's loader has set these for this program.  A credential plugin, a pager or a browser would load our
    # libraries by them.
    original = os.environ.pop("LD_LIBRARY_PATH_ORIG", "")
    for name in [
        name for name in os.environ if name.startswith("_PYI_") or name == "LD_LIBRARY_PATH"
    ]:
        del os.environ[name]
    if original:
        os.environ["LD_LIBRARY_PATH"] = original
    # autobahn's compiled parts read their C sources, which the archive does not have; a client uses none of them.
    os.environ["AUTOBAHN_USE_NVX"] = "0"
    del sys.argv[0]
    return COMMANDS[os.path.basename(sys.argv[0])]()


if __name__ == "__main__":
    sys.exit(main())
