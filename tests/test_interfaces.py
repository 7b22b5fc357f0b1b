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
    """An application imports every door from one place."""

    def test_all_doors(self) -> None:
        """Whatever a room declares in its ``interfaces`` module is here."""
        for room in pkgutil.iter_modules(twisted_exec.__path__):
            if not room.ispkg:
                continue
            try:
                module = import_module(f"twisted_exec.{room.name}.interfaces")
            except ModuleNotFoundError:
                continue
            for name, found in vars(module).items():
                if isinstance(found, InterfaceClass) and found.__module__ == module.__name__:
                    self.assertIs(getattr(interfaces, name, None), found, name)

    def test_what_is_promised_is_there(self) -> None:
        """``__all__`` names what exists, and every name is public."""
        for name in interfaces.__all__:
            self.assertTrue(hasattr(interfaces, name), name)

    def test_every_door_is_documented(self) -> None:
        """A door says what it is, and so does each of its methods."""
        for name in interfaces.__all__:
            door = getattr(interfaces, name)
            if not isinstance(door, InterfaceClass) or door is Interface:
                continue
            self.assertTrue((door.__doc__ or "").strip(), name)
