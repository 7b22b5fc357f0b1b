"""
Tests for :mod:`twisted_exec.runtimes.recordings.beginning`.
"""

from __future__ import annotations

from tests.recording.support import signer

from .support import KEY, UID, Case


class BeginningTests(Case):
    """Where recordings begin, and the certificate that they need."""

    def test_earlier_output(self) -> None:
        """A recording may begin with what was printed before it was set."""
        self.journal.resized(50, 200)
        self.journal.append(b"old\n")
        self.wait(10)
        since = self.now()
        self.journal.append(b"new\n")
        self.wait(10)
        self.set(since=since)
        self.end()
        self.assertEqual(self.output(), b"new\n")

    def test_certificate_gone(self) -> None:
        """Without a readable certificate the console is not recorded from then on, not from the next signature on."""
        self.set()
        self.assertEqual(self.recordings.problem(UID, "none", KEY), "")
        self.problem = "the certificate cannot be read"
        self.clock.advance(1)
        self.assertIn("the certificate cannot be read", self.recordings.problem(UID, "none", KEY))
        self.problem = ""
        self.clock.advance(1)
        self.assertEqual(self.recordings.problem(UID, "none", KEY), "")
        self.signer = signer(days=0)
        self.clock.advance(1)
        self.assertIn("valid from", self.recordings.problem(UID, "none", KEY))
