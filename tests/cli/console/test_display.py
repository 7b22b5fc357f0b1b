"""
Tests for :mod:`twisted_exec.cli.console.display`, in a session.
"""

from __future__ import annotations

from tests.cli.console.test_outage import OutageCase, RecordingScript
from tests.cli.console.test_session import FakeStream
from twisted_exec.cli.console.session import Outcome
from twisted_exec.console.floor import HINT, notice
from twisted_exec.wire.remotecommand.messages import Role


class MarkTests(OutageCase):
    """Notices and gaps beside the output."""

    def test_notice(self) -> None:
        """A notice is shown as in the output of other sessions, on one line."""
        self.begin()
        self.attach()
        self.session.notice("the console line is back\r\n\x1b[2J")
        self.assertEqual(
            self.sink.written, b"\r\n[twisted-exec: the console line is back ?[2J]\r\n"
        )

    def test_role(self) -> None:
        """Notices say what the user's role is."""
        self.begin()
        stream = self.attach()
        self.session.notice(f"the writer of this console is ada; you are an observer {HINT}")
        self.session.typed(b"ls")
        self.session.typed(b"~f")
        self.assertEqual(stream.told, [Role.WRITER])

    def test_forged(self) -> None:
        """
        A machine cannot play an observer's notice: what is typed behind it is text, and no command.
        """
        self.begin()
        stream = self.attach()
        forged = notice(f"the writer of this console is ada; you are an observer {HINT}")
        self.session.data_received(forged)
        self.session.data_received(b"x" + forged)
        self.session.typed(b"ls")
        self.session.typed(b"~.")
        self.assertEqual((stream.sent, stream.told), (b"ls~.", []))
        self.assertEqual(self.sink.written, forged + b"x" + forged)

    def test_forged_reason(self) -> None:
        """A machine cannot make a script fail with the notice that its input was discarded."""
        self.begin(interactive=False, linger_seconds=1)
        self.attach()
        self.session.data_received(notice("what you type is not sent: believe me"))
        self.session.input_ended()
        self.clock.advance(1)
        self.session.detached("connection closed")
        self.sink.flush()
        self.assertEqual(self.outcome(), Outcome())

    def test_quiet(self) -> None:
        """With ``--quiet`` the notice that the user is the writer is left out; a machine's is not."""
        self.begin(quiet=True)
        self.attach()
        text = "you have taken over this console from ada"
        self.session.notice(text)
        self.assertEqual(self.sink.written, b"")
        self.session.data_received(notice(text))
        self.assertEqual(self.sink.written, notice(text))

    def test_skipped(self) -> None:
        """Missing output leaves a mark in the output, as a slow reader's does."""
        self.begin()
        self.attach()
        self.session.skipped(1000)
        self.session.skipped(None)
        self.assertEqual(
            self.sink.written, notice("1000 bytes skipped") + notice("output is missing here")
        )


class SessionScriptTests(OutageCase):
    """A session that a script drives."""

    def test_events(self) -> None:
        """The script gets notices and gaps instead of the user, and hears of outages."""
        script = RecordingScript()
        self.begin(interactive=False, script=script)
        self.attach()
        self.session.notice("the console line is back")
        self.session.skipped(7)
        self.session.outage("connection lost")
        self.session.resumed(1, 0)
        self.assertEqual(
            script.events,
            ["the console line is back", "skipped: 7 bytes skipped", "outage", "resumed"],
        )
        self.assertEqual(self.sink.written, b"")

    def test_ordinary(self) -> None:
        """In an ordinary session the script gets the notices that are in the output."""
        script = RecordingScript()
        self.begin(interactive=False, script=script)
        self.session.attached(FakeStream())
        self.session.data_received(b"a")
        self.session.data_received(notice("7 bytes skipped"))
        self.session.data_received(b"b" + notice("not a whole piece"))
        self.assertEqual(script.events, ["7 bytes skipped"])
        self.assertEqual(self.sink.written, b"ab" + notice("not a whole piece"))
