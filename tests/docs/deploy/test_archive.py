"""
Tests for ``docs/deploy/archive``: what needs no PyInstaller.  The suite ``archive`` of ``tests.interop`` has the rest.
"""

from __future__ import annotations

import hashlib
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import yaml
from twisted.trial.unittest import SynchronousTestCase

from . import files

ARCHIVE = files.DEPLOY / "archive"
SYSTEM = "Linux x86_64"


class LauncherTests(SynchronousTestCase):
    """The scripts that start the program of the archive."""

    def setUp(self) -> None:
        self.directory = Path(os.path.abspath(self.mktemp()))
        self.installed = self.directory / "client"
        self.write(
            self.installed / "lib" / "twisted-exec", '#!/bin/sh\nprintf "%s|" "$@"\nexit 7\n'
        )
        self.system(SYSTEM)
        self.launcher()

    def write(self, path: Path, script: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script)
        path.chmod(0o755)

    def launcher(self, loader: str = "/bin/sh") -> None:
        text = (ARCHIVE / "launcher.sh").read_text()
        text = text.replace("@SYSTEM@", SYSTEM).replace("@LOADER@", loader)
        self.write(self.installed / "kubectl-console", text)

    def system(self, name: str) -> None:
        """Let ``uname`` print the system and the machine."""
        self.write(self.directory / "bin" / "uname", f"#!/bin/sh\necho {name}\n")

    def run_it(self, *command: str | Path, cwd: Path | None = None) -> tuple[int, str, str]:
        path = f"{self.directory / 'bin'}:{os.environ['PATH']}"
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=600, cwd=cwd, env={"PATH": path}
        )
        return done.returncode, done.stdout, done.stderr

    def test_runs(self) -> None:
        """The program gets the path of the command and all arguments, and its exit code is the command's."""
        program = self.installed / "kubectl-console"
        answer = self.run_it(program, "vm 1", "", "*")
        self.assertEqual(answer, (7, f"{program}|vm 1||*|", ""))

    def test_links(self) -> None:
        """A link to a link finds the program, as krew makes them; so does sh in the same directory."""
        links = self.directory / "links"
        links.mkdir()
        (links / "kubectl-console").symlink_to("second")
        (links / "second").symlink_to(self.installed / "kubectl-console")
        code, out, err = self.run_it(links / "kubectl-console", "vm")
        self.assertEqual((code, err), (7, ""))
        self.assertTrue(out.endswith("/client/kubectl-console|vm|"), out)
        code, out, err = self.run_it("sh", "kubectl-console", cwd=self.installed)
        self.assertEqual((code, out, err), (7, "./kubectl-console|", ""))

    def test_wrong_architecture(self) -> None:
        """On another architecture the command says which one the archive is for."""
        self.system("Linux aarch64")
        code, out, err = self.run_it(self.installed / "kubectl-console", "vm")
        self.assertEqual((code, out), (126, ""))
        self.assertIn("this archive is for Linux x86_64, but this host is Linux aarch64", err)
        self.assertEqual(err.count("\n"), 1)

    def test_musl(self) -> None:
        """Without the loader of glibc the command says that it is missing."""
        self.launcher("/lib64/no-such-loader.so.2")
        code, out, err = self.run_it(self.installed / "kubectl-console", "vm")
        self.assertEqual((code, out), (126, ""))
        self.assertIn("needs /lib64/no-such-loader.so.2, which systems with musl do not have", err)


class BuildTests(SynchronousTestCase):
    """The commands of the archive."""

    def test_commands(self) -> None:
        """The archive has the commands that pip installs."""
        self.assertEqual(
            set(runpy.run_path(str(ARCHIVE / "client.py"))["COMMANDS"]), files.commands()
        )
        self.assertEqual(
            set(runpy.run_path(str(ARCHIVE / "build.py"))["COMMANDS"]), files.commands()
        )


class ManifestTests(SynchronousTestCase):
    """The manifest for krew."""

    def setUp(self) -> None:
        self.directory = Path(os.path.abspath(self.mktemp()))
        self.directory.mkdir()

    def archive(self, version: str, kind: str) -> Path:
        path = self.directory / f"twisted-exec-client-{version}-{kind}.tar.gz"
        path.write_bytes(kind.encode())
        return path

    def run_it(self, *archives: Path) -> subprocess.CompletedProcess[str]:
        url = "--url=https://example.org/releases/0.2.0/"
        command = [sys.executable, ARCHIVE / "krew.py", url, *archives]
        return subprocess.run(command, capture_output=True, text=True, timeout=600)

    def test_manifest(self) -> None:
        """Each archive has its system, its address and its checksum, in the form that krew accepts."""
        kinds = ("darwin-arm64", "linux-amd64", "linux-arm64")
        done = self.run_it(*(self.archive("0.2.0", kind) for kind in kinds))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        plugin = yaml.safe_load(done.stdout)
        self.assertEqual(plugin["apiVersion"], "krew.googlecontainertools.github.com/v1alpha2")
        self.assertEqual((plugin["kind"], plugin["metadata"]), ("Plugin", {"name": "console"}))
        spec = plugin["spec"]
        self.assertEqual(spec["version"], "v0.2.0")
        self.assertTrue(spec["shortDescription"] and len(spec["shortDescription"]) <= 50)
        for kind, platform in zip(kinds, spec["platforms"], strict=True):
            system, _, machine = kind.partition("-")
            name = f"twisted-exec-client-0.2.0-{kind}"
            expected = {
                "selector": {"matchLabels": {"os": system, "arch": machine}},
                "uri": f"https://example.org/releases/0.2.0/{name}.tar.gz",
                "sha256": hashlib.sha256(kind.encode()).hexdigest(),
                "files": [{"from": f"{name}/*", "to": "."}],
                "bin": "kubectl-console",
            }
            self.assertEqual(platform, expected)

    def test_versions(self) -> None:
        """Versions of Python's become versions that krew can compare."""
        semantic = runpy.run_path(str(ARCHIVE / "krew.py"))["semantic"]
        cases = {
            "0.2.0": "v0.2.0",
            "1.0": "v1.0.0",
            "0.3.0rc1": "v0.3.0-rc1",
            "0.2.0.dev0+g1b2c3d": "v0.2.0-dev0+g1b2c3d",
        }
        for version, expected in cases.items():
            self.assertEqual(semantic(version), expected)

    def test_refused(self) -> None:
        """Another file, a missing one, and archives of two releases are refused by name."""
        one = self.archive("0.2.0", "linux-amd64")
        other = self.directory / "console.zip"
        other.write_bytes(b"")
        missing = self.directory / "twisted-exec-client-0.2.0-linux-arm64.tar.gz"
        for archives, reason in (
            ([other], "console.zip is not an archive of build.py"),
            ([one, missing], re.escape(missing.name)),
            ([one, self.archive("0.3.0", "linux-arm64")], "several versions: 0.2.0, 0.3.0"),
        ):
            done = self.run_it(*archives)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertRegex(done.stderr, rf"^krew\.py: .*{reason}")
            self.assertEqual(done.stderr.count("\n"), 1)
