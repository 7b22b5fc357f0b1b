"""
Doors of the runtimes room: a class of machines is a driver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.streaming.interfaces import Ending, IConsole

from .drivers import IDriverMaker
from .processes import Leader, ProcessTable

__all__ = [
    "Build",
    "CannotStart",
    "IDriverMaker",
    "IHardware",
    "IHotPlug",
    "IKeeping",
    "IKept",
    "IMachineDriver",
    "IRestarting",
    "IRun",
    "IShutdown",
    "MachineFacts",
]


class CannotStart(ServiceUnavailable):
    """
    Why a machine is not started, with a word for it; it is tried again, more and more slowly.

    :param condition: the reason of the machine's condition and Event, such as ``ImageMissing``.
    """

    def __init__(self, condition: str, message: str) -> None:
        super().__init__(message)
        self.condition = condition


def _nobody(state: int, reason: str, message: str) -> None:
    """Nobody wants to know."""


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
    :param changed: to be called, while the machine is on, with what it is now: ``MACHINE_SUSPENDED``
        when it stands still and ``MACHINE_RUNNING`` when it goes on, or with the same
        state and a reason (one word) and a message of what is wrong; empty when nothing is any more.
    :param namespace: of the API object; empty where a poollet told none, and so are name and uid.
    :param storage: a private directory for what the machine keeps on disk; made by
        who needs it, and removed when the machine is.
    :param keep: whether the machine is to outlive the runtime, of drivers with
        :class:`IKeeping`; its processes must not end with ours then.
    :param volumes: as the interface tells them; these and the rest are what is wanted now:
        they change while the machine is off, and when a run has changed them.
    :param ignition_data: a secret, never to be logged; of the first start, too.
    """

    id: str
    label: str
    hostname: str
    directory: str
    marker: tuple[str, str]
    started: Callable[[Leader], None]
    event: Callable[[str, str, str], None]
    changed: Callable[[int, str, str], None] = _nobody
    namespace: str = ""
    name: str = ""
    uid: str = ""
    storage: str = ""
    keep: bool = False
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


class IHardware(Interface):
    """A driver whose machines have disks and network cards; others' machines have none."""

    def check_volume(volume: pb.Volume) -> None:
        """
        :raises APIError: no machine of the class can have it.  What may yet come, such as
            an image that is missing, is told when the machine starts.
        """

    def check_network_interface(interface: pb.NetworkInterface) -> None:
        """:raises APIError: no machine of the class can have it."""


class IRestarting(Interface):
    """A driver that says itself whether a machine that ended is started again; else it is."""

    def restarts(ending: Ending) -> bool:
        """Whether a machine that ended so, by itself, is to be started again."""


class IShutdown(Interface):
    """A run that can be asked to end itself; provided besides :class:`IRun`."""

    def shut_down() -> Deferred[None]:
        """
        Ask, as one presses the power button.

        :return: fires when the machine is off, or when it has had time enough.
        """


class IHotPlug(Interface):
    """A run whose hardware can be changed while it is on; provided besides :class:`IRun`."""

    def attach_volume(volume: pb.Volume) -> Deferred[None]:
        """Fires when the guest can have it; fails with an ``APIError`` that says why not."""

    def detach_volume(name: str) -> Deferred[None]:
        """Fires when the guest has let go of it, and what was on it is removed."""

    def resize_volume(volume: pb.Volume) -> Deferred[None]:
        """Fires when it has the new size."""


class IKeeping(Interface):
    """A driver whose machines can outlive the runtime."""

    def adopt(facts: MachineFacts, leaders: Sequence[Leader]) -> IRun:
        """
        A machine that an earlier runtime let go of, or left when it was killed.

        Connecting opens its line again; it fails when the machine cannot be talked to.

        :param leaders: processes that were recorded by ``facts.started``, and are alive.
        """


class IKept(Interface):
    """A run that can be left running; provided besides :class:`IRun`, by drivers with :class:`IKeeping`."""

    def release() -> None:
        """Let go of it: nothing here touches the machine any more, which goes on by itself."""


Build = Callable[[Any, ProcessTable], IMachineDriver]
"""Makes a driver, of the reactor and the table in which its processes are found."""
