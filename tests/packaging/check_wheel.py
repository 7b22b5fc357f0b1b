"""
Build the wheel, install it into an empty environment, use the plugins, and
uninstall it again: nothing of ours may be left, nothing of Twisted's be gone.

Run as ``python tests/packaging/check_wheel.py`` from the top of a checkout; it
needs a package index for the dependencies.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

PROGRAMS = (
    "exec-apiserver",
    "exec-broker",
    "exec-nodeserver",
    "exec-poollet",
    "exec-runtime",
    "exec-spacemanager",
    "exec-standalone",
)
PLUGINS = ("twisted/plugins/twisted_exec_plugins.py", "twisted/plugins/twisted_exec_drivers.py")
COMMANDS = ("kubectl-console", "twisted-exec")


def run(*argv: str | Path) -> str:
    """The standard output of a command that must succeed."""
    return subprocess.run(
        [str(word) for word in argv], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def files_below(site_packages: Path) -> set[str]:
    """Every installed file except the caches that an import leaves behind."""
    return {
        str(path.relative_to(site_packages))
        for path in site_packages.rglob("*")
        if path.is_file() and path.suffix != ".pyc" and path.name != "dropin.cache"
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        run(sys.executable, "-m", "build", "--wheel", "--outdir", root / "dist", ".")
        (wheel,) = (root / "dist").glob("*.whl")
        venv.create(root / "env", with_pip=True)
        python = root / "env" / "bin" / "python"
        run(python, "-m", "pip", "install", "--quiet", wheel)

        offered = run(root / "env" / "bin" / "twistd", "--help")
        missing = [name for name in PROGRAMS if name not in offered]
        assert not missing, f"twistd does not offer {missing}"
        for command in COMMANDS:
            run(root / "env" / "bin" / command, "--help")

        (site_packages,) = (root / "env" / "lib").glob("python*/site-packages")
        before = files_below(site_packages)
        run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "twisted-exec")
        gone = before - files_below(site_packages)
        foreign = [
            name
            for name in gone
            if not name.startswith(("twisted_exec/", "twisted_exec-")) and name not in PLUGINS
        ]
        left = [name for name in files_below(site_packages) if "twisted_exec" in name]
        assert not foreign, f"uninstalling removed what is not ours: {foreign}"
        assert not left, f"uninstalling left behind {left}"
        run(python, "-c", "import twisted.plugins, twisted.web.server")
    print("the wheel carries the plugins and uninstalls cleanly")


if __name__ == "__main__":
    main()
