"""
Twisted plugins for the drivers of machine classes; packages can add plugins.

This module must not import anything heavy: every twistd that writes the plugin cache imports it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from twisted.plugin import IPlugin, getPlugins
from twisted.python.reflect import namedAny
from zope.interface import Attribute, Interface, implementer

if TYPE_CHECKING:
    from twisted_exec.program.config_file import Reader
    from twisted_exec.runtimes.interfaces import Build


class IDriverMaker(Interface):
    """A plugin that creates the driver of a class from its configuration."""

    name = Attribute("The value of ``driver`` in the configuration (str).")

    def configure(reader: Reader, resources: Mapping[str, int]) -> Build:
        """
        Read the driver's keys of a class, without access to the host.

        :param reader: (:class:`~twisted_exec.program.config_file.Reader`) the class. Keys that the
            driver does not take are refused.
        :param resources: the capabilities: ``memory`` in bytes, ``cpu`` in whole units.
        :return: creates the driver from the reactor and the runtime's
            :class:`~twisted_exec.runtimes.processes.ProcessTable`.
        :raises ConfigError: a key is wrong; use ``raise reader.error(why)``.
        """


@implementer(IPlugin, IDriverMaker)
class DriverMaker:
    """
    A plugin for a module with a function ``configure``, imported when a class uses the driver.

    :param module: dotted name.
    """

    def __init__(self, name: str, module: str) -> None:
        self.name = name
        self.module = module

    def configure(self, reader: Reader, resources: Mapping[str, int]) -> Build:
        build: Build = namedAny(f"{self.module}.configure")(reader, resources)
        return build


def drivers() -> dict[str, Any]:
    """Return all driver plugins by name; the first plugin with a name wins."""
    makers: dict[str, Any] = {}
    for maker in getPlugins(IDriverMaker):
        makers.setdefault(maker.name, maker)
    return dict(sorted(makers.items()))
