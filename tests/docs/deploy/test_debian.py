"""
Tests for ``docs/deploy/debian``, without building the packages.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess

from twisted.trial.unittest import SynchronousTestCase

from tests.tiers import PROGRAMS

from . import files


class RecipeTests(SynchronousTestCase):
    """The recipe of the packages."""

    starts = PROGRAMS

    def read(self, name: str) -> str:
        return (files.DEPLOY / "debian" / name).read_text()

    def test_commands(self) -> None:
        """The client's package has each command in ``/usr/bin``."""
        lines = self.read("twisted-exec-client.links").splitlines()
        linked = {tuple(line.split()) for line in lines}
        expected = {
            (f"usr/lib/twisted-exec/bin/{name}", f"usr/bin/{name}") for name in files.commands()
        }
        self.assertEqual(linked, expected)
        kept = re.search(r"^commands := (.*)$", self.read("rules"), re.M)
        assert kept is not None
        self.assertEqual(set(kept[1].split()), files.commands() | {"twistd"})

    def test_environment(self) -> None:
        """The units of the package start what is in the package: their path is replaced in all of them."""
        self.assertIn("sed 's,/opt/twisted-exec/,/$(home)/,'", self.read("rules"))
        for unit in files.SYSTEMD.glob("*.service"):
            self.assertEqual(unit.read_text().count("=/opt/twisted-exec/bin/twistd "), 1, unit)

    def test_units(self) -> None:
        """An upgrade restarts all units that run, and a removal stops them."""
        names = {path.stem.replace("@", "@*") for path in files.SYSTEMD.glob("*.service")}
        for name, verb in (("postinst", "try-restart"), ("prerm", "stop")):
            script = self.read(f"twisted-exec-servers.{name}").replace("\\\n", "")
            found = re.search(rf"systemctl {verb} (.*) \|\| true", script)
            assert found is not None
            self.assertEqual(set(shlex.split(found[1])), names)

    def test_purge(self) -> None:
        """A purge removes the state of all units, and ends the machines of those that leave them running."""
        script = self.read("twisted-exec-servers.postrm")
        removed = re.search(r"for name in (.*); do\n +rm -rf ", script)
        group = re.search(r"grep -lsE '(.*)' /proc", script)
        assert removed is not None and group is not None
        self.assertIn(group[1], self.read("twisted-exec-servers.prerm"))
        units = [files.Unit(path) for path in files.SYSTEMD.glob("*.service")]
        directories = {
            directory.partition("/")[0]
            for unit in units
            for key in ("StateDirectory", "RuntimeDirectory")
            for directory in unit.settings.get(key, [])
        }
        self.assertEqual(set(shlex.split(removed[1])), directories)
        for unit in units:
            ended = re.search(group[1], f"0::/system.slice/{unit.path.name}")
            self.assertEqual(ended is not None, unit.one("KillMode") == "process", unit.path)

    def test_packages(self) -> None:
        """Scripts and lists belong to packages of ``control``, and the shell can read the scripts."""
        packages = set(re.findall(r"^Package: (.*)$", self.read("control"), re.M))
        for path in (files.DEPLOY / "debian").glob("twisted-exec-*"):
            self.assertIn(path.name.rpartition(".")[0], packages)
        shell = shutil.which("sh") or "sh"
        for path in (files.DEPLOY / "debian").iterdir():
            if path.suffix in (".sh", ".postinst", ".prerm", ".postrm"):
                subprocess.check_call([shell, "-n", path], timeout=600)
