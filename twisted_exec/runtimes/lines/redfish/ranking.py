"""
The ways to the console of a server: which to try, in which order, and why not the others.

The one trap that costs more than a console: the SSH port of the BMC itself is its shell. It is used only with a command
that enters the console, and with a prompt by which its end is noticed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from twisted_exec.runtimes.lines.redfish.discovery import IPMI, SSH, WEBSOCKET, ConsoleFacts, Server
from twisted_exec.runtimes.lines.redfish.quirks import (
    DEFAULT_ORDER,
    GENERIC,
    Entry,
    Quirk,
    Transport,
)

SSH_PORT, IPMI_PORT = 22, 623

OPENBMC_CONSOLES = ("/console/default", "/console0")
"""Paths of bmcweb: of the newer and the older one. The first that exists is used."""

_UNSAID = ConsoleFacts()
_TARGET = re.compile(r"/[A-Za-z0-9\-._~!$&'()*+,;=:@/?%]{0,1023}")
_COMMAND = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,62}[\x21-\x7e])?")
_MAX_COMMANDS = 4


@dataclass(frozen=True)
class Choice:
    """
    A way to the console.

    :param port: TCP port of SSH, or UDP port of IPMI; 0 for a WebSocket, which has that of Redfish.
    :param targets: paths of a WebSocket, with query; the next one if a path does not exist.
    :param entries: see :class:`~.quirks.Quirk`; empty if the port is the console.
    :param why: a clause for users, such as ``the server announces it``.
    """

    transport: Transport
    why: str
    port: int = 0
    targets: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()

    @property
    def has_shell(self) -> bool:
        """Return whether the BMC's shell is behind the console, so that the quirk's prompts count."""
        return bool(self.entries)


@dataclass(frozen=True)
class Refused:
    """
    A way that is not tried.

    :param why: a clause for users.
    """

    transport: Transport
    why: str


@dataclass(frozen=True)
class Ranking:
    """
    The decision for one server.

    :param choices: the best first; may be empty.
    """

    choices: tuple[Choice, ...]
    refused: tuple[Refused, ...]


def rank(server: Server, quirk: Quirk, host: str) -> Ranking:
    """
    Rank the ways to the console of a server.

    :param host: the BMC's address, to which a WebSocket must lead.
    """
    order = (*quirk.transports, *(each for each in DEFAULT_ORDER if each not in quirk.transports))
    choices: list[Choice] = []
    refused: list[Refused] = []
    for transport in order:
        verdict = _RULES[transport](server, quirk, host)
        if isinstance(verdict, Choice):
            choices.append(verdict)
        else:
            refused.append(Refused(transport, verdict))
    return Ranking(tuple(choices), tuple(refused))


# The rules: each returns a choice, or why there is none.


def _websocket(server: Server, quirk: Quirk, host: str) -> Choice | str:
    facts = server.consoles.get(WEBSOCKET)
    if facts is None:
        return "the server announces none"
    if facts.enabled is False:
        return "it is switched off at the BMC"
    if not facts.uri:
        return "the server announces none without a ConsoleURI"
    target = _target(facts.uri, host)
    if not target:
        return "its ConsoleURI leads elsewhere than to the BMC, or is no path"
    return Choice(Transport.WEBSOCKET, "the server announces it", targets=(target,))


def _target(uri: str, host: str) -> str:
    """Return path and query of a URI on the BMC; empty if it leads elsewhere."""
    try:
        parts = urlsplit(uri)
        other = parts.hostname
    except ValueError:
        return ""
    if parts.scheme not in ("", "wss", "https"):
        return ""  # such as ws: the session's token would be sent in the clear
    if parts.netloc and (other or "") != host.strip("[]").lower():
        return ""
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    return target if _TARGET.fullmatch(target) and not target.startswith("//") else ""


def _openbmc(server: Server, quirk: Quirk, host: str) -> Choice | str:
    if Transport.OPENBMC not in quirk.transports:
        row = f"the row of quirks is {quirk.name}"
        if quirk is GENERIC:
            row = "no row of quirks is about this server"
        return f"only OpenBMC has it, and {row}"
    return Choice(Transport.OPENBMC, f"the row of quirks is {quirk.name}", targets=OPENBMC_CONSOLES)


def _ssh(server: Server, quirk: Quirk, host: str) -> Choice | str:
    facts = server.consoles.get(SSH)
    if facts is None:
        return "the server announces none"
    if facts.enabled is False:
        return "it is switched off at the BMC"
    if not facts.port:
        return "the server announces no port"
    if facts.shared_with_cli or facts.port == _shell_port(server):
        return f"port {facts.port} is the BMC's own shell; see {Transport.VENDOR_SSH.value}"
    if facts.entry_command:
        # A port of its own, with a shell of its own.
        return _with_entry(Transport.SSH, facts, quirk, facts.port)
    return Choice(Transport.SSH, f"port {facts.port} is the console", port=facts.port)


def _vendor_ssh(server: Server, quirk: Quirk, host: str) -> Choice | str:
    announced = server.consoles.get(SSH, _UNSAID)
    of_manager = server.manager_ports.get(SSH, _UNSAID)
    if of_manager.enabled is False:
        return "SSH is switched off at the BMC"
    is_shared = announced.shared_with_cli or announced.port == _shell_port(server)
    if announced.enabled is False and is_shared:
        return "SSH is switched off at the BMC"
    facts = announced if is_shared else _UNSAID
    return _with_entry(Transport.VENDOR_SSH, facts, quirk, _shell_port(server, facts))


def _with_entry(transport: Transport, facts: ConsoleFacts, quirk: Quirk, port: int) -> Choice | str:
    entries = quirk.entry_commands or _announced(facts.entry_command)
    if not entries:
        return f"no command is known that enters the console: port {port} is the BMC's own shell"
    if not quirk.prompts:
        return (
            "no prompt of the BMC's shell is known, so nobody would notice that the console has "
            "ended there; add a row of quirks"
        )
    command = b", ".join(entries[0].commands).decode("latin-1")
    return Choice(
        transport,
        f"the console is behind the command {command} at port {port}",
        port,
        entries=entries,
    )


def _announced(command: str) -> tuple[Entry, ...]:
    """Return the way that ``ConsoleEntryCommand`` describes; Supermicro separates commands by semicolons."""
    commands = [each.strip() for each in command.split(";")]
    if len(commands) > _MAX_COMMANDS or not all(_COMMAND.fullmatch(each) for each in commands):
        return ()
    return (Entry(tuple(each.encode("ascii") for each in commands)),)


def _shell_port(server: Server, announced: ConsoleFacts = _UNSAID) -> int:
    """Return the port of the BMC's shell."""
    return announced.port or server.manager_ports.get(SSH, _UNSAID).port or SSH_PORT


def _ipmi(server: Server, quirk: Quirk, host: str) -> Choice | str:
    console = server.consoles.get(IPMI)
    of_manager = server.manager_ports.get(IPMI)
    for facts in (console, of_manager):
        if facts is not None and facts.enabled is False:
            return "IPMI over LAN is switched off at the BMC"
    port = (of_manager or _UNSAID).port or (console or _UNSAID).port or IPMI_PORT
    if console is not None or of_manager is not None or "IPMI" in (server.manager_types or ()):
        return Choice(Transport.IPMI, "the BMC announces it", port)
    if Transport.IPMI in quirk.transports:
        return Choice(Transport.IPMI, f"the row of quirks {quirk.name} has it", port)
    return "the BMC announces none"


_Rule = Callable[[Server, Quirk, str], Choice | str]

_RULES: Mapping[Transport, _Rule] = {
    Transport.WEBSOCKET: _websocket,
    Transport.OPENBMC: _openbmc,
    Transport.SSH: _ssh,
    Transport.VENDOR_SSH: _vendor_ssh,
    Transport.IPMI: _ipmi,
}
