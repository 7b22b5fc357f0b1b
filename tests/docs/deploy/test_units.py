"""
Tests for ``docs/deploy/systemd`` and ``docs/deploy/Containerfile``.
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
from tests.docs import pages
from tests.docs.test_options import TAPS
from tests.tiers import PROGRAMS
from twisted_exec.nodeserver.leaves import file

from . import files
from .files import DEPLOY, SYSTEMD, TWISTD, Unit

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
    """Return the units by the names of their programs."""
    return {path.stem.rstrip("@"): Unit(path) for path in sorted(SYSTEMD.glob("*.service"))}


class UnitTests(SynchronousTestCase):
    """The systemd units."""

    starts = PROGRAMS

    def test_programs(self) -> None:
        """Each program has a unit."""
        self.assertEqual(set(units()), set(TAPS))

    def test_command_lines(self) -> None:
        """The programs accept the command lines."""
        for name, unit in units().items():
            first, *words = files.with_own_user(unit.command())
            self.assertEqual([os.path.basename(first), *words[:3]], [*TWISTD, name])
            files.options_of(words[2:])

    def test_credentials(self) -> None:
        """Each unit loads exactly the files that its program reads."""
        for name, unit in units().items():
            read = set(re.findall(r"/run/credentials/unit/(\S+)", " ".join(unit.command())))
            loaded = {name.replace("%i", "pool-a") for name in unit.credentials}
            example = pages.DOCS / "howto" / "poollet.kubeconfig"
            if name == "exec-poollet":
                read |= set(re.findall(r"[\w-]+\.(?:crt|key)", example.read_text()))
            if name == "exec-nodeserver":
                specs = file.load(str(SYSTEMD / "leaves.yaml"))
                read |= {os.path.basename(str(each.kubeconfig)) for each in specs}
            self.assertEqual(loaded, read, name)
            for loaded_as, path in unit.credentials.items():
                self.assertEqual(path, f"/etc/twisted-exec/{loaded_as}")

    def test_stopping(self) -> None:
        """systemd waits longer than a stop takes, and restarts a failed program."""
        for name, unit in units().items():
            options = files.options_of(files.with_own_user(unit.command())[3:])
            self.assertGreaterEqual(
                float(unit.one("TimeoutStopSec")), options.get("drain-seconds", 0.0) + 20, name
            )
            keeps = name in ("exec-runtime", "exec-standalone")
            self.assertEqual(unit.one("KillMode"), "process" if keeps else "mixed", name)
            self.assertEqual(unit.one("Type"), "notify", name)
            self.assertEqual(unit.one("Restart"), "on-failure", name)

    def test_kept_machines(self) -> None:
        """Machines continue without the runtime, and the next one finds their sockets."""
        runtime, standalone = units()["exec-runtime"], units()["exec-standalone"]
        self.assertIn("--keep-machines", runtime.command())
        for unit in (runtime, standalone):
            self.assertNotIn("--no-keep-machines", unit.command())
            self.assertEqual(unit.one("RuntimeDirectoryPreserve"), "yes")

    def test_hardened(self) -> None:
        """No program runs as root or outside the sandbox."""
        for name, unit in units().items():
            for key, value in HARDENED.items():
                self.assertEqual(unit.one(key), value, f"{name}: {key}")
            settings = unit.settings
            user = settings.get("User", [None])[0]
            self.assertTrue(
                settings.get("DynamicUser") == ["yes"] or user in files.sysusers("u"), name
            )
            self.assertTrue({"PrivateDevices", "DevicePolicy"} & set(settings), name)

    def test_groups(self) -> None:
        """Supplementary groups exist, because a unit with a missing group does not start."""
        existing = files.sysusers("g") | {"dialout"}
        for name, unit in units().items():
            for groups in unit.settings.get("SupplementaryGroups", []):
                self.assertLessEqual(set(groups.split()), existing, name)

    def test_users_meet(self) -> None:
        """The runtime and the broker allow the poollet's user, and the poollet theirs."""
        every = units()
        poollet = every["exec-poollet"].one("User")
        for name in ("exec-runtime", "exec-broker"):
            words = every[name].command()
            self.assertIn(f"--allow-uid={poollet}", words)
            self.assertIn(f"--iri-listen=unix:///run/{name}/iri.sock", words)
        words = every["exec-poollet"].command()
        self.assertIn("--machine-runtime-endpoint=unix:///run/exec-runtime/iri.sock", words)
        self.assertIn(f"--runtime-uid={every['exec-runtime'].one('User')}", words)

    def test_live(self) -> None:
        """The drop-in changes only settings of the unit, and its user exists."""
        live = Unit(SYSTEMD / "live.conf")
        self.assertLessEqual(set(live.settings), set(units()["exec-apiserver"].settings) | {"User"})
        self.assertIn(live.one("User"), files.sysusers("u"))
        self.assertTrue(live.one("Environment").startswith("FILES="))


