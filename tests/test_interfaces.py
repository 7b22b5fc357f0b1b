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
