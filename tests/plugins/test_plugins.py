"""
Tests for ``twisted/plugins/twisted_exec_plugins.py``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from twisted.application.service import IServiceMaker
from twisted.internet.interfaces import IStreamClientEndpointStringParserWithReactor
from twisted.plugin import IPlugin, getPlugins
from twisted.python.usage import Options
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

import twisted

PROGRAMS = ["exec-apiserver", "exec-poollet", "exec-runtime", "exec-standalone"]


class ServiceMakerTests(SynchronousTestCase):
    """Every program is a twistd plugin."""

    def makers(self) -> dict[str, IServiceMaker]:
        return {
            maker.tapname: maker
            for maker in getPlugins(IServiceMaker)
            if maker.tapname.startswith("exec-")
        }

    def test_found(self) -> None:
        """``twistd --help`` lists them."""
        self.assertEqual(sorted(self.makers()), PROGRAMS)

    def test_usable(self) -> None:
        """Each has options that print their help, and a ``makeService``."""
        for name, maker in self.makers().items():
            verifyObject(IServiceMaker, maker)
            options = maker.options()
            self.assertIsInstance(options, Options, name)
            self.assertIn("--help", options.getUsage())
            self.assertTrue(callable(maker.makeService))


class EndpointParserTests(SynchronousTestCase):
    """``console:`` is an endpoint string."""

    def test_found(self) -> None:
        """Any Twisted program understands it."""
        parsers = [
            parser
            for parser in getPlugins(IStreamClientEndpointStringParserWithReactor)
            if parser.prefix == "console"
        ]
        self.assertEqual(len(parsers), 1)
        verifyObject(IStreamClientEndpointStringParserWithReactor, parsers[0])
        verifyObject(IPlugin, parsers[0])


class PackagingTests(SynchronousTestCase):
    """The file is a guest in Twisted's package."""

    def test_light(self) -> None:
        """Reading it imports no reactor (twistd chooses one later) and nothing of ours."""
        program = (
            "import sys, twisted.plugins.twisted_exec_plugins\n"
            "print([name for name in sys.modules if name == 'twisted.internet.reactor'\n"
            "       or name.startswith('twisted_exec')])"
        )
        told = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
        self.assertEqual(told.stdout.strip(), b"[]")

    def test_no_init(self) -> None:
        """An ``__init__.py`` beside it would hide Twisted itself from everybody."""
        from twisted.plugins import twisted_exec_plugins

        home = Path(twisted_exec_plugins.__file__).parent
        if home != Path(twisted.__file__).parent / "plugins":
            self.assertFalse((home / "__init__.py").exists())
            self.assertFalse((home.parent / "__init__.py").exists())
