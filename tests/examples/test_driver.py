"""
The driver of ``docs/howto/write-a-driver.rst``, installed as the page describes.
"""

from __future__ import annotations

import os
import shutil
import sys

import yaml
from twisted.internet.endpoints import UNIXClientEndpoint

import twisted.plugins
from tests.console.doubles import MemoryStream
from tests.contracts.machine_runtime import machine
from tests.examples.test_controller import example
from tests.examples.test_examples import EXAMPLES, ExamplesCase
from tests.flows.programs import start
from tests.runtimes.peers import reactor
from tests.runtimes.support import RuntimeCase
from tests.tiers import PROGRAMS
from twisted_exec.console.notices import LINE_BACK
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.request_cache import Grant
from twisted_exec.machines import LayeredEndpoint
from twisted_exec.runtimes.interfaces import CannotStart
from twisted_exec.runtimes.lines.shared_line import SharedLine
from twisted_exec.testing.drivers import QUICK, ConsoleContract, DriverCase, Peer


def install(directory: str) -> str:
    """Copy the driver as the page describes; return the directory of its plugin."""
    plugins = os.path.join(directory, "twisted", "plugins")
    os.makedirs(plugins)
    shutil.copy(EXAMPLES / "lines_driver.py", directory)
    shutil.copy(EXAMPLES / "lines_driver_plugin.py", plugins)
    return plugins


class OwnTests(ExamplesCase):
    """``test_lines_driver.py``"""

    starts = PROGRAMS

    async def test_passes(self) -> None:
        """The test of the example needs the driver and the installed package, and no checkout."""
        lab = os.path.join(self.directory, "lab")
        install(lab)
        shutil.copy(EXAMPLES / "test_lines_driver.py", lab)
        program = start(
            [sys.executable, "-m", "twisted.trial", "test_lines_driver"],
            cwd=self.directory,
            env={"PYTHONPATH": lab},
        )
        self.addCleanup(program.stop)
        self.assertEqual(await program.ended, 0, program.output)
        self.assertRegex(program.output, rb"PASSED \(successes=1\d\)")


class RuntimeTests(RuntimeCase):
    """``lines_driver.py`` and ``lines_driver.yaml``"""

    async def test_in_a_runtime(self) -> None:
        """A machine of the class runs, and its console is connected to the device of its name."""
        plugins = install(self.directory)
        self.patch(sys, "path", [self.directory, *sys.path])
        self.patch(twisted.plugins, "__path__", [*twisted.plugins.__path__, plugins])
        for name in ("lines_driver", "twisted.plugins.lines_driver_plugin"):
            self.addCleanup(sys.modules.pop, name, None)
        with open(EXAMPLES / "lines_driver.yaml") as file:
            (document,) = yaml.safe_load(file)["classes"]

        def capitals(peer: Peer, data: bytes) -> None:
            peer.says(data.upper())

        document["lines"]["default/dev-2"]["path"] = self.far(capitals).path
        runtime = await self.make_runtime(document)
        request = pb.CreateMachineRequest(machine=machine("dev-2", "framed"))
        id = (await runtime.create_machine(request)).machine.metadata.id
        await self.until(lambda: runtime.machines.records.get(id).state == pb.MACHINE_RUNNING)
        _, viewer = runtime.attach(Grant(id))
        stream = MemoryStream(viewer)
        viewer.data_received(b"anybody there?")
        await self.until(lambda: b"ANYBODY THERE?" in bytes(stream.got))


class LoginTests(ConsoleContract, DriverCase):
    """``login_line.py``"""

    provoke = answer = b"hello"
    first_words = b"> "
    right = b"secret"

    def setUp(self) -> None:
        super().setUp()
        self.path = os.path.join(self.directory, "password")
        self.write("secret\n")
        self.device = self.far(self.bmc)

    def write(self, password: str) -> None:
        with open(self.path, "w") as file:
            file.write(password)

    def bmc(self, peer: Peer, data: bytes) -> None:
        """A device that asks ``ada`` for the ``right`` password, and then echoes."""
        lines = peer.got.split(b"\r")
        if len(lines) > 4 or not data.endswith(b"\r"):
            peer.says(data)
        elif len(lines) < 4:
            peer.says(b"login: " if len(lines) == 2 else b"Password: ")
        else:
            peer.says(b"> " if lines[1:3] == [b"ada", self.right] else b"Login incorrect\r\n")

    def make_console(self) -> SharedLine:
        layer = example("login_line").Login
        far = UNIXClientEndpoint(reactor, self.device.path)
        endpoint = LayeredEndpoint(far, lambda upper: layer(upper, b"ada", self.path))
        return SharedLine(
            self.facts(), reactor, lambda: ("m", endpoint), lambda: None, timing=QUICK
        )

    async def why(self) -> CannotStart:
        """Return why the machine cannot start."""
        run = self.make_console()
        self.clean_later(run.stop)
        with self.assertRaises(CannotStart) as caught:
            await self.connect(run)
        return caught.exception

    async def test_refused(self) -> None:
        """A wrong password is the reason why the machine cannot start."""
        self.write("guess")
        refused = await self.why()
        self.assertEqual(refused.condition, "LoginRefused")
        self.assertIn("refuses the user or the password", refused.message)

    async def test_no_password(self) -> None:
        """A file that cannot be read is another reason."""
        os.unlink(self.path)
        refused = await self.why()
        self.assertEqual(refused.condition, "NoPassword")
        self.assertIn(f"{self.path}: No such file", refused.message)

    async def test_new_password(self) -> None:
        """A machine that is on logs in with a new password after its connection was lost."""
        _, line = await self.opened()
        self.right = b"changed"
        self.device.peer.transport.abortConnection()
        await self.until(lambda: any(change[1] == "LoginRefused" for change in self.changes))
        self.write("changed\n")
        await self.wait(line.until(LINE_BACK.encode()))
        self.assertEqual(self.device.peer.got, b"\rada\rchanged\r")
        self.assertEqual(line.lost, [])
