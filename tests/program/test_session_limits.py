"""Tests for :mod:`twisted_exec.program.session_limits`."""

from __future__ import annotations

import resource

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.program.descriptors import descriptor_limit
from twisted_exec.program.options.sessions import SessionOptions
from twisted_exec.program.session_limits import MOST_SESSIONS, SessionLimits


class SessionLimitsTests(SynchronousTestCase):
    """Tests for :class:`SessionLimits`."""

    def test_default(self) -> None:
        """As many sessions as descriptors allow, two for each, and a quarter of them for a user."""
        with_descriptors(self, 1024)
        limits = SessionLimits.fitting()
        self.assertEqual((limits.total, limits.per_user), (462, 115))
        self.assertEqual(limits.descriptors, 1024)

    def test_many_descriptors(self) -> None:
        """Memory limits sessions, too."""
        self.patch(resource, "getrlimit", lambda _: (1 << 30, 1 << 30))
        self.assertEqual(SessionLimits.fitting().total, MOST_SESSIONS)

    def test_endless(self) -> None:
        """Descriptors may be unlimited."""
        self.patch(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
        self.assertGreater(descriptor_limit(), MOST_SESSIONS)
        self.assertEqual(SessionLimits.fitting().total, MOST_SESSIONS)

    def test_hardly_any(self) -> None:
        """A process with very few descriptors still serves one session."""
        with_descriptors(self, 64)
        limits = SessionLimits.fitting()
        self.assertEqual((limits.total, limits.per_user), (1, 1))
        self.assertGreater(limits.connections_beside(1), 0)

    def test_explicit(self) -> None:
        """An operator may ask for fewer; a user never has more than there are."""
        with_descriptors(self, 1024)
        limits = SessionLimits.fitting(400, 500)
        self.assertEqual((limits.total, limits.per_user), (400, 400))
        self.assertEqual(SessionLimits.fitting(400, users_share=1).per_user, 400)

    def test_too_many(self) -> None:
        """A limit that the descriptors cannot hold is refused, with the limit and a remedy."""
        with_descriptors(self, 1024)
        with self.assertRaises(ValueError) as caught:
            SessionLimits.fitting(500)
        message = str(caught.exception)
        self.assertIn("500 sessions need 1100 file descriptors, and the limit is 1024", message)
        self.assertIn("LimitNOFILE", message)

    def test_connections(self) -> None:
        """Other connections get half of the descriptors at most, and what sessions leave."""
        limits = SessionLimits(462, 115, 1024)
        self.assertEqual(limits.connections_beside(0), 512)
        self.assertEqual(limits.connections_beside(400), 1024 - 50 - 800)
        self.assertGreaterEqual(limits.connections_beside(462), 50)


class OptionsTests(SynchronousTestCase):
    """Tests for :class:`SessionOptions`."""

    def limits(self, *arguments: str) -> SessionLimits:
        options = SessionOptions()
        options.parseOptions(arguments)
        return options.session_limits()

    def test_given(self) -> None:
        """Both limits can be set."""
        limits = self.limits("--max-sessions=7", "--max-sessions-per-user=3")
        self.assertEqual((limits.total, limits.per_user), (7, 3))

    def test_wrong(self) -> None:
        """Invalid session counts are refused, and so are more sessions than descriptors allow."""
        with_descriptors(self, 1024)
        for option in ("--max-sessions", "--max-sessions-per-user"):
            for text in ("0", "-1", "x", "100001"):
                with self.assertRaises(SystemExit) as refused:
                    self.limits(f"{option}={text}")
                self.assertIn(f"{option}: ", str(refused.exception))
        with self.assertRaises(ValueError) as caught:
            self.limits("--max-sessions=99999")
        self.assertIn("--max-sessions: 99999 sessions need", str(caught.exception))


def with_descriptors(test: SynchronousTestCase, soft: int) -> None:
    """Set the soft limit of this process for one test."""
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    test.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (before, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
