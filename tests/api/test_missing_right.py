"""
Tests for :mod:`twisted_exec.api.missing_right`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.missing_right import MissingRight, message_without_remedy, missing_right
from twisted_exec.api.status import Forbidden, from_status

RIGHT = MissingRight("ann", "get", "compute.ironcore.dev", "machines", "log", "lab")


class CauseTests(SynchronousTestCase):
    """A right among the causes of a Status."""

    def test_round_trip(self) -> None:
        """A client reads the right that a server names, also one without a subresource in all namespaces."""
        for right in (RIGHT, MissingRight("ann", "list", "", "pods")):
            refusal = Forbidden("no", details={"causes": [{"reason": "x"}, right.cause("no")]})
            self.assertEqual(missing_right(from_status(refusal.to_status())), right)

    def test_none(self) -> None:
        """Other causes name no right."""
        refusal = Forbidden('User "ann" cannot get resource "machines/log" in API group "g"')
        self.assertIsNone(missing_right(refusal))
        self.assertEqual(message_without_remedy(refusal), refusal.message)

    def test_remedy(self) -> None:
        """The remedy is left out only where the message ends with it."""
        causes = [RIGHT.cause("no: ask", "ask")]
        for message, shown in (("no: ask", "no"), ("x, but no: ask", "x, but no"), ("ask", "ask")):
            refusal = Forbidden(message, details={"causes": causes})
            self.assertEqual(message_without_remedy(refusal), shown)
