"""
Build the self-contained archive of the client, which needs no Python where it runs.

Run it with the Python of a virtual environment that has the wheel of twisted-exec and PyInstaller, on the kind of
system that the archive is for::

    python -m venv work && docs/deploy/lock/install.sh work/bin/python . pyinstaller
    work/bin/python docs/deploy/archive/build.py DIRECTORY

The archive has the commands, which are scripts for sh, ``lib`` with the program and Python, manual pages, and
the licences of everything in it.  It runs on macOS of the version it was built on or newer, and on Linux with the glibc
of the build host or a newer one, so build it on the oldest distribution that it shall run on.  The same versions of
everything make the same bytes if ``SOURCE_DATE_EPOCH`` is set.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).resolve().parent
COMMANDS = ("kubectl-console", "kubectl_complete-console", "twisted-exec")
SYSTEMS = {"Linux": "linux", "Darwin": "darwin"}
MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
"""Names of Go, and so of krew, for those of ``uname``."""
LOADERS = {
    "linux-amd64": "/lib64/ld-linux-x86-64.so.2",
    "linux-arm64": "/lib/ld-linux-aarch64.so.1",
    "darwin-amd64": "/usr/lib/dyld",
    "darwin-arm64": "/usr/lib/dyld",
}
EXCLUDED = ("grpcio", "protobuf", "pyavt")
"""Distributions that ``client.spec`` leaves out."""
_LICENSE = re.compile(r"(?i)(^|/)(licen[cs]e|copying|notice|authors)[^/]*$")


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the self-contained archive of the client.")
    parser.add_argument("directory", type=Path, help="where the archive is written")
    directory = parser.parse_args().directory
    system, machine = platform.system(), platform.machine()
    if system not in SYSTEMS or machine not in MACHINES:
        sys.exit(f"build.py: there are no archives for {system} {machine}")
    kind = f"{SYSTEMS[system]}-{MACHINES[machine]}"
    name = f"twisted-exec-client-{metadata.version('twisted-exec')}-{kind}"
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / name
        binaries = freeze(Path(scratch), root)
        launcher = (HERE / "launcher.sh").read_text()
        launcher = launcher.replace("@SYSTEM@", f"{system} {machine}")
        launcher = launcher.replace("@LOADER@", LOADERS[kind])
        for command in COMMANDS:
            (root / command).write_text(launcher)
            (root / command).chmod(0o755)
        add_licenses(root / "licenses", binaries)
        subprocess.check_call(
            [root / "twisted-exec", "man", "--directory", root / "share" / "man"],
            stdout=subprocess.DEVNULL,
        )
        archive = directory / f"{name}.tar.gz"
        pack(root, archive)
        size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    print(f"{archive}: {archive.stat().st_size:,} bytes, unpacked {size:,}; sha256 {digest}")


def freeze(scratch: Path, root: Path) -> list[Path]:
    """
    Let PyInstaller collect the program into ``lib`` of a directory.

    :return: the shared libraries in it, where they came from.
    """
    # The script, because python -m would find the package of a checkout in the current directory.
    pyinstaller = Path(sysconfig.get_path("scripts")) / "pyinstaller"
    options = [f"--distpath={root}", f"--workpath={scratch / 'work'}", "--log-level=WARN"]
    subprocess.check_call(
        [pyinstaller, *options, HERE / "client.spec"],
        # The order of names in compiled modules.
        env={**os.environ, "PYTHONHASHSEED": "1"},
    )
    (listed,) = (scratch / "work").rglob("binaries.txt")
    return [Path(line) for line in listed.read_text().splitlines()]


def add_licenses(target: Path, binaries: list[Path]) -> None:
    """Copy the licences of the distributions, of Python, and of the system's libraries."""
    for distribution in {*bundled("twisted-exec"), "pyinstaller"}:
        files = metadata.files(distribution) or []
        licenses = [each for each in files if _LICENSE.search(str(each))]
        for file in licenses:
            copy(Path(str(file.admit())), target / distribution / file.name)
        if not licenses:
            about = metadata.metadata(distribution)
            license = about.get("License-Expression") or about.get("License") or "see its home page"
            (target / distribution).mkdir(parents=True, exist_ok=True)
            (target / distribution / "LICENSE").write_text(f"{distribution}: {license}\n")
    python = Path(sysconfig.get_path("stdlib")) / "LICENSE.txt"
    if python.is_file():
        copy(python, target / "python" / python.name)
    if shutil.which("dpkg"):
        for package in set(debian_packages(binaries)):
            copy(Path("/usr/share/doc", package, "copyright"), target / package / "copyright")


def copy(source: Path, target: Path) -> None:
    """Copy a file into a directory that may not exist."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def bundled(name: str) -> Iterator[str]:
    """Yield a distribution and all that it requires here, except the excluded ones."""
    waiting, seen = [Requirement(name)], set()
    while waiting:
        requirement = waiting.pop()
        key = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if key in seen or key[0] in EXCLUDED:
            continue
        seen.add(key)
        yield key[0]
        for line in metadata.requires(requirement.name) or []:
            needed = Requirement(line)
            extras = requirement.extras or {""}
            marker = needed.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(needed)


def debian_packages(binaries: list[Path]) -> Iterator[str]:
    """Yield the packages of the libraries that are Debian's."""
    for path in {path.resolve() for path in binaries}:
        if path.is_relative_to(sys.prefix):
            continue
        # /usr/lib may be a link to /lib in dpkg's lists.
        for name in (str(path), str(path).removeprefix("/usr")):
            owner = subprocess.run(["dpkg", "-S", name], capture_output=True, text=True)
            if owner.returncode == 0:
                yield owner.stdout.partition(":")[0]
                break


def pack(root: Path, archive: Path) -> None:
    """Write a directory as an archive without links, which older releases of krew refuse."""
    moment = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        entry.mtime = moment
        return entry

    with (
        open(archive, "wb") as file,
        gzip.GzipFile("", "wb", 9, file, mtime=moment) as compressed,
        tarfile.open(fileobj=compressed, mode="w", dereference=True) as tar,
    ):
        tar.add(root, root.name, filter=plain)  # in the order of names


if __name__ == "__main__":
    main()
