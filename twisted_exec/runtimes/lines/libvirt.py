"""
The driver ``libvirt``: consoles and power of existing libvirt domains.

::

    - name: domains
      driver: libvirt
      uri: qemu:///system
      domains:
        web-1:                       # the domain of this name
        web-2: {domain: old-web-2}
      capabilities: {cpu: "1", memory: 1Gi}

A Machine gets the domain that is listed under its name (:class:`.shared_line.Lines`).  Power on
starts the domain if it is off, and resumes it if it is paused.  Power off requests a shutdown, and
destroys the domain (libvirt's word for switching off) after a time limit.  Deleting a Machine
leaves its domain as it is.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocolFactory, IStreamClientEndpoint
from zope.interface import implementer

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.control.polling import until
from twisted_exec.program.config_file import Reader
from twisted_exec.runtimes.interfaces import Build, CannotStart, IMachineDriver, MachineFacts
from twisted_exec.runtimes.lines.driver import LineDriver
from twisted_exec.runtimes.lines.programs import run_program
from twisted_exec.runtimes.lines.serial_port import SerialEndpoint
from twisted_exec.runtimes.processes import ProcessTable
from twisted_exec.tls.endpoints import unix_client_endpoint
from twisted_exec.wire.com_port import LineSettings

PROGRAM = "virsh"

_PATH = "/usr/local/bin:/usr/bin:/bin"
_ASK_SECONDS = 20.0
_LOOK_SECONDS = 0.5
_PLAIN = re.compile(r"[^-\s\0][^\s\0]{0,255}")
_OFF = ("shut off", "crashed")


@dataclass(frozen=True)
class LibvirtDomain:
    """
    One domain.

    :param domain: name or UUID.
    :param shutdown_seconds: time for a shutdown before the domain is destroyed.
    """

    domain: str
    uri: str
    shutdown_seconds: float = 30.0


def configure(reader: Reader, resources: Mapping[str, int]) -> Build:
    """See :meth:`.IDriverMaker.configure`."""
    uri = reader.take("uri", str, "qemu:///system")
    seconds = reader.number("shutdown_seconds", 0, 3600, LibvirtDomain.shutdown_seconds)
    domains: dict[str, LibvirtDomain] = {}
    for name, domain_reader in reader.lines("domains").items():
        domain = domain_reader.take("domain", str, name.rpartition("/")[2])
        if not _PLAIN.fullmatch(domain):
            raise domain_reader.error(f"domain {domain!r} is not a valid name of a domain")
        domain_reader.reserve(("libvirt", uri, domain), f"the domain {domain}")
        domains[name] = LibvirtDomain(domain, uri, seconds)
    if not _PLAIN.fullmatch(uri):
        raise reader.error(f"uri {uri!r} is not of the form qemu:///system")
    return lambda reactor, table: LibvirtDriver(domains, reactor, table)


@implementer(IMachineDriver)
class LibvirtDriver(LineDriver[LibvirtDomain]):
    """Runs a class of domains."""

    name = "libvirt"

    def __init__(
        self, domains: Mapping[str, LibvirtDomain], reactor: Any, table: ProcessTable
    ) -> None:
        super().__init__(domains, reactor)

    def missing(self) -> str:
        if shutil.which(PROGRAM, path=_PATH) is None:
            return f"this host has no {PROGRAM} (Debian package libvirt-clients)"
        return ""

    def _has_break(self, line: LibvirtDomain) -> bool:
        return False

    def _power(self, facts: MachineFacts, line: LibvirtDomain) -> DomainPower:
        return DomainPower(self, facts, line)

    def _claim(self, facts: MachineFacts) -> tuple[str, IStreamClientEndpoint]:
        name, domain = self.lines.claim(facts)
        return name, DomainConsoleEndpoint(self, facts, domain)

    async def ask(
        self, facts: MachineFacts, domain: LibvirtDomain, command: str, *words: str
    ) -> str:
        """
        Run one command of virsh for a domain; return its output.

        :raises ServiceUnavailable: the command failed, or took too long.
        """
        argv = [PROGRAM, "-q", "-c", domain.uri, command, *words, "--domain", domain.domain]
        printed = await run_program(
            self.reactor, argv, path=_PATH, marker=facts.marker, seconds=_ASK_SECONDS
        )
        return printed.decode("utf-8", "replace").strip()


class DomainPower:
    """The power of one domain; see :class:`~.lines.shared_line.Power`."""

    def __init__(self, driver: LibvirtDriver, facts: MachineFacts, domain: LibvirtDomain) -> None:
        self._driver, self._facts, self._domain = driver, facts, domain

    async def on(self) -> None:
        try:
            state = await self._ask("domstate")
            if state in _OFF:
                await self._ask("start")
                self._facts.event("Normal", "PoweredOn", "the domain was started")
                self._facts.booted()
            elif state == "paused":
                await self._ask("resume")
        except ServiceUnavailable as problem:
            raise CannotStart("PowerFailed", problem.message) from None

    async def off(self) -> None:
        try:
            if not await self._shut_down():
                await self._ask("destroy")
                seconds = self._domain.shutdown_seconds
                message = f"the domain did not shut down in {seconds:g} s: it was destroyed"
                self._facts.event("Warning", "SwitchedOff", message)
        except ServiceUnavailable as problem:
            self._facts.event("Warning", "PowerFailed", problem.message)

    async def _shut_down(self) -> bool:
        clock = self._driver.reactor
        if await self._is_off():
            return True
        await self._ask("shutdown")
        self._facts.shutting_down()
        return await until(self._is_off, clock, _LOOK_SECONDS, self._domain.shutdown_seconds)

    async def _is_off(self) -> bool:
        return await self._ask("domstate") in _OFF

    async def _ask(self, command: str) -> str:
        return await self._driver.ask(self._facts, self._domain, command)


@implementer(IStreamClientEndpoint)
class DomainConsoleEndpoint:
    """Opens the console of a domain."""

    def __init__(self, driver: LibvirtDriver, facts: MachineFacts, domain: LibvirtDomain) -> None:
        self._driver, self._facts, self._domain = driver, facts, domain

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[Any]:
        return Deferred.fromCoroutine(self._connect(protocolFactory))

    async def _connect(self, factory: IProtocolFactory) -> Any:
        state = await self._driver.ask(self._facts, self._domain, "domstate")
        if state in _OFF:
            raise ServiceUnavailable(f'domain "{self._domain.domain}" is {state}')
        text = await self._driver.ask(self._facts, self._domain, "dumpxml")
        endpoint = self._endpoint(*console_source(text))
        return await endpoint.connect(factory)

    def _endpoint(self, kind: str, path: str) -> IStreamClientEndpoint:
        if kind == "unix":
            endpoint: IStreamClientEndpoint = unix_client_endpoint(self._driver.reactor, path)
            return endpoint
        return SerialEndpoint(self._driver.reactor, path, LineSettings(baud=115200), hangup=False)


def console_source(text: str) -> tuple[str, str]:
    """
    Find the console of a domain.

    :return: ``pty`` or ``unix``, and a path.
    """
    try:
        devices = ElementTree.fromstring(text).find("devices")
    except ElementTree.ParseError:
        raise ServiceUnavailable("libvirt's description of the domain cannot be read") from None
    for device in [] if devices is None else [*devices.iter("console"), *devices.iter("serial")]:
        kind, source = device.get("type", ""), device.find("source")
        path = "" if source is None else source.get("path", "")
        if kind in ("pty", "unix") and path.startswith("/"):
            return kind, path
    raise ServiceUnavailable(
        "the domain has no console of type pty or unix: add <console type='pty'/>"
    )
