"""
Interfaces between the machine runtime and the drivers of machine classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from twisted_exec.api.conditions import ConditionValue
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.console.interfaces import ILineTransport
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.journal.interfaces import IWritableJournal
from twisted_exec.runtimes.keeper.client import Keeper
from twisted_exec.runtimes.processes import Leader, ProcessTable
from twisted_exec.streaming.interfaces import Ending, IConsole

__all__ = [
    "Build",
    "CannotStart",
    "IAdoptsMachines",
    "IHardware",
    "IHotPlug",
    "IJournalWriter",
    "IKeepsState",
    "IMachineDriver",
    "IProbed",
    "IReleasable",
    "IReopenable",
    "IRestartPolicy",
    "IRun",
    "ISharedLineTransport",
    "IShutdown",
    "MachineFacts",
]


class CannotStart(ServiceUnavailable):
    """
    The machine cannot start now; the runtime retries with exponential back-off.

    :param condition: reason of the machine's condition and Event, such as ``ImageMissing``.
    """

    def __init__(self, condition: str, message: str) -> None:
        super().__init__(message)
        self.condition = condition


def _ignore_change(state: int, reason: str, message: str) -> None:
    """Discard a state change."""


@dataclass(frozen=True)
class MachineFacts:
    """
    The machine that a driver runs, and the callbacks of the runtime.

    :param label: ``NAMESPACE/NAME``, for messages and logs.
    :param hostname: the guest's desired hostname, or empty.
    :param directory: private directory of this machine with a short path, for sockets; the runtime
        creates and removes it.
    :param marker: ``(variable, value)`` for the environment of every process of the machine.
    :param started: call this immediately with each process that leads a session.
    :param event: call this with type (``Normal``, ``Warning``), reason and message to post an
        Event.
    :param changed: call this while the machine is on, with ``MACHINE_SUSPENDED`` or
        ``MACHINE_RUNNING``, and the reason (one word) and message of a problem, empty when it is
        solved.
    :param found_off: call this when the driver has observed the power of a machine whose line is open: with an empty
        text if it is on; otherwise with a sentence for users, which says that it is off and how to switch it on.
    :param described: call this with the condition ``ConsoleLine`` when the way to the console has
        changed.
    :param switches: returns how often users have switched the machine since this runtime has it; 0 if it was to be
        on when the runtime got it, so that its server's state stays as it is.
    :param shutting_down: call this when a machine that exists without the runtime has taken the request to shut down.
    :param booted: call this when a driver of existing lines has switched the machine on.
    :param namespace: of the API object; empty, as are ``name`` and ``uid``, if unknown.
    :param storage: private directory for the machine's disks, which may not exist yet; the runtime
        removes it with the machine.
    :param keep: the machine should outlive the runtime (drivers with :class:`IAdoptsMachines`).
    :param journal: the machine's journal, for runs that know where output is missing
        (:class:`IAdoptsMachines`) or where a boot begins (:class:`IJournalWriter`).
    :param keeper: holds terminals, under the machine's id, for a later runtime; ``None`` if there
        is no keeper.
    :param volumes: desired; volumes and interfaces change only while the machine is off, or after a
        run has applied the change.
    :param ignition_data: secret; never log it.
    """

    id: str
    label: str
    hostname: str
    directory: str
    marker: tuple[str, str]
    started: Callable[[Leader], None]
    event: Callable[[str, str, str], None]
    changed: Callable[[int, str, str], None] = _ignore_change
    described: Callable[[ConditionValue], None] = lambda condition: None
    found_off: Callable[[str], None] = lambda message: None
    is_on: Callable[[], bool] = lambda: False
    switches: Callable[[], int] = lambda: 1
    shutting_down: Callable[[], None] = lambda: None
    booted: Callable[[], None] = lambda: None
    namespace: str = ""
    name: str = ""
    uid: str = ""
    storage: str = ""
    keep: bool = False
    journal: IWritableJournal | None = None
    keeper: Keeper | None = None
    volumes: Sequence[pb.Volume] = ()
    network_interfaces: Sequence[pb.NetworkInterface] = ()
    ignition_data: bytes = field(default=b"", repr=False)


class IRun(IConsole):
    """
    One machine from power on to power off.

    ``connect`` is called once: it powers the machine on and opens its line. A size that was set
    before is the line's initial size. The protocol's transport provides
    :class:`~twisted_exec.console.interfaces.ILineTransport`. Its ``connectionLost`` reason may be a
    :class:`~twisted_exec.console.line.LineEnded`.
    """

    def stop() -> Deferred[None]:
        """
        Power off, in any state: before ``connect``, during it, and after the machine has ended.

        :return: fires within seconds, when no process of the machine is left that can be ended.
        """


class IMachineDriver(Interface):
    """Runs the machines of one class."""

    name = Attribute("The value of ``driver`` in the configuration (str).")

    def missing() -> str:
        """
        Return what to install or to change on the host, in one line; empty if machines can run.
        """

    def run(facts: MachineFacts) -> IRun:
        """Create a run of a machine, without side effects until its ``connect``."""


class IHardware(Interface):
    """A driver that supports volumes and network interfaces."""

    def check_volume(volume: pb.Volume) -> None:
        """
        Check a volume when it is added to a machine.

        :raises APIError: no machine of the class can have this volume.
        """

    def check_network_interface(interface: pb.NetworkInterface) -> None:
        """
        Check a network interface when it is added to a machine.

        :raises APIError: no machine of the class can have this interface.
        """


class IRestartPolicy(Interface):
    """A driver that decides on restarts."""

    def restarts(ending: Ending) -> bool:
        """Return true to restart a machine that ended this way by itself."""


class IShutdown(Interface):
    """A run whose machine can shut itself down."""

    def shut_down() -> Deferred[None]:
        """
        Request a shutdown, like a press of the power button.

        A run that is :class:`IReopenable` as well, whose ``stop`` only closes its line, can be asked as soon as
        ``connect`` was called, or instead of it.

        :return: fires when the machine is off, or the request has failed or timed out and ``stop`` ends the machine.
            If ``stop`` only closes the line, it fails with an ``APIError`` instead: the machine is kept, says why it is
            not off, and is asked again, until it is off or is to be on.
        """


class ISharedLineTransport(ILineTransport):
    """
    The transport of one connection of a line that is reopened after a loss.

    It may also have ``window_changed(size)``, and must have ``send_break(milliseconds)`` if the line
    is ``breakable``. ``pauseProducing`` must work for every line.
    """

    def abortConnection() -> None:
        """Close immediately and discard pending input; called if ``loseConnection`` takes too long."""


class IProbed(Interface):
    """The endpoint of a line whose far end can be looked for at little cost."""

    def has_come_back() -> Deferred[bool]:
        """
        Look for the far end while the line is lost; called every few seconds before a later attempt.

        :return: fires with true, within seconds, to open the line at once.
        """


class IHotPlug(Interface):
    """A run whose volumes can change while it is on."""

    def attach_volume(volume: pb.Volume) -> Deferred[None]:
        """:return: fires when the guest has the volume; fails with an ``APIError``."""

    def detach_volume(name: str) -> Deferred[None]:
        """:return: fires when the guest has released the volume and its data is deleted."""

    def resize_volume(volume: pb.Volume) -> Deferred[None]:
        """:return: fires when the volume has its new size; fails with an ``APIError``."""


class IKeepsState(Interface):
    """A driver that keeps state for a later runtime, such as a session with a device."""

    def use_directory(directory: str) -> None:
        """
        Use a directory for the state; called once, before the driver runs a machine.

        :param directory: private, and that of all classes with the driver.
        """


class IRunsHostProcesses(Interface):
    """
    A marker for drivers whose machines are processes of this host, with the rights of one of its
    users.

    Our poollets select such a class only by its name, unless the class has ``match: capabilities``:
    a user who asks for a CPU does not ask for a shell of the host.
    """


class IAdoptsMachines(Interface):
    """A driver whose machines can outlive the runtime."""

    def adopt(facts: MachineFacts, leaders: Sequence[Leader]) -> IRun:
        """
        Take over a machine that an earlier runtime released, or left behind when it was killed.

        ``connect`` of the run reopens the line; it fails if the machine does not respond. Where
        output that the machine printed meanwhile is missing, it calls ``facts.journal.lost()``.

        :param leaders: processes that were passed to ``facts.started``; usually they are alive.
        """


class IJournalWriter(Interface):
    """A run that writes boots into the machine's journal itself."""


class IReleasable(Interface):
    """A run whose machine can be left running."""

    def release() -> Deferred[None]:
        """
        Disconnect from the machine, in any state as ``stop``; it continues without the runtime.

        Input that the machine has not got yet must reach it before that of the next runtime.

        :return: fires when a start that was under way is over, and the machine is released.
        """


class IReopenable(Interface):
    """A run of a line that exists without the runtime; ``stop`` only closes the line."""


Build = Callable[[Any, ProcessTable], IMachineDriver]
"""Creates a driver from the reactor and the table that finds its processes."""
