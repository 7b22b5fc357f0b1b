"""Tests for :mod:`twisted_exec.spacemanager.tap` and its options."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

from twisted.application.service import IService
from twisted.python.modules import getModule
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.contracts.space_provider import SpaceProviderContract
from tests.nodeserver.test_tap import KUBECONFIG
from tests.spacemanager import providers
from tests.spacemanager.support import Hub
from tests.taps import refusal
from twisted_exec.api.spaces import PROVIDER_TYPES
from twisted_exec.program.service import ServiceWithCleanup
from twisted_exec.spacemanager import tap
from twisted_exec.spacemanager.interfaces import ISpaceProvider, ProviderSpec
from twisted_exec.spacemanager.options import Options
from twisted_exec.spacemanager.service import SpaceManager
from twisted_exec.spacemanager.tap import makeService, provider_makers


class TapTests(SynchronousTestCase):
    """The command line."""

    def setUp(self) -> None:
        self.kubeconfig = Path(self.mktemp()).absolute()
        self.kubeconfig.write_text(KUBECONFIG)

    def options(self, *more: str) -> Options:
        options = Options()
        options.parseOptions([f"--kubeconfig={self.kubeconfig}", *more])
        return options

    def refusal(self, *arguments: str) -> str:
        """See :func:`tests.taps.refusal`."""
        return refusal(self, "exec-spacemanager", lambda: makeService(self.options(*arguments)))

    def test_service(self) -> None:
        """makeService returns a service and creates no state directory yet."""
        program = makeService(self.options())
        assert isinstance(program, ServiceWithCleanup)
        self.assertTrue(IService.providedBy(program))
        self.assertIsInstance(program.served, SpaceManager)
        self.assertFalse(os.path.exists("exec-spacemanager-state"))

    def test_settings(self) -> None:
        """The state directory becomes absolute; repeated provider types count once."""
        settings = self.options("--state-dir=x", "--lease=y").settings()
        self.assertEqual((settings.state_directory, settings.lease), (os.path.abspath("x"), "y"))
        self.assertEqual(self.options().types(), PROVIDER_TYPES)
        self.assertEqual(self.options("--providers=kcp, local,kcp").types(), ("kcp", "local"))

    def test_ports(self) -> None:
        """The range of ports is inclusive; without the option the provider chooses one."""
        self.assertIsNone(self.options()["space-port-range"])
        options = self.options("--space-port-range=21000-21009")
        self.assertEqual(options["space-port-range"], range(21000, 21010))
        self.assertTrue(IService.providedBy(makeService(options)))
        for wrong in ("21000", "9-8", "0-9", "1-65536", "a-b", "-5", "1-2-3"):
            told = self.refusal(f"--space-port-range={wrong}")
            self.assertIn(f"{wrong!r} is no range of ports from 1 to 65535", told)

    def test_refused(self) -> None:
        """Invalid options are refused at startup with the option and the reason."""
        self.assertIn(
            "'k8s' is not a provider type; use some of local", self.refusal("--providers=k8s")
        )
        self.assertIn("--providers is empty", self.refusal("--providers="))
        self.assertIn("--namespace: 'A' is not a name", self.refusal("--namespace=A"))
        self.assertIn("--lease: 'A b' is not a name", self.refusal("--lease=A b"))
        self.assertIn("--lease: '' is not a name", self.refusal("--lease="))
        self.assertIn("--state-dir must not be empty", self.refusal("--state-dir="))
        self.assertIn("nowhere", self.refusal("--context=nowhere"))

    def test_every_type(self) -> None:
        """Every provider type has a module, imported when its first provider is created."""
        self.assertEqual(set(tap.PROVIDERS), set(PROVIDER_TYPES))
        names: list[str] = []

        def imported(name: str) -> Any:
            names.append(name)
            return type("module", (), {"make": staticmethod(lambda spec, around: spec)})

        self.patch(tap, "import_module", imported)
        makers = provider_makers(["kind", "local"])
        self.assertEqual((sorted(makers), names), (["kind", "local"], []))
        spec = ProviderSpec("a", "kind")
        made = makers["kind"](spec, Hub().around)
        self.assertIs(made, cast(ISpaceProvider, spec))
        self.assertEqual(names, ["twisted_exec.spacemanager.providers.kind.provider"])

    def test_every_contract(self) -> None:
        """SF 16: every provider type has tests that run the provider contract."""
        covered = set()
        for module in getModule(providers.__name__).walkModules():
            path = module.name.removeprefix(f"{providers.__name__}.")
            if not path.rpartition(".")[2].startswith("test_"):
                continue
            tests = [
                each
                for each in vars(module.load()).values()
                if isinstance(each, type) and issubclass(each, TestCase)
            ]
            if any(issubclass(each, SpaceProviderContract) for each in tests):
                covered.add(path.partition(".")[0])
        self.assertLessEqual(set(tap.PROVIDERS), covered)
