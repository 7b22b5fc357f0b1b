"""
Tests for :mod:`twisted_exec.poollet.service`: how the sessions of a poollet end.
"""

from __future__ import annotations

from typing import Any

from tests.chain import PATIENCE_SECONDS, reactor, until
from tests.poollet.chain import API_SERVER, EXEC, JANE, PoolletCase, status
from tests.poollet.doubles import MACHINES, POOLS, machine
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused, UpgradeRequest, upgrade


class EndingTests(PoolletCase):
    """Events that end a session on the poollet's side."""

    async def ended(self, reason: str) -> bytes:
        """Wait until the session has ended for ``reason``; return the runtime's DELETE."""
        await until(lambda: len(self.audit) >= 2)
        self.assertEqual(self.audit[-1]["reason"], reason)
        await until(lambda: len(self.poollet.consoles.sessions) == 0)
        return self.lines.heads[-1]

    async def test_machine_deleted(self) -> None:
        """Deleting the Machine ends its sessions; the runtime receives the reason."""
        await self.start()
        viewer = await self.view([(b"Audit-Id", b"session-7")])
        await self.client.delete(MACHINES, "vm", "lab")
        head = await self.ended("MachineDeleted")
        self.assertTrue(
            head.startswith(
                b"DELETE /exec/token-1?session=session-7&reason=MachineDeleted&message="
            )
        )
        await until(lambda: viewer.lost is not None)

    async def test_pool_deleted(self) -> None:
        """Deleting the pool ends its sessions; then it is registered again."""
        await self.start()
        await self.view()
        await self.client.delete(POOLS, "pool-a")
        self.assertIn(b"reason=PoolDeleted", await self.ended("PoolDeleted"))
        await until(lambda: (POOLS, "", "pool-a") in self.cluster.objects)

    async def test_powered_off(self) -> None:
        """So does its power going off."""
        await self.start()
        await self.view()
        await self.client.patch(MACHINES, "vm", {"spec": {"power": "Off"}}, "lab")
        self.assertIn(b"reason=PoweredOff", await self.ended("PoweredOff"))

    async def test_other_sessions_go_on(self) -> None:
        """Another machine's sessions are not touched."""
        self.allowed.add(("jane", "machines/exec", "other"))
        await self.start()
        await self.client.create(MACHINES, machine("other"), "lab")
        await until(lambda: len(self.runtime.machines) == 2)
        viewer = await self.view(path=EXEC.format("lab", "other"))
        await self.client.delete(MACHINES, "vm", "lab")
        viewer.transport.write(b"!")
        await until(lambda: viewer.received == b"hello!")

    async def test_28_shutdown(self) -> None:
        """Stopping the poollet ends sessions with the reason, and leaves the pool to the next start."""
        await self.start()
        await self.view()
        await self.poollet.stopService()
        self.assertIn(b"reason=ShuttingDown", self.lines.heads[-1])
        self.assertEqual(self.audit[-1]["reason"], "ShuttingDown")
        pool = await self.client.get(POOLS, "pool-a")
        self.assertEqual(pool["status"]["state"], "Ready")

    async def test_withdrawn(self) -> None:
        """A permission that is withdrawn ends the session."""
        await self.start()
        await self.view()
        self.allowed.clear()
        self.poollet.consoles.permissions.forget()
        await self.poollet.consoles.guard.review()
        self.assertIn(b"reason=AuthorizationWithdrawn", await self.ended("AuthorizationWithdrawn"))

    async def test_other_server(self) -> None:
        """A kubeconfig of another API server, with other answers, ends sessions within a second."""
        self.allowed.add(("jane", "machinepools/proxy", "pool-a"))
        await self.start()
        await self.view([(b"Authorization", b"Bearer good")], user=b"", identity=None)
        self.good_tokens.clear()
        self.client.changes += 1
        waited = await until(lambda: not self.poollet.consoles.sessions.live())
        self.assertIn(b"reason=AuthorizationWithdrawn", await self.ended("AuthorizationWithdrawn"))
        await self.view()
        self.allowed.clear()
        self.client.changes += 1
        waited += await until(lambda: not self.poollet.consoles.sessions.live())
        self.assertLess(waited, 5, "the periodic reviews have ended them")

    async def ask_again(self) -> None:
        """Run the periodic review now, with empty caches."""
        self.client.changes += 1  # A kubeconfig that has changed empties the caches.
        await self.poollet.consoles.guard.review()

    async def test_direct_token(self) -> None:
        """A user with a bearer token keeps the console while the token is valid."""
        self.allowed.add(("jane", "machinepools/proxy", "pool-a"))
        await self.start()
        token = [(b"Authorization", b"Bearer good")]
        viewer = await self.view(token, user=b"", identity=None)
        await self.ask_again()
        viewer.transport.write(b"!")
        await until(lambda: viewer.received == b"hello!")
        self.good_tokens.clear()
        await self.ask_again()
        self.assertIn(b"reason=AuthorizationWithdrawn", await self.ended("AuthorizationWithdrawn"))

    async def test_direct_token_of_another(self) -> None:
        """A token that now identifies another user ends the session."""
        self.allowed |= {
            ("jane", "machinepools/proxy", "pool-a"),
            ("joe", "machinepools/proxy", "pool-a"),
            ("joe", "machines/exec", "vm"),
        }
        await self.start()
        await self.view([(b"Authorization", b"Bearer good")], user=b"", identity=None)
        self.good_tokens["good"] = "joe"
        await self.ask_again()
        self.assertIn(b"reason=AuthorizationWithdrawn", await self.ended("AuthorizationWithdrawn"))

    async def test_certificate(self) -> None:
        """Certificates of users and proxies stay valid."""
        self.allowed.add(("jane", "machinepools/proxy", "pool-a"))
        await self.start()
        await self.view(user=b"", identity=JANE)
        await self.view()
        await self.ask_again()
        self.assertEqual(len(self.poollet.consoles.sessions), 2)

    async def end_by_request(self, identity: Any, session: str) -> tuple[int, dict[str, Any]]:
        """End a session as the previous hop does."""
        path = f"{EXEC.format('lab', 'vm')}?session={session}&reason=MachineDeleted&message=gone"
        request = UpgradeRequest(b"DELETE", path.encode(), b"poollet", [])
        with self.assertRaises(UpgradeRefused) as caught:
            await upgrade(
                self.endpoint(identity), request, clock=reactor, timeout_seconds=PATIENCE_SECONDS
            )
        return caught.exception.code, status(caught.exception.body)

    async def test_by_request(self) -> None:
        """The proxy that opened a session ends it, with a reason that is passed on."""
        await self.start()
        await self.view([(b"Audit-Id", b"session-7")])
        code, _ = await self.end_by_request(API_SERVER, "session-7")
        self.assertEqual(code, 200)
        self.assertIn(b"reason=MachineDeleted&message=gone", await self.ended("MachineDeleted"))

    async def test_by_somebody_else(self) -> None:
        """Another proxy cannot end it."""
        await self.start()
        await self.view([(b"Audit-Id", b"session-7")])
        self.assertEqual((await self.end_by_request(JANE, "session-7"))[0], 401)
        self.assertEqual((await self.end_by_request(None, "session-7"))[0], 401)
        self.assertEqual((await self.end_by_request(API_SERVER, "other"))[0], 404)
        self.assertEqual(len(self.poollet.consoles.sessions), 1)
