"""
The protocol of ``docs/howto/scripts.rst`` that learns of losses and recordings.
"""

from __future__ import annotations

import io
import runpy
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.endpoints import connectProtocol
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from tests.examples.test_examples import EXAMPLES
from tests.kube.test_console_resume import RECORDING, ResumeCase
from twisted_exec.interfaces import IRecordedProtocol, IResumableProtocol
from twisted_exec.kube.console_endpoint import ConsoleEndpoint
from twisted_exec.wire.marks import Attendance

reactor: Any = _reactor


def saved_console(file: io.BytesIO) -> Any:
    return runpy.run_path(str(EXAMPLES / "save_console.py"))["SavedConsole"](file)


class InterfacesTests(SynchronousTestCase):
    """``SavedConsole`` as a protocol of the endpoint."""

    def test_interfaces(self) -> None:
        """It has the methods of both interfaces."""
        for interface in (IRecordedProtocol, IResumableProtocol):
            verifyObject(interface, saved_console(io.BytesIO()))


class SaveConsoleTests(ResumeCase):
    """``save_console.py``"""

    async def test_saved(self) -> None:
        """The file has the output, the loss of the connection, missing output and recordings."""
        file = io.BytesIO()
        console = await connectProtocol(
            ConsoleEndpoint(self.config, "default", "vm", reactor), saved_console(file)
        )
        self.server.attendance(Attendance(1, recordings=(RECORDING,)))
        await self.until(lambda: b"recorded for ada" in file.getvalue())
        self.lose()
        self.server.forget(3)
        await self.until(lambda: b"its way" in file.getvalue())
        console.transport.loseConnection()
        await console.ended
        lines = file.getvalue().decode().split("\r\n")
        self.assertEqual(lines[1], "--- recorded for ada ---")
        self.assertTrue(lines[3].startswith("--- connection lost"), lines)
        self.assertRegex(lines[5], "^--- connected again after [0-9]+ s ---$")
        self.assertEqual(lines[7:], ["--- 3 bytes are missing ---", "its way"])
