"""
Drivers are Twisted plugins: who has one more puts it beside ours, and a class can name it.

Every twistd on the host reads the cache of plugins, and with it this module: it imports
nothing that is heavy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from twisted.plugin import IPlugin, getPlugins
from twisted.python.reflect import namedAny
from zope.interface import Attribute, Interface, implementer

if TYPE_CHECKING:
    from twisted_exec.observe.reader import Reader

    from .interfaces import Build


class IDriverMaker(Interface):
    """Makes the driver of a class, as the class is configured."""

    name = Attribute("As the configuration's ``driver`` names it (str).")

    def configure(reader: Reader, resources: Mapping[str, int]) -> Build:
        """
        Read the class's own keys.  Nothing of the host is looked at yet.

        :param reader: (:class:`~twisted_exec.observe.reader.Reader`) the class, of which
            the keys of every class are taken; keys that are left are refused afterwards.
        :param resources: the capabilities: ``memory`` in bytes, ``cpu`` in whole units.
        :return: makes the driver, of the reactor and the runtime's
            :class:`~twisted_exec.runtimes.processes.ProcessTable`.
        :raises ConfigError: ``reader`` does, and so may you: ``raise reader.error(why)``.
        """


@implementer(IPlugin, IDriverMaker)
class DriverMaker:
    """
    A plugin for a module that has a function ``configure``; it is imported when a class asks.

    :param module: its full name.
    """

    def __init__(self, name: str, module: str) -> None:
        self.name = name
        self.module = module

    def configure(self, reader: Reader, resources: Mapping[str, int]) -> Build:
        build: Build = namedAny(f"{self.module}.configure")(reader, resources)
        return build


def drivers() -> dict[str, Any]:
    """Those that there are, by name; of two with one name the first that is found."""
    found: dict[str, Any] = {}
    for maker in getPlugins(IDriverMaker):
        found.setdefault(maker.name, maker)
    return dict(sorted(found.items()))
