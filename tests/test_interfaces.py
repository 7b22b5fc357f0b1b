"""
Tests for :mod:`twisted_exec.interfaces`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase
from zope.interface import Interface
from zope.interface.interface import InterfaceClass

from twisted_exec import interfaces


class FacadeTests(SynchronousTestCase):
    """The names for applications."""

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
