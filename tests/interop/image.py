"""
The container image of ``docs/deploy/Containerfile``, run by runc with a read-only root and without root's rights.

``IMAGE`` is the directory with the files of a built image, as ``podman image mount`` or ``buildah mount`` shows
it.  In a container ``exec-standalone`` has the host's network.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.docs.deploy.files import SYSTEMD, Unit, with_own_user
from tests.docs.test_options import TAPS

from .monitoring import missing, unused_port

LARGEST_MB = {"with CEL": 200, "without CEL": 120}
USER = 65532
ENVIRONMENT = {
    "PATH": "/opt/twisted-exec/bin:/usr/bin:/bin",
    "HOME": "/tmp",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
}

IMPORT_ALL = """
import importlib, pkgutil, sys, twisted_exec
for module in pkgutil.walk_packages(twisted_exec.__path__, "twisted_exec."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


def specification(root: str, command: Sequence[str], environ: dict[str, str]) -> dict[str, Any]:
    """Return runc's description of a container that may write only to ``/tmp``."""
    variables = {**ENVIRONMENT, **environ}
    small = {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["mode=1777"]}
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": USER, "gid": USER},
            "args": list(command),
            "env": [f"{name}={value}" for name, value in variables.items()],
            "cwd": "/tmp",
            "noNewPrivileges": True,
        },
        "root": {"path": root, "readonly": True},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
            {
                "destination": "/dev/pts",
                "type": "devpts",
                "source": "devpts",
                "options": ["newinstance", "ptmxmode=0666"],
            },
            small,
        ],
        "linux": {"namespaces": [{"type": each} for each in ("pid", "mount", "ipc", "uts")]},
    }


class ImageTests(SynchronousTestCase):
    """Programs of the image."""

    def setUp(self) -> None:
        self.root = os.environ.get("IMAGE", "")
        if not self.root or os.geteuid() != 0:
            self.skipTest("set IMAGE to the files of an image, and be root")
        if why := missing("runc", "du"):
            self.skipTest(why)

    @contextmanager
    def runc(self, *command: str, **environ: str) -> Iterator[tuple[list[str], str]]:
        """Yield a command that runs another one in a container, and the container's name."""
        bundle = Path(self.mktemp()).absolute()
        bundle.mkdir()
        text = json.dumps(specification(self.root, command, environ))
        (bundle / "config.json").write_text(text)
        name = f"twisted-exec-{os.getpid()}-{bundle.parent.name}"
        yield ["runc", "run", f"--bundle={bundle}", name], name

    def run_command(self, *command: str, **environ: str) -> tuple[int, str]:
        """Return the exit code and the output of a command in a container."""
        with self.runc(*command, **environ) as (argv, _):
            process = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=300,
            )
        return process.returncode, process.stdout

    def test_size(self) -> None:
        """The environment is small enough."""
        directory = f"{self.root}/opt/twisted-exec"
        has_cel = any(Path(directory).glob("lib/python3*/site-packages/cel_expr_python"))
        size = subprocess.check_output(["du", "-s", "--block-size=1MB", directory], text=True)
        megabytes = int(size.split()[0])
        self.assertLessEqual(megabytes, LARGEST_MB["with CEL" if has_cel else "without CEL"], size)

    def test_modules(self) -> None:
        """Every module can be imported, without warnings: nothing that was left out is needed."""
        self.assertEqual(self.run_command("python3", "-W", "error", "-c", IMPORT_ALL), (0, ""))

    def test_rights(self) -> None:
        """The container has no rights of root, and only /tmp can be written."""
        code, text = self.run_command(
            "sh", "-c", "id -u; touch /opt/twisted-exec/file; touch /tmp/file && echo written"
        )
        self.assertEqual((code, text.splitlines()[0]), (0, str(USER)))
        self.assertIn("Read-only file system", text)
        self.assertIn("written", text)

    def test_without_configuration(self) -> None:
        """A program without configuration says in one line which file it looks for."""
        for program in sorted(set(TAPS) - {"exec-standalone"}):
            code, text = self.run_command(program)
            self.assertEqual((code, len(text.splitlines())), (1, 1), text)
            self.assertRegex(text, rf"^{program}: .*(/\S+)+")

    def test_units(self) -> None:
        """Each program accepts the arguments of its systemd unit, and misses only their files."""
        for path in sorted(SYSTEMD.glob("*.service")):
            unit = Unit(path)
            # The image has no users of these names.
            command = with_own_user(unit.command())
            words = command[command.index("--pidfile=") + 1 :]
            if words[0] != "exec-standalone":
                code, text = self.run_command(*words)
                self.assertEqual(code, 1, text)
                self.assertNotIn("Traceback", text)
                self.assertIn("No such file or directory", text)

    def test_commands(self) -> None:
        """The programs for users are commands, too."""
        for program in ("kubectl-console", "twisted-exec"):
            code, text = self.run_command(program, "--help")
            self.assertEqual((code, text.startswith("usage: ")), (0, True), text)

    def test_standalone(self) -> None:
        """exec-standalone becomes healthy, a console of it opens, and it ends when it is stopped."""
        port = unused_port()
        url = f"https://127.0.0.1:{port}/readyz"
        words = ("exec-standalone", "--state-dir=/tmp/state", f"--port={port}")
        with self.runc(*words, HEALTH_URL=url) as (argv, name), open(self.mktemp(), "w+") as log:

            def inside(*command: str) -> subprocess.CompletedProcess[str]:
                return subprocess.run(
                    ["runc", "exec", name, *command], capture_output=True, text=True, timeout=300
                )

            program = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            try:
                # Each check is a process of its own, which takes long enough.
                checks = (inside("exec-health") for _ in range(300))
                self.assertTrue(
                    any(check.returncode == 0 for check in checks), Path(log.name).read_text()
                )
                console = inside(
                    "kubectl-console",
                    "--kubeconfig=/tmp/state/admin.kubeconfig",
                    "--run=id -u",
                    "demo-shell",
                )
                self.assertIn(str(USER), console.stdout.split(), console)
            finally:
                subprocess.run(["runc", "kill", name, "TERM"], check=False, timeout=300)
                code = program.wait(timeout=300)
            self.assertEqual(code, 0, Path(log.name).read_text())

    def test_unhealthy(self) -> None:
        """The health check fails with one line."""
        url = f"https://127.0.0.1:{unused_port()}/livez"
        code, text = self.run_command("exec-health", HEALTH_URL=url)
        self.assertEqual(code, 1)
        self.assertRegex(text, rf"^{url}: .*refused.*\n$")
