"""
Tests for ``docs/deploy/lock``, with which a release's image, archive and Debian packages are built.
"""

from __future__ import annotations

import configparser
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.docs import pages
from tests.tiers import PROGRAMS
from twisted_exec.web.vendoring.wheel_backend import NODE

from . import files

LOCK = files.DEPLOY / "lock"
TOP = pages.DOCS.parent
EXTRAS = ("policies", "s3", "ssh")
ENVIRONMENTS = [
    {
        "python_version": python,
        "python_full_version": f"{python}.1",
        "sys_platform": system,
        "platform_machine": machine,
        "platform_system": system.title(),
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
        "os_name": "posix",
        "extra": "",
    }
    for python in ("3.11", "3.12", "3.13", "3.14")
    for system, machine in (
        ("linux", "x86_64"),
        ("linux", "aarch64"),
        ("darwin", "arm64"),
        ("darwin", "x86_64"),
    )
]
"""Where the artifacts of a release run."""


def requirements(text: str) -> list[Requirement]:
    """Return the requirements in lines, without comments and hashes."""
    lines = (line.partition("#")[0].strip() for line in text.replace("\\\n", " ").splitlines())
    return [Requirement(line.partition(" --hash=")[0].strip()) for line in lines if line]


def applies(requirement: Requirement, environment: dict[str, str]) -> bool:
    return requirement.marker is None or requirement.marker.evaluate(environment)


class LockTests(SynchronousTestCase):
    """The lock, beside what the project requires."""

    def setUp(self) -> None:
        self.text = (LOCK / "requirements.txt").read_text()
        self.locked = requirements(self.text)

    def declared(self) -> Iterator[Requirement]:
        """Yield what the artifacts need: dependencies, the extras of the image, and the tools of the builds."""
        config = configparser.ConfigParser(inline_comment_prefixes=None)
        config.read(TOP / "setup.cfg")
        yield from requirements(config["options"]["install_requires"])
        for extra in EXTRAS:
            yield from requirements(config["options.extras_require"][extra])
        yield from requirements((LOCK / "build.in").read_text())
        yield Requirement(NODE)

    def assert_locked(self, needed: Iterable[Requirement], environment: dict[str, str]) -> None:
        """Each requirement that applies has exactly one locked release, which satisfies it."""
        for requirement in needed:
            if not applies(requirement, environment):
                continue
            name = canonicalize_name(requirement.name)
            releases = [
                specifier.version
                for each in self.locked
                if canonicalize_name(each.name) == name and applies(each, environment)
                for specifier in each.specifier
            ]
            where = {key: environment[key] for key in ("python_version", "platform_machine")}
            remedy = f"{requirement} in {where} is locked to {releases}; run tox -e lock"
            self.assertEqual(len(releases), 1, remedy)
            self.assertTrue(requirement.specifier.contains(releases[0], prereleases=True), remedy)

    def test_satisfies_bounds(self) -> None:
        """Every dependency in ``setup.cfg`` has a locked release within its bounds, wherever a release runs."""
        declared = list(self.declared())
        self.assertGreater(len(declared), 15)
        for environment in ENVIRONMENTS:
            self.assert_locked(declared, environment)

    def test_covers_dependencies_of_dependencies(self) -> None:
        """What a locked release requires is locked, too, as far as this environment has the very release."""
        compared = 0
        for each in self.locked:
            (specifier,) = each.specifier
            try:
                installed = metadata.distribution(each.name)
            except metadata.PackageNotFoundError:
                continue
            if installed.version != specifier.version:
                continue
            needed = [Requirement(line) for line in installed.requires or []]
            for environment in ENVIRONMENTS:
                if applies(each, environment):
                    self.assert_locked(needed, environment)
                    compared += 1
        self.assertTrue(compared)

    def test_exact(self) -> None:
        """Each entry is one release with hashes."""
        for each in self.locked:
            self.assertEqual([one.operator for one in each.specifier], ["=="], str(each))
        entries = re.findall(r"^[a-z0-9](?:.*\\\n)*.*$", self.text, re.M)
        self.assertEqual(len(entries), len(self.locked))
        for entry in entries:
            self.assertRegex(entry, r"--hash=sha256:[0-9a-f]{64}")

    def test_names_no_index(self) -> None:
        """The lock names no package index, no host and no directory, so it serves with any mirror."""
        for forbidden in ("://", "--index-url", "--extra-index-url", "--find-links", "@ "):
            self.assertNotIn(forbidden, self.text)

    def test_renewal(self) -> None:
        """The lock says which command renews it, and that command writes this file for these extras."""
        self.assertIn("#    tox -e lock\n", self.text)
        config = configparser.ConfigParser(interpolation=None)
        config.read(TOP / "tox.ini")
        command = config["testenv:lock"]["commands"]
        self.assertIn("--output-file=docs/deploy/lock/requirements.txt", command)
        self.assertIn("--generate-hashes", command)
        self.assertEqual(tuple(re.findall(r"--extra=(\w+)", command)), EXTRAS)

    def test_builds(self) -> None:
        """Image, Debian packages and archive are installed from the lock, and by no other command of pip."""
        script = "docs/deploy/lock/install.sh"
        recipes = {
            "Containerfile": f"/src/{script} /opt/twisted-exec/bin/python",
            "debian/rules": f"{script} $(client)/$(home)/bin/python",
            "archive/build.py": f"{script} work/bin/python . pyinstaller",
        }
        for name, command in recipes.items():
            text = (files.DEPLOY / name).read_text()
            self.assertIn(command, text, name)
            self.assertNotIn("pip install", text, name)
        howto = (pages.DOCS / "howto" / "install-client.rst").read_text()
        self.assertIn(f"$ {recipes['archive/build.py']}\n", howto)


