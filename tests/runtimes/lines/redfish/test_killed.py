"""A runtime with a server behind a small BMC, as a program that is killed."""

from __future__ import annotations

import os
import signal

from tests.flows.programs import Program, script, start, twistd
from tests.runtimes.bmc.server import USER
from tests.runtimes.lines.redfish.support import BMCCase
from tests.tiers import PROGRAMS

CLASSES = """\
classes:
- name: metal
  driver: redfish
  capabilities: {{cpu: "1", memory: 1Gi}}
  user: {user}
  password_file: {password}
  pin: {pin}
  lines:
    m: {{host: 127.0.0.1, port: {port}}}
"""


class KilledTests(BMCCase):
    """No session is left over."""

    starts = PROGRAMS

    def start(self) -> Program:
        path = os.path.join(self.directory, "classes.yaml")
        with open(path, "w") as file:
            file.write(
                CLASSES.format(
                    user=USER, password=self.password, pin=self.bmc.pin, port=self.bmc.port
                )
            )
        program = twistd(
            "exec-runtime",
            f"--classes={path}",
            f"--iri-listen=unix://{self.directory}/iri.sock",
            f"--state-dir={self.directory}/state",
        )
        self.addCleanup(program.stop)
        return program

    async def create(self) -> None:
        path = os.path.join(self.directory, "machine.yaml")
        with open(path, "w") as file:
            file.write("spec: {class: metal}\n")
        await self.until(lambda: os.path.exists(f"{self.directory}/iri.sock"))
        endpoint = {"IRI_MACHINE_RUNTIME_ENDPOINT": f"unix://{self.directory}/iri.sock"}
        words = [script("twisted-exec"), "iri", "create", "-f", path, "--name", "default/m"]
        program = start(words, env=endpoint)
        self.addCleanup(program.stop)
        await program.until(b"metal")
        await self.until(lambda: self.bmc.console.sockets)

    async def test_killed(self) -> None:
        """The next runtime goes on in the session of the killed one; a stop deletes it."""
        program = self.start()
        await program.until(b"machine runtime at")
        await self.create()
        await program.stop(signal.SIGKILL)
        self.assertEqual(len(self.bmc.sessions), 1)
        await self.until(lambda: not self.bmc.console.sockets)
        os.unlink(f"{self.directory}/iri.sock")
        program = self.start()
        await program.until(b"machine runtime at")
        await self.create()
        self.assertEqual((self.bmc.logins, len(self.bmc.sessions)), (1, 1))
        await program.stop()
        self.assertEqual(self.bmc.sessions, {})
        self.assertNotIn(b"canary", program.output)
