"""
Tests for :mod:`twisted_exec.console.viewers`.
"""

from __future__ import annotations

from dataclasses import replace

from twisted_exec.api.status import TooManyRequests
from twisted_exec.streaming.interfaces import COMPLETED, TOO_MANY_VIEWERS, Ending, Role
from twisted_exec.wire.session_terms import FULL, Right, Terms
from twisted_exec.wire.stream_options import StreamOptions

from .doubles import (
    SharedConsoleCase,
)

OBSERVE, DRIVE = Terms(right=Right.OBSERVE), Terms(right=Right.DRIVE)


class ViewersTests(SharedConsoleCase):
    """A console with a limited number of sessions."""

    few = Terms(viewers=2, policy="default/few")
    full = (
        "ConsolePolicy default/few allows 2 sessions at this console, and 2 are open;"
        " try again when one of them has ended"
    )

    def admit(self, terms: Terms) -> None:
        self.shared.viewer().admit(terms)

    def test_refused(self) -> None:
        """A session too many is refused before it opens, whoever is there, until one has ended."""
        ann = self.attach(terms=self.few)
        self.admit(self.few)
        self.attach(terms=self.few, options=StreamOptions(read_only=True))
        error = self.assertRaises(TooManyRequests, self.admit, self.few)
        self.assertEqual(error.message, self.full)
        ann.drop()
        self.admit(self.few)

    def test_at_the_same_time(self) -> None:
        """Of sessions that open at the same time, the ones too many end when they join."""
        ann, bob = (self.attach(user=user, terms=self.few) for user in ("ann", "bob"))
        self.console.says(b"secret")
        options = StreamOptions(force=True)
        eve = self.attach(user="eve", terms=self.few, options=options)
        self.assertEqual((eve.since(), eve.ending), (b"", Ending(TOO_MANY_VIEWERS, self.full)))
        self.assertIs(ann.viewer.role, Role.WRITER)
        self.assertEqual(self.shared.viewers, (ann.viewer, bob.viewer))
        self.assertNotIn("eve", [e.data.get("user") for e in self.shared.journal.events(0, 0)])
        eve.drop()
        self.assertIsNone(ann.ending)

    def test_forged(self) -> None:
        """
        A limit that a client has sent for its own session, which anybody can do, keeps nobody else
        out.
        """
        self.attach(user="eve", terms=Terms(Right.OBSERVE, viewers=1, policy="default/forged"))
        self.admit(FULL)
        self.admit(self.few)
        self.attach()
        self.assertRaises(TooManyRequests, self.admit, self.few)

    def test_ending(self) -> None:
        """A session that is ending does not count."""
        self.attach(terms=self.few)
        slow = self.attach(terms=self.few, room=0)
        self.console.says(b"=> ")
        slow.viewer.finish(Ending(COMPLETED))
        self.admit(self.few)

    def test_changed(self) -> None:
        """A limit that is lowered ends no session."""
        ann, bob = self.attach(), self.attach()
        for each in (ann, bob):
            each.hold_to(replace(self.few, viewers=1))
        self.assertEqual((ann.ending, bob.ending), (None, None))
        error = self.assertRaises(TooManyRequests, self.admit, replace(self.few, viewers=1))
        self.assertIn("allows 1 session at this console, and 2 are open", error.message)
