"""
The machines of a runtime that another process continues.

The old process lets go of each machine, which goes on, and of the state directory; it can take both
back.  The new process adopts the machines like those that outlived an earlier runtime, whatever
``--keep-machines`` says.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.message import DecodeError
from twisted.internet.defer import gatherResults
from twisted.logger import Logger

from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.console.viewer_state import export_viewer
from twisted_exec.iri.protos import event_pb2
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.program.handover.successor import HandOverError
from twisted_exec.runtimes.machines import Inherited, Record
from twisted_exec.runtimes.service import MachineRuntime
from twisted_exec.streaming.interfaces import TerminalSize


class CannotHandOver(HandOverError):
    """Another process cannot continue this runtime now; the message says why."""


class MachinesHandOver:
    """
    The machines of one runtime, in the old process or in the new one.

    :param runtime: has all of them.
    """

    _log = Logger()

    def __init__(self, runtime: MachineRuntime) -> None:
        self._runtime, self._machines = runtime, runtime.machines
        self._unsent: dict[str, bytes] = {}

    # The old process.

    def check(self) -> None:
        """:raises CannotHandOver: another process cannot continue a machine now."""
        for record in self._machines.records:
            if record.id in self._machines.deleting:
                raise CannotHandOver(f'machine "{record.label}" is being deleted; try again')
            if why := self._machines.supervisors[record.id].obstacle:
                raise CannotHandOver(
                    f'machine "{record.label}" of class {record.class_name} cannot be handed over:'
                    f" {why}"
                )

    async def settle(self) -> None:
        """Wait until no machine is starting or ending."""
        supervisors = self._machines.supervisors.values()
        await gatherResults([each.when_settled() for each in supervisors])

    def stop_alerts(self) -> None:
        """Search no output any more, and answer the calls that wait for matches and recordings."""
        self._machines.stop_alerts()
        if self._machines.recordings is not None:
            self._machines.recordings.statuses.stop()

    def start_alerts(self) -> None:
        """Search the output again, once poollets have sent their patterns again."""
        self._machines.start_alerts()
        if self._machines.recordings is not None:
            self._machines.recordings.statuses.go_on()

    async def suspend(self) -> dict[str, Any]:
        """
        Let go of the machines and of the state directory.

        :return: the machines as JSON values.
        :raises CannotHandOver: as of :meth:`check`.
        """
        self.check()
        machines = self._machines
        self.stop_alerts()
        self._unsent = {}
        for record in machines.records:
            self._unsent[record.id] = await machines.supervisors[record.id].suspend()
        await machines.stop_recordings()
        values = {
            "machines": [self._export(record) for record in machines.records],
            "events": [_encode(each) for each in machines.records.events],
        }
        await machines.state.close()
        return values

    def _export(self, record: Record) -> dict[str, Any]:
        console = self._machines.supervisors[record.id].console
        size = None if console is None else console.size
        return {
            "machine": _encode(record.export()),
            "state": record.state,
            "conditions": [_encode(each) for each in record.conditions],
            "unsent": base64.b64encode(self._unsent[record.id]).decode("ascii"),
            "size": None if size is None else [size.columns, size.rows],
        }

    def viewers(self) -> list[tuple[str, Any, dict[str, Any]]]:
        """Return all viewers in order: the id of the machine, the viewer, and its state."""
        viewers = []
        for record in self._machines.records:
            console = self._machines.supervisors[record.id].console
            for viewer in () if console is None else console.viewers:
                state = export_viewer(viewer)
                if state is not None:
                    viewers.append((record.id, viewer, state))
        return viewers

    async def unsuspend(self) -> None:
        """
        Go on after :meth:`suspend`, also if it has failed half way.

        :raises StateInUse: another process uses the state directory.
        """
        machines = self._machines
        if not machines.state.is_open:
            machines.state.open()
            self._runtime.journals.open()
        machines.start_recordings()
        self.start_alerts()
        leaders = await machines.state.read_leaders()
        for record in machines.records:
            supervisor = machines.supervisors[record.id]
            if record.id in self._unsent:
                left = machines.state.adoptable(record.id, leaders)
                await supervisor.unsuspend(left, self._unsent.pop(record.id))

    # The new process.

    async def prepare(self, values: Mapping[str, Any]) -> None:
        """
        Prepare the runtime with the machines of another process.

        :param values: see :meth:`suspend`.
        :raises ValueError: the values are not valid, or a machine is of a class that is not offered.
        """
        records = self._machines.records
        machines: Sequence[Mapping[str, Any]] = values["machines"]
        await self._runtime.prepare([_inherited(each) for each in machines])
        for text in reversed(values["events"]):
            records.events.appendleft(_decode(event_pb2.Event, text))
        for each in machines:
            record = records.get(_decode(pb.Machine, each["machine"]).metadata.id)
            if record.state == pb.MACHINE_PENDING:  # not running yet
                record.state = each["state"]
                record.conditions = [
                    _decode(pb.MachineCondition, text) for text in each["conditions"]
                ]
            console = self.console(record.id)
            if console is not None and each["size"] is not None:
                console.restore_size(TerminalSize(*each["size"]))

    def console(self, machine_id: str, *, waits: bool = False) -> SharedConsole | None:
        """
        Return the console of a machine; ``None`` if it is off, or unknown.

        :param waits: for a session that waits until the machine is on.
        """
        supervisor = self._machines.supervisors.get(machine_id)
        if supervisor is None:
            return None
        return supervisor.waiting_console() if waits else supervisor.console


def _inherited(values: Mapping[str, Any]) -> Inherited:
    machine = _decode(pb.Machine, values["machine"])
    return Inherited(machine, base64.b64decode(values["unsent"], validate=True))


def _encode(message: Any) -> str:
    return base64.b64encode(message.SerializeToString()).decode("ascii")


def _decode(kind: Any, text: str) -> Any:
    try:
        return kind.FromString(base64.b64decode(text, validate=True))
    except DecodeError as problem:
        raise ValueError(f"this is no {kind.DESCRIPTOR.full_name}: {problem}") from None
