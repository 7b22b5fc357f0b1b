"""
Tests for :mod:`twisted_exec.streaming.http.routes`.
"""

from __future__ import annotations

from typing import Any

import treq
from twisted.internet import reactor as _reactor
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.interfaces import IAddress
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase, TestCase
from twisted.web.http_headers import Headers

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.program.health import Health
from twisted_exec.streaming.http.routes import ProbeRoutes, is_local
from twisted_exec.streaming.http.site import Site
from twisted_exec.tls.endpoints import server_endpoint

reactor: Any = _reactor


class ReasonTests(TestCase):
    """The answer of ``/readyz`` while a probe fails."""

    async def ready(self, **headers: str) -> tuple[int, str]:
        health = Health(Clock())

        def probe() -> None:
            raise ServiceUnavailable('there is no space "one"')

        health.add("target", probe)
        endpoint = server_endpoint(reactor, "tcp:0:interface=127.0.0.1")
        site = Site(ProbeRoutes(health), reactor)
        port: Any = await endpoint.listen(site)
        self.addCleanup(port.stopListening)
        self.addCleanup(site.drain)
        answer = await treq.get(
            f"http://127.0.0.1:{port.getHost().port}/readyz", headers=headers, persistent=False
        )
        return answer.code, await answer.text()

    async def test_this_host(self) -> None:
        """Clients on this host get the reason."""
        listing = '[-]target failed: there is no space "one"\nreadyz check failed\n'
        self.assertEqual(await self.ready(), (503, listing))

    async def test_behind_a_proxy(self) -> None:
        """A proxy on this host forwards requests of others, who do not get the reason."""
        listing = "[-]target failed: reason withheld\nreadyz check failed\n"
        for name in ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"):
            self.assertEqual(await self.ready(**{name: "192.0.2.1"}), (503, listing), name)


class Asking:
    """A request from an address."""

    def __init__(self, address: IAddress) -> None:
        self._address, self.requestHeaders = address, Headers()

    def getClientAddress(self) -> IAddress:
        return self._address


class LocalTests(SynchronousTestCase):
    """Tests for :func:`is_local`."""

    def test_addresses(self) -> None:
        """UNIX sockets and loopback addresses lead to this host."""
        for address, expected in (
            (UNIXAddress(None), True),
            (IPv4Address("TCP", "127.0.0.1", 1), True),
            (IPv6Address("TCP", "::1", 1), True),
            (IPv6Address("TCP", "::ffff:127.0.0.1", 1), True),
            (IPv4Address("TCP", "10.0.0.1", 1), False),
            (IPv6Address("TCP", "fe80::1%eth0", 1), False),
        ):
            request: Any = Asking(address)
            self.assertEqual(is_local(request), expected, address)
