"""
Tests for :mod:`twisted_exec.cli.console.shell_run`: real shells in pseudo-terminals.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults, inlineCallbacks
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import Clock, deferLater
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests import needs
from tests.clocks import pass_seconds
from tests.console.test_floor import Person
from tests.tiers import PROGRAMS
from twisted_exec.cli.console import shell_run as shell
from twisted_exec.cli.console.machine import make_script
from twisted_exec.cli.console.options import parse_options
from twisted_exec.cli.console.script import (
    GOES_ON,
    MAY_GO_ON,
    OCCUPIED_CODE,
    RECORDS_ON,
    Script,
    scripted_outcome,
)
from twisted_exec.cli.console.session import TIMED_OUT, TIMED_OUT_CODE, Outcome
from twisted_exec.cli.console.shell_run import LEFT, NO_SHELL_CODE, PROBE_SECONDS, ShellRun
from twisted_exec.cli.console.streams import StandardStreams
from twisted_exec.cli.messages import FAILED_CODE
from twisted_exec.console.floor import Floor
from twisted_exec.console.notices import HINT, WAITS, understood
from twisted_exec.wire.endings import (
    COMPLETED,
    LINE_LOST,
    MACHINE_DELETED,
    POOL_DELETED,
    POWERED_OFF,
    Ending,
)
from twisted_exec.wire.marks import Notice, NoticeKind, NoticeRole, not_sent
from twisted_exec.wire.session_terms import MAY_ONLY_OBSERVE
from twisted_exec.wire.shell_run import command_lines

SHELLS = {
    "bash": ["bash", "--norc", "-i"],
    "dash": ["dash", "-i"],
    "ash": ["busybox", "ash", "-i"],
}


def nonce_of(typed: bytes) -> bytes:
    """Return the random word of the marks in what a script has typed."""
    match = re.search(rb"[RBE]([0-9a-f]{8})", typed)
    assert match is not None
    return match[1]


class Machine(ProcessProtocol):
    """A shell in a pseudo-terminal, with a script at its keyboard."""

    viewers = 1
    waiting_keys = 0

    def __init__(self, script: Script, arguments: list[str], **environment: str) -> None:
        self.printed = self.shown = b""
        self.done: Deferred[Outcome] = Deferred()
        self.over: Deferred[None] = Deferred()
        self._script = script
        self.nonce: bytes = getattr(script, "_nonce", b"")
        base = {"PATH": os.environ["PATH"], "TERM": "xterm", "PS1": "\\$ ", "HISTFILE": ""}
        spawn: Any = reactor
        spawn.spawnProcess(
            self, shutil.which(arguments[0]), arguments, env={**base, **environment}, usePTY=True
        )
        script.drive(self)
        script.resumeProducing()

    def typed(self, data: bytes) -> None:
        self.transport.write(data)

    def input_ended(self) -> None:
        self.conclude(Outcome())

    def conclude(self, outcome: Outcome) -> None:
        self._script.stop()
        self.transport.signalProcess("KILL")
        self.done.callback(outcome)

    def outReceived(self, data: bytes) -> None:
        self.shown += data
        self.printed += self._script.received(data)

    def processEnded(self, reason: Failure) -> None:
        self.over.callback(None)


class Disturbed(Machine):
    """
    A shell whose command gets a key of another user.

    The key comes when the command's program answers: a key that arrives while a shell starts a program can miss it.
    """

    def __init__(self, key: bytes, arguments: list[str]) -> None:
        self._typed = [b"answer\n", key]
        super().__init__(ShellRun(reactor, "echo begun; cat; echo done"), arguments)

    def outReceived(self, data: bytes) -> None:
        super().outReceived(data)
        expected = b"answer\n" * 2 if len(self._typed) == 1 else b"begun\n"
        if self._typed and self.printed.endswith(expected):
            self.transport.write(self._typed.pop(0))


COMMANDS: list[tuple[str, int, bytes]] = [
    ("echo hello", 0, b"hello\n"),
    ("printf 'no newline'", 0, b"no newline"),
    ("exit 3", 3, b""),
    ("false", 1, b""),
    ("printf 'a\\tb%sc\\n' %", 0, b"a\tb%c\n"),
    ("echo 'it'\\''s' \"$((6*7))\" `echo tick` !x", 0, b"it's 42 tick !x\n"),
    ("printf 'a\nb\n'", 0, b"a\nb\n"),
    ("echo \u00e9\u4e2d", 0, "\u00e9\u4e2d\n".encode()),
    ("seq 1 5000", 0, b"".join(b"%d\n" % number for number in range(1, 5001))),
    ("printf '@E:0@ @B@ \\r @@\\r'", 0, b"@E:0@ @B@ \r @@\r"),
    (r"printf '\033]28747;E1:0\033\\\033]2'", 0, b"\x1b]28747;E1:0\x1b\\\x1b]2"),
    ("sh -c 'kill -9 $$'", 137, b""),
    ("echo " + "long " * 200, 0, b"long " * 199 + b"long\n"),
    (
        "true '" + "'" + "\n" * 300 + "echo 'late" + "x" * 1000 + "'",
        0,
        b"late" + b"x" * 1000 + b"\n",
    ),
    ("cat <<X\nin a document\nX\n", 0, b"in a document\n"),
]


class ShellTests(TestCase):
    """Commands in real shells."""

    starts = PROGRAMS

    def setUp(self) -> None:
        self.patch(shell, "PROBE_SECONDS", 600.0)  # a busy machine starts shells late

    @inlineCallbacks
    def check(self, shell: str) -> Any:
        checks = []
        for command, code, printed in COMMANDS:
            if shell == "dash" and command.startswith("echo 'it'"):
                command = command.replace("!x", "'!x'")
            checks.append(self.check_one(shell, command, code, printed))
        yield gatherResults(checks, consumeErrors=True)

    @inlineCallbacks
    def check_one(self, shell: str, command: str, code: int, printed: bytes) -> Any:
        machine = Machine(ShellRun(reactor, command), SHELLS[shell])
        outcome = yield machine.done
        yield machine.over
        output = machine.printed.replace(b"Killed\n", b"")
        self.assertEqual((outcome, output), (Outcome(code), printed), (shell, command))

    def test_bash(self) -> Any:
        """
        bash with readline, which wraps long lines and marks pasted text.
        """
        return self.check("bash")

    def test_dash(self) -> Any:
        """
        A shell that leaves the editing of lines to the terminal.
        """
        return self.check("dash")

    test_dash.skip = needs.dash()  # type: ignore[attr-defined]

    def test_busybox(self) -> Any:
        """
        busybox's shell, as in an initramfs.
        """
        return self.check("ash")

    test_busybox.skip = needs.busybox()  # type: ignore[attr-defined]

    @inlineCallbacks
    def test_coloured_prompt_and_noise(self) -> Any:
        """
        A prompt with escape sequences, and text of another writer around the command's output.
        """
        noise = "(while sleep 0.05; do echo '[  12.345678] usb 1-1: reset'; done) & "
        machine = Machine(
            ShellRun(reactor, "sleep 0.3; echo result; exit 4"),
            ["bash", "--norc", "-c", f"{noise} exec bash --norc -i"],
            PS1="\\[\\e[1;31m\\]machine \\w #\\[\\e[0m\\] ",
        )
        outcome = yield machine.done
        yield machine.over
        self.assertEqual(outcome, Outcome(4))
        self.assertIn(b"result\n", machine.printed)
        self.assertNotIn(b"printf", machine.printed)

    @inlineCallbacks
    def test_text_of_another_user(self) -> Any:
        """
        Text that waits at the prompt does not run.
        """
        machine = Machine(ShellRun(reactor, "echo done"), SHELLS["bash"])
        machine.transport.write(b"echo MINE; exit 9")
        outcome = yield machine.done
        yield machine.over
        self.assertEqual((outcome, machine.printed), (Outcome(), b"done\n"))

    @inlineCallbacks
    def test_keys_of_another_user(self) -> Any:
        """
        A command that another user interrupts, quits or stops ends the run.
        """
        for arguments in SHELLS.values():
            if shutil.which(arguments[0]) is None:
                continue
            for key, codes in ((b"\x03", (130,)), (b"\x1c", (131,)), (b"\x1a", (147, 148))):
                machine = Disturbed(key, arguments)
                outcome = yield machine.done
                yield machine.over
                self.assertIn(outcome.exit_code, codes, (arguments, key, machine.shown))
                self.assertTrue(machine.printed.startswith(b"begun\n"), machine.printed)

    @inlineCallbacks
    def test_no_shell(self) -> Any:
        """
        A program that only echoes is no shell: the command is not typed.
        """
        clock = Clock()
        machine = Machine(ShellRun(clock, "rm -rf /"), ["cat"])
        pass_seconds(clock, shell.MOST_SETTLE_SECONDS)
        while b"printf" not in machine.shown:
            yield deferLater(reactor, 0.01)  # type: ignore[arg-type]
        clock.advance(shell.PROBE_SECONDS)
        outcome = yield machine.done
        yield machine.over
        self.assertEqual(outcome.exit_code, NO_SHELL_CODE)
        self.assertIn(
            "no shell answered within 600 s; a program may be running there (", outcome.line
        )


class LossTests(SynchronousTestCase):
    """A line that loses what is typed: real shells read what has arrived."""

    starts = PROGRAMS
    nonce = "0a1b2c3d"

    def result(self, shell: str, typed: bytes) -> str:
        """Return the exit code of the last mark; L if the shell says that it has not run the command."""
        ran = subprocess.run(
            [shell, "-c", 'read -r _r;eval "$_r"'],
            input=typed,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self.directory,
            check=False,
        )
        mark = rb"\x1b\]28747;(?:E%s:(\d+)|(L)%s)\x1b\\" % ((self.nonce.encode(),) * 2)
        match = re.search(mark, ran.stdout)
        return (match[1] or match[2]).decode() if match else ""

    def setUp(self) -> None:
        self.directory = self.mktemp()
        os.mkdir(self.directory)

    def typed(self, command: str) -> bytes:
        return b"".join(line + b"\n" for line in command_lines(command, self.nonce))

    def test_each_byte(self) -> None:
        """Whichever byte is lost, the exit code is not 0."""
        (line,) = command_lines("exit 9", self.nonce)
        typed = line + b"\n"
        for name in ("bash", "dash"):
            self.assertEqual(self.result(name, typed), "9")
            for at in range(len(typed)):
                code = self.result(name, typed[:at] + typed[at + 1 :])
                self.assertNotEqual(code.strip("0") or code[:1], "0", typed[at:])

    def test_lost_in_the_command(self) -> None:
        """A command of which a byte is lost is not run, also if both copies lack it, or it has many lines."""
        for command, lost in (("exit 9", b"i"), ("touch made; : " + "x" * 2000, b"d")):
            typed = self.typed(command)
            at = typed.index(command[:10].encode()) + command.encode().index(lost)
            self.assertEqual(self.result("dash", typed[:at] + typed[at + 1 :]), "L")
            self.assertEqual(os.listdir(self.directory), [])
        both = self.typed("true; exit 9").replace(b"exit", b"exi")
        self.assertEqual(self.result("dash", both), "L")


class Terminal:
    """A terminal that records what is typed."""

    viewers = 2
    waiting_keys = 0

    def __init__(self, script: Script) -> None:
        self.sent = b""
        self.outcome: Outcome | None = None
        self.ended = False
        script.drive(self)
        script.resumeProducing()

    def typed(self, data: bytes) -> None:
        self.sent += data

    def input_ended(self) -> None:
        self.ended = True

    def conclude(self, outcome: Outcome) -> None:
        self.outcome = outcome


class PromptTests(SynchronousTestCase):
    """What the machine shows before the command decides whether it is typed."""

    def begin(
        self, shown: bytes = b"", *, noticed: Notice | None = None, force: bool = False
    ) -> tuple[Clock, ShellRun, Terminal]:
        clock = Clock()
        run = ShellRun(clock, "secret command", force=force)
        terminal = Terminal(run)
        self.assertEqual(run.received(shown), b"")
        if noticed is not None:
            run.noticed(noticed)
        clock.pump([0.1] * 4)
        return clock, run, terminal

    def test_goes_on(self) -> None:
        """
        A user whose ``--timeout`` is over reads that the command goes on, but only if it was typed.
        """
        clock, run, terminal = self.begin(b"$ ")
        clock.pump([0.1] * 20)
        timed_out = Outcome(TIMED_OUT_CODE, TIMED_OUT)
        line = f"{TIMED_OUT}: no shell answered; {LEFT}"
        self.assertEqual(scripted_outcome(run, timed_out).line, line)
        run.received(b"\x1b]28747;R%s:\x1b\\$ " % nonce_of(terminal.sent))
        clock.pump([0.1] * 20)
        remedy = r"--send '\x03' sends it Ctrl-C"
        line = f"{TIMED_OUT}: {GOES_ON}; {remedy}"
        self.assertEqual(scripted_outcome(run, timed_out).line, line)
        interrupted = scripted_outcome(run, Outcome(signal=2))
        line = f"interrupted: {GOES_ON}; {remedy}"
        self.assertEqual(interrupted, Outcome(line=line, signal=2))
        for ending, more in (
            (Ending(LINE_LOST), f"; {MAY_GO_ON}; {remedy}"),
            (None, f"; {MAY_GO_ON}; {remedy}"),
            (Ending(COMPLETED), ""),
            (Ending(MACHINE_DELETED), ""),
            (Ending(POOL_DELETED), ""),
            (Ending(POWERED_OFF), ""),
        ):
            lost = scripted_outcome(run, Outcome(1, "lost", ending=ending))
            self.assertEqual(lost, Outcome(FAILED_CODE, f"lost{more}", ending=ending))
        text = f"the writer of this console is ada; you are an observer {HINT}"
        run.noticed(Notice(text, NoticeKind.ROLE, NoticeRole.OBSERVER, "ada", hint=HINT))
        lost = scripted_outcome(run, Outcome())
        self.assertEqual(lost.exit_code, OCCUPIED_CODE)
        self.assertTrue(
            lost.line.endswith(f"(--force takes over); {MAY_GO_ON}; {remedy}"), lost.line
        )

    def test_interrupted_early(self) -> None:
        """Ctrl-C before the command is typed needs no message."""
        _, run, _ = self.begin(b"$ ")
        self.assertEqual(scripted_outcome(run, Outcome(signal=2)), Outcome(signal=2))

    def test_two_runs(self) -> None:
        """A run does not type into the command of another run, which goes on while it has not printed its last mark."""
        running = b"$ \x1b]28747;R0123abcd\x1b\\$ printf\r\n\x1b]28747;B0123abcd\x1b\\"
        ended = running + b"\x1b]28747;E0123abcd:0\x1b\\"
        for shown, is_occupied in (
            (running, True),
            (running + b"output\r\n", True),
            (running + b"^C\r\nvm# ", False),
            (ended, False),
            (ended + running, True),
        ):
            _, _, terminal = self.begin(shown)
            self.assertEqual(self.is_occupied(terminal), is_occupied, shown)
            self.assertEqual(terminal.sent, b"" if is_occupied else b"\x15\r")
            _, _, terminal = self.begin(shown, force=True)
            self.assertEqual((terminal.sent, terminal.outcome), (b"\x15\r", None))

    def test_earlier_run(self) -> None:
        """The program of a command that goes on may be gone: waiting is not the only remedy."""
        _, _, terminal = self.begin(b"\x1b]28747;B0123abcd\x1b\\\r\n")
        assert terminal.outcome is not None
        self.assertIn("the command of an earlier --run has not ended", terminal.outcome.line)
        _, _, terminal = self.begin(b"\x1b]28747;R0123abcd\x1b\\\r\n")
        assert terminal.outcome is not None
        self.assertIn("another kubectl console --run has the shell", terminal.outcome.line)

    def test_earlier_run_of_the_session(self) -> None:
        """A shell that waits behind the probe of the session's earlier command, which was not typed, is its own."""
        clock = Clock()
        run = ShellRun(clock, "id", nonce="0123abcd")
        terminal = Terminal(run)
        run.received(b"\x1b]28747;R0123abcd:\x1b\\\r\n")
        clock.pump([0.1] * 20)
        self.assertIsNone(terminal.outcome)
        self.assertIn(b";R0123abcd", terminal.sent)

    def is_occupied(self, terminal: Terminal) -> bool:
        """Return whether a run ended because of another."""
        if terminal.outcome is None:
            return False
        self.assertRegex(
            terminal.outcome.line,
            "^another kubectl console --run has the shell, so the command was not typed: try again|"
            r"^the command of an earlier --run has not ended, so .*; --send '\\x03' sends it Ctrl-C; at the prompt of a shell --force",
        )
        return terminal.outcome.exit_code == OCCUPIED_CODE

    def test_run_without_others(self) -> None:
        """
        A command goes on after its program was killed, and a run that is alone does not type into it;
        a run that was killed before its command keeps no other run out.
        """
        self.patch(Terminal, "viewers", 1)
        begun = b"\x1b]28747;B0123abcd\x1b\\"
        for shown, is_occupied in (
            (begun, True),
            (begun + b"sure? ", True),
            (begun + b"cat: login: no such file\r\n", True),
            (b"\x1b]28747;R0123abcd\x1b\\", False),
            (begun + b"^C\r\n$ ", False),
            (
                begun
                + b"\r\nDebian GNU/Linux 13 vm ttyS0\r\n\r\nvm login: ada\r\nPassword: \r\nfish\r\n",
                False,
            ),
        ):
            _, _, terminal = self.begin(shown)
            self.assertEqual(self.is_occupied(terminal), is_occupied, shown)
            self.assertEqual(terminal.sent, b"" if is_occupied else b"\x15\r")

    def test_prompt_after_command(self) -> None:
        """A command that a prompt has ended stays forgotten when the shell prints more."""
        clock, run, terminal = self.begin(b"\x1b]28747;B0123abcd\x1b\\^C\r\n$ ")
        run.received(b"\r\n$ ")
        clock.pump([0.1] * 20)
        self.assertIsNone(terminal.outcome)
        self.assertIn(b"printf", terminal.sent)

    def test_login_in_pieces(self) -> None:
        """A login after a reboot ends the command before it, however the output is cut."""
        self.patch(Terminal, "viewers", 1)
        shown = b"\x1b]28747;B0123abcd\x1b\\ten\r\nvm login: ada\r\nfish\r\n"
        for cut in range(len(shown)):
            clock = Clock()
            run = ShellRun(clock, "secret command")
            terminal = Terminal(run)
            run.received(shown[:cut])
            run.received(shown[cut:])
            clock.pump([0.1] * 4)
            self.assertEqual((terminal.sent, terminal.outcome), (b"\x15\r", None), cut)

    def test_attendance_after_output(self) -> None:
        """The runtime tells a session the number of sessions after the old output: a run waits for that."""
        self.patch(Terminal, "viewers", 0)
        answered = b"\x1b]28747;R0123abcd\x1b\\"
        for viewers, more, is_occupied in (
            (2, b"", True),
            (1, b"", False),
            (0, b"", True),  # not told at all
            (2, b"\x1b]28747;E0123abcd:0\x1b\\", False),
        ):
            clock, run, terminal = self.begin(answered)
            self.assertEqual((terminal.sent, terminal.outcome), (b"", None))
            terminal.viewers = viewers
            run.received(more)
            clock.pump([0.1] * 16)
            self.assertEqual(self.is_occupied(terminal), is_occupied, (viewers, more))
            self.assertEqual(terminal.sent[:2], b"" if is_occupied else b"\x15\r")
        for shown, force in ((b"$ ", False), (b"\x1b]28747;B0123abcd\x1b\\", True)):
            _, _, terminal = self.begin(shown, force=force)
            self.assertEqual((terminal.sent, terminal.outcome), (b"\x15\r", None))

    def test_two_runs_at_once(self) -> None:
        """Of two runs that begin at the same time, the first whose probe is answered goes on."""
        self.patch(shell.secrets, "token_hex", lambda _: "89abcdef")
        for typed in (1, 10):  # before and after the own probe is typed
            for is_first in (True, False):
                clock, run, terminal = self.begin(b"$ ")
                clock.pump([0.1] * typed)
                other = b"\x1b]28747;R0123abcd\x1b\\"
                own = b"\x1b]28747;R89abcdef:\x1b\\"
                for byte in (own + other if is_first else other + own) + b"$ ":
                    run.received(bytes([byte]))
                clock.pump([0.1] * 10)
                self.assertIs(self.is_occupied(terminal), not is_first, (typed, is_first))

    def test_left_in_input(self) -> None:
        """However a run ends whose probe was not answered, its user reads what was typed."""
        clock, run, terminal = self.begin(b"$ ")
        interrupted, lost = Outcome(signal=2), Outcome(line="the connection was lost")
        self.assertEqual(scripted_outcome(run, interrupted), interrupted)
        clock.pump([0.1] * 20)
        self.assertEqual(scripted_outcome(run, interrupted).line, f"interrupted; {LEFT}")
        self.assertEqual(scripted_outcome(run, lost).line, f"{lost.line}; {LEFT}")
        off = Outcome(line="off", ending=Ending(POWERED_OFF))
        self.assertEqual(scripted_outcome(run, off).line, "off")
        run.received(b"\r\nvm login: ")
        clock.pump([PROBE_SECONDS] * 2)
        assert terminal.outcome is not None
        line = scripted_outcome(run, terminal.outcome).line
        self.assertRegex(line, f"is at a login prompt .*; {re.escape(LEFT)}\\Z")
        _, run, terminal = self.begin(b"vm login: ")
        assert terminal.outcome is not None
        self.assertNotIn(LEFT, scripted_outcome(run, terminal.outcome).line)

    def test_unanswered(self) -> None:
        """The message for a program that is no shell says what may help, and the last line if there is one."""
        for shown, last in ((b"", ""), (b"mysql> ", '; the last line is "mysql>"')):
            clock, _, terminal = self.begin(shown)
            clock.pump([0.1] * 20)
            self.assertLess(len(terminal.sent.split(b"\r")[1]), 64)  # one row, behind a prompt
            clock.pump([PROBE_SECONDS] * 2)
            assert terminal.outcome is not None
            self.assertEqual(terminal.outcome.exit_code, NO_SHELL_CODE)
            expected = rf"running there (--send '\x03' sends it Ctrl-C){last}"
            self.assertTrue(terminal.outcome.line.endswith(expected), terminal.outcome)

    def test_slow_delivery(self) -> None:
        """The time for an answer begins when the machine has the input, unless nothing of it gets there any more."""
        clock, _, terminal = self.begin(b"$ ")
        terminal.waiting_keys = 40
        clock.pump([0.1] * 20)
        for _ in range(5):
            clock.pump([0.1] * 80)
            terminal.waiting_keys -= 7
        self.assertIsNone(terminal.outcome)
        clock.pump([0.1] * 90)
        self.assertIsNone(terminal.outcome)
        clock.pump([0.1] * 40)
        assert terminal.outcome is not None
        self.assertIn("no shell answered within 10 s", terminal.outcome.line)

    def test_login_prompts(self) -> None:
        """
        At a login prompt nothing is typed.
        """
        for prompt in (
            b"Debian GNU/Linux 13 vm ttyS0\r\n\r\nvm login: ",
            b"\x1b[1mvm\x1b[0m Login:\x1b[m",
            b"vm login: ro",
            b"\r\nlogin: ada@lab",
            b"Password for root: ",
            b"Give root password for maintenance\r\n(or press Control-D to continue): ",
        ):
            _, _, terminal = self.begin(prompt)
            assert terminal.outcome is not None
            self.assertEqual((terminal.sent, terminal.outcome.exit_code), (b"", NO_SHELL_CODE))
            self.assertIn("is at a login prompt", terminal.outcome.line)
        for prompt in (b"$ grep login: ro", b"[root@login: ~]# ", b"login:/etc# ls"):
            _, _, terminal = self.begin(b"\r\n" + prompt)
            self.assertIsNone(terminal.outcome, prompt)

    def test_boot_loaders(self) -> None:
        """
        At a boot loader's prompt nothing is typed: U-Boot repeats its last command after Enter.
        """
        for prompt in (
            b"=> ",
            b"U-Boot> ",
            b"grub> ",
            b"\x1b[0mgrub rescue> ",
            b"iPXE> ",
            b"Shell> ",
            b"FS0:\\> ",
            b"=> bar",
            b"=> ba\b \b",
            b"U-Boot> echo $arch",
            b"barebox@board:/ ls",
            b"grub rescue> ls (hd0)",
            b"FS0:\\EFI> ls",
        ):
            _, _, terminal = self.begin(b"\r\nhit any key\r\n" + prompt)
            assert terminal.outcome is not None, prompt
            self.assertEqual((terminal.sent, terminal.outcome.exit_code), (b"", NO_SHELL_CODE))
            self.assertIn("is at a boot loader's prompt", terminal.outcome.line)
        for prompt in (
            b"$ ",
            b"/ # ",
            b"(initramfs) ",
            b"root@ok:~# ",
            b"[root@grub ~]# ",
            b"ok then",
            b"0 > x",
            b"=>$ ",
            b"=> ~/src $ ",
        ):
            _, _, terminal = self.begin(b"\r\n" + prompt)
            self.assertIsNone(terminal.outcome, prompt)

    def test_questions(self) -> None:
        """
        Nothing is typed at a question of a program: Enter would choose its default.
        """
        for question in (
            b"Continue? [Y/n] ",
            b"Remove 3 packages? [y/N]: ",
            b"Is this ok [y/d/N]: ",
            b"Are you sure (yes/no)? ",
            b"Overwrite (y/n)?",
            b"Continue? [Y/n] n",
            b"Discard [N/y] ",
            b"Are you sure you want to continue connecting (yes/no/[fingerprint])? ",
            b"*** motd (Y/I/N/O/D/Z) [default=N] ? ",
            b"\x1b[7m--More--(33%)\x1b[27m",
        ):
            _, _, terminal = self.begin(b"# apt full-upgrade\r\n" + question)
            assert terminal.outcome is not None, question
            self.assertEqual((terminal.sent, terminal.outcome.exit_code), (b"", NO_SHELL_CODE))
            self.assertIn("is at a program's prompt", terminal.outcome.line)
        for shown in (b"/y/n # ", b"[y/n] $ ", b"(y/n)# "):
            _, _, terminal = self.begin(shown)
            self.assertEqual((terminal.sent, terminal.outcome), (b"\x15\r", None), shown)

    def test_full_screen(self) -> None:
        """
        Nothing is typed into a program on the alternate screen, such as an editor.
        """
        for shown in (
            b"# vi f\r\n\x1b[?1049h\x1b[Hone\r\n~\r\n~\x1b[24;1H1,1 All",
            b"# less f\r\n\x1b[?47h\x1b[H# one\r\nf 33%",
        ):
            _, _, terminal = self.begin(shown)
            line = (
                "a full-screen program is open on the machine; nothing was typed: "
                "open the console to leave it"
            )
            self.assertEqual((terminal.sent, terminal.outcome), (b"", Outcome(NO_SHELL_CODE, line)))

    def test_machine_named(self) -> None:
        """
        The message of ``kubectl console`` names the machine.
        """
        options, clock = parse_options(["web-1", "--run", "id"]), Clock()
        run = make_script(options, clock, StandardStreams())
        assert isinstance(run, ShellRun)
        terminal = Terminal(run)
        run.received(b"=> hv\b \b")
        run.received(b"\b \b")
        clock.pump([0.1] * 4)
        assert terminal.outcome is not None
        line = 'machine "web-1" is at a boot loader\'s prompt ("=>"): '
        self.assertTrue(terminal.outcome.line.startswith(line), terminal.outcome)

    def test_full_screen_left(self) -> None:
        """
        A shell gets the command behind such a program, also if the program was killed and has left its screen.
        """
        for shown in (
            b"\x1b[?1049h~\x1b[?1049l\r\n(initramfs) ",
            b"\x1b[?1049h~\r\nKilled\r\nvm# ",
            b"\x1b[?1049h~\r\nvm% ",
        ):
            _, _, terminal = self.begin(shown)
            self.assertEqual((terminal.sent, terminal.outcome), (b"\x15\r", None), shown)

    def test_full_screen_after_enter(self) -> None:
        """
        Not even the probe is typed into a program that Enter has started.
        """
        clock, run, terminal = self.begin(b"Press Enter to edit the file")
        run.received(b"\r\n\x1b[?1049h~\r\n~")
        clock.pump([0.1] * 10)
        assert terminal.outcome is not None
        self.assertEqual((terminal.sent, terminal.outcome.exit_code), (b"\x15\r", NO_SHELL_CODE))
        self.assertIn("the command was not typed", terminal.outcome.line)

    def test_login_prompt_after_enter(self) -> None:
        """
        A login prompt that a kernel line hid appears after Enter.
        """
        clock, run, terminal = self.begin(b"vm login: [  1.0] usb: found\r\n")
        self.assertEqual(terminal.sent, b"\x15\r")
        run.received(b"\r\nvm login: ")
        clock.pump([0.1] * 10)
        assert terminal.outcome is not None
        self.assertEqual(terminal.outcome.exit_code, NO_SHELL_CODE)
        self.assertEqual(terminal.sent, b"\x15\r")

    def test_observer(self) -> None:
        """
        While another user is the writer, the script fails with a code of its own.
        """
        for name in ("ada", "~f or ada", HINT):
            floor, ada, bob = Floor(Clock()), Person(name), Person("bob")
            floor.join(ada)
            floor.join(bob)
            _, _, terminal = self.begin(noticed=bob.notices[-1])
            line = f"nothing was typed: the writer of this console is {name}; you are an observer (--force takes over)"
            self.assertEqual((terminal.sent, terminal.outcome), (b"", Outcome(OCCUPIED_CODE, line)))

    def test_observer_who_may_not_take_over(self) -> None:
        """The user reads what helps."""
        floor, bob = Floor(Clock()), Person("bob", may_take_over=False)
        floor.join(Person("ada"))
        floor.join(bob)
        _, _, terminal = self.begin(noticed=bob.notices[-1])
        line = (
            "nothing was typed: the writer of this console is ada; you are an observer (wait until it has "
            "no writer, or ask an administrator for the role console-operator)"
        )
        self.assertEqual((terminal.sent, terminal.outcome), (b"", Outcome(OCCUPIED_CODE, line)))

    def test_recorded(self) -> None:
        """
        A refused command with ``--record`` has begun a recording all the same, and says that it goes on.
        """
        observer = Notice("ann types", NoticeKind.ROLE, NoticeRole.OBSERVER, "ann")
        for more, end in ((), ""), (("--record",), f"; {RECORDS_ON}"):
            options = parse_options(["vm", "--run", "id", *more])
            run = make_script(options, Clock(), StandardStreams())
            assert run is not None
            run.noticed(observer)
            outcome = scripted_outcome(run, Outcome())
            self.assertEqual(outcome, Outcome(OCCUPIED_CODE, f"nothing was typed: ann types{end}"))

    def test_no_takeover(self) -> None:
        """
        The message of a script whose user may not take over does not suggest that.
        """
        floor, ada, bob = Floor(Clock()), Person("ada"), Person("bob", may_take_over=False)
        floor.join(ada)
        floor.join(bob, force=True)
        _, _, terminal = self.begin(noticed=bob.notices[-1])
        assert terminal.outcome is not None
        self.assertEqual((terminal.sent, terminal.outcome.exit_code), (b"", OCCUPIED_CODE))
        self.assertIn(
            "you may not take over this console; its writer is ada", terminal.outcome.line
        )
        self.assertNotIn("--force", terminal.outcome.line)

    def test_only_observe(self) -> None:
        """
        A script whose user may only observe types nothing and fails with the reason.
        """
        floor, eve = Floor(Clock()), Person("eve", denied=True)
        floor.join(eve)
        _, _, terminal = self.begin(noticed=eve.notices[-1])
        line = f"the input was not sent: {MAY_ONLY_OBSERVE}"
        self.assertEqual((terminal.sent, terminal.outcome), (b"", Outcome(FAILED_CODE, line)))

    def test_lost_line(self) -> None:
        """
        A machine whose line is lost takes no input.
        """
        clock, run, terminal = self.begin(b"$ ")
        run.noticed(not_sent("the line is lost"))
        clock.pump([0.1])
        self.assertEqual(
            terminal.outcome, Outcome(FAILED_CODE, "the input was not sent: the line is lost")
        )

    def test_machine_ends(self) -> None:
        """
        A command has ended with its machine, even if the session waits for the next boot.
        """
        clock, run, terminal = self.begin(b"$ ")
        text = f"the emulator ended; {WAITS} 60 s for the machine to start again"
        run.noticed(understood(text))
        clock.pump([0.1])
        line = "the machine ended before the command: the emulator ended"
        self.assertEqual(terminal.outcome, Outcome(FAILED_CODE, line))

    def test_ended_by_the_command(self) -> None:
        """A command that ends its machine, or its shell, has no exit code; the message says so."""
        clock, run, terminal = self.begin(b"$ ")
        clock.pump([0.1] * 20)
        run.received(b"\x1b]28747;R%s:\x1b\\$ " % nonce_of(terminal.sent))
        clock.pump([0.1] * 20)
        why = "the process was ended by signal 9"
        line = f"the machine ended during the command, whose exit code is not known: {why}"
        for code in (137, TIMED_OUT_CODE):
            ending = Ending(COMPLETED, why, code)
            outcome = scripted_outcome(run, Outcome(code, "it ended", ending=ending))
            self.assertEqual(outcome, Outcome(FAILED_CODE, line, ending=ending))
        run.noticed(Notice(f"{why}; {WAITS} 60 s", NoticeKind.INTERRUPTED, why=why))
        clock.pump([0.1])
        self.assertEqual(terminal.outcome, Outcome(FAILED_CODE, line))

    def test_take_over_notice(self) -> None:
        """
        Having taken over is no failure, and its notice is not printed.
        """
        for name in ("ada", f"x; you are an observer {HINT}"):
            floor, ada, bob = Floor(Clock()), Person(name), Person("bob")
            floor.join(ada)
            floor.join(bob, force=True)
            _, _, terminal = self.begin(noticed=bob.notices[-1])
            self.assertIsNone(terminal.outcome)

    def test_outage(self) -> None:
        """
        A lost connection stops the time in which a shell must answer the probe.
        """
        clock, run, terminal = self.begin(b"$ ")
        clock.pump([0.1] * 10)
        run.outage()
        clock.advance(PROBE_SECONDS * 10)
        self.assertIsNone(terminal.outcome)
        run.resumed()
        clock.advance(PROBE_SECONDS - 0.1)
        self.assertIsNone(terminal.outcome)
        clock.pump([0.1, 0])
        assert terminal.outcome is not None
        self.assertEqual(terminal.outcome.exit_code, NO_SHELL_CODE)

    def test_marks_byte_by_byte(self) -> None:
        """
        Marks are found however output is split, and output is not held back.
        """
        clock, run, terminal = self.begin(b"$ ")
        clock.pump([0.1] * 10)
        nonce = nonce_of(terminal.sent)
        probe = b"\x1b]28747;R%s:\x1b\\" % nonce
        run.received(b"echo\r\n%s%s$ " % (probe, probe))
        clock.pump([0.1] * 3)
        (line,) = command_lines("secret command", nonce.decode())
        self.assertTrue(terminal.sent.endswith(line + b"\r"))
        text = b"printf B%s;\r\n\x1b[?2004l\x1b]28747;B%s\x1b\\a\x1b]2\x1b\\E\r\nb\r\n" % (
            nonce,
            nonce,
        )
        text += b"\x1b]28747;E%s:7\x1b\\" % nonce * 2 + b"$ "
        printed = b"".join(run.received(text[at : at + 1]) for at in range(len(text)))
        clock.pump([0])
        self.assertEqual((printed, terminal.outcome), (b"a\x1b]2\x1b\\E\nb\n", Outcome(7)))

    def test_kernel_line_in_a_mark(self) -> None:
        """
        A kernel line within the first mark costs the exact output, not the exit code.
        """
        clock, run, terminal = self.begin(b"$ ")
        clock.pump([0.1] * 10)
        nonce = nonce_of(terminal.sent)
        run.received(b"\x1b]28747;R%s:\x1b\\" % nonce)
        clock.pump([0.1] * 3)
        run.received(b"\x1b]28747;B[ 1.0] usb\r\n%s\x1b\\out\r\n" % nonce)
        printed = run.received(
            b"\x1b]28747;E%s[ 2.0] x\r\n:0\x1b\\\x1b]28747;E%s:0\x1b\\$ " % (nonce, nonce)
        )
        clock.pump([0])
        self.assertEqual(terminal.outcome, Outcome())
        self.assertIn(b"out\n", printed)

    def test_lost(self) -> None:
        """A command that the shell does not take whole fails, and so does one that does not begin."""
        for answer, why in (
            (b"\x1b]28747;L%s\x1b\\$ ", "did not arrive whole"),
            (b"echo\r\n> ", "did not begin the command within 10 s"),
        ):
            clock, run, terminal = self.begin(b"$ ")
            clock.pump([0.1] * 10)
            nonce = nonce_of(terminal.sent)
            run.received(b"\x1b]28747;R%s:\x1b\\" % nonce)
            clock.pump([0.1] * 3)
            run.received(answer.replace(b"%s", nonce))
            clock.pump([1] * 12)
            assert terminal.outcome is not None
            self.assertEqual(terminal.outcome.exit_code, NO_SHELL_CODE)
            self.assertIn(why, terminal.outcome.line)

    def test_too_long(self) -> None:
        """
        A command that would be typed for seconds is refused.
        """
        error = self.assertRaises(ValueError, command_lines, "\n" * 5000 + "x", "0" * 16)
        self.assertIn("put it into a file on the machine", str(error))
