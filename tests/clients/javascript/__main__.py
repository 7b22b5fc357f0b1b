"""
Installs what the JavaScript client, tests of accessibility and ``tox -e lint`` need: ``python -m tests.clients.javascript DIRECTORY``.

Exactly what ``package-lock.json`` says, outside of the checkout, and once for each
content of it: another process that needs the same waits.  Where there is no npm, nothing is done: the tests then say what is missing.

client-node 2 works, too; but it needs a node 22, which Debian does not have yet.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

FILES = ("package.json", "package-lock.json")


def main(directory: Path) -> None:
    if shutil.which("npm") is None:
        print("npm is not on PATH: the JavaScript client, eslint and tsc are not installed")
        return
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _install(directory)


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
    if len(sys.argv) != 2:
        raise SystemExit("python -m tests.clients.javascript DIRECTORY")
    main(Path(sys.argv[1]))
