"""
Tests for :mod:`twisted_exec.runtimes.drivers`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile

from twisted.internet.task import Clock
from twisted.plugin import IPlugin
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

import twisted.plugins
from tests.tiers import PROGRAMS
from twisted_exec.interfaces import IDriverMaker, IMachineDriver
from twisted_exec.runtimes.config import parse
from twisted_exec.runtimes.drivers import drivers
from twisted_exec.runtimes.processes import ProcessTable

_PLUGIN = """
from twisted_exec.runtimes.drivers import DriverMaker
{name} = DriverMaker("{name}", "twisted_exec.runtimes.pty")
"""


class DriversTests(SynchronousTestCase):
    """Tests for :func:`drivers`."""

    starts = PROGRAMS

    def test_ours(self) -> None:
        """The project's drivers are found by name and provide the interface."""
        expected = drivers()
        self.assertLessEqual({"pty", "qemu"}, set(expected))
        for name, maker in expected.items():
            self.assertEqual(maker.name, name)
            verifyObject(IDriverMaker, maker)
            verifyObject(IPlugin, maker)

    def test_one_more(self) -> None:
        """A plugin of another package provides a driver."""
        directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, directory)
        name = f"driver_{os.getpid()}"
        with open(os.path.join(directory, f"{name}_plugin.py"), "w") as file:
            file.write(_PLUGIN.format(name=name))
        self.patch(twisted.plugins, "__path__", [*twisted.plugins.__path__, directory])
        self.addCleanup(sys.modules.pop, f"twisted.plugins.{name}_plugin", None)
        document = {
            "name": "mine",
            "driver": name,
            "command": ["/bin/cat"],
            "same_user": True,
            "capabilities": {"cpu": 1, "memory": "1Mi"},
        }
        (machine_class,) = parse({"classes": [document]})
        clock = Clock()
        verifyObject(IMachineDriver, machine_class.build(clock, ProcessTable(clock, "X")).driver)

    def test_light(self) -> None:
        """Every twistd reads the plugins; no driver is imported for that."""
        code = (
            "import sys; from twisted.plugins import twisted_exec_drivers;"
            "print([name for name in sys.modules if name.startswith('twisted_exec.')])"
        )
        output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual(
            output.stdout.strip(),
            "['twisted_exec.runtimes', 'twisted_exec.runtimes.drivers']",
        )
