"""
Tests for :mod:`twisted_exec.interfaces`.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from twisted.trial.unittest import SynchronousTestCase
from zope.interface import Interface
from zope.interface.interface import InterfaceClass

import twisted_exec
from twisted_exec import interfaces


class FacadeTests(SynchronousTestCase):
    """An application imports every interface from one place."""

    def test_all_interfaces(self) -> None:
        """The facade has every interface that a package declares in its ``interfaces`` module."""
        for package in pkgutil.iter_modules(twisted_exec.__path__):
            if not package.ispkg:
                continue
            try:
                module = import_module(f"twisted_exec.{package.name}.interfaces")
            except ModuleNotFoundError:
                continue
            for name, value in vars(module).items():
                if isinstance(value, InterfaceClass) and value.__module__ == module.__name__:
                    self.assertIs(getattr(interfaces, name, None), value, name)

    def test_public_names_exist(self) -> None:
        """``__all__`` names what exists, and every name is public."""
        for name in interfaces.__all__:
            self.assertTrue(hasattr(interfaces, name), name)

    def test_every_interface_is_documented(self) -> None:
        """Every interface has a docstring."""
        for name in interfaces.__all__:
            interface = getattr(interfaces, name)
            if not isinstance(interface, InterfaceClass) or interface is Interface:
                continue
            self.assertTrue((interface.__doc__ or "").strip(), name)


_INTERFACES_OF_0_1_0 = """
COMPLETED CONSOLE_IN_USE IDLE INTERNAL LINE_LOST MACHINE_DELETED POOL_DELETED POWERED_OFF
REVOKED SESSION_DELETED SHUTTING_DOWN Access Around Attributes Break CannotStart Change
Decision Ending IAPIServer IAdmission IAttachment IAttachmentTransport IAuditSink
IAuthenticator IAuthorizer IBreakable IConsole IDriverMaker IHardware IHotPlug IAdoptsMachines IReleasable
IKeptHere IKubeClient ILeader ILeaf ILeases ILeaves IMachineDriver IMachineLogs IMachineRuntime
IMutatingAdmission IOpeningAdmission IOperable IPoollet IProviderView IProviders IRestartPolicy
IRootPods IRotates IRuleSource IRulesAuthorizer IRun IShutdown ISpaceClient ISpaceConnection
ISpaceListener ISpaceProvider ISpaces IStorage IStreamLocator IWatch LeafNode LeafPod Location
Look MachineFacts Opening Physical ProviderSpec Role SpaceInfo SpaceName Subject TerminalSize
User Wanted
"""

_TESTING_OF_0_1_0 = {
    "attachment": "EchoAttachment RecordingAttachment RecordingUser",
    "cluster": "GRACE_SECONDS Key MemoryClient MemoryCluster Review unreachable",
    "console": "FakeConsole",
    "flow": "RecordingProducer",
    "http": "MemoryClient MemoryServer Response",
    "kubelet": "Container Kubelet Pods Seen",
    "lying": "Change LyingRuntime at crowd in_state nothing twice",
    "network": "BUFFER_BYTES MemoryNetwork MemoryTransport",
    "proxies": "ConnectProxy ProxyFactory Socks5Proxy",
    "space_provider": "Changed MemoryProvider MemorySpace MemorySpaces",
}


class CompatibilityTests(SynchronousTestCase):
    """Names that applications import last a release longer than their successors need."""

    def test_interfaces(self) -> None:
        """Every name that 0.1.0 offered is still there."""
        for name in _INTERFACES_OF_0_1_0.split():
            self.assertTrue(hasattr(interfaces, name), name)
        warned = [each["message"] for each in self.flushWarnings()]
        self.assertIn(
            "twisted_exec.interfaces.Look is ProviderCondition since 0.2.0, and goes with 0.3.0",
            warned,
        )
        self.assertRaises(AttributeError, getattr, interfaces, "Unknown")

    def test_testing(self) -> None:
        """So are the doubles, in the modules where 0.1.0 had them."""
        for module, names in _TESTING_OF_0_1_0.items():
            doubles = import_module(f"twisted_exec.testing.{module}")
            for name in names.split():
                self.assertTrue(hasattr(doubles, name), f"{module}.{name}")
        self.flushWarnings()  # about modules that have moved
