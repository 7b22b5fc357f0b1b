"""
The container image of ``docs/deploy/Containerfile``, run by runc with a read-only root and without root's rights.

``IMAGE`` is the directory with the files of a built image, as ``podman image mount`` or ``buildah mount`` shows
it.  Servers have the host's network.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.docs.deploy.files import DEPLOY, SYSTEMD, Unit, with_own_user
from tests.docs.test_options import TAPS
from tests.flows.programs import script
from tests.ports import reserved_port

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


HOWTO = DEPLOY.parent / "howto"
FILES = "/etc/twisted-exec"
"""Where the containers of the three servers have their certificates and their options."""


def specification(
    root: str, command: Sequence[str], environ: dict[str, str], binds: Mapping[str, str]
) -> dict[str, Any]:
    """
    Return runc's description of a container that may write only to ``/tmp`` and to what is bound.

    :param binds: directories of the host by their place in the container.
    """
    variables = {**ENVIRONMENT, **environ}
    bound = [
        {"destination": place, "type": "bind", "source": source, "options": ["bind"]}
        for place, source in binds.items()
    ]
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
            *bound,
        ],
        "linux": {"namespaces": [{"type": each} for each in ("pid", "mount", "ipc", "uts")]},
    }


class ImageTestCase(SynchronousTestCase):
    """Runs programs of the image."""

    def setUp(self) -> None:
        self.root = os.environ.get("IMAGE", "")
        if not self.root or os.geteuid() != 0:
            self.skipTest("set IMAGE to the files of an image, and be root")
        if why := missing("runc", "du"):
            self.skipTest(why)

    @contextmanager
    def runc(
        self, *command: str, binds: Mapping[str, str] = MappingProxyType({}), **environ: str
    ) -> Iterator[tuple[list[str], str]]:
        """Yield a command that runs another one in a container, and the container's name."""
        bundle = Path(self.mktemp()).absolute()
        bundle.mkdir()
        text = json.dumps(specification(self.root, command, environ, binds))
        (bundle / "config.json").write_text(text)
        name = f"twisted-exec-{os.getpid()}-{bundle.parent.name}"
        yield ["runc", "run", f"--bundle={bundle}", name], name

    def run_command(
        self, *command: str, binds: Mapping[str, str] = MappingProxyType({}), **environ: str
    ) -> tuple[int, str]:
        """Return the exit code and the output of a command in a container."""
        with self.runc(*command, binds=binds, **environ) as (argv, _):
            process = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=300,
            )
        return process.returncode, process.stdout

    @contextmanager
    def server(
        self, *command: str, binds: Mapping[str, str] = MappingProxyType({}), ready: str
    ) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
        """
        Run a server that must become ready, and end with code 0 when it is stopped.

        :param ready: the URL that says so.
        :return: yields a function that runs a command in the container.
        """
        with (
            self.runc(*command, binds=binds, HEALTH_URL=ready) as (argv, name),
            open(self.mktemp(), "w+") as log,
        ):

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
                yield inside
            finally:
                subprocess.run(["runc", "kill", name, "TERM"], check=False, timeout=300)
                code = program.wait(timeout=300)
            self.assertEqual(code, 0, Path(log.name).read_text())


class ImageTests(ImageTestCase):
    """Programs of the image."""

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
        self.assertEqual(code, 0)
        self.assertIn(str(USER), text.splitlines())
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
                self.assertRegex(text, "No such file or directory|does not exist")

    def test_commands(self) -> None:
        """The programs for users are commands, too."""
        for program in ("kubectl-console", "twisted-exec"):
            code, text = self.run_command(program, "--help")
            self.assertEqual((code, text.startswith("usage: ")), (0, True), text)

    def test_standalone(self) -> None:
        """exec-standalone becomes healthy, a console of it opens, and it ends when it is stopped."""
        port = unused_port()
        words = ("exec-standalone", "--state-dir=/tmp/state", f"--port={port}")
        with self.server(*words, ready=f"https://127.0.0.1:{port}/readyz") as inside:
            console = inside(
                "kubectl-console",
                "--kubeconfig=/tmp/state/admin.kubeconfig",
                "--run=id -u",
                "demo-shell",
            )
            self.assertIn(str(USER), console.stdout.split(), console)

    def test_unhealthy(self) -> None:
        """The health check fails with one line."""
        url = f"https://127.0.0.1:{unused_port()}/livez"
        code, text = self.run_command("exec-health", HEALTH_URL=url)
        self.assertEqual(code, 1)
        self.assertRegex(text, rf"^{url}: .*refused.*\n$")


