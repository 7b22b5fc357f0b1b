"""Tests for :mod:`twisted_exec.spacemanager.spaces.verdicts`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.spacemanager.spaces.observation import version_of
from twisted_exec.spacemanager.spaces.verdicts import ready_verdict, who_verdict


class VerdictTests(SynchronousTestCase):
    """Answers of servers that are none."""

    def test_nonsense(self) -> None:
        """Whatever is answered is one of three things, and no error."""
        for code in (200, 201, 204, 302, 400, 401, 403, 418, 429, 500, 503):
            for body in (b"", b"[]", b"{", b'{"status": 3}', b"\xff", b"[" * 9999):
                told = who_verdict(code, body)
                assert told is not None
                self.assertIn(told[0], ("False", "Unknown", "True"))
                self.assertIn(ready_verdict(code)[0], ("False", "True"))
                self.assertEqual(version_of(code, body), "")
        self.assertEqual(version_of(200, b'{"gitVersion": "\\u001b[2J"}'), "")