class InstallTests(SynchronousTestCase):
    """``install.sh`` with small packages, in an environment without an index."""

    starts = PROGRAMS
    skip = needs.venv()

    def setUp(self) -> None:
        self.directory = Path(self.mktemp()).absolute()
        self.packages = self.directory / "packages"
        self.packages.mkdir(parents=True)
        self.script = shutil.copy(LOCK / "install.sh", self.directory)
        subprocess.check_call([sys.executable, "-m", "venv", self.directory / "env"])

    def package(self, name: str, *required: str) -> str:
        """Write a wheel of a package that has one module; return its line for the lock."""
        wheel = self.packages / f"{name}-1.0-py3-none-any.whl"
        about = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        about += "".join(f"Requires-Dist: {each}\n" for each in required)
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"{name}.py", "")
            archive.writestr(f"{name}-1.0.dist-info/METADATA", about)
            archive.writestr(
                f"{name}-1.0.dist-info/WHEEL",
                "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            )
            archive.writestr(f"{name}-1.0.dist-info/RECORD", "")
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        return f"{name}==1.0 --hash=sha256:{digest}\n"

    def install(self, lock: str, *required: str) -> tuple[int, str]:
        (self.directory / "requirements.txt").write_text(lock)
        done = subprocess.run(
            [self.script, self.directory / "env" / "bin" / "python", *required],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={
                "PATH": os.environ["PATH"],
                "PIP_NO_INDEX": "1",
                "PIP_FIND_LINKS": str(self.packages),
                "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            },
        )
        return done.returncode, done.stdout

    def has(self, name: str) -> bool:
        return any((self.directory / "env").glob(f"lib/python3*/site-packages/{name}.py"))

    def test_installs(self) -> None:
        """Named packages and their dependencies are installed, and other locked ones are not."""
        lock = self.package("first", "second") + self.package("second") + self.package("third")
        code, output = self.install(lock, "first")
        self.assertEqual(code, 0, output)
        self.assertEqual(
            [self.has(name) for name in ("first", "second", "third")], [True, True, False]
        )

    def test_altered(self) -> None:
        """A file that differs from its hash ends the installation, before anything is installed."""
        lock = self.package("first", "second") + self.package("second")
        self.package("second", "other")  # other bytes of the same release
        code, output = self.install(lock, "first")
        self.assertNotEqual(code, 0)
        self.assertIn("DO NOT MATCH THE HASHES", output)
        self.assertFalse(self.has("first"))

    def test_dependency_without_lock(self) -> None:
        """A dependency that the lock lacks ends the installation, although the index has it."""
        lock = self.package("first", "second")
        self.package("second")
        code, output = self.install(lock, "first")
        self.assertNotEqual(code, 0)
        self.assertIn("second", output)
        self.assertFalse(self.has("first"))
