"""
Tests for ``docs/deploy/systemd`` and the container file.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from twisted_exec.nodeserver import leaf_file

from . import deploy, pages
from .deploy import DEPLOY, SYSTEMD, TWISTD, Unit
from .test_options import TAPS

HARDENED = {
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "RestrictNamespaces": "yes",
    "RestrictSUIDSGID": "yes",
    "SystemCallFilter": "@system-service",
    "UMask": "0077",
}


def units() -> dict[str, Unit]:
    """Each unit under the program's name."""
    return {path.stem.rstrip("@"): Unit(path) for path in sorted(SYSTEMD.glob("*.service"))}


class UnitTests(SynchronousTestCase):
    """Every program has a unit, and it starts."""

    def test_programs(self) -> None:
        """One for each."""
        self.assertEqual(set(units()), set(TAPS))

    def test_command_lines(self) -> None:
        """The programs take the very options."""
        for name, unit in units().items():
            first, *words = deploy.with_own_user(unit.command())
            self.assertEqual([os.path.basename(first), *words[:3]], [*TWISTD, name])
            deploy.options_of(words[2:])

    def test_credentials(self) -> None:
        """What is loaded is what is read, and nothing is read in another way."""
        for name, unit in units().items():
            read = set(re.findall(r"/run/credentials/unit/(\S+)", " ".join(unit.command())))
            loaded = {one.replace("%i", "pool-a") for one in unit.credentials}
            shown = pages.DOCS / "howto" / "poollet.kubeconfig"
            if name == "exec-poollet":
                read |= set(re.findall(r"[\w-]+\.(?:crt|key)", shown.read_text()))
            if name == "exec-nodeserver":
                specs = leaf_file.load(str(SYSTEMD / "leaves.yaml"))
                read |= {os.path.basename(str(each.kubeconfig)) for each in specs}
            self.assertEqual(loaded, read, name)
            for loaded_as, path in unit.credentials.items():
                self.assertEqual(path, f"/etc/twisted-exec/{loaded_as}")

    def test_stopping(self) -> None:
        """Sessions have the time that the program gives them; what fails begins again."""
        for name, unit in units().items():
            options = deploy.options_of(deploy.with_own_user(unit.command())[3:])
            self.assertGreaterEqual(
                float(unit.one("TimeoutStopSec")), options.get("drain-seconds", 0.0) + 20, name
            )
            self.assertEqual(unit.one("KillMode"), "mixed", name)
            self.assertEqual(unit.one("Type"), "notify", name)
            self.assertEqual(unit.one("Restart"), "on-failure", name)

    def test_hardened(self) -> None:
        """No program is root, or sees more of the host than it needs."""
        for name, unit in units().items():
            for key, value in HARDENED.items():
                self.assertEqual(unit.one(key), value, f"{name}: {key}")
            settings = unit.settings
            user = settings.get("User", [None])[0]
            self.assertTrue(
                settings.get("DynamicUser") == ["yes"] or user in deploy.made("u"), name
            )
            self.assertTrue({"PrivateDevices", "DevicePolicy"} & set(settings), name)

    def test_groups(self) -> None:
        """A unit whose group does not exist does not start: each is made, or is everywhere."""
        known = deploy.made("g") | {"dialout"}
        for name, unit in units().items():
            for told in unit.settings.get("SupplementaryGroups", []):
                self.assertLessEqual(set(told.split()), known, name)

    def test_users_meet(self) -> None:
        """The runtime and the broker let the poollet's user in, and it knows theirs."""
        found = units()
        poollet = found["exec-poollet"].one("User")
        for name in ("exec-runtime", "exec-broker"):
            words = found[name].command()
            self.assertIn(f"--allow-uid={poollet}", words)
            self.assertIn(f"--iri-listen=unix:///run/{name}/iri.sock", words)
        words = found["exec-poollet"].command()
        self.assertIn("--machine-runtime-endpoint=unix:///run/exec-runtime/iri.sock", words)
        self.assertIn(f"--runtime-uid={found['exec-runtime'].one('User')}", words)

    def test_live(self) -> None:
        """The drop-in changes what the units have, and its user exists."""
        live = Unit(SYSTEMD / "live.conf")
        self.assertLessEqual(set(live.settings), set(units()["exec-apiserver"].settings) | {"User"})
        self.assertIn(live.one("User"), deploy.made("u"))
        self.assertTrue(live.one("Environment").startswith("FILES="))


class VerifyTests(SynchronousTestCase):
    """systemd has nothing to say about them."""

    skip = needs.systemd_analyze()

    def test_verify(self) -> None:
        """Every key and every value."""
        directory = Path(os.path.abspath(self.mktemp()))
        directory.mkdir()
        for path in SYSTEMD.glob("*.service"):
            # It looks for the program, which is elsewhere here.
            text = path.read_text().replace("/opt/twisted-exec/bin/twistd", sys.executable)
            (directory / path.name).write_text(text)
        program = shutil.which("systemd-analyze") or ""
        done = subprocess.run(
            [program, "verify", *map(str, sorted(directory.iterdir()))],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )
        told = [
            line for line in done.stdout.splitlines() if str(directory) in line or "exec-" in line
        ]
        self.assertEqual((done.returncode, told), (0, []), done.stdout)


class ContainerfileTests(SynchronousTestCase):
    """One image for every program, of which nobody is root."""

    def setUp(self) -> None:
        text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
        lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
        self.steps = [
            tuple(line.split(None, 1)) for line in lines.replace("\\\n", " ").splitlines() if line
        ]

    def told(self, instruction: str) -> list[str]:
        return [value for name, value in self.steps if name == instruction]

    def test_stages(self) -> None:
        """Both are of the base that the builder names, and it has a default of no host."""
        self.assertEqual(self.told("FROM"), ["${BASE_IMAGE} AS build", "${BASE_IMAGE}"])
        default = dict(one.split("=", 1) for one in self.told("ARG"))["BASE_IMAGE"]
        self.assertNotIn("/", default)

    def test_sources(self) -> None:
        """What is copied is there."""
        checkout = pages.DOCS.parent
        for told in self.told("COPY"):
            *sources, target = told.split()
            if not sources[0].startswith("--from="):
                for source in sources:
                    self.assertTrue((checkout / source).exists(), source)
                self.assertTrue(target.startswith("/src/"))

    def test_nobody(self) -> None:
        """Its user is a number, so that Kubernetes can see that it is not root."""
        (user,) = self.told("USER")
        self.assertRegex(user, r"^[1-9]\d+:[1-9]\d+$")
        (home,) = self.told("WORKDIR")
        self.assertIn(f"exec:x:{user}::{home}:/bin/sh", " ".join(self.told("RUN")))

    def test_programs(self) -> None:
        """Each is started by its name; by itself, the one that needs nothing."""
        (entry,), (command,) = self.told("ENTRYPOINT"), self.told("CMD")
        self.assertEqual(json.loads(entry), TWISTD)
        words = json.loads(command)
        self.assertEqual(deploy.options_of(words).program, words[0])

    def test_page(self) -> None:
        """What the page has a container run, its program takes."""
        text = pages.page("howto/in-containers").replace("\\\n", " ")
        (line,) = re.findall(r"podman run .* twisted-exec:v1 (exec-.+)$", text, re.MULTILINE)
        words = shlex.split(line)
        self.assertEqual(deploy.options_of(words)["drain-seconds"], 5)

    def test_shell(self) -> None:
        """The shell can read what is run."""
        for told in self.told("RUN"):
            subprocess.run(["sh", "-n", "-c", told], check=True, timeout=30)
            self.assertTrue(shlex.split(told))
