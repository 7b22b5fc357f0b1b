"""
The configuration of a class of servers with Redfish.

::

    - name: rack
      driver: redfish
      user: console
      password_file: /etc/twisted-exec/redfish/password
      power: true
      lines:
        web-1: {host: 10.0.1.11, pin: 3f0c...}
        web-2: {host: bmc-2.lab, ca: /etc/twisted-exec/redfish/ca.pem, system: System_0}
      capabilities: {cpu: "16", memory: 64Gi}
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from twisted_exec.api.display import listed
from twisted_exec.program.config_file import Reader
from twisted_exec.runtimes.lines.line_list import bmc_lines
from twisted_exec.runtimes.lines.redfish.client import Trust, parse_pin
from twisted_exec.runtimes.lines.redfish.quirks import Quirk, Transport, load

SESSION, BASIC = "session", "basic"

_PLAIN = re.compile(r"[^-\s\0][^\s\0]*")
# RFC 3986 unreserved: the last part of a path.
_ID = re.compile(r"[A-Za-z0-9\-._~]{1,100}")
_MAX_LISTED = 10
_IN_CLASS = "set system in the classes file, and reload the runtime"
_IN_ROW = "set system in its row of the list (lines_from)"


@dataclass(frozen=True)
class RedfishLine:
    """
    One server behind its BMC.

    :param system: id of the ComputerSystem; empty for the only one that has a console.
    :param system_remedy: says in an error how to change ``system``.
    :param login: ``session``, or ``basic`` for BMCs without sessions.
    :param known_hosts: path of the host keys for consoles over SSH; empty for no such consoles.
    :param cipher_suite: of IPMI; 0 lets ipmitool negotiate with the BMC.
    :param transports: the ways to the console that may be used.
    :param steal: end other clients' sessions of a console that the BMC has only once.
    :param shutdown_seconds: time for a graceful shutdown.
    :param force_off: switch off a server that does not shut down in that time.
    """

    host: str
    trust: Trust = Trust()
    port: int = 443
    system: str = ""
    user: str = ""
    password_file: str = ""
    login: str = SESSION
    known_hosts: str = ""
    cipher_suite: int = 0
    transports: tuple[Transport, ...] = tuple(Transport)
    steal: bool = False
    power: bool = False
    shutdown_seconds: float = 120.0
    force_off: bool = False
    system_remedy: str = _IN_CLASS


def read_lines(reader: Reader) -> tuple[Mapping[str, RedfishLine], Sequence[Quirk]]:
    """
    Return the lines of a class, and the quirks for them.

    :raises ConfigError: a key is wrong.
    """
    remedy = _IN_ROW if reader.has("lines_from") else _IN_CLASS
    common = _shared(reader, RedfishLine("", system_remedy=remedy))
    path = reader.take("quirks", str, "")
    if path and not path.startswith("/"):
        raise reader.error(f"quirks {path!r} is not an absolute path", "quirks")
    quirks = load(path)
    lines = bmc_lines(reader, lambda each: _line(each, common), ("host", "system"))
    return lines, quirks


def _shared(reader: Reader, default: RedfishLine) -> RedfishLine:
    return replace(
        default,
        port=int(reader.number("port", 1, 65535, default.port)),
        trust=_trust(reader, default.trust),
        user=reader.take("user", str, default.user),
        password_file=_path(reader, "password_file", default.password_file),
        login=reader.choice("login", (SESSION, BASIC), default.login),
        known_hosts=_path(reader, "known_hosts", default.known_hosts),
        cipher_suite=int(reader.number("cipher_suite", 0, 17, default.cipher_suite)),
        transports=_transports(reader, default.transports),
        steal=reader.take("steal", bool, default.steal),
        power=reader.take("power", bool, default.power),
        shutdown_seconds=reader.number("shutdown_seconds", 0, 3600, default.shutdown_seconds),
        force_off=reader.take("force_off", bool, default.force_off),
    )


def _path(reader: Reader, key: str, default: str) -> str:
    path: str = reader.take(key, str, default)
    if path and not path.startswith("/"):
        raise reader.error(f"{key} {path!r} is not an absolute path", key)
    return path


def _trust(reader: Reader, default: Trust) -> Trust:
    ca, pin = _path(reader, "ca", ""), reader.take("pin", str, "")
    name = reader.take("server_name", str, default.name)
    if ca and pin:
        raise reader.error("it has both ca and pin; give one of them", "pin")
    try:
        digest = parse_pin(pin) if pin else b""
    except ValueError as problem:
        raise reader.error(f"pin {pin!r}: {problem}", "pin") from None
    if not ca and not digest:
        ca, digest = default.ca, default.pin
    if name and not _PLAIN.fullmatch(name):
        raise reader.error(f"server_name {name!r} is not a valid name", "server_name")
    return Trust(ca, digest, name)


def _transports(reader: Reader, default: tuple[Transport, ...]) -> tuple[Transport, ...]:
    if not reader.has("transports"):
        reader.take("transports", list, [])
        return default
    known = [each.value for each in Transport]
    words = reader.words("transports")
    for word in words:
        if word not in known:
            raise reader.error(
                f"transports: {word!r} is none of {listed(known, _MAX_LISTED)}", "transports"
            )
    return tuple(dict.fromkeys(map(Transport, words)))


def _line(reader: Reader, common: RedfishLine) -> RedfishLine:
    host = reader.take("host", str)
    system = reader.take("system", str, "")
    line = replace(_shared(reader, common), host=host, system=system)
    for what, word in (("host", host), ("user", line.user)):
        if not _PLAIN.fullmatch(word):
            raise reader.error(
                f"{what} {word!r} is not a valid {what}" if word else f"{what} is missing"
            )
    if system and not _ID.fullmatch(system):
        raise reader.error(f"system {system!r} is no id of a system, such as System_0", "system")
    if not line.password_file:
        raise reader.error(
            "password_file is missing: the absolute path of a file with the password"
        )
    if not line.trust.ca and not line.trust.pin:
        raise reader.error(
            "pin and ca are missing: the SHA-256 of the BMC's public key, or the CA that signed its "
            "certificate; docs/howto/bare-metal.rst has the command"
        )
    reader.reserve(
        ("redfish", host.lower(), line.port), f"the controller {host}, port {line.port},"
    )
    return line
