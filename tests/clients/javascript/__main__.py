"""
Install what the JavaScript client, tests of accessibility and ``tox -e lint`` need: ``python -m tests.clients.javascript DIRECTORY``.

Exactly what ``package-lock.json`` says, outside of the checkout, and once for each
content of it: another process that needs the same waits.  Where there is no npm, nothing is done: the tests then say what is missing.

With ``--lint`` afterwards check the page's JavaScript: its mistakes with eslint, its types with tsc.

client-node 2 works, too; but it needs a node 22, which Debian does not have yet.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

FILES = ("package.json", "package-lock.json")
LINTERS = (
    ("eslint/bin/eslint.js", "twisted_exec", "tests", "eslint.config.mjs"),
    ("typescript/bin/tsc", "-p", "jsconfig.json"),
)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.clients.javascript",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--lint", action="store_true")
    options = parser.parse_args(arguments)
    missing = [name for name in ("node", "npm") if shutil.which(name) is None]
    if missing:
        skipped = "eslint and tsc are skipped" if options.lint else "its tests are skipped"
        print(f"JavaScript: {' and '.join(missing)} not on PATH (nodejs, npm); {skipped}")
        return 0
    options.directory.mkdir(parents=True, exist_ok=True)
    with open(options.directory / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _install(options.directory)
    if not options.lint:
        return 0
    modules = options.directory / "node_modules"
    commands = (["node", str(modules / program), *words] for program, *words in LINTERS)
    return max(subprocess.run(command).returncode for command in commands)


def _install(directory: Path) -> None:
    here, mark = Path(__file__).parent, directory / "installed"
    contents = [(here / name).read_bytes() for name in FILES]
    digest = hashlib.sha256(b"".join(contents)).hexdigest()
    if mark.exists() and mark.read_text() == digest:
        return
    mark.unlink(missing_ok=True)
    for name, content in zip(FILES, contents, strict=True):
        (directory / name).write_bytes(content)
    subprocess.run(
        ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=directory, check=True
    )
    mark.write_text(digest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
