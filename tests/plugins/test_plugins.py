"""
Tests for ``twisted/plugins/twisted_exec_plugins.py``.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

from twisted.application.service import IService, IServiceMaker
from twisted.internet import reactor
from twisted.internet.interfaces import IStreamClientEndpointStringParserWithReactor
from twisted.plugin import IPlugin, getPlugins
from twisted.python.usage import Options
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

import twisted
from tests import tiers
from twisted_exec.interfaces import IAPIServer, IMachineRuntime, IPoollet
from twisted_exec.kube.kubeconfig.writer import write_kubeconfig
from twisted_exec.program import start as program_module
from twisted_exec.program.maker import ProgramMaker
from twisted_exec.tls.pki.directory import create_pki

PROGRAMS = [
    "exec-apiserver",
    "exec-broker",
    "exec-nodeserver",
    "exec-poollet",
    "exec-racks",
    "exec-runtime",
    "exec-spacemanager",
    "exec-sshd",
    "exec-standalone",
]


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

    def test_collector(self) -> None:
        """The garbage collector, which rests during the imports, works afterwards, also if they fail."""
        missing = ProgramMaker("exec-missing", "twisted_exec.missing", "", "exec-missing")
        self.addCleanup(gc.enable)
        for is_enabled, switch in ((True, gc.enable), (False, gc.disable)):
            switch()
            self.assertRaises(AttributeError, lambda: missing.options)
            self.assertEqual(gc.isenabled(), is_enabled)


class DoorTests(SynchronousTestCase):
    """What the programs' services provide to who embeds them."""

    def service(self, name: str, *arguments: str) -> object:
        makers: list[Any] = list(getPlugins(IServiceMaker))
        (maker,) = [each for each in makers if each.tapname == name]
        options = maker.options()
        options.parseOptions(arguments)
        prepared: list[object] = []
        for name in ("use_monotonic_clock", "stop_once"):
            self.patch(program_module, name, prepared.append)
        service: object = maker.makeService(options)
        self.assertEqual(prepared, [reactor] * 2, "time and signals are as every program has them")
        return service

    def setUp(self) -> None:
        self.pki = create_pki(self.mktemp())

    def test_apiserver(self) -> None:
        """``exec-apiserver`` is an :class:`IAPIServer`."""
        serving, forwarding = self.pki.issue_apiserver(["127.0.0.1"])
        service = self.service(
            "exec-apiserver",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            f"--client-ca-file={self.pki.client_ca}",
            f"--machinepoollet-client-certificate={forwarding.certificate}",
            f"--machinepoollet-client-key={forwarding.key}",
            f"--machinepoollet-certificate-authority={self.pki.serving_ca}",
            "--storage=memory",
        )
        verifyObject(IAPIServer, service)

    def test_poollet(self) -> None:
        """``exec-poollet`` is an :class:`IPoollet`."""
        serving, client = self.pki.issue_poollet("lab", ["127.0.0.1"])
        kubeconfig = self.mktemp()
        write_kubeconfig(
            kubeconfig,
            server="https://127.0.0.1:6443",
            ca_pem=Path(self.pki.serving_ca).read_bytes(),
            certificate_pem=Path(client.certificate).read_bytes(),
            key_pem=Path(client.key).read_bytes(),
            user="lab",
        )
        service = self.service(
            "exec-poollet",
            f"--kubeconfig={kubeconfig}",
            "--machine-pool-name=lab",
            "--machine-runtime-endpoint=unix:///run/lab/iri.sock",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
        )
        verifyObject(IPoollet, service)

    def test_runtime(self) -> None:
        """``exec-runtime`` is an :class:`IMachineRuntime`."""
        config = Path(self.mktemp())
        config.write_text(
            "classes: [{name: shell, driver: pty, command: [/bin/sh, -i], same_user: true, "
            'capabilities: {cpu: "1", memory: 64Mi}}]'
        )
        service = self.service(
            "exec-runtime", f"--config={config}", "--iri-listen=unix:///run/lab/iri.sock"
        )
        verifyObject(IMachineRuntime, service)

    def test_standalone(self) -> None:
        """``exec-standalone`` is a service."""
        verifyObject(IService, self.service("exec-standalone", f"--state-dir={self.mktemp()}"))


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

    starts = tiers.PROGRAMS

    def test_light(self) -> None:
        """Reading it imports no reactor (twistd chooses one later) and of ours only the maker."""
        program = (
            "import sys, twisted.plugins.twisted_exec_plugins\n"
            "print([name for name in sys.modules if name == 'twisted.internet.reactor'\n"
            "       or name.startswith('twisted_exec') and name != 'twisted_exec._commit'])"
        )
        told = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
        ours = [
            "twisted_exec",
            "twisted_exec.program",
            "twisted_exec.program.maker",
        ]
        self.assertEqual(told.stdout.decode().strip(), str(ours))

    def test_imports_are_no_garbage(self) -> None:
        """The collector leaves out what the imports of a program made, because its first run would take long."""
        program = (
            "import gc\n"
            "from twisted.plugins.twisted_exec_plugins import runtime\n"
            "runtime.options\n"
            "print(gc.isenabled(), gc.get_freeze_count() > len(gc.get_objects()))"
        )
        told = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
        self.assertEqual(told.stdout.decode().strip(), "True True")

    def test_no_init(self) -> None:
        """An ``__init__.py`` beside it would hide Twisted itself from everybody."""
        from twisted.plugins import twisted_exec_plugins

        home = Path(twisted_exec_plugins.__file__).parent
        if home != Path(twisted.__file__).parent / "plugins":
            self.assertFalse((home / "__init__.py").exists())
            self.assertFalse((home.parent / "__init__.py").exists())
