"""
The self-contained archive of the client: built from this checkout, and installed by the real krew.

``exec-standalone`` serves the machines.  Commands of the archive get no ``PATH``, so they can find no Python.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from urllib.request import urlopen

from twisted.internet.threads import deferToThread

from tests.docs.deploy.files import DEPLOY
from tests.flows import programs
from tests.standalone.test_tap_program import StandaloneCase

from .builds import CHECKOUT

PYTHON, KREW = os.environ.get("ARCHIVE_PYTHON", ""), os.environ.get("KREW", "")
_ARCHIVE = DEPLOY / "archive"


@cache
def built() -> Path:
    """Build the archive, once; return its path, beside which it is unpacked."""
    work = tempfile.mkdtemp(prefix="twisted-exec-archive-")
    atexit.register(shutil.rmtree, work, True)
    pip = [PYTHON, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall"]
    subprocess.check_call([*pip, str(CHECKOUT)], cwd=work)
    subprocess.check_call([PYTHON, _ARCHIVE / "build.py", work])
    (archive,) = Path(work).glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(work)
    return archive


class ArchiveTests(StandaloneCase):
    """The archive, as users get it."""

    skip = None if PYTHON else "ARCHIVE_PYTHON is not set"
    timeout = 600

    def setUp(self) -> None:
        super().setUp()
        self.archive = built()
        self.unpacked = self.archive.with_name(self.archive.name.removesuffix(".tar.gz"))

    async def output(self, argv: Sequence[str | Path], code: int = 0, **env: str) -> str:
        """Run a command without our variables; return what it prints."""
        done = await deferToThread(
            subprocess.run,
            [str(word) for word in argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=170,
            cwd=self.directory,
            env={"PATH": "/usr/bin:/bin", "HOME": self.directory, **env},
        )
        self.assertEqual(done.returncode, code, done.stdout)
        return done.stdout

    def manifest(self) -> str:
        """Write the manifest of the archive; return its path."""
        path = os.path.join(self.directory, "console.yaml")
        command = [sys.executable, _ARCHIVE / "krew.py", "--url=https://127.0.0.1:9/"]
        with open(path, "wb") as file:
            subprocess.check_call([*command, self.archive], stdout=file)
        return path

    async def test_console(self) -> None:
        """A console opens, echoes and ends."""
        await self.ready("--no-keep-machines")
        command = str(self.unpacked / "kubectl-console")
        console = programs.terminal([command, "demo-shell"], KUBECONFIG=self.kubeconfig)
        await console.until(rb"Connected to demo-shell")
        console.type(b"echo $((6 * 7))-times\r")
        await console.until(rb"\n42-times")
        console.type(b"\x1d")
        self.assertEqual(await console.ended, 0)

    async def test_commands(self) -> None:
        """The other commands work, say what the archive leaves out, and have their licences beside them."""
        command = self.unpacked / "twisted-exec"
        self.assertIn("twisted-exec ", await self.output([command, "--version"]))
        self.assertIn("kubectl", await self.output([command, "completion", "bash"]))
        words = ("iri", "version", "--address", "unix:///nix")
        said = await self.output([command, *words], 1)
        self.assertIn("needs grpcio, which the self-contained archive does not have", said)
        names = {path.name for path in (self.unpacked / "licenses").iterdir()}
        self.assertLessEqual({"twisted-exec", "twisted", "cryptography", "pyinstaller"}, names)
        self.assertTrue((self.unpacked / "share/man/man1/kubectl-console.1").is_file())

    async def test_web(self) -> None:
        """The page is served, with its terminal."""
        await self.ready("--no-keep-machines")
        command = [str(self.unpacked / "twisted-exec"), "web", "--no-browser"]
        web = programs.start(command, env={"KUBECONFIG": self.kubeconfig})
        self.addCleanup(web.stop)
        at = (await web.until(rb"http://127\.0\.0\.1:\d+"))[0].decode()
        script = await deferToThread(lambda: urlopen(f"{at}/console/vendor/xterm.js").read())
        self.assertIn(b"Terminal", script)

    async def test_own_libraries(self) -> None:
        """A credential plugin does not load the libraries of the archive."""
        plugin, config = (os.path.join(self.directory, name) for name in ("plugin", "config"))
        with open(plugin, "w") as file:
            file.write('#!/bin/sh\nenv >"$0.env"\necho no token >&2\nexit 1\n')
        os.chmod(plugin, 0o755)
        asked = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": plugin,
            "interactiveMode": "Never",
        }
        content = {
            "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
            "users": [{"name": "u", "user": {"exec": asked}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        with open(config, "w") as file:
            json.dump(content, file)
        said = await self.output([self.unpacked / "kubectl-console", "vm"], 1, KUBECONFIG=config)
        self.assertIn("plugin", said)
        with open(f"{plugin}.env") as file:
            names = {line.partition("=")[0] for line in file}
        self.assertFalse({name for name in names if name.startswith(("_PYI_", "LD_LIBRARY"))})

    async def test_krew(self) -> None:
        """krew installs the plugin from the manifest and the file, and refuses a file that differs."""
        if not KREW:
            self.skipTest("KREW is not set")
        manifest, root = self.manifest(), os.path.join(self.directory, "krew")
        path = f"{root}/bin:{os.environ['PATH']}"
        install = [KREW, "install", f"--manifest={manifest}", "--archive"]
        altered = os.path.join(self.directory, self.archive.name)
        with open(altered, "wb") as file:
            file.write(self.archive.read_bytes() + b"\0")
        said = await self.output([*install, altered], 1, KREW_ROOT=root, PATH=path)
        self.assertIn("checksum does not match", said)
        said = await self.output([*install, self.archive], KREW_ROOT=root, PATH=path)
        self.assertIn("Installed plugin: console", said)
        said = await self.output(["kubectl", "console", "--version"], PATH=path)
        self.assertIn("kubectl", said)
