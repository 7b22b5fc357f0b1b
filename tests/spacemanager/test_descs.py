"""Tests for :mod:`twisted_exec.spacemanager.descs`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import (
    APIError,
    BadGateway,
    Forbidden,
    GatewayTimeout,
    InternalError,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)
from twisted_exec.spacemanager.descs import LISTED, NOT_YET, not_asked, refused


class LooksTests(SynchronousTestCase):
    """Tests for :func:`refused` and the others."""

    def check(self, error: APIError, reachable: str, credentials: str, reason: str) -> None:
        looks = refused(error)
        self.assertEqual(
            (looks.reachable.status, looks.credentials.status), (reachable, credentials)
        )
        self.assertFalse(looks.well)
        bad = looks.reachable if reachable == "False" else looks.credentials
        self.assertEqual((bad.reason, bad.message), (reason, error.message))

    def test_let_in(self) -> None:
        """A provider that answers 401 or 403 is reachable."""
        self.check(Unauthorized("who?"), "True", "False", "Unauthorized")
        self.check(Forbidden("no"), "True", "False", "Forbidden")

    def test_silent(self) -> None:
        """An unreachable provider leaves the credentials Unknown."""
        self.check(BadGateway("x"), "False", "Unknown", "Unreachable")
        self.check(ServiceUnavailable("x"), "False", "Unknown", "Unreachable")
        self.check(TooManyRequests("x"), "False", "Unknown", "Unreachable")
        self.check(GatewayTimeout("x"), "False", "Unknown", "TimedOut")
        self.check(InternalError("x"), "False", "Unknown", "ListFailed")

    def test_well(self) -> None:
        """Only a listed provider is well; without a request both conditions are Unknown."""
        self.assertTrue(LISTED.well)
        for looks in (NOT_YET, not_asked("SecretNotFound", "make it")):
            self.assertFalse(looks.well)
            self.assertEqual((looks.reachable.status, looks.credentials.status), ("Unknown",) * 2)
