"""Tests for :mod:`twisted_exec.runtimes.lines.redfish.entry`."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.runtimes.lines.redfish.entry import (
    BEGIN_SECONDS,
    ECHO_SECONDS,
    QUIET_SECONDS,
    REFUSED,
    SILENT_BEGIN_SECONDS,
    TAKEN,
    TOTAL_SECONDS,
    Begin,
    EntryDialogue,
    Fail,
    Step,
    Type,
)
from twisted_exec.runtimes.lines.redfish.quirks import Quirk, find, load

DELL = find(load(), "Dell Inc.", "", "")
LENOVO = find(load(), "Lenovo", "", "")
HPE = find(load(), "HPE", "", "")
SUPERMICRO = find(load(), "Supermicro", "", "")


class Talk:
    """A dialogue, with a shell that echoes."""

    def __init__(self, quirk: Quirk, *, releases: bool = False, echoes: bool = True) -> None:
        self.now = 100.0
        self.dialogue = EntryDialogue(quirk.entry_commands, quirk, self.now, releases=releases)
        self.typed = b""
        self.end: Step | None = None
        self._echoes = echoes

    def hear(self, data: bytes, size: int = 0) -> None:
        """The BMC prints ``data``, in parts of ``size`` bytes."""
        for at in range(0, len(data), size or len(data)):
            self._do(self.dialogue.receive(data[at : at + (size or len(data))], self.now))

    def pass_time(self) -> None:
        """Let the time pass until the dialogue wakes."""
        self.now = self.dialogue.wake_at
        self._do(self.dialogue.wake(self.now))

    def _do(self, steps: Sequence[Step]) -> None:
        for step in steps:
            assert self.end is None, step
            if isinstance(step, Type):
                assert len(step.data) == 1, step
                self.typed += step.data
                if self._echoes:
                    echo = b"\r\n" if step.data == b"\r" else step.data
                    self._do(self.dialogue.receive(echo, self.now))
            else:
                self.end = step


class EntryTests(SynchronousTestCase):
    """The way to the console."""

    def test_begins(self) -> None:
        """The command is typed at the prompt, and users see what follows the BMC's last line alone."""
        for quirk, prompt, typed, banner in (
            (
                DELL,
                b"\r\nracadm>>",
                b"connect com2\r",
                b"Connected to Serial Device 2. To end type: ^\\\r\n",
            ),
            (
                DELL,
                b"/admin1-> ",
                b"connect com2\r",
                b"Connected to Serial Device 2. To end type: ^\\\n",
            ),
            (
                HPE,
                b"iLO 5\r\n\r\n</>hpiLO-> ",
                b"vsp\r",
                b"\r\nVirtual Serial Port Active: COM2\r\n\r\nStarting virtual serial port.\r\n"
                b"Press 'ESC (' to return to the CLI Session.\r\n",
            ),
        ):
            for size in (0, 1, 7):
                talk = Talk(quirk)
                talk.hear(b"Welcome, admin\r\n" + prompt, size)
                self.assertEqual((talk.typed, talk.end), (typed, None))
                talk.hear(banner + b"login: ", size)
                assert isinstance(talk.end, Begin)
                # In parts of a byte the console begins with the line's end.
                self.assertTrue(b"login: ".startswith(talk.end.data.lstrip(b"\n")))

    def test_two_commands(self) -> None:
        """The second command waits for the prompt behind the first."""
        talk = Talk(SUPERMICRO)
        talk.hear(b"Insyde SMASH-CLP\r\n\r\n-> ")
        self.assertEqual(talk.typed, b"cd system1/sol1\r")
        talk.hear(b"/system1/sol1\r\n\r\n")
        self.assertEqual(talk.typed, b"cd system1/sol1\r")
        talk.hear(b"-> ")
        self.assertEqual(talk.typed, b"cd system1/sol1\rstart\r")
        talk.hear(
            b"/system1/sol1\r\n\r\npress <Enter>, <Esc>, and then <T> to terminate session\r\n"
            b"(press the keys in sequence, one after the other)\r\nlogin: "
        )
        self.assertEqual(talk.end, Begin(b"login: "))

    def test_silent(self) -> None:
        """A BMC that says nothing has opened the console when no prompt has come for a while."""
        talk = Talk(LENOVO)
        talk.hear(b"\r\nsystem> ")
        self.assertEqual((talk.typed, talk.end), (b"console 1\r", None))
        talk.hear(b"login: ")
        self.assertIsNone(talk.end)
        start = talk.now
        talk.pass_time()
        self.assertEqual((talk.end, talk.now - start), (Begin(b"login: "), SILENT_BEGIN_SECONDS))

    def test_other_banner(self) -> None:
        """A BMC that says something else than its row expects opens its console, too, but later."""
        talk = Talk(DELL)
        talk.hear(b"racadm>>")
        talk.hear(b"Hello. Leave with ^\\\r\nlogin: ")
        start = talk.now
        talk.pass_time()
        self.assertEqual(talk.end, Begin(b"Hello. Leave with ^\\\r\nlogin: "))
        self.assertEqual(talk.now - start, BEGIN_SECONDS)

    def test_alternative(self) -> None:
        """A BMC that does not know the first command gets the second one (newer firmware of Lenovo)."""
        talk = Talk(LENOVO)
        talk.hear(b"system> ")
        talk.hear(b"The command line contains extraneous arguments\r\nsystem>", 1)
        self.assertEqual(talk.typed, b"console 1\rconsole start\r")
        talk.pass_time()
        self.assertEqual(talk.end, Begin(b""))

    def test_release(self) -> None:
        """Another session is ended first, only if that is wanted."""
        talk = Talk(LENOVO, releases=True)
        talk.hear(b"system> ")
        self.assertEqual(talk.typed, b"console kill 1\r")
        talk.hear(b"The command line contains extraneous arguments\r\nsystem> ")
        self.assertEqual(talk.typed, b"console kill 1\rconsole kill\r")
        talk.hear(b"ok\r\nsystem> ")
        self.assertEqual(talk.typed, b"console kill 1\rconsole kill\rconsole start\r")

    def test_no_alternative(self) -> None:
        """The BMC's words are the reason when it knows no command."""
        talk = Talk(LENOVO)
        talk.hear(b"system> ")
        for _ in range(2):
            talk.hear(b"The command line contains extraneous arguments\r\nsystem> ")
        assert isinstance(talk.end, Fail)
        self.assertEqual(talk.end.reason, REFUSED)
        self.assertIn("The command line contains extraneous arguments", talk.end.message)

    def test_refused(self) -> None:
        """A prompt that stays the last output is a refusal."""
        talk = Talk(HPE)
        talk.hear(b"</>hpiLO-> ")
        talk.hear(b"status=2\r\nstatus_tag=COMMAND PROCESSING FAILED\r\n</>hpiLO-> ")
        self.assertIsNone(talk.end)
        start = talk.now
        talk.pass_time()
        assert isinstance(talk.end, Fail)
        self.assertEqual((talk.end.reason, talk.now - start), (REFUSED, QUIET_SECONDS))
        self.assertIn("COMMAND PROCESSING FAILED", talk.end.message)

    def test_prompt_in_banner(self) -> None:
        """A prompt that is followed by the banner in its line is no refusal (iLO 2)."""
        talk = Talk(HPE)
        talk.hear(b"</>hpiLO-> ")
        talk.hear(b"Starting virtual serial port.\r\n\r\n</>hpiLO-> ")
        talk.hear(b"Virtual Serial Port active: IO=0x03F8 INT=4\r\n")
        self.assertIsNone(talk.end)
        talk.pass_time()
        self.assertIsInstance(talk.end, Begin)

    def test_taken(self) -> None:
        """A console of another session is told as such."""
        for words in (
            b"Virtual Serial Port is currently in use by another session.",
            b"SOL payload already active on another session",
        ):
            talk = Talk(HPE)
            talk.hear(b"</>hpiLO-> ")
            talk.hear(words + b"\r\n</>hpiLO-> ")
            talk.pass_time()
            assert isinstance(talk.end, Fail)
            self.assertEqual(talk.end.reason, TAKEN)
            self.assertIn("steal: true", talk.end.message)
            talk = Talk(HPE)
            talk.hear(b"</>hpiLO-> ")
            talk.hear(words)
            lost = talk.dialogue.lost()
            assert lost is not None
            self.assertEqual(lost.reason, TAKEN)

    def test_no_echo(self) -> None:
        """A shell without echo gets the command, too, slowly."""
        talk = Talk(HPE, echoes=False)
        talk.hear(b"</>hpiLO-> ")
        self.assertEqual(talk.typed, b"v")
        start = talk.now
        talk.pass_time()
        self.assertEqual((talk.typed, talk.now - start), (b"vs", ECHO_SECONDS))
        for _ in range(3):
            talk.pass_time()
        talk.hear(b"Press 'ESC (' to return to the CLI Session.\r\n")
        self.assertEqual((talk.typed, talk.end), (b"vsp\r", Begin(b"")))

    def test_no_prompt(self) -> None:
        """A BMC that hangs before its prompt, or within, does not hold the line for ever."""
        talk = Talk(DELL)
        talk.hear(b"Welcome\r\n")
        start = talk.now
        talk.pass_time()
        assert isinstance(talk.end, Fail)
        self.assertEqual(talk.now - start, TOTAL_SECONDS)
        self.assertIn("prompt (racadm>> or /admin1->) did not come within 15 s", talk.end.message)
        talk = Talk(SUPERMICRO)
        talk.hear(b"-> ")
        while talk.end is None:
            talk.pass_time()
        assert isinstance(talk.end, Fail)
        self.assertIn("did not open the console within 15 s", talk.end.message)

    def test_flood(self) -> None:
        """A BMC that prints without end keeps no more than 64 KiB."""
        talk = Talk(LENOVO)
        talk.hear(b"x\r\n" * (1 << 18), 1 << 16)
        self.assertIsNone(talk.end)
        talk.hear(b"system> ")
        self.assertEqual(talk.typed, b"console 1\r")
        talk.hear(b"y" * (1 << 20), 1 << 16)
        talk.pass_time()
        self.assertEqual(talk.end, Begin(b"y" * (64 << 10)))

    def test_lost(self) -> None:
        """The BMC's last words are the reason of an early end; without any ssh has a better one."""
        talk = Talk(DELL)
        self.assertIsNone(talk.dialogue.lost())
        talk.hear(b"Maximum number of sessions reached\r\n")
        lost = talk.dialogue.lost()
        assert lost is not None
        self.assertIn("closed the connection: Maximum number of sessions reached", lost.message)
