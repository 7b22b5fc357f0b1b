"""Tests for :mod:`twisted_exec.runtimes.serving.resume_keys`."""

from __future__ import annotations

import os
from dataclasses import replace

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.runtimes.serving.resume_keys import Holder, ResumeKeys, read_secret
from twisted_exec.wire.keys import digest
from twisted_exec.wire.resume import Position, Resumable, Resume, parse_request

HOLDER = Holder("ann", "uid-x", "s1")
OLDEST = Position("0123456789abcdef", 1 << 40)


class ResumeKeyTests(SynchronousTestCase):
    """Keys of two processes of one runtime."""

    def setUp(self) -> None:
        self.before, self.now = ResumeKeys(b"s" * 32), ResumeKeys(b"s" * 32)
        self.key = self.before.issue(HOLDER, OLDEST)

    def test_recognised(self) -> None:
        """A later process recognises a key, and reads where the session began."""
        self.assertEqual(self.now.recognise(self.key, HOLDER), OLDEST)

    def test_own(self) -> None:
        """The process that issued a key does not take the seal for enough."""
        self.assertIsNone(self.before.recognise(self.key, HOLDER))

    def test_other_holder(self) -> None:
        """A key is worth nothing to other users, at other machines and for other sessions."""
        for change in ({"user": "bob"}, {"machine": "uid-y"}, {"session": "s2"}):
            self.assertIsNone(self.now.recognise(self.key, replace(HOLDER, **change)), change)
        # The parts of a holder cannot be shifted into each other.
        shifted = Holder('ann","uid', "x", "s1")
        self.assertIsNone(self.now.recognise(self.key, shifted))

    def test_other_secret(self) -> None:
        """A key of another runtime is unknown, and so is one of a runtime without a secret."""
        self.assertIsNone(ResumeKeys(b"t" * 32).recognise(self.key, HOLDER))
        self.assertIsNone(ResumeKeys().recognise(self.key, HOLDER))

    def test_changed(self) -> None:
        """Every change of a key makes it worthless, also one of the bits that base64 ignores."""
        for at in range(len(self.key)):
            for char in "A", "B", "_":
                changed = self.key[:at] + char + self.key[at + 1 :]
                if changed != self.key:
                    self.assertIsNone(self.now.recognise(changed, HOLDER), at)

    def test_guesses(self) -> None:
        """Other texts are no keys."""
        for guess in ("", "A", "k" * 43, "A" * 117, "A" * 118, "A" * 128, "\u00e9" * 50, "=" * 60):
            self.assertIsNone(self.now.recognise(guess, HOLDER), guess)
            self.assertEqual(len(digest(guess)), 32)

    def test_form(self) -> None:
        """A key fits into the headers, and no two are alike."""
        self.assertEqual(Resumable.parse(Resumable(self.key, 60).text()).key, self.key)
        request = Resume(self.key, "s" * 64, Position("f" * 16, (1 << 63) - 1))
        self.assertEqual(parse_request(request.text()), request)
        self.assertNotEqual(self.before.issue(HOLDER, OLDEST), self.key)


class SecretTests(SynchronousTestCase):
    """The file with the secret of the seals."""

    def setUp(self) -> None:
        os.mkdir(directory := self.mktemp())
        self.path = os.path.join(directory, "secret")

    def test_created_once(self) -> None:
        """It is created for its owner only, whatever the umask, and read from then on."""
        before = os.umask(0)
        self.addCleanup(os.umask, before)
        secret = read_secret(self.path)
        self.assertEqual((len(secret), os.stat(self.path).st_mode & 0o777), (32, 0o600))
        self.assertEqual(read_secret(self.path), secret)
        self.assertEqual(os.listdir(os.path.dirname(self.path)), ["secret"])

    def test_not_private(self) -> None:
        """A file that others could read, of another size or that is a link, is replaced."""
        for spoil in (
            lambda: os.chmod(self.path, 0o640),
            lambda: os.truncate(self.path, 31),
            lambda: os.truncate(self.path, 33),
            lambda: os.truncate(self.path, 0),
        ):
            secret = read_secret(self.path)
            spoil()
            new = read_secret(self.path)
            self.assertEqual((len(new), new == secret), (32, False))
            self.assertEqual(read_secret(self.path), new)

    def test_cannot_be_written(self) -> None:
        """Without a file the secret lasts for this process; the log says so."""
        path = os.path.join(os.path.dirname(self.path), "missing", "secret")
        self.assertNotEqual(read_secret(path), read_secret(path))
        os.symlink("/dev/zero", self.path)
        self.assertEqual(len(read_secret(self.path)), 32)
