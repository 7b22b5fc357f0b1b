"""
Tests of ``lines_driver.py``, with a device in the same process::

    PYTHONPATH=lab python -m twisted.trial test_lines_driver
"""

from twisted_exec.interfaces import ConfigError
from twisted_exec.testing.drivers import QUICK, ConsoleContract, DriverCase, MachineDriverContract


def capitals(peer, data):
    """Answer each frame with its text in capitals; a frame has the same length then."""
    peer.says(data.upper())


class FramedTests(MachineDriverContract, ConsoleContract, DriverCase):
    provoke = b"hello"  # is typed, and
    answer = b"HELLO"  # is printed then

    def setUp(self):
        super().setUp()
        self.device = self.far(capitals)

    def make_driver(self):
        driver = self.driver_of(driver="framed", lines={"m": {"path": self.device.path}})
        driver.timing = QUICK
        return driver

    async def test_nonsense(self):
        """The connection to a device that sends something else is opened again; viewers read why."""
        _, line = await self.opened()
        await self.until(lambda: self.device.peers)
        self.device.peer.says(b"5:hello?")
        await self.wait(line.until(b"hello"))
        await self.wait(line.until(b"something that is no frame"))
        await self.until(lambda: len(self.device.peers) == 2)
        self.device.peer.says(b"4:back")
        await self.wait(line.until(b"back"))

    def test_relative_path(self):
        """A relative path is refused."""
        with self.assertRaisesRegex(ConfigError, "absolute path"):
            self.driver_of(driver="framed", lines={"m": {"path": "dev-1.sock"}})
