"""
Doors of the runtimes room: a class of machines is a driver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.streaming.interfaces import IConsole

from .drivers import IDriverMaker
from .processes import Leader, ProcessTable

__all__ = ["Build", "IDriverMaker", "IMachineDriver", "IRun", "MachineFacts"]


@dataclass(frozen=True)
class MachineFacts:
    """
    What a driver may know of the machine that it runs.

    :param id: the runtime's id.
    :param label: ``NAMESPACE/NAME``, for messages and logs.
    :param hostname: that the guest should have, or empty.
    :param directory: a private one with a short path, for sockets; of this
        machine alone, and removed when the machine is.
    :param marker: ``(variable, value)`` for the environment of every process of
        the machine: by it they are found again, also by a later runtime.
    :param started: to be called with each process that leads a session, at once.
    :param event: to be called with type (``Normal``, ``Warning``), reason and
        message of what an operator should know.
    :param namespace: of the API object; empty where a poollet told none, and so are name and uid.
    :param storage: a private directory for what the machine keeps on disk; made by
        who needs it, and removed when the machine is.
    :param volumes: as the interface tells them; these and the rest are what is wanted now,
        and may be others at the machine's next start.
    :param ignition_data: a secret, never to be logged; of the first start, too.
    """

    id: str
    label: str
    hostname: str
    directory: str
    marker: tuple[str, str]
    started: Callable[[Leader], None]
    event: Callable[[str, str, str], None]
    namespace: str = ""
    name: str = ""
    uid: str = ""
    storage: str = ""
    volumes: Sequence[pb.Volume] = ()
    network_interfaces: Sequence[pb.NetworkInterface] = ()
    ignition_data: bytes = field(default=b"", repr=False)


class IRun(IConsole):
    """
    One machine from power on to power off.

    As :class:`~twisted_exec.streaming.interfaces.IConsole`: connecting powers the
    machine on and opens its line; it is called once.  A size that comes before is
    the line's first.  The reason of the line's end may be
    :class:`~twisted_exec.console.session.LineEnded`, such as when the guest powered itself off.
    """

    def stop() -> Deferred[None]:
        """
        Power off; also when it is off, connecting, or ended by itself.

        :return: fires within seconds, when no process of the machine is left.
        """


class IMachineDriver(Interface):
    """One class's way to run machines."""

    name = Attribute("As in the configuration (str).")

    def missing() -> str:
        """
        What this host lacks for the class.

        :return: one line that says what to install or to change; empty when
            machines can run.
        """

    def run(facts: MachineFacts) -> IRun:
        """A machine that is about to be powered on.  Touches nothing yet."""


Build = Callable[[Any, ProcessTable], IMachineDriver]
"""Makes a driver, of the reactor and the table in which its processes are found."""