class ThreeServersTests(ImageTestCase):
    """API server, poollet and runtime in a container each, with certificates that the image makes."""

    def setUp(self) -> None:
        super().setUp()
        if why := needs.kubectl():
            self.skipTest(why)
        self.api, self.poollet, self.iri, self.consoles = (reserved_port(self) for _ in range(4))
        self.files = Path(self.mktemp()).absolute()
        self.files.mkdir()
        os.chown(self.files, USER, USER)
        self.make_certificates()
        self.write_options()

    def make_certificates(self) -> None:
        """Run the commands of ``docs/howto/three-hosts``."""
        names, url = ("--name", "localhost", "127.0.0.1"), f"https://127.0.0.1:{self.api}"
        for words in (
            ("init",),
            ("apiserver", *names),
            (
                "poollet",
                "--pool=pool-a",
                *names,
                f"--server={url}",
                "--kubeconfig=poollet.kubeconfig",
            ),
            ("runtime", "--runtime=metal-a", *names),
            (
                "user",
                "--user=admin",
                "--group=system:masters",
                f"--server={url}",
                "--kubeconfig=admin.kubeconfig",
            ),
        ):
            command = ("sh", "-c", f'cd {FILES} && exec twisted-exec pki "$@"', "sh")
            code, text = self.run_command(
                *command, words[0], "pki", *words[1:], binds={FILES: str(self.files)}
            )
            self.assertEqual(code, 0, text)

    def write_options(self) -> None:
        """Write the file of options that each program reads if its command has none."""
        pki, address = f"{FILES}/pki", "interface=127.0.0.1"
        pool, runtime = f"{pki}/poollet-pool-a", f"{pki}/runtime-metal-a"
        options = {
            "exec-apiserver": {
                "listen": f"tcp:{self.api}:{address}",
                "tls-cert-file": f"{pki}/apiserver.crt",
                "tls-private-key-file": f"{pki}/apiserver.key",
                "client-ca-file": f"{pki}/client-ca.crt",
                "machinepoollet-client-certificate": f"{pki}/apiserver-forwarding.crt",
                "machinepoollet-client-key": f"{pki}/apiserver-forwarding.key",
                "machinepoollet-certificate-authority": f"{pki}/ca.crt",
                "storage": "sqlite:/tmp/objects.db",
            },
            "exec-runtime": {
                "classes": f"{FILES}/runtime.yaml",
                "state-dir": "/tmp/runtime",
                "iri-listen": f"dns:///127.0.0.1:{self.iri}",
                "iri-ca-file": f"{pki}/client-ca.crt",
                "iri-cert-file": f"{runtime}.crt",
                "iri-private-key-file": f"{runtime}.key",
                "iri-client-names": "compute.ironcore.dev:system:machinepool:pool-a",
                "streaming-listen": f"tcp:{self.consoles}:{address}",
                "base-url": f"https://127.0.0.1:{self.consoles}",
                "tls-cert-file": f"{runtime}.crt",
                "tls-private-key-file": f"{runtime}.key",
            },
            "exec-poollet": {
                "kubeconfig": f"{FILES}/poollet.kubeconfig",
                "machine-pool-name": "pool-a",
                "machine-runtime-endpoint": f"dns:///127.0.0.1:{self.iri}",
                "machine-runtime-ca-file": f"{pki}/ca.crt",
                "machine-runtime-cert-file": f"{pool}-client.crt",
                "machine-runtime-private-key-file": f"{pool}-client.key",
                "runtime-ca-file": f"{pki}/ca.crt",
                "listen": f"tcp:{self.poollet}:{address}",
                "addresses": "InternalIP=127.0.0.1",
                "tls-cert-file": f"{pool}.crt",
                "tls-private-key-file": f"{pool}.key",
                "requestheader-client-ca-file": f"{pki}/requestheader-ca.crt",
                "requestheader-allowed-names": "exec-apiserver",
            },
        }
        for program, settings in options.items():
            # Strings of JSON are strings of TOML.
            lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
            (self.files / f"{program}.toml").write_text("\n".join(lines))
        classes = yaml.safe_load((HOWTO / "runtime.yaml").read_text())["classes"]
        shells = [each for each in classes if each["name"] == "shell"]
        (self.files / "runtime.yaml").write_text(yaml.safe_dump({"classes": shells}))

    def kubectl(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run kubectl on the host; it verifies the certificate of the API server."""
        plugins = os.path.dirname(script("kubectl-console"))
        path = os.pathsep.join((plugins, os.environ["PATH"]))
        kubeconfig = str(self.files / "admin.kubeconfig")
        return subprocess.run(
            ["kubectl", *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, "PATH": path, "KUBECONFIG": kubeconfig, "HOME": self.mktemp()},
        )

    def succeeds(self, *words: str, stdin: str = "") -> str:
        """Return the output of a kubectl that must succeed."""
        done = self.kubectl(*words, stdin=stdin)
        self.assertEqual(done.returncode, 0, done)
        return done.stdout

    def test_console(self) -> None:
        """kubectl and its plugin open a console through all three, and trust no other authority."""
        binds = {FILES: str(self.files)}
        ports = {
            "exec-apiserver": self.api,
            "exec-runtime": self.consoles,
            "exec-poollet": self.poollet,
        }
        with ExitStack() as servers:
            for program, port in ports.items():
                ready = f"https://127.0.0.1:{port}/readyz"
                servers.enter_context(self.server(program, binds=binds, ready=ready))
            objects = yaml.safe_load_all((HOWTO / "machines.yaml").read_text())
            shells = [each for each in objects if each["metadata"]["name"] in ("shell", "sh-1")]
            self.succeeds("apply", "-f", "-", stdin=yaml.safe_dump_all(shells))
            running = "--for=jsonpath={.status.state}=Running"
            self.succeeds("wait", running, "--timeout=100s", "machine/sh-1")
            stock = self.succeeds("exec", "-i", "sh-1", "--", "console", stdin="id -u\n")
            self.assertIn(str(USER), stock.split())
            plugin = self.succeeds("console", "--run=echo $((40+2))", "sh-1")
            self.assertIn("42", plugin.split())
            other = f"--certificate-authority={self.files}/pki/client-ca.crt"
            refused = self.kubectl(other, "get", "machines")
            self.assertEqual(refused.returncode, 1)
            self.assertIn("certificate signed by unknown authority", refused.stderr)
