"""
Hand-over of a machine runtime: another process goes on with its machines and sessions.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from google.protobuf.message import DecodeError
from twisted.internet.defer import (
    CancelledError,
    Deferred,
    DeferredList,
    FirstError,
    TimeoutError,
    gatherResults,
)
from twisted.logger import Logger

from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.console.viewer import Viewer
from twisted_exec.iri.protos import event_pb2
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.request_cache import RequestCache, grant_from
from twisted_exec.iri.server import IRIServer
from twisted_exec.program.handover.interfaces import ServiceState
from twisted_exec.program.handover.successor import HandOverError
from twisted_exec.program.handover.undo import UndoStack
from twisted_exec.program.tasks import each_alone
from twisted_exec.runtimes.machine_records import Inherited, MachineRecord
from twisted_exec.runtimes.service import MachineRuntime
from twisted_exec.runtimes.serving.kept_sessions import KeptSession
from twisted_exec.runtimes.viewer_export import export_viewer, restore_viewer
from twisted_exec.shipping.service import Shipping
from twisted_exec.streaming.interfaces import SHUTTING_DOWN, Ending, TerminalSize
from twisted_exec.streaming.remotecommand.server import ConsoleServer
from twisted_exec.streaming.remotecommand.serving import continue_stream
from twisted_exec.streaming.sessions.guard import CONSOLE_SERVER
from twisted_exec.streaming.sessions.lingering import linger
from twisted_exec.streaming.sessions.registry import Session as LiveSession
from twisted_exec.streaming.subject import Subject
from twisted_exec.wire.session_terms import parse_terms

if TYPE_CHECKING:
    from twisted_exec.runtimes.serving.stream_server import StreamServer


_NOT_MOVED = (
    f"{CONSOLE_SERVER} was replaced, and this session could not go on: open the console again"
)
_REPLACED = f"{CONSOLE_SERVER} was replaced a while ago: open the console again"
_LOG_REPLACED = f"{CONSOLE_SERVER} is being replaced: read the log again"
_OLDER_FORM = (
    "the sessions of stock clients ({number}) cannot move here from release 0.2.0: restart the"
    " program instead, or wait until they have ended"
)
_SETTLE_SECONDS = 5.0
"""Longest wait of a new process until its machines are adopted."""


class SomeMachines(Protocol):
    """The machines of a runtime, as its sessions need them."""

    def viewers(self) -> list[tuple[str, Any, dict[str, Any]]]:
        """Return the viewers to hand over: the id of the machine, the viewer, and its state."""

    def console(self, machine_id: str, *, waits: bool = False) -> SharedConsole | None:
        """See :meth:`MachinesHandOver.console`."""


class SessionsHandOver:
    """
    The sessions of one runtime, in the old process or in the new one.

    Our clients resume their sessions in the new process.  The streams of other clients move, with
    the state of their protocol, and the hop before rejoins them there.
    """

    _log = Logger()

    def __init__(
        self, server: StreamServer, cache: RequestCache, machines: SomeMachines, reactor: Any
    ) -> None:
        self._server, self._cache, self._machines = server, cache, machines
        self._reactor = reactor
        self._moving: list[LiveSession] = []

    # The new process.

    def restore(self, values: Mapping[str, Any]) -> None:
        """
        Create the sessions of another process, after its machines.

        :param values: see :meth:`export`.
        :raises ValueError: the values are not valid.
        """
        try:
            self._check(values["sessions"])
            self._cache.restore(values["tokens"])
            self._server.kept_sessions.restore(values["kept"])
            for each in values["sessions"]:
                self._restore(each)
        except (KeyError, TypeError, AttributeError) as problem:
            raise ValueError(f"these are no sessions of a runtime: {problem!r}") from None

    def _check(self, sessions: Sequence[Mapping[str, Any]]) -> None:
        # Release 0.2.0 goes on to serve these streams, and reaches their sessions over a socket.
        older = [each for each in sessions if "socket" in (each["stream"] or {})]
        if older:
            raise ValueError(_OLDER_FORM.format(number=len(older)))

    def _restore(self, values: Mapping[str, Any]) -> None:
        waits = values["viewer"]["waitsAfter"] is not None
        console = self._machines.console(values["machine"], waits=waits)
        viewer = None if console is None else restore_viewer(console, values["viewer"])
        if viewer is None:
            return  # its machine has ended meanwhile
        if values["stream"] is None:
            session = self._server.kept_sessions.new(
                values["viewer"]["user"], values["bound"], Subject(**values["subject"]), viewer
            )
            keys = {bytes.fromhex(key): name for key, name in values["keys"].items()}
            session.restore(keys, values["settled"], is_away=values["viewer"]["isAway"])
            return
        try:
            self._continue(viewer, values["stream"])
        except Exception:
            # The hop before asks for this stream, and then tells its user that the session is over.
            self._log.failure("session {id} did not move here", id=viewer.session)
            viewer.detached(SHUTTING_DOWN)

    def _continue(self, viewer: Viewer, values: Mapping[str, Any]) -> None:
        subject, terms = Subject(**values["subject"]), parse_terms(values["terms"])
        tokens = [(bytes.fromhex(each), grant_from(grant)) for each, grant in values["tokens"]]
        live = self._server.sessions.open(subject, ceiling=terms)
        for digest, grant in tokens:
            self._cache.expect(digest, grant, live)
            live.on_over.append(partial(self._cache.forget, digest))
        self._server.add_ordinary(live, viewer)
        try:
            continue_stream(
                values["state"],
                bytes.fromhex(values["rejoin"]),
                self._server.streams,
                viewer.continued,
                viewer,
                entry=live,
                options=viewer.options,
                clock=self._reactor,
            )
        except Exception:
            live.over(SHUTTING_DOWN)
            raise

    # The old process.

    def export(self) -> dict[str, Any]:
        """
        Return the sessions as JSON values; suspend the machines first.

        Nothing passes in streams that move, until :meth:`thaw`.
        """
        resumable = {id(each.attachment): each for each in self._server.kept_sessions.all}
        ordinary = {id(each): live for live, each in self._server.ordinary.items()}
        sessions: list[dict[str, Any]] = []

        def add(exported: tuple[str, Any, dict[str, Any]]) -> None:
            machine_id, viewer, state = exported
            values: dict[str, Any] = {"machine": machine_id, "viewer": state}
            if session := resumable.get(id(viewer)):
                sessions.append(values | _resumable_values(session))
            elif (live := ordinary.get(id(viewer))) and (stream := self._suspend(live, viewer)):
                sessions.append({**values, "stream": stream})

        each_alone(self._machines.viewers(), add, lambda exported: self._not_exported(exported[1]))
        return {
            "tokens": self._cache.export(),
            "kept": self._server.kept_sessions.export(),
            "sessions": sessions,
        }

    def _not_exported(self, viewer: Viewer) -> None:
        self._log.failure("session {id} stays behind", id=viewer.session)

    def _suspend(self, live: LiveSession, viewer: Viewer) -> dict[str, Any] | None:
        tokens = self._cache.tokens_of(live)
        server = viewer.transport
        assert isinstance(server, ConsoleServer)
        moved = server.suspend()
        if moved is None:
            return None
        self._moving.append(live)
        state, digest = moved
        return {
            "subject": asdict(live.subject),
            "terms": live.terms.text(),
            "tokens": [[each.hex(), asdict(grant)] for each, grant in tokens],
            "rejoin": digest.hex(),
            "state": state,
        }

    async def thaw(self) -> None:
        """Go on after :meth:`export`."""
        moving, self._moving = self._moving, []
        self._server.sessions.each(moving, self._unsuspend)

    def _unsuspend(self, live: LiveSession) -> None:
        viewer: Any = self._server.ordinary.get(live)
        server = None if viewer is None else viewer.transport
        if isinstance(server, ConsoleServer):
            server.unsuspend()

    async def retire(self, seconds: float) -> None:
        """
        Leave the sessions to a successor that is ready.

        Consoles and logs that cannot move end. Downloads of recordings and screens go on, for
        ``seconds`` at most.
        """
        sessions = self._server.sessions
        moving, self._moving = self._moving, []
        # The hops before them rejoin them at the successor.
        sessions.each(moving, lambda live: live.cut(SHUTTING_DOWN))
        moved = set(moving)
        left = [live for live in self._server.ordinary if live not in moved]
        sessions.each(left, lambda live: live.end(Ending(SHUTTING_DOWN, _NOT_MOVED)))
        each_alone(self._server.kept_sessions.all, _cut, self._not_cut)
        self._server.kept_sessions.close(_REPLACED)
        ending = Ending(SHUTTING_DOWN, _LOG_REPLACED)
        sessions.end(lambda subject: subject.subresource == "log", ending)
        await linger(sessions, self._reactor, seconds, _REPLACED)

    def _not_cut(self, session: KeptSession) -> None:
        self._log.failure("session {id} was not cut", id=session.subject.session)


def _resumable_values(session: KeptSession) -> dict[str, Any]:
    return {
        "subject": asdict(session.subject),
        "bound": session.machine,
        "keys": {key.hex(): name for key, name in session.keys.items()},
        "settled": session.settled,
        "stream": None,
    }


def _cut(session: KeptSession) -> None:
    if session.connection is not None:
        session.connection.cut(SHUTTING_DOWN)


class CannotHandOver(HandOverError):
    """Another process cannot continue this runtime now; the message says why."""


class MachinesHandOver:
    """The machines of one runtime, in the old process or in the new one."""

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
        """Wait until no machine is starting or ending; see :meth:`.Supervisor.when_settled`."""
        supervisors = self._machines.supervisors.values()
        settling = [each.when_settled() for each in supervisors]
        try:
            await gatherResults(settling, consumeErrors=True)
        except FirstError as first:
            first.subFailure.raiseException()

    def stop_alerts(self) -> None:
        self._machines.stop_alerts()
        if self._machines.recordings is not None:
            self._machines.recordings.statuses.stop()

    def start_alerts(self) -> None:
        self._machines.start_alerts()
        if self._machines.recordings is not None:
            self._machines.recordings.statuses.go_on()

    async def suspend(self) -> dict[str, Any]:
        """
        Let go of the machines and of the state directory; return the machines as JSON values.

        :raises CannotHandOver: as of :meth:`check`, or the disk does not take the last output.
        """
        self.check()
        machines = self._machines
        self.stop_alerts()
        # All at once, because a line whose peer is gone takes seconds to close.
        self._unsent = {record.id: b"" for record in machines.records}
        suspending = [Deferred.fromCoroutine(self._suspend(each)) for each in self._unsent]
        try:
            await gatherResults(suspending, consumeErrors=True)
        except FirstError as first:
            first.subFailure.raiseException()
        await machines.stop_recordings()
        values = {
            "machines": [self._export(record) for record in machines.records],
            "events": [_encode(each) for each in machines.records.events],
        }
        if not await machines.state.close(gives_up=False):
            raise CannotHandOver(
                "the disk does not take the last output of the consoles: try again"
            )
        return values

    async def _suspend(self, id: str) -> None:
        self._unsent[id] = await self._machines.supervisors[id].suspend()

    def _export(self, record: MachineRecord) -> dict[str, Any]:
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
        viewers = []
        for record in self._machines.records:
            console = self._machines.supervisors[record.id].console

            def add(viewer: Viewer, id: str = record.id) -> None:
                state = export_viewer(viewer)
                if state is not None:
                    viewers.append((id, viewer, state))

            each_alone(() if console is None else console.viewers, add, self._not_exported)
        return viewers

    def _not_exported(self, viewer: Viewer) -> None:
        self._log.failure("session {id} stays behind", id=viewer.session)

    async def unsuspend(self) -> None:
        """
        Go on after :meth:`suspend`, also if it has failed half way, or a machine does not go on.

        :raises StateInUse: another process uses the state directory.
        :raises DirectoryError: a directory is not private or cannot be created.
        :raises FormatError: a later release wrote the journals meanwhile.
        """
        machines = self._machines
        if not machines.state.is_open:
            machines.state.open()
            self._runtime.journals.open()
        machines.start_recordings()
        self.start_alerts()
        leaders = await machines.state.read_leaders()
        # All at once: one that takes long delays no other one.
        going_on = [
            Deferred.fromCoroutine(self._unsuspend(record, leaders))
            for record in machines.records
            if machines.supervisors[record.id].is_suspended
        ]
        await DeferredList(going_on, consumeErrors=True)

    async def _unsuspend(self, record: MachineRecord, leaders: Mapping[str, Any]) -> None:
        machines = self._machines
        left = machines.state.adoptable(record.id, leaders)
        unsent = self._unsent.pop(record.id, b"")
        try:
            await machines.supervisors[record.id].unsuspend(left, unsent)
        except CancelledError:
            raise  # this process stops
        except Exception:
            self._log.failure("machine {label} does not go on", label=record.label)

    # The new process.

    async def prepare(self, values: Mapping[str, Any]) -> None:
        """
        Prepare the runtime with the machines of another process.

        Fails as :meth:`.MachineRuntime.prepare`, or if the values are not valid.
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
        Return the console of a machine; ``None`` if the machine is unknown, or off without
        ``waits``.
        """
        supervisor = self._machines.supervisors.get(machine_id)
        if supervisor is None:
            return None
        return supervisor.waiting_console() if waits else supervisor.console


def _inherited(values: Mapping[str, Any]) -> Inherited:
    machine = _decode(pb.Machine, values["machine"])
    unsent = base64.b64decode(values["unsent"], validate=True)
    return Inherited(machine, unsent, values["state"] != pb.MACHINE_STOPPED)


def _encode(message: Any) -> str:
    return base64.b64encode(message.SerializeToString()).decode("ascii")


def _decode(kind: Any, text: str) -> Any:
    try:
        return kind.FromString(base64.b64decode(text, validate=True))
    except DecodeError as problem:
        raise ValueError(f"this is no {kind.DESCRIPTOR.full_name}: {problem}") from None


class RuntimeParts(Protocol):
    """The parts of a runtime that its hand-over stops and starts."""

    runtime: MachineRuntime
    cache: RequestCache
    streams: StreamServer
    iri: IRIServer
    shipping: Shipping | None

    def start_shipping(self) -> None:
        """Start to ship console lines, also those of deleted machines."""


class RuntimeHandOver:
    """Hands one runtime over to another process, or continues that of another process."""

    is_retired = False

    def __init__(self, host: RuntimeParts, reactor: Any) -> None:
        self._host, self._reactor = host, reactor
        self._machines = MachinesHandOver(host.runtime)
        self._sessions = SessionsHandOver(host.streams, host.cache, self._machines, reactor)
        self._inherited: Mapping[str, Any] | None = None
        self._undo = UndoStack()

    # The new process.

    def inherit(self, inherited: ServiceState) -> None:
        if not {"machines", "sessions"} <= inherited.values.keys():
            raise ValueError("the state of a runtime has machines and sessions")
        self._inherited = inherited.values

    async def prepare_machines(self) -> None:
        """Prepare the runtime, with the machines of another process if there is one."""
        if self._inherited is None:
            await self._host.runtime.prepare()
        else:
            await self._machines.prepare(self._inherited["machines"])

    async def prepare_sessions(self) -> None:
        """
        Continue the sessions of another process if there is one; call :meth:`prepare_machines`
        first.
        """
        inherited, self._inherited = self._inherited, None
        if inherited is not None:
            self._sessions.restore(inherited["sessions"])
            settled = Deferred.fromCoroutine(self._machines.settle())
            try:
                await settled.addTimeout(_SETTLE_SECONDS, self._reactor)
            except TimeoutError:
                pass  # a machine that does not answer is started again later

    # The old process.

    async def freeze(self) -> ServiceState:
        host = self._host
        self._machines.check()
        self._undo.push(self._thaw_streams)
        host.streams.freeze()
        self._undo.push(self._unsuspend_iri)
        suspended = Deferred.fromCoroutine(host.iri.suspend())
        # A poollet always waits for matches of alerts; without an answer that would take two seconds.
        self._machines.stop_alerts()
        await suspended
        await self._machines.settle()
        if host.shipping is not None:
            self._undo.push(self._ship_again)
            await host.shipping.stopService()  # before the journals close
        self._machines.check()
        self._undo.push(self._machines.unsuspend)
        machines = await self._machines.suspend()
        self._undo.push(self._sessions.thaw)
        return ServiceState({"machines": machines, "sessions": self._sessions.export()})

    async def thaw(self) -> None:
        # Without its state directory, another process may have the machines.
        await self._undo.undo(lambda: self._host.runtime.machines.state.is_open)

    @property
    def is_frozen(self) -> bool:
        return not self._undo.is_empty

    async def retire(self, seconds: float) -> None:
        self.is_retired = True
        self._undo.clear()
        await self._sessions.retire(seconds)

    async def _thaw_streams(self) -> None:
        self._host.streams.thaw()

    async def _unsuspend_iri(self) -> None:
        self._machines.start_alerts()
        self._host.iri.unsuspend()

    async def _ship_again(self) -> None:
        self._host.start_shipping()
