"""
Tests for :mod:`twisted_exec.apiserver.consoles.poollets`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.apiserver.chain import ChainTestCase
from twisted_exec.apiserver.consoles.poollets import no_address, usable_addresses


class AddressTests(ChainTestCase):
    """Choice of the pool's address."""

    address_types = ("Hostname", "InternalIP", "ExternalIP")

    async def test_36_next_address(self) -> None:
        """An address that does not answer is passed over for the next."""
        _, port = await self.poollet()
        # No server listens at 127.0.0.2 and at this name; the poollet is at 127.0.0.1.
        await self.make_pool(
            ("ExternalIP", "127.0.0.1"),
            ("InternalIP", "127.0.0.2"),
            ("Hostname", "bad name"),
            ("Hostname", "2130706433"),
            port=port,
        )
        await self.make_machine()
        await self.open()

    async def test_down(self) -> None:
        """If no address answers, the user gets 502 with the failure of each address."""
        made, port = await self.poollet()
        await self.make_pool(("InternalIP", "127.0.0.2"), ("ExternalIP", "127.0.0.3"), port=port)
        await self.make_machine()
        told = await self.refused(502)
        self.assertEqual(
            told,
            f'machine "vm": cannot connect to pool "pool-a" at 127.0.0.2:{port}: connection '
            f'refused; pool "pool-a" at 127.0.0.3:{port}: connection refused',
        )
        self.assertEqual(made.requests, [])

    async def test_not_preferred(self) -> None:
        """Addresses of other types are not tried."""
        _, port = await self.poollet()
        await self.make_pool(("InternalDNS", "localhost"), port=port)
        await self.make_machine()
        self.assertIn("known addresses: InternalDNS=localhost", await self.refused(503))

    async def test_another_pools_poollet(self) -> None:
        """A poollet whose certificate names another pool gets no request; the user gets 502."""
        made, port = await self.poollet(as_pool="pool-b")
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        await self.make_machine()
        self.assertIn("the certificate is not that of the pool", await self.refused(502))
        self.assertEqual(made.requests, [])

    async def test_default_port(self) -> None:
        """A pool that reports no port is dialled at the dialect's."""
        await self.make_pool(("InternalIP", "127.0.0.2"), port=-1)
        await self.make_machine()
        self.assertIn("127.0.0.2:20250", await self.refused(502))


class SlowTests(ChainTestCase):
    """A poollet that does not answer."""

    poollet_seconds = 2.5  # a TLS handshake takes less, also in a program that stalls

    async def test_25_slow(self) -> None:
        """A poollet that does not answer in time gets the user 504."""
        made, port = await self.poollet()
        made.silent = True
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        await self.make_machine()
        self.assertIn(f'machine "vm": pool "pool-a" at 127.0.0.1:{port}', await self.refused(504))


class ForeignPoolletTests(ChainTestCase):
    """Poollets of foreign make."""

    pools_named = False

    async def test_address_suffices(self) -> None:
        """A certificate for the address is enough when asked for."""
        _, port = await self.poollet(as_pool="pool-b")
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        await self.make_machine()
        await self.open()


class PieceTests(SynchronousTestCase):
    """The pure parts."""

    def test_addresses(self) -> None:
        """In the order of the types, each once."""
        addresses = [
            ("ExternalIP", "3"),
            ("InternalIP", "1"),
            ("InternalIP", "2"),
            ("Hostname", "1"),
        ]
        pool = {"status": {"addresses": [{"type": kind, "address": it} for kind, it in addresses]}}
        types = ("InternalIP", "Hostname", "ExternalIP")
        self.assertEqual(usable_addresses(pool, types), ["1", "2", "3"])
        self.assertEqual(usable_addresses({}, types), [])

    def test_many_addresses(self) -> None:
        """Of thousands of addresses only the best 16 are tried; the message lists a few."""
        addresses = [{"type": "InternalIP", "address": f"10.0.{n}.1"} for n in range(5000)]
        pool = {"metadata": {"name": "p"}, "status": {"addresses": addresses}}
        found = usable_addresses(pool, ["InternalIP"])
        self.assertEqual((len(found), found[0]), (16, "10.0.0.1"))
        told = no_address(pool, ["Hostname"], "machine pool").message
        self.assertIn("InternalIP=10.0.15.1 and 4984 more", told)
        self.assertLess(len(told), 600)
