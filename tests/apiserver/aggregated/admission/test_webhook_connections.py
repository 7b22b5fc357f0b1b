"""
Tests for :mod:`twisted_exec.apiserver.aggregated.admission.webhook_connections`; ``test_webhooks``
has more of them.
"""

from __future__ import annotations

from twisted.internet.defer import CancelledError

from tests.apiserver.aggregated.admission.webhooks import NEVER, AdmissionCase, allow, creating
from twisted_exec.api.status import GatewayTimeout
from twisted_exec.apiserver.aggregated.admission import webhook_connections, webhooks
from twisted_exec.apiserver.aggregated.admission.objects import VALIDATING_WEBHOOKS

CONFIGURATIONS = VALIDATING_WEBHOOKS[0]


class ConnectionTests(AdmissionCase):
    """Connections to webhooks."""

    async def test_kept(self) -> None:
        """One connection serves one request after another."""
        await self.validating(self.webhook("v", allow))
        for _ in range(3):
            await self.admission.admit(creating())
        self.assertEqual((len(self.hooks.asked), len(self.site.connections)), (3, 1))

    async def test_closed(self) -> None:
        """Connections of webhooks that are no longer called are closed when there are too many."""
        self.patch(webhook_connections, "_KEPT", 1)
        for name in ("a", "b"):
            await self.validating(self.webhook(name, allow))
            await self.admission.admit(creating())
            await self.client.delete(CONFIGURATIONS, "config")
        await self.until(lambda: len(self.site.connections) == 1)

    async def test_client_leaves(self) -> None:
        """A client that leaves cancels the call."""
        await self.validating(self.webhook("v", lambda request: NEVER))
        asking = self.admission.admit(creating())
        await self.until(lambda: bool(self.hooks.asked))
        asking.cancel()
        with self.assertRaises(CancelledError):
            await asking
        await self.until(lambda: not self.site.connections)

    async def test_all_together(self) -> None:
        """All webhooks of a request together have a time, whatever each of them has."""
        self.patch(webhooks, "REQUEST_SECONDS", 0.3)
        never = self.webhook("first", lambda request: NEVER, failurePolicy="Ignore")
        await self.mutating(never, self.webhook("second", allow))
        with self.assertRaises(GatewayTimeout) as caught:
            await self.admission.mutate(creating())
        told = "request did not complete within requested timeout"
        self.assertEqual(caught.exception.message, told)
        self.assertNotIn("second", self.names())
