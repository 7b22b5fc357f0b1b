"""
Tests for :mod:`twisted_exec.cli.console.script`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.cli.console.test_shell_run import Terminal
from twisted_exec.api.patterns import Pattern, Search
from twisted_exec.cli.console.script import (
    EXPECT_SECONDS,
    Expect,
    ScriptSink,
    scripted_outcome,
)
from twisted_exec.cli.console.session import TIMED_OUT_CODE, Outcome
from twisted_exec.cli.messages import FAILED_CODE
from twisted_exec.console.notices import notice
from twisted_exec.wire.marks import Notice, NoticeKind, NoticeRole
from twisted_exec.wire.session_terms import MAY_ONLY_OBSERVE


class Paper:
    """An output that records what is printed."""

    def __init__(self) -> None:
        self.printed = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.printed += data

    def registerProducer(self, producer: object, streaming: bool) -> None: ...
    def unregisterProducer(self) -> None: ...

    def loseConnection(self) -> None:
        self.closed = True


class ExpectTests(SynchronousTestCase):
    """A script of steps, at a terminal that records."""

    def begin(self, *steps: str | bytes, shown: bytes = b"", **more: Any) -> None:
        self.clock = Clock()
        made = [
            step if isinstance(step, bytes) else (step, Search(Pattern(step, True)))
            for step in steps
        ]
        self.script = Expect(self.clock, made, **{"limited": True, **more})
        self.terminal, self.paper = Terminal(self.script), Paper()
        self.sink = ScriptSink(self.script, self.paper)
        self.show(shown)
        self.clock.pump([0.1] * 4)

    def show(self, data: bytes) -> None:
        if data:
            self.sink.write(data)
        self.clock.pump([0])

    def test_dialogue(self) -> None:
        """
        Each text is typed when the one before it has come; colours do not hide it.
        """
        self.begin("login: ", b"root\r", "(?i)password:", b"x\r", "[#$] $")
        self.assertEqual(self.terminal.sent, b"")
        self.show(b"vm log\x1b[1min:\x1b[m ")
        self.assertEqual(self.terminal.sent, b"root\r")
        self.show(b"root\r\nPassword:")
        self.show(b"\r\n# ")
        self.assertEqual(self.terminal.sent, b"root\rx\r")
        self.assertEqual(self.terminal.outcome, Outcome())
        self.assertEqual(self.paper.printed, b"vm log\x1b[1min:\x1b[m root\r\nPassword:\r\n# ")

    def test_ends_of_lines(self) -> None:
        """
        The end of a line is where a terminal shows it, also if its carriage return comes first.
        """
        self.begin("^ready$", "^b$", "never")
        self.show(b"not ready\r\nready\r\na")
        self.show(b"\r\nb\r")
        self.show(b"\n")
        self.assertEqual(self.script._steps[0][0], "never")

    def test_edited(self) -> None:
        """
        A line is searched as a terminal shows it, also if the user who typed there before has edited it.
        """
        self.begin("^\\$ ls$", "^done$", "never", shown=b"$ lx\b\x1b[K")
        self.show(b"s -l\b\x1b[K\b\x1b[K")
        self.show(b"\b\x1b[K\r\ndonx\b \be\r\n")
        self.assertEqual(self.script._steps[0][0], "never")

    def test_returns(self) -> None:
        """
        A line also begins behind carriage returns alone, as bash prints them, and ends before any.
        """
        self.begin("^A2B$", "^20%$", "^c$", "never", shown=b"$ ")
        self.show(b"echo A2B\r\n\x1b[?2004l\rA2B\r\n")
        self.show(b"10%\r")
        self.show(b"20%\r30%\r\r\nc\r")
        self.show(b"\r\n")
        self.assertEqual(self.script._steps[0][0], "never")

    def test_old_output(self) -> None:
        """
        Old output is neither printed nor matched, except the line on which the machine waits.
        """
        self.begin("login: ", b"root\r", shown=b"old login: \r\nbye\r\nvm login: ")
        self.assertEqual(self.terminal.sent, b"root\r")
        self.sink.loseConnection()
        self.assertEqual(self.paper.printed, b"vm login: ")
        self.begin("old", shown=b"old\r\n$ ")
        self.assertIsNone(self.terminal.outcome)

    def test_old_prompt(self) -> None:
        """
        The line on which the machine waits counts until the script types, also what a match left of it.
        """
        for steps in (b"\r", "# $"), ("r", b"\r", "# $"):
            self.begin(*steps, b"date\r", "# $", shown=b"root# ")
            self.assertEqual(self.terminal.sent, b"\r")
            self.show(b"\r\nroot# ")
            self.assertEqual(self.terminal.sent, b"\rdate\r")
            self.show(b"date\r\nMon\r\n")
            self.assertIsNone(self.terminal.outcome)
            self.show(b"root# ")
            self.assertEqual(self.terminal.outcome, Outcome())

    def test_output_before_typing(self) -> None:
        """
        New output that came together with a match counts for the step behind the typing.
        """
        self.begin("any key", b" ", "=> $", shown=b"=> ")
        self.show(b"any key: 0\r\n=> ")
        self.assertEqual((self.terminal.sent, self.terminal.outcome), (b" ", Outcome()))

    def test_old_screen(self) -> None:
        """Of the line on which the machine waits, marks of --run and drawn screens are not printed."""
        for shown, printed in (
            (b"\x1b]28747;E0123abcd:0\x1b\\\x1b[1m$ \x1b[m", b"\x1b[1m$ \x1b[m"),
            (b"\x1b[?1049h\x1b[Hfile~\x1b[24;1H-- INSERT --", b""),
        ):
            self.begin(b"\x03", shown=shown)
            self.sink.loseConnection()
            self.assertEqual(self.paper.printed, printed)

    def test_one_output_for_several_steps(self) -> None:
        """
        Output after a match counts for the next step, and not twice.
        """
        self.begin("a", "a", "b")
        self.show(b"xab")
        self.assertIsNone(self.terminal.outcome)
        self.show(b"ab")
        self.assertEqual(self.terminal.outcome, Outcome())

    def test_last_step_types(self) -> None:
        """
        After a last text the session ends as after the end of piped input.
        """
        self.begin(b"reboot\r")
        self.assertEqual((self.terminal.sent, self.terminal.ended), (b"reboot\r", True))
        self.assertTrue(self.script.is_over)
        self.show(b"rebooting")
        self.assertEqual(self.paper.printed, b"rebooting")

    def test_limit(self) -> None:
        """
        Each wait has its own limit; the message names the text and the last line.
        """
        self.begin("a", "never", shown=b"")
        self.clock.advance(EXPECT_SECONDS - 1)
        self.show(b"a\r\nb\x07oot> ")
        self.clock.advance(EXPECT_SECONDS - 1)
        self.assertIsNone(self.terminal.outcome)
        self.clock.advance(1)
        self.clock.pump([0])
        line = 'timed out after 60 s: "never" was not printed; the last line is "boot>"'
        self.assertEqual(self.terminal.outcome, Outcome(TIMED_OUT_CODE, line))

    def test_own_limit(self) -> None:
        """
        With C{--timeout} only that limit holds.
        """
        self.begin("never", limited=False)
        self.clock.advance(10 * EXPECT_SECONDS)
        self.assertIsNone(self.terminal.outcome)
        waiting = '"never" was not printed; the last line is ""'
        self.assertEqual(self.script.missing, waiting)

    def test_busy_machine(self) -> None:
        """
        A machine that prints without end is old output for two seconds only.
        """
        self.begin("tick 25")
        for number in range(30):
            self.show(b"tick %d\r\n" % number)
            self.clock.advance(0.1)
        self.assertEqual(self.terminal.outcome, Outcome())

    def test_lost_output(self) -> None:
        """
        Lost output could hold the text that the script waits for.
        """
        self.begin("x")
        self.script.noticed(Notice("70 bytes skipped"))
        self.assertIsNone(self.terminal.outcome)
        self.script.skipped("70 bytes skipped")
        self.show(b"")
        self.assertEqual(
            self.terminal.outcome, Outcome(FAILED_CODE, "output was lost: 70 bytes skipped")
        )

    def test_outage(self) -> None:
        """
        A lost connection stops the limit of a wait, which begins anew.
        """
        self.begin("never")
        self.clock.advance(EXPECT_SECONDS - 1)
        self.script.outage()
        self.clock.advance(EXPECT_SECONDS * 10)
        self.script.resumed()
        self.clock.advance(EXPECT_SECONDS - 1)
        self.assertIsNone(self.terminal.outcome)
        self.clock.advance(1)
        self.clock.pump([0])
        assert self.terminal.outcome is not None
        self.assertEqual(self.terminal.outcome.exit_code, TIMED_OUT_CODE)

    def test_outage_before_the_start(self) -> None:
        """
        Silence of a lost connection does not mean that the old output has arrived.
        """
        clock = Clock()
        script = Expect(clock, [b"x"], limited=True)
        terminal = Terminal(script)
        script.received(b"old")
        script.outage()
        clock.advance(10)
        self.assertEqual(terminal.sent, b"")
        script.resumed()
        script.received(b" output\r\n$ ")
        clock.pump([0.1] * 2)
        self.assertEqual(terminal.sent, b"")
        clock.pump([0.1] * 2)
        self.assertEqual(terminal.sent, b"x")

    def test_uncertain_input(self) -> None:
        """
        The script fails if its input may not have reached the machine, also behind its last step.
        """
        self.begin(b"reboot\r")
        self.assertTrue(self.script.is_over)
        self.script.outage()
        self.script.failed("7 keys are uncertain")
        self.assertEqual(
            scripted_outcome(self.script, Outcome(1, "7 keys are uncertain")),
            Outcome(FAILED_CODE, "7 keys are uncertain"),
        )

    def test_forged(self) -> None:
        """
        A machine that prints a notice does not end the script: notices come by another way.
        """
        self.begin("x", b"y")
        self.show(notice(MAY_ONLY_OBSERVE))
        self.show(notice("70 bytes skipped"))
        self.assertIsNone(self.terminal.outcome)

    def test_observer_reads(self) -> None:
        """
        A script that types nothing may be an observer.
        """
        for role in (NoticeRole.OBSERVER, NoticeRole.DENIED):
            self.setUp()
            self.begin("x")
            self.script.noticed(Notice("no", NoticeKind.ROLE, role))
            self.show(b"x")
            self.assertEqual((self.terminal.outcome, self.paper.printed), (Outcome(), b"x"))
