"""Tests for :mod:`twisted_exec.cli.console.type_ahead`, in a session."""

from __future__ import annotations

from tests.cli.console.test_session import SessionCase
from twisted_exec.cli.console.session import NEVER_QUIET, Outcome
from twisted_exec.cli.console.type_ahead import SCRIPT_SECONDS
from twisted_exec.console.notices import LINE_AGAIN, WAITS, notice
from twisted_exec.wire.endings import COMPLETED, Ending


class EndOfInputTests(SessionCase):
    """End of piped input."""

    def test_told(self) -> None:
        """Without a linger time, the end of input is sent, and the session ends with success."""
        self.begin(interactive=False)
        stream = self.attach()
        self.session.input_ended()
        self.assertEqual(stream.told, ["end of input"])
        self.session.data_received(b"more")
        self.session.ended(Ending(COMPLETED))
        self.session.detached("connection closed")
        self.sink.flush()
        self.assertEqual(self.sink.written, b"more")
        self.assertEqual(self.outcome(), Outcome(ending=Ending(COMPLETED)))

    def test_linger(self) -> None:
        """With linger, the session ends after that many quiet seconds."""
        self.begin(interactive=False, linger_seconds=2)
        stream = self.attach()
        self.session.input_ended()
        self.clock.advance(1.5)
        self.session.data_received(b"late")
        self.clock.advance(1.9)
        self.assertEqual(stream.told, [])
        self.clock.advance(0.1)
        self.assertEqual(stream.told, ["leave"])
        self.session.detached("connection closed")
        self.sink.flush()
        self.assertEqual(self.outcome(), Outcome())

    def test_linger_and_input_was_discarded(self) -> None:
        """A script whose input was not sent fails, though it lingers; the last notice says why."""
        self.begin(interactive=False, linger_seconds=5)
        self.attach()
        self.session.typed(b"uptime\n")
        self.session.data_received(notice('what you type is not sent: line "vm" was lost: refused'))
        self.session.input_ended()
        self.clock.advance(5)
        self.session.detached("connection closed")
        self.sink.flush()
        outcome = Outcome(1, 'the input was not sent: line "vm" was lost: refused')
        self.assertEqual(self.outcome(), outcome)

    def test_linger_and_the_machine_ended(self) -> None:
        """So does a script whose machine ended: what it prints may be that of the next boot."""
        self.begin(interactive=False, linger_seconds=5)
        self.attach()
        self.session.data_received(notice(f"killed; {WAITS} 60 s for the machine to start again"))
        self.session.data_received(notice(LINE_AGAIN))
        self.session.input_ended()
        self.clock.advance(5)
        self.session.detached("connection closed")
        self.sink.flush()
        self.assertEqual(self.outcome(), Outcome(1, "the machine ended: killed"))

    def test_linger_counts_only_the_machines_quiet(self) -> None:
        """The linger time does not run while output is paused."""
        self.begin(interactive=False, linger_seconds=2)
        stream = self.attach()
        self.session.input_ended()
        self.sink.flow.pauseProducing()
        self.clock.advance(2)
        self.clock.advance(2)
        self.assertEqual(stream.told, ["pause"])
        self.sink.flow.resumeProducing()
        self.clock.advance(2)
        self.assertEqual(stream.told, ["pause", "resume", "leave"])

    def test_without_half_close(self) -> None:
        """If the stream cannot send the end of input, the client leaves after a quiet second."""
        self.begin(interactive=False)
        stream = self.attach(can_half_close=False)
        self.session.input_ended()
        self.clock.advance(1)
        self.assertEqual(stream.told, ["leave"])

    def test_process_ends_while_lingering(self) -> None:
        """The process's exit code takes precedence over the linger time."""
        self.begin(interactive=False, linger_seconds=2)
        self.attach()
        self.session.input_ended()
        self.session.ended(Ending(COMPLETED, "exited with 7", 7))
        self.session.detached("connection closed")
        self.sink.flush()
        self.assertEqual(self.outcome().exit_code, 7)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_endless_output(self) -> None:
        """A machine that is never quiet does not keep a script for ever."""
        for linger in (None, 2.0):
            self.begin(interactive=False, linger_seconds=linger)
            self.attach()
            self.clock.advance(SCRIPT_SECONDS)
            self.session.input_ended()
            for _ in range(int(SCRIPT_SECONDS + (linger or 0))):
                self.assertNoResult(self.session.finished)
                self.session.data_received(b"tick\n")
                self.clock.advance(1)
            self.session.detached("connection closed")
            self.sink.flush()
            self.assertEqual(self.outcome(), Outcome(124, NEVER_QUIET))
            self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_endless_output_without_limit(self) -> None:
        """A script without limit continues while the machine prints."""
        self.begin(interactive=False, limited=False)
        self.attach()
        self.session.input_ended()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_endless_output_with_timeout(self) -> None:
        """``--timeout`` replaces the limit for machines that are never quiet."""
        self.begin(interactive=False, timeout=SCRIPT_SECONDS * 2)
        stream = self.attach()
        self.session.input_ended()
        self.clock.advance(SCRIPT_SECONDS * 2 - 1)
        self.assertEqual(stream.told, ["end of input"])
        self.clock.advance(1)
        self.assertEqual(stream.told, ["end of input", "leave"])

    def test_terminal_closed(self) -> None:
        """End of input from a terminal means a closed window, and leaves the session."""
        self.begin()
        stream = self.attach()
        self.session.input_ended()
        self.assertEqual(stream.told, ["leave"])
