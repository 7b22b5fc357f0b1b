"""Tests for :mod:`twisted_exec.runtimes.lines.password_file`."""

from __future__ import annotations

import os
import stat
import subprocess

from twisted.logger import LogLevel, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from tests.tiers import PROGRAMS
from twisted_exec.runtimes.interfaces import CannotStart
from twisted_exec.runtimes.lines.password_file import (
    askpass_environment,
    read_password,
    write_askpass,
)


class ReadTests(SynchronousTestCase):
    """Reading the file."""

    def write(self, content: bytes, mode: int = 0o600) -> str:
        path = os.path.abspath(self.mktemp())
        with open(path, "wb") as file:
            file.write(content)
        os.chmod(path, mode)
        return path

    def test_password(self) -> None:
        """The password is the first line, without its end."""
        for content in (b"secret", b"secret\n", b"secret\r\n"):
            self.assertEqual(read_password(self.write(content)), b"secret")
        self.assertEqual(read_password(self.write(b" a b \n")), b" a b ")

    def test_refused(self) -> None:
        """What is no password is a condition of the machine, which quotes nothing of the file."""
        for content in (b"", b"\nsecret", b"x" * 1025, b"se\0cret\n"):
            with self.assertRaises(CannotStart) as caught:
                read_password(self.write(content))
            self.assertEqual(caught.exception.condition, "NoPassword")
            self.assertNotIn("cret", caught.exception.message.replace(os.getcwd(), ""))
        for path, why in (("/nonexistent", "No such file"), ("/dev", "Is a directory")):
            with self.assertRaisesRegex(CannotStart, f"{path} cannot be read: {why}"):
                read_password(path)
        fifo = os.path.abspath(self.mktemp())
        os.mkfifo(fifo)
        with self.assertRaisesRegex(CannotStart, "not a regular file"):
            read_password(fifo)

    def test_public(self) -> None:
        """A file that every user of the host can read is used, with a warning."""
        warnings: list[str] = []

        def observe(event: dict[str, object]) -> None:
            if event["log_level"] is LogLevel.warn:
                warnings.append(str(event.get("path")))

        globalLogPublisher.addObserver(observe)  # type: ignore[arg-type]
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        private, public = self.write(b"a"), self.write(b"b", 0o644)
        read_password(private)
        read_password(public)
        self.assertEqual(warnings, [public])


class AskpassTests(SynchronousTestCase):
    """The program that ssh asks."""

    starts = PROGRAMS

    def setUp(self) -> None:
        self.directory = os.path.abspath(self.mktemp())
        os.mkdir(self.directory)
        self.path = os.path.join(self.directory, "pass word")
        with open(self.path, "w") as file:
            file.write("sec ret$HOME\nmore\n")

    def ask(self, question: str) -> bytes | None:
        """Return the answer to a question of ssh, or ``None`` if there is none."""
        program = write_askpass(self.directory)
        environment = {"PATH": os.defpath, **askpass_environment(program, self.path)}
        done = subprocess.run(
            [program, question], env=environment, stdout=subprocess.PIPE, check=False
        )
        return done.stdout if done.returncode == 0 else None

    def test_private(self) -> None:
        """It belongs to its user alone, has no password in it, and is written again."""
        for _ in range(2):
            program = write_askpass(self.directory)
            self.assertEqual(stat.S_IMODE(os.stat(program).st_mode), 0o700)
        with open(program) as file:
            self.assertNotIn("sec ret", file.read())
        with self.assertRaisesRegex(CannotStart, "cannot be written"):
            write_askpass("/nonexistent")

    def test_answers(self) -> None:
        """It answers questions for the password, and no others."""
        for question in ("ann@bmc's password: ", "(ann@bmc) Password: ", "PASSWORD:"):
            self.assertEqual(self.ask(question), b"sec ret$HOME\n", question)
        for question in (
            "New password: ",
            "(newton@bmc) Enter new Password: ",
            "Retype password: ",
            "Enter passphrase for key '/id': ",
            "Are you sure you want to continue connecting (yes/no/[fingerprint])? ",
            "Verification code: ",
        ):
            self.assertIsNone(self.ask(question), question)
        self.assertEqual(self.ask("newton@bmc's password: "), b"sec ret$HOME\n")
