"""Tests of :mod:`twisted_exec.wire.rejoin`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.rejoin import Rejoin, Rejoinable, parse_received, parse_rejoin, received_text

KEY = "k" * 43


class HeaderTests(SynchronousTestCase):
    """The header of the requests and of their answers."""

    def test_offer(self) -> None:
        self.assertIsNone(parse_rejoin("offer"))
        answer = Rejoinable(KEY, 30)
        self.assertEqual(Rejoinable.parse(answer.text()), answer)
        self.assertEqual(Rejoinable.parse(f"key={KEY}; seconds=99999").seconds, 3600)

    def test_rejoin(self) -> None:
        rejoin = Rejoin(KEY, 4096)
        self.assertEqual(parse_rejoin(rejoin.text()), rejoin)
        self.assertEqual(parse_received(received_text(7)), 7)

    def test_keys_are_not_printed(self) -> None:
        self.assertNotIn(KEY, repr([Rejoin(KEY, 1), Rejoinable(KEY, 1)]))

    def test_invalid(self) -> None:
        for text in ("", "offers", f"key={KEY}", "received=1", f"key={KEY}; received=x", "x" * 600):
            with self.assertRaises(RemoteProtocolError, msg=text):
                parse_rejoin(text)
        for text in (
            "",
            "received=-1",
            "received=",
            f"received={'1' * 20}",
            "received=1; received=1",
        ):
            with self.assertRaises(RemoteProtocolError, msg=text):
                parse_received(text)
        for text in ("", f"key={KEY}", "seconds=1", f"key={KEY}; seconds=soon"):
            with self.assertRaises(RemoteProtocolError, msg=text):
                Rejoinable.parse(text)
