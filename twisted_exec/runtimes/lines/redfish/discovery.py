"""
What a BMC says of its server, from a bounded number of its documents.

Most vendors say little about the console: of five captured BMCs only OpenBMC fills
``ComputerSystem.SerialConsole``. Facts that a document lacks are therefore ``None``, which is not
the same as false, and :mod:`.quirks` completes them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from twisted_exec.api.display import listed
from twisted_exec.api.status import BadGateway, NotFound
from twisted_exec.runtimes.interfaces import CannotStart
from twisted_exec.runtimes.lines.redfish.documents import (
    Document,
    entries,
    flag,
    link,
    links,
    local_path,
    member,
    number,
    text,
    texts,
)

ROOT = "/redfish/v1/"

WEBSOCKET, SSH, IPMI, TELNET = "websocket", "ssh", "ipmi", "telnet"

_SERVICES = {"WebSocket": WEBSOCKET, "SSH": SSH, "IPMI": IPMI, "Telnet": TELNET}
_MAX_DOCUMENTS = 32
_MAX_SYSTEMS = 8
_MAX_LISTED = 8
_AMBIGUOUS = "the BMC has several systems, and not one of them alone says that it has a console"
_MAX_PORT = 65535
_MAX_URI = 2048
_RESET = "#ComputerSystem.Reset"
_DEFAULT_SESSION_SECONDS = 1800

Get = Callable[[str], Awaitable[Document]]
"""
Fetches the document at a path; fails with :class:`~twisted_exec.interfaces.NotFound` if there is
none.
"""


@dataclass(frozen=True)
class ConsoleFacts:
    """
    One way to the console, as a document describes it.

    :param enabled: ``None`` if the document does not say.
    :param port: 0 if the document does not say.
    :param entry_command: types this to reach the console; may be empty.
    :param shared_with_cli: the port leads to the BMC's own shell first.
    :param uri: of a WebSocket: a path on the BMC, with a query.
    """

    enabled: bool | None = None
    port: int = 0
    entry_command: str = ""
    shared_with_cli: bool = False
    uri: str = ""


@dataclass(frozen=True)
class Server:
    """
    One server, as its BMC describes it.

    :param manufacturer: of the ComputerSystem, or else the ``Vendor`` of the service root.
    :param model: of the ComputerSystem, or else its id: the one of a BlueField is ``Bluefield``, and no more.
    :param controller: model of the BMC, such as ``OpenBmc``.
    :param firmware: version of the BMC's firmware.
    :param system: path of the ComputerSystem.
    :param power_state: ``PowerState``, such as ``On``; empty if the BMC does not say.
    :param reset_target: path of the action that switches the server; empty if there is none.
    :param reset_values: values that the action takes; empty if the BMC does not say.
    :param session_seconds: a session that is not used for so long ends.
    :param consoles: of ``ComputerSystem.SerialConsole``, by ``websocket``, ``ssh``, ``telnet`` and
        ``ipmi``.
    :param manager_types: ``ConnectTypesSupported`` of ``Manager.SerialConsole``; ``None`` if it is
        missing.
    :param manager_ports: services of the BMC itself, from ``NetworkProtocol``: their ports lead to
        the BMC's shell.
    :param max_sessions: ``MaxConcurrentSessions`` of the console; ``None`` if the BMC does not say.
    """

    manufacturer: str = ""
    model: str = ""
    controller: str = ""
    firmware: str = ""
    system: str = ""
    power_state: str = ""
    reset_target: str = ""
    reset_values: tuple[str, ...] = ()
    session_seconds: int = _DEFAULT_SESSION_SECONDS
    consoles: Mapping[str, ConsoleFacts] = field(default_factory=dict)
    manager_types: tuple[str, ...] | None = None
    manager_ports: Mapping[str, ConsoleFacts] = field(default_factory=dict)
    max_sessions: int | None = None


async def discover(get: Get, system: str = "", remedy: str = "set system") -> Server:
    """
    Return what the BMC says of a server.

    :param system: id of the ComputerSystem; empty for the only one, or the only one that has a
        console.
    :param remedy: says in an error how to choose the system.
    :raises CannotStart: there is no such system, or several may be meant.
    :raises APIError: the BMC does not answer, or its documents make no sense.
    """
    return await _Discovery(get, remedy).discover(system)


class _Discovery:
    def __init__(self, get: Get, remedy: str) -> None:
        self._get, self._remedy, self._left = get, remedy, _MAX_DOCUMENTS

    async def _read(self, path: str) -> Document:
        if not self._left:
            raise BadGateway(f"the BMC's documents refer to more than {_MAX_DOCUMENTS} others")
        self._left -= 1
        return await self._get(path)

    async def _optional(self, path: str) -> Document:
        """Read a document that not every BMC has."""
        if not path:
            return {}
        try:
            return await self._read(path)
        except NotFound:
            return {}

    async def discover(self, wanted: str) -> Server:
        root = await self._read(ROOT)
        systems = link(root, "Systems")
        if not systems:
            raise BadGateway("the BMC's service root names no Systems")
        path, system = await self._system(links(await self._read(systems), "Members"), wanted)
        managers = links(system, "Links", "ManagedBy")
        if not managers and link(root, "Managers"):
            managers = links(await self._optional(link(root, "Managers")), "Members")
        manager = await self._optional(managers[0] if managers else "")
        network = await self._optional(link(manager, "NetworkProtocol"))
        service = await self._optional(link(root, "SessionService"))
        console, of_manager = member(system, "SerialConsole"), member(manager, "SerialConsole")
        sessions = number(console, "MaxConcurrentSessions")
        if sessions is None:
            sessions = number(of_manager, "MaxConcurrentSessions")
        target, values = await self._reset(system)
        return Server(
            manufacturer=text(system, "Manufacturer") or text(root, "Vendor"),
            model=text(system, "Model") or text(system, "Id") or _last(path),
            controller=text(manager, "Model"),
            firmware=text(manager, "FirmwareVersion"),
            system=path,
            power_state=text(system, "PowerState"),
            reset_target=target,
            reset_values=values,
            session_seconds=number(service, "SessionTimeout") or _DEFAULT_SESSION_SECONDS,
            consoles=_services(console, "ServiceEnabled"),
            manager_types=texts(of_manager, "ConnectTypesSupported"),
            manager_ports=_services(network, "ProtocolEnabled"),
            max_sessions=sessions,
        )

    async def _system(self, paths: Sequence[str], wanted: str) -> tuple[str, Document]:
        ids = [_last(path) for path in paths]
        if wanted:
            if wanted not in ids:
                raise self._not_chosen(f'the BMC has no system "{wanted}"', ids)
            path = paths[ids.index(wanted)]
            return path, await self._read(path)
        if len(paths) > _MAX_SYSTEMS:
            raise self._not_chosen(_AMBIGUOUS, ids)
        found = [(path, await self._read(path)) for path in paths]
        if len(found) > 1:
            found = [each for each in found if _services(each[1].get("SerialConsole"), "")]
        if not found and not paths:
            raise CannotStart(
                "NoSystem",
                "the BMC has no system: it may be that of a chassis, whose servers have their own; set host to the one "
                "of the server",
            )
        if len(found) != 1:
            raise self._not_chosen(_AMBIGUOUS, ids)
        return found[0]

    def _not_chosen(self, why: str, ids: Sequence[str]) -> CannotStart:
        # The remedy comes first, since a condition cuts long messages.
        shown = listed(ids, _MAX_LISTED) or "none"
        return CannotStart("NoSystem", f"{why}; {self._remedy}; its systems are: {shown}")

    async def _reset(self, system: Document) -> tuple[str, tuple[str, ...]]:
        action = member(system, "Actions", _RESET)
        target = text(action, "target", most=_MAX_URI)
        if not target:
            return "", ()
        target = local_path(target)
        values = texts(action, "ResetType@Redfish.AllowableValues")
        if values is None and (info := text(action, "@Redfish.ActionInfo", most=_MAX_URI)):
            described = await self._optional(local_path(info))
            for each in entries(described, "Parameters"):
                if text(each, "Name") == "ResetType":
                    values = texts(each, "AllowableValues")
        return target, values or ()


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _services(document: object, enabled: str) -> Mapping[str, ConsoleFacts]:
    if not isinstance(document, Mapping):
        return {}
    return {
        name: ConsoleFacts(
            enabled=flag(document, member_name, enabled),
            port=number(document, member_name, "Port", most=_MAX_PORT) or 0,
            entry_command=text(document, member_name, "ConsoleEntryCommand"),
            shared_with_cli=bool(flag(document, member_name, "SharedWithManagerCLI")),
            uri=text(document, member_name, "ConsoleURI", most=_MAX_URI),
        )
        for member_name, name in _SERVICES.items()
        if isinstance(document.get(member_name), Mapping)
    }
