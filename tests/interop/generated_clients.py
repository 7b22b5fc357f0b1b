"""
Clients that openapi-generator makes of our OpenAPI documents, in Python and Go.

The generated sources are in temporary directories.  Go fetches the module that they need.
"""

from __future__ import annotations

import os
import shutil
import sys

from tests import needs
from tests.apiserver.test_service_kubectl import KubectlCase
from tests.chain import pki
from tests.flows import kubectls, programs

_CLIENTS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "clients")
_MODULE = "example.org/twisted-exec"
_DOCUMENTS = {"2": "/openapi/v2", "3": "/openapi/v3/apis/compute.ironcore.dev/v1alpha1"}


class GeneratedClientTests(KubectlCase):
    """Users who generate their client."""

    timeout = 600
    skip = needs.openapi_generator()

    async def generate(self, language: str, version: str, **properties: str) -> str:
        """Generate a client from a document of the running server; return its directory."""
        document, directory = f"{self.mktemp()}.json", os.path.abspath(self.mktemp())
        self.kubectl = next(iter(kubectls.found().values()))
        with open(document, "w", encoding="utf-8") as stream:
            stream.write(await self.run_kubectl("get", "--raw", _DOCUMENTS[version]))
        chosen = ",".join(f"{name}={value}" for name, value in properties.items())
        words = ["generate", "-i", document, "-g", language, "-o", directory]
        words += ["--git-host=example.org", "--git-user-id=twisted-exec", "--git-repo-id=machines"]
        jar = needs.openapi_generator_jar()
        await self.run_program(["java", "-jar", jar, *words, f"--additional-properties={chosen}"])
        return directory

    async def run_program(self, argv: list[str], *, cwd: str | None = None, **env: str) -> bytes:
        """Run a program to its end; it must succeed."""
        program = programs.start([shutil.which(argv[0]) or argv[0], *argv[1:]], env=env, cwd=cwd)
        self.addCleanup(program.stop)
        code = await program.ended
        self.assertEqual(code, 0, program.output.decode(errors="replace")[-4000:])
        return program.stdout

    def place(self) -> list[str]:
        """The server and the certificates of the administrator, as arguments."""
        admin = pki().pair("user-admin")
        return [self.server.url, pki().serving_ca, admin.certificate, admin.key]

    async def python(self, version: str) -> None:
        """A client in Python does everything that a user does with machines."""
        directory = await self.generate("python", version, packageName="machines")
        argv = [
            sys.executable,
            os.path.join(_CLIENTS, "python", "generated_client.py"),
            *self.place(),
            version,
        ]
        self.assertIn(b"done", await self.run_program(argv, PYTHONPATH=directory))

    async def test_python(self) -> None:
        """A Python client of version 3 creates, lists, pages, watches, patches and deletes."""
        await self.python("3")

    async def test_python_of_version_2(self) -> None:
        """So does one of version 2, as far as that can describe the answers."""
        await self.python("2")

    async def test_go(self) -> None:
        """So does a Go client of version 3."""
        client = await self.generate("go", "3", packageName="machines", withGoMod="true")
        program = os.path.abspath(self.mktemp())
        os.makedirs(program)
        shutil.copy(os.path.join(_CLIENTS, "go", "main.go"), program)
        with open(os.path.join(program, "go.mod"), "w", encoding="ascii") as stream:
            stream.write(
                f"module {_MODULE}/program\n\ngo 1.21\n\n"
                f"require {_MODULE}/machines v0.0.0\n\nreplace {_MODULE}/machines => {client}\n"
            )
        shutil.rmtree(os.path.join(client, "test"), ignore_errors=True)
        await self.run_program(["go", "mod", "tidy"], cwd=program)
        await self.run_program(["go", "build", "-o", "client", "."], cwd=program)
        told = await self.run_program([os.path.join(program, "client"), *self.place()])
        self.assertIn(b"done", told)

    if shutil.which("go") is None:
        test_go.skip = "go is not on PATH"  # type: ignore[attr-defined]