class VerifyTests(SynchronousTestCase):
    """systemd accepts the units."""

    starts = PROGRAMS
    skip = needs.systemd_analyze()

    def test_verify(self) -> None:
        """``systemd-analyze verify`` reports nothing."""
        directory = Path(os.path.abspath(self.mktemp()))
        directory.mkdir()
        for path in SYSTEMD.glob("*.service"):
            # systemd-analyze checks that the program exists; it is elsewhere here.
            text = path.read_text().replace("/opt/twisted-exec/bin/twistd", sys.executable)
            (directory / path.name).write_text(text)
        program = shutil.which("systemd-analyze") or ""
        process = subprocess.run(
            [program, "verify", *map(str, sorted(directory.iterdir()))],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )
        complaints = [
            line
            for line in process.stdout.splitlines()
            if str(directory) in line or "exec-" in line
        ]
        self.assertEqual((process.returncode, complaints), (0, []), process.stdout)


class ContainerfileTests(SynchronousTestCase):
    """One image for every program, without root."""

    starts = PROGRAMS

    def setUp(self) -> None:
        text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
        lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
        self.steps = [
            tuple(line.split(None, 1)) for line in lines.replace("\\\n", " ").splitlines() if line
        ]

    def arguments(self, instruction: str) -> list[str]:
        return [value for name, value in self.steps if name == instruction]

    def test_stages(self) -> None:
        """Both stages use the base image of the builder; its default names no registry."""
        self.assertEqual(self.arguments("FROM"), ["${BASE_IMAGE} AS build", "${BASE_IMAGE}"])
        default = dict(each.split("=", 1) for each in self.arguments("ARG"))["BASE_IMAGE"]
        self.assertNotIn("/", default)

    def test_sources(self) -> None:
        """Copied files exist."""
        checkout = pages.DOCS.parent
        for step in self.arguments("COPY"):
            *sources, target = step.split()
            if not sources[0].startswith("--from="):
                for source in sources:
                    self.assertTrue((checkout / source).exists(), source)
                self.assertTrue(target.startswith("/src/"))

    def test_nobody(self) -> None:
        """The user is a number, so Kubernetes can check that it is not root."""
        (user,) = self.arguments("USER")
        self.assertRegex(user, r"^[1-9]\d+:[1-9]\d+$")
        (home,) = self.arguments("WORKDIR")
        self.assertIn(f"exec:x:{user}::{home}:/bin/sh", " ".join(self.arguments("RUN")))

    def test_programs(self) -> None:
        """The default command is a program that needs no options; nothing stands before commands."""
        (entry,), (command,) = self.arguments("ENTRYPOINT"), self.arguments("CMD")
        self.assertEqual(json.loads(entry), [])
        words = json.loads(command)
        self.assertEqual(files.options_of(words).program, words[0])

    def script(self, name: str) -> str:
        """Return the text of a script that a RUN step writes into the directory of the programs."""
        before = " ".join(self.arguments("RUN")).split(f" > {name} ")[0]
        return "\n".join(shlex.split(before.rpartition("printf '%s\\n'")[2])) + "\n"

    def test_entry_points(self) -> None:
        """Each program is a command, which starts it as the systemd units do."""
        made = " ".join(self.arguments("RUN"))
        (others,) = re.findall(r"for program in ([\w ]+);", made)
        self.assertEqual(
            {"exec-apiserver", *(f"exec-{each}" for each in others.split())}, set(TAPS)
        )
        for name in TAPS:
            self.assertEqual(self.started(name, "--a=b c"), [*TWISTD[1:], name, "--a=b c"])

    def test_without_options(self) -> None:
        """A program that cannot do without options reads its file, and the others start."""
        for name in TAPS:
            file = [f"--config=/etc/twisted-exec/{name}.toml"]
            expected = [] if name in ("exec-spacemanager", "exec-standalone") else file
            self.assertEqual(self.started(name), [*TWISTD[1:], name, *expected])

    def started(self, name: str, *arguments: str) -> list[str]:
        """Return the arguments of twistd after a program's command."""
        directory = Path(self.mktemp())
        directory.mkdir()
        twistd, program = directory / "twistd", directory / name
        twistd.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
        program.write_text(self.script("exec-apiserver"))
        for each in (twistd, program):
            each.chmod(0o755)
        command = [str(program.absolute()), *arguments]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=600
        ).stdout.splitlines()

    def test_health(self) -> None:
        """The health check is a program of the image, and fails with one line."""
        (check,) = self.arguments("HEALTHCHECK")
        self.assertEqual(json.loads(check[check.index("[") :]), ["exec-health"])
        url = "file:///nonexistent"
        process = subprocess.run(
            [sys.executable, "-I", "-c", self.script("exec-health")],
            env={**os.environ, "HEALTH_URL": url},
            capture_output=True,
            text=True,
            timeout=600,
        )
        self.assertEqual(process.returncode, 1)
        self.assertRegex(process.stderr, rf"^{url}: .+\n$")

    def test_page(self) -> None:
        """The program accepts the command line of the page."""
        text = pages.page("howto/in-containers").replace("\\\n", " ")
        (line,) = re.findall(r"podman run .* twisted-exec:v1 (exec-\S+ .+)$", text, re.MULTILINE)
        words = shlex.split(line)
        files.options_of(words)

    def test_shell(self) -> None:
        """The shell can parse each RUN step."""
        for step in self.arguments("RUN"):
            subprocess.run(["sh", "-n", "-c", step], check=True, timeout=600)
            self.assertTrue(shlex.split(step))
